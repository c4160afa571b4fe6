#include "support/hub_server.h"

#include "plat/digest.h"
#include "support/check.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

const char hub_server_commit[] = "0123456789abcdef0123456789abcdef01234567";

enum { REQUEST_MAX = 16 << 10, PIECE_BYTES = 16 << 10 };

/* --- one connection --- */

struct connection {
    const struct hub_server *server;
    int socket;
    bool is_elsewhere; /* came to the other port */
};

struct request {
    char path[1024];
    bool has_range, has_token;
    uint64_t first, last;
};

static bool send_all(int socket, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool read_request(int socket, const struct hub_script *script, struct request *r)
{
    char text[REQUEST_MAX], want[128];
    size_t used = 0;
    *r = (struct request){0};
    do {
        ssize_t n = recv(socket, text + used, sizeof text - 1 - used, 0);
        if (n <= 0) return false;
        used += (size_t)n;
        text[used] = 0;
        if (text[0] != 'G') return false; /* another protocol */
    } while (!strstr(text, "\r\n\r\n") && used < sizeof text - 1);
    if (sscanf(text, "GET %1023s HTTP/1.1", r->path) != 1) return false;
    snprintf(want, sizeof want, "Authorization: Bearer %s\r\n", script->token);
    r->has_token = strstr(text, "Authorization:") != NULL;
    if (r->has_token && script->token[0] && !strstr(text, want)) r->has_token = false;
    const char *range = strstr(text, "Range: bytes=");
    r->has_range = range && sscanf(range, "Range: bytes=%" SCNu64 "-%" SCNu64, &r->first, &r->last) == 2;
    return strstr(text, "Accept-Encoding: identity\r\n") != NULL; /* ranges of a compressed body mean nothing */
}

/* One of so many times. */
static bool take_turn(_Atomic int *n)
{
    int now = atomic_load(n);
    while (now > 0)
        if (atomic_compare_exchange_weak(n, &now, now - 1)) return true;
    return false;
}

static bool answer_status(const struct connection *c, unsigned status, const char *more)
{
    char text[2048];
    static const char body[] = "<html>an error page that must never become a file</html>";
    int n = snprintf(text, sizeof text, "HTTP/1.1 %u Status\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
                     more, body);
    return send_all(c->socket, text, (size_t)n);
}

static bool answer_failure(const struct connection *c, unsigned status)
{
    char more[64] = "";
    unsigned wait = c->server->script->retry_after_s;
    if (wait) snprintf(more, sizeof more, "Retry-After: %u\r\n", wait);
    return answer_status(c, status, more);
}

static bool send_piece(const struct connection *c, const void *data, size_t bytes)
{
    struct hub_script *s = c->server->script;
    if (s->pause_us) usleep(s->pause_us);
    /* Counted first: a client that has its last byte looks at the count before this thread runs again. */
    uint64_t before = atomic_fetch_add(&s->bytes_sent, bytes);
    if (!send_all(c->socket, data, bytes)) {
        atomic_fetch_sub(&s->bytes_sent, bytes);
        return false;
    }
    if (s->kill_at && before < s->kill_at && before + bytes >= s->kill_at && s->victim > 0) kill(s->victim, SIGKILL);
    return true;
}

static bool send_body(const struct connection *c, const struct hub_server_file *file, uint64_t first, uint64_t bytes)
{
    struct hub_script *s = c->server->script;
    bool is_wrong = take_turn(&s->n_wrong);
    uint64_t end = bytes;
    if (s->cut_after && s->cut_after < bytes && take_turn(&s->n_cuts)) end = s->cut_after;
    if (s->stalls) end = bytes / 2;
    for (uint64_t at = 0; at < end;) {
        unsigned char piece[PIECE_BYTES];
        size_t n = end - at < sizeof piece ? (size_t)(end - at) : sizeof piece;
        memcpy(piece, file->data + first + at, n);
        if (is_wrong && at + n == bytes) piece[n - 1] ^= 1;
        if (!send_piece(c, piece, n)) return false;
        at += n;
    }
    while (s->stalls) {
        char nothing;
        if (recv(c->socket, &nothing, 1, 0) <= 0) return false; /* until the other side gives up */
    }
    return end == bytes;
}

static bool answer_file(const struct connection *c, const struct request *r, const struct hub_server_file *file)
{
    char text[512];
    struct hub_script *s = c->server->script;
    uint64_t first = 0, bytes = file->bytes;
    if (r->has_range && s->refuses_ranges) {
        snprintf(text, sizeof text, "Content-Range: bytes */%" PRIu64 "\r\n", file->bytes);
        return answer_status(c, 416, text);
    }
    bool is_part = r->has_range && !s->ignores_ranges;
    if (is_part) {
        atomic_fetch_add(&s->n_ranges, 1);
        if (r->first >= file->bytes || r->last >= file->bytes || r->first > r->last) return answer_status(c, 416, "");
        first = r->first;
        bytes = r->last - r->first + 1;
        if (s->strays && first > 0) first--;
    }
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\n",
                     is_part ? "206 Partial Content" : "200 OK", bytes);
    if (is_part)
        n += snprintf(text + n, sizeof text - (size_t)n, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n",
                      first, first + bytes - 1, file->bytes + s->lies_about_size);
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    return send_all(c->socket, text, (size_t)n) && send_body(c, file, first, bytes);
}

