/* Many clients at once, and very many one after the other, of whom some change their mind.
 *
 * usage: load_test [--full]     1,000 requests with cancels; --full: 10,000
 *
 * A model with random weights answers, so that it is the server that works. Every request asks for the end of its
 * connection, which is how a client knows that an answer is complete. Nothing depends on who is fast. */
#include "serve/server_int.h"
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"
#include "support/made_chat_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 120000, CROWD = 200, RUNNING = 8, WAITING = 64, AT_ONCE = 64, HEAD_BYTES = 4096 };

static struct demo_server demo;
static struct temp_folder folder;
static int n_requests = 1000;
static int n_descriptors; /* of a server that nobody has visited yet */

static int64_t now_ms(void)
{
    return clock_now_ns(clock_real()) / 1000000;
}

static struct service_stats stats(void)
{
    struct service_stats stats;
    service_stats(demo.service, &stats);
    return stats;
}

/* What a process has that could leak. */
struct holdings {
    int64_t allocations, bytes;
    long rss_kb;
};

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static long rss_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
    fclose(file);
    return kb;
}

static bool is_idle(void)
{
    struct service_stats s = stats();
    return s.n_open == 0 && s.scheduler.n_running == 0 && s.scheduler.n_waiting == 0 &&
           httpd_connections(demo.server->http) == 0;
}

/* A connection is forgotten before its socket is closed, so the sockets are waited for as well. */
static struct holdings holdings(void)
{
    int64_t until = now_ms() + DEADLINE_MS;
    while (!is_idle() || count_descriptors() != n_descriptors) {
        if (now_ms() > until)
            fail_msg("%u requests, %u connections, %d descriptors are left, and %d were before anybody came",
                     stats().n_open, httpd_connections(demo.server->http), count_descriptors(), n_descriptors);
        clock_sleep_ns(clock_real(), 1000000);
    }
    assert_null(demo.server->calls);
    /* State belongs to kept prefixes, and to nobody else; when the engine closes it asserts that none is left. */
    struct service_stats s = stats();
    assert_true(s.kv_blocks <= s.prefixes.n_blocks);
    return (struct holdings){.allocations = (int64_t)atomic_load(&demo.alloc.live),
                             .bytes = (int64_t)atomic_load(&demo.alloc.live_bytes),
                             .rss_kb = rss_kb()};
}

/* Prefixes are kept, up to a limit, and a few buffers grow to what was needed once; that much may be more. */
static void compare(const char *what, struct holdings before, struct holdings after)
{
    print_message("%s: allocations %lld to %lld, bytes %lld to %lld, %d descriptors, resident %ld to %ld KB\n", what,
                  (long long)before.allocations, (long long)after.allocations, (long long)before.bytes,
                  (long long)after.bytes, n_descriptors, before.rss_kb, after.rss_kb);
    int64_t kept = (int64_t)stats().kv_blocks * (int64_t)stats().kv_block_bytes;
    assert_true(after.bytes - before.bytes < kept + (1 << 20));
    assert_true(after.allocations - before.allocations < (int64_t)stats().prefixes.n_blocks + 1000);
}

/* --- a client --- */

struct visitor {
    int fd; /* negative: none */
    int number;
    size_t n_got, leaves_after; /* SIZE_MAX: stays to the end */
    bool is_hard;               /* leaves with a reset */
    char head[HEAD_BYTES];      /* the beginning of the answer */
};

static void visit(struct visitor *v, const char *path, const char *json, const char *id)
{
    char extra[128];
    v->fd = client_connect(demo.port);
    v->n_got = 0;
    v->head[0] = 0;
    snprintf(extra, sizeof extra, "Connection: close\r\nx-request-id: %s\r\n", id);
    client_post(v->fd, path, json, extra);
}