/* Whether an address is this path, with its blanks written as %20. */
static bool is_address_of(const char *address, const char *path)
{
    for (; *path; path++) {
        size_t n = *path == ' ' ? 3 : 1;
        if (strncmp(address, *path == ' ' ? "%20" : path, n) != 0) return false;
        address += n;
    }
    return !*address;
}

static const struct hub_server_file *find_file(const struct hub_server *server, const char *path)
{
    const char *at = strstr(path, "/resolve/");
    const char *name = at ? strchr(at + strlen("/resolve/"), '/') : NULL;
    for (unsigned i = 0; name && i < server->n_files; i++)
        if (is_address_of(name + 1, server->files[i].path)) return &server->files[i];
    return NULL;
}

static bool answer_list(const struct connection *c)
{
    char text[256];
    struct hub_script *s = c->server->script;
    size_t bytes = strlen(s->listing);
    atomic_fetch_add(&s->n_lists, 1);
    if (take_turn(&s->n_list_status)) return answer_failure(c, s->list_status);
    int n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", bytes);
    return send_all(c->socket, text, (size_t)n) && send_all(c->socket, s->listing, bytes);
}

static bool answer(const struct connection *c, const struct request *r)
{
    char more[1200];
    struct hub_script *s = c->server->script;
    if (r->has_token) atomic_fetch_add(c->is_elsewhere ? &s->n_tokens_elsewhere : &s->n_tokens_at_hub, 1);
    if (s->token[0] && !r->has_token && !c->is_elsewhere) return answer_status(c, 401, "");
    if (strncmp(r->path, "/api/models/", 12) == 0) return answer_list(c);
    const struct hub_server_file *file = find_file(c->server, r->path);
    if (!file) return answer_status(c, 404, "");
    if (s->redirects_in_circles) {
        snprintf(more, sizeof more, "Location: %s\r\n", r->path);
        return answer_status(c, 302, more);
    }
    if (s->redirects && !c->is_elsewhere) {
        snprintf(more, sizeof more, "Location: http://127.0.0.1:%u%s?signature=secret\r\n", c->server->other_port,
                 r->path);
        return answer_status(c, 302, more);
    }
    atomic_fetch_add(&s->n_files, 1);
    if (c->is_elsewhere) atomic_fetch_add(&s->n_elsewhere, 1);
    if (take_turn(&s->n_file_status)) return answer_failure(c, s->file_status);
    return answer_file(c, r, file);
}

static void *serve(void *context)
{
    struct connection *c = context;
    struct request r;
    while (read_request(c->socket, c->server->script, &r)) {
        char *query = strchr(r.path, '?');
        if (query) *query = 0;
        if (!answer(c, &r)) break;
    }
    atomic_fetch_sub(&c->server->script->n_connections, 1);
    close(c->socket);
    free(c);
    return NULL;
}

/* --- the process --- */

static void run_server(struct hub_server *server, const int sockets[2])
{
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(sockets[0], &ready);
        FD_SET(sockets[1], &ready);
        if (select((sockets[0] > sockets[1] ? sockets[0] : sockets[1]) + 1, &ready, NULL, NULL, NULL) < 0) continue;
        for (int i = 0; i < 2; i++) {
            if (!FD_ISSET(sockets[i], &ready)) continue;
            struct connection *c = malloc(sizeof *c);
            pthread_t thread;
            int small = 32 << 10, at_once = 1;
            *c =
                (struct connection){.server = server, .socket = accept(sockets[i], NULL, NULL), .is_elsewhere = i == 1};
            if (c->socket < 0) {
                free(c);
                continue;
            }
            setsockopt(c->socket, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
            setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
            atomic_fetch_add(&server->script->n_connections, 1);
            if (pthread_create(&thread, &detached, serve, c) != 0) abort();
        }
    }
}