static void leave(struct visitor *v)
{
    const struct linger hard = {.l_onoff = 1};
    if (v->is_hard) setsockopt(v->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(v->fd);
    v->fd = -1;
}

/* Reads what is there. False: the visit is over. */
static bool read_more(struct visitor *v)
{
    char data[16384];
    ssize_t n = recv(v->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return true;
    for (ssize_t i = 0; i < n && v->n_got + (size_t)i + 1 < HEAD_BYTES; i++) {
        v->head[v->n_got + (size_t)i] = data[i];
        v->head[v->n_got + (size_t)i + 1] = 0;
    }
    if (n > 0) v->n_got += (size_t)n;
    return n > 0 && v->n_got < v->leaves_after;
}

static int status_of(const struct visitor *v)
{
    return v->n_got > 12 ? atoi(v->head + 9) : 0;
}

/* Waits until somebody can read. */
static void wait_for_any(struct visitor *all, int n)
{
    struct pollfd events[CROWD];
    assert_true(n <= CROWD);
    for (int i = 0; i < n; i++) events[i] = (struct pollfd){.fd = all[i].fd, .events = POLLIN};
    if (poll(events, (nfds_t)n, DEADLINE_MS) == 0) fail_msg("nothing came for %d s", DEADLINE_MS / 1000);
}

/* --- tests --- */

#define SHORT                                                                                                  \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":16,\"ignore_eos\":true,\"seed\":1," \
    "\"temperature\":0}"

/* 200 clients ask at once and ask again when they are told to. Returns how often they were. */
static int serve_crowd(struct visitor *crowd)
{
    int n_left = CROWD, n_refused = 0;
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = (struct visitor){.number = i, .leaves_after = SIZE_MAX};
        visit(&crowd[i], "/v1/chat/completions", SHORT, "crowd");
    }
    while (n_left > 0) {
        wait_for_any(crowd, CROWD);
        for (int i = 0; i < CROWD; i++) {
            struct visitor *v = &crowd[i];
            if (v->fd < 0 || read_more(v)) continue;
            leave(v);
            const char *again = strstr(v->head, "Retry-After: ");
            int status = status_of(v), seconds = again ? atoi(again + 13) : 0;
            if (status == 200) {
                n_left--;
                continue;
            }
            if (status != 429 || seconds < 1 || seconds > 60) fail_msg("client %d got: %s", i, v->head);
            n_refused++;
            visit(v, "/v1/chat/completions", SHORT, "again"); /* at once, which is ruder than what it was told */
        }
    }
    return n_refused;
}

static void a_crowd_is_served(void **state)
{
    (void)state;
    struct visitor *crowd = calloc(CROWD, sizeof *crowd);
    int refused = serve_crowd(crowd);
    struct holdings before = holdings();
    for (int round = 0; round < 3 || (refused == 0 && round < 50); round++) refused += serve_crowd(crowd);
    compare("crowds of 200", before, holdings());
    print_message("%d times told to come later\n", refused);
    assert_true(refused > 0); /* 200 are more than run and wait */
    free(crowd);
}

/* Those who wait are served in the order in which they came. All ask for equally much, so the order of the ends may
 * differ from it by no more than what runs at a time. */
static void first_come_first_served(void **state)
{
    (void)state;
    enum { N = RUNNING + WAITING };
    struct visitor *all = calloc(N, sizeof *all);
    int n_done = 0;
    int64_t until = now_ms() + DEADLINE_MS;
    static const char longer[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":200,"
                                 "\"ignore_eos\":true,\"seed\":1,\"temperature\":0}";
    for (int i = 0; i < N; i++) {
        uint64_t taken = stats().scheduler.n_submitted;
        all[i] = (struct visitor){.number = i, .leaves_after = SIZE_MAX};
        visit(&all[i], "/v1/chat/completions", longer, "row");
        while (stats().scheduler.n_submitted == taken) {
            assert_true(now_ms() < until);
            clock_sleep_ns(clock_real(), 100000);
        }
    }
    while (n_done < N) {
        int first = n_done;
        wait_for_any(all, N);
        for (int i = 0; i < N; i++) {
            if (all[i].fd < 0 || read_more(&all[i])) continue;
            leave(&all[i]);
            assert_int_equal(status_of(&all[i]), 200);
            n_done++;
        }
        /* Nobody is passed over by more than those who run beside it. */
        for (int i = 0; i < N; i++)
            if (all[i].fd >= 0) {
                if (first - i > 2 * RUNNING) fail_msg("client %d still waits when %d have been served", i, first);
                break;
            }
    }
    holdings();
    free(all);
}

static uint32_t below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*seed >> 33) % n);
}

static const char *make_request(uint64_t *seed, char *json, size_t room)
{
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"};
    static const char *const ends[] = {"}", ",\"stream\":true}"};
    uint32_t api = below(seed, 4), words = below(seed, 8) ? 1 + below(seed, 10) : 200;
    char text[1024] = "";
    for (uint32_t i = 0; i < words; i++) strcat(text, i % 2 ? "a " : "7 ");
    size_t n = 0;
    if (api == 1)
        n = (size_t)snprintf(json, room, "{\"prompt\":\"%s\"", text);
    else if (api == 3)
        n = (size_t)snprintf(json, room, "{\"store\":false,\"input\":\"%s\"", text);
    else
        n = (size_t)snprintf(json, room, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]", text);
    snprintf(json + n, room - n, ",\"%s\":%u,\"ignore_eos\":true,\"temperature\":0%s",
             api == 3 ? "max_output_tokens" : "max_tokens", 1 + below(seed, 40), ends[below(seed, 2)]);
    return paths[api];
}

static void send_one(struct visitor *v, int number, uint64_t *seed)
{
    char json[2048], id[32];
    const char *path = make_request(seed, json, sizeof json);
    *v = (struct visitor){.number = number, .leaves_after = SIZE_MAX, .is_hard = below(seed, 2)};
    snprintf(id, sizeof id, "visit-%d", number);
    visit(v, path, json, id);
    switch (below(seed, 8)) {
    case 0: leave(v); break;                                /* at once */
    case 1: v->leaves_after = 1 + below(seed, 4000); break; /* somewhere in the answer */
    case 2: {                                               /* is cancelled by somebody else, if it still goes on */
        char cancel[64];
        struct visitor other = {.leaves_after = SIZE_MAX};
        snprintf(cancel, sizeof cancel, "/v1/requests/%s/cancel", id);
        visit(&other, cancel, "{}", "canceller");
        leave(&other);
        break;
    }
    default: break;
    }
}

static void nothing_stays_of_very_many(void **state)
{
    (void)state;
    struct visitor *all = calloc(AT_ONCE, sizeof *all);
    uint64_t seed = 20261130;
    int n_sent = 0, n_open, statuses[600] = {0};
    struct holdings before = {0};
    for (int i = 0; i < AT_ONCE; i++) all[i].fd = -1;
    do {
        n_open = 0;
        for (int i = 0; i < AT_ONCE; i++) {
            if (all[i].fd >= 0 && !read_more(&all[i])) {
                int status = status_of(&all[i]);
                statuses[status > 0 && status < 600 ? status : 0]++;
                leave(&all[i]);
            }
            if (all[i].fd < 0 && n_sent < n_requests) send_one(&all[i], n_sent++, &seed);
            n_open += all[i].fd >= 0;
        }
        if (n_open == AT_ONCE) wait_for_any(all, AT_ONCE);
        if (n_sent >= n_requests / 10 && before.rss_kb == 0) { /* everybody is let go, and it is warm */
            for (int i = 0; i < AT_ONCE; i++)
                if (all[i].fd >= 0) leave(&all[i]);
            before = holdings();
        }
    } while (n_open > 0 || n_sent < n_requests);
    print_message(
        "seed %d: %d requests: %d answered, %d cancelled by id, %d told to come later, %d without an answer\n",
        20261130, n_requests, statuses[200], statuses[400], statuses[429], statuses[0]);
    compare("requests with cancels", before, holdings());
    assert_true(statuses[200] > n_requests / 10);
    assert_true(stats().scheduler.n_done[STOP_CANCELLED] > 0);
    assert_int_equal(stats().scheduler.n_done[STOP_ERROR], 0);
    assert_int_equal(statuses[500] + statuses[503] + statuses[504], 0);
    const struct server_counts *c = &demo.server->counts;
    assert_int_equal(atomic_load(&c->n_requests), atomic_load(&c->n_ok) + atomic_load(&c->n_refused) +
                                                      atomic_load(&c->n_failed) + atomic_load(&c->n_left));
    free(all);
}

static void drop_line(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static int start(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    made_chat_model_write(&folder);
    demo_server_init_at(&demo, folder.path);
    demo.service_settings.engine.n_sequences = RUNNING;
    demo.service_settings.n_waiting_max = WAITING;
    demo.settings.log = drop_line;
    demo_server_start(&demo);
    n_descriptors = count_descriptors();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    temp_folder_remove(&folder);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--full") == 0) n_requests = 10000;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_is_served),
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(nothing_stays_of_very_many),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