static int listen_somewhere(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof address) != 0 || listen(s, 64) != 0 ||
        getsockname(s, (struct sockaddr *)&address, &bytes) != 0)
        fail_msg("no socket: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return s;
}

static void digest_all(struct hub_server_file *file)
{
    struct digest digest;
    struct err err = {0};
    if (!digest_init_git_blob(&digest, file->bytes, &err) || !digest_add(&digest, file->data, file->bytes, &err) ||
        !digest_text(&digest, file->sha1, &err))
        fail_msg("%s", err.text);
    digest_fini(&digest);
    if (!digest_init(&digest, &err) || !digest_add(&digest, file->data, file->bytes, &err) ||
        !digest_text(&digest, file->sha256, &err))
        fail_msg("%s", err.text);
    digest_fini(&digest);
}

static void write_listing(struct hub_server *server, unsigned n_files)
{
    char *text = server->script->listing;
    size_t room = HUB_LISTING_MAX;
    size_t n = (size_t)snprintf(text, room, "{\"id\":\"org/name\",\"sha\":\"%s\",\"siblings\":[", hub_server_commit);
    for (unsigned i = 0; i < n_files; i++) {
        const struct hub_server_file *f = &server->files[i];
        n += (size_t)snprintf(text + n, room - n, "%s{\"rfilename\":\"%s\",\"size\":%" PRIu64 ",\"blobId\":\"%s\"",
                              i ? "," : "", f->path, f->bytes, f->sha1);
        if (f->is_large)
            n += (size_t)snprintf(text + n, room - n,
                                  ",\"lfs\":{\"sha256\":\"%s\",\"size\":%" PRIu64 ",\"pointerSize\":134}", f->sha256,
                                  f->bytes);
        n += (size_t)snprintf(text + n, room - n, "}");
    }
    n += (size_t)snprintf(text + n, room - n, "]}");
    assert_true(n < room);
}

/* Connections are taken in order: when one that says nothing sensible has been closed, those before it were taken. */
static void knock(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    char c;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&address, sizeof address) != 0 || send(s, "x", 1, MSG_NOSIGNAL) != 1)
        fail_msg("the server does not answer: %s", strerror(errno));
    while (recv(s, &c, 1, 0) > 0) continue;
    close(s);
}

static void start_over(struct hub_server *server, unsigned n_files)
{
    struct hub_script *s = server->script;
    int n_connections = atomic_load(&s->n_connections);
    memset(s, 0, sizeof *s);
    atomic_store(&s->n_connections, n_connections);
    write_listing(server, n_files);
}

void hub_server_reset(struct hub_server *server, unsigned n_files)
{
    server->script->stalls = false;
    server->script->pause_us = 0;
    knock(server->port);
    knock(server->other_port);
    for (int ms = 0; atomic_load(&server->script->n_connections) > 0; ms++) {
        if (ms == 20000) fail_msg("the server is still busy with %d connections", server->script->n_connections);
        usleep(1000);
    }
    start_over(server, n_files);
}

void hub_server_start(struct hub_server *server, const struct hub_server_file *files, unsigned n_files)
{
    int sockets[2];
    *server = (struct hub_server){.n_files = n_files};
    assert_true(n_files <= HUB_FILES_MAX);
    memcpy(server->files, files, n_files * sizeof *files);
    for (unsigned i = 0; i < n_files; i++) digest_all(&server->files[i]);
    server->script = mmap(NULL, sizeof *server->script, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (server->script == MAP_FAILED) fail_msg("no shared memory: %s", strerror(errno));
    start_over(server, n_files);
    sockets[0] = listen_somewhere(&server->port);
    sockets[1] = listen_somewhere(&server->other_port);
    snprintf(server->endpoint, sizeof server->endpoint, "http://127.0.0.1:%u", server->port);
    fflush(NULL);
    server->pid = fork();
    if (server->pid < 0) fail_msg("fork: %s", strerror(errno));
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_server(server, sockets);
    }
    close(sockets[0]);
    close(sockets[1]);
}

void hub_server_stop(struct hub_server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    munmap(server->script, sizeof *server->script);
}
