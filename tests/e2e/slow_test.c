/* A prompt that takes minutes: clients that give up after five seconds of silence stay, on every API that streams.
 *
 * usage: slow_test [--true]
 *
 * Normally the server's clock is the test's own, and the disk gives nothing until it may: the longest prefill there is.
 * The clock goes on by the interval of --keep-alive, and each time every client must hear something that its parser
 * sees; 40 times are more than two minutes. With --true the clock is real, each read takes 100 ms, and the clients keep
 * time themselves. */
#include "cli/options.h"
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

enum { APIS = 4, IDLE_S = 5, PREFILL_S = 120, DEADLINE_MS = 30000, READ_MS = 100, WORDS = 300, WORDS_TRUE = 1100 };

static struct demo_server demo;
static bool is_true;

/* --- a disk behind a gate, or one that is slow --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_closed;
    unsigned n_waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static atomic_bool is_slow;

static void set_gate(bool is_closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.is_closed = is_closed;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
}

static unsigned n_at_gate(void)
{
    pthread_mutex_lock(&gate.lock);
    unsigned n = gate.n_waiting;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

static int do_open(void *context, const char *path, int flags)
{
    (void)context;
    return file_system_real().ops->open(NULL, path, flags);
}

static int do_stat(void *context, int descriptor, struct stat *out)
{
    (void)context;
    return file_system_real().ops->stat(NULL, descriptor, out);
}

static ssize_t do_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    (void)context;
    pthread_mutex_lock(&gate.lock);
    gate.n_waiting++;
    while (gate.is_closed) pthread_cond_wait(&gate.opened, &gate.lock);
    gate.n_waiting--;
    pthread_mutex_unlock(&gate.lock);
    if (atomic_load(&is_slow)) clock_sleep_ns(clock_real(), READ_MS * INT64_C(1000000));
    return file_system_real().ops->pread(NULL, descriptor, buffer, bytes, offset);
}

static int do_close(void *context, int descriptor)
{
    (void)context;
    return file_system_real().ops->close(NULL, descriptor);
}

static const struct file_ops gate_ops = {.open = do_open, .stat = do_stat, .pread = do_pread, .close = do_close};

static bool make_pool(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    (void)context;
    return aio_pool_new(aio, alloc, depth, is_true ? 1 : 4, err);
}

/* --- a clock that the test moves --- */

static _Atomic int64_t time_ns = NS_PER_S;

static int64_t our_now(void *context)
{
    (void)context;
    return atomic_load(&time_ns);
}

static void our_sleep(void *context, int64_t ns)
{
    (void)context;
    clock_sleep_ns(clock_real(), ns);
}

static const struct clock_ops our_clock = {.now_ns = our_now, .sleep_ns = our_sleep};

/* --- clients --- */

struct listener {
    const char *path;
    int fd;
    char text[1 << 18]; /* what came, since it was last looked at */
    size_t n;
    uint64_t n_events;
    int64_t longest_ns, first_ns; /* between two events; until the first token */
    bool has_ended;
};

static int64_t now_ns(void)
{
    return clock_now_ns(clock_real());
}

static void ask(struct listener *l, const char *path)
{
    int n_words = is_true ? WORDS_TRUE : WORDS;
    size_t room = (size_t)n_words * 4 + 512, n;
    char *json = malloc(room);
    l->path = path;
    n = (size_t)snprintf(json, room, "{\"stream\":true,\"%s\":8,",
                         strstr(path, "responses") ? "max_output_tokens" : "max_tokens");
    bool is_text = strstr(path, "responses") || strstr(path, "/completions") == path + 3;
    n += (size_t)snprintf(json + n, room - n, "%s",
                          strstr(path, "responses") ? "\"input\":\""
                          : is_text                 ? "\"prompt\":\""
                                                    : "\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < n_words; i++) n += (size_t)snprintf(json + n, room - n, "%d ", (i * 7) % 10);
    snprintf(json + n, room - n, "%s", is_text ? "\"}" : "\"}]}");
    l->fd = client_connect(demo.port);
    client_post(l->fd, path, json, "Connection: close\r\n");
    free(json);
}

/* Events with data, which is what a parser tells its reader of. */
static void count_events(struct listener *l)
{
    l->n_events = 0;
    for (const char *at = l->text; (at = strstr(at, "data: ")); at++) l->n_events++;
}

static bool has_token(const struct listener *l)
{
    static const char *const signs[] = {"\"delta\":{\"content\":\"", "content_block_delta", "output_text.delta",
                                        "\"finish_reason\":\"length\""};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (strstr(l->text, signs[i])) return true;
    return false;
}

/* Reads what comes within so many ms. False: nothing did. */
static bool listen_for(struct listener *l, int ms)
{
    struct pollfd event = {.fd = l->fd, .events = POLLIN};
    if (l->has_ended || poll(&event, 1, ms) != 1) return false;
    assert_true(l->n + 1 < sizeof l->text);
    ssize_t n = recv(l->fd, l->text + l->n, sizeof l->text - 1 - l->n, 0);
    l->has_ended = n <= 0;
    if (n > 0) l->n += (size_t)n;
    l->text[l->n] = 0;
    count_events(l);
    return true;
}

static void check_end(const struct listener *l)
{
    const char *end = strstr(l->path, "messages")    ? "message_stop"
                      : strstr(l->path, "responses") ? "response.incomplete"
                                                     : "data: [DONE]";
    if (!strstr(l->text, end)) fail_msg("%s does not end well:\n%s", l->path, l->text);
}

static const char *const paths[APIS] = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"};

/* Waits in real time for what the clock has brought about. */
static void must_hear(struct listener *l, uint64_t n_events)
{
    int64_t until = now_ns() + DEADLINE_MS * INT64_C(1000000);
    while (l->n_events < n_events) {
        listen_for(l, 1000);
        if (l->has_ended || now_ns() > until)
            fail_msg("%s: %llu events, wanted %llu:\n%s", l->path, (unsigned long long)l->n_events,
                     (unsigned long long)n_events, l->text);
    }
}

static void silence_is_broken_while_nothing_happens(void **state)
{
    (void)state;
    int64_t step = demo.settings.keep_alive_ns;
    struct listener *all = calloc(APIS, sizeof *all);
    if (is_true) skip();
    assert_true(step < IDLE_S * NS_PER_S);
    set_gate(true);
    for (int i = 0; i < APIS; i++) ask(&all[i], paths[i]);
    while (n_at_gate() == 0) clock_sleep_ns(clock_real(), 1000000);
    /* Those that do not start at once begin their streams after two seconds in the queue, which begin when a worker has
     * got to them: until all have begun, the clock goes on. */
    int64_t until = now_ns() + DEADLINE_MS * INT64_C(1000000);
    for (int n_begun = 0; n_begun < APIS;) {
        assert_true(now_ns() < until);
        atomic_fetch_add(&time_ns, 2 * NS_PER_S);
        for (int i = n_begun = 0; i < APIS; i++) {
            listen_for(&all[i], 100);
            n_begun += all[i].n_events > 0;
        }
    }
    int n_steps = 0;
    for (int64_t t = 0; t < PREFILL_S * NS_PER_S; t += step, n_steps++) {
        uint64_t before[APIS];
        for (int i = 0; i < APIS; i++) before[i] = all[i].n_events;
        atomic_fetch_add(&time_ns, step);
        for (int i = 0; i < APIS; i++) must_hear(&all[i], before[i] + 1);
    }
    for (int i = 0; i < APIS; i++) assert_false(has_token(&all[i]));
    set_gate(false);
    for (int i = 0; i < APIS; i++) {
        while (!all[i].has_ended) listen_for(&all[i], DEADLINE_MS);
        check_end(&all[i]);
        close(all[i].fd);
    }
    print_message("%d times %lld ms of silence were broken on %d APIs\n", n_steps, (long long)(step / 1000000), APIS);
    free(all);
}

static void five_seconds_are_never_silent(void **state)
{
    (void)state;
    if (!is_true) skip();
    struct listener *all = calloc(APIS, sizeof *all);
    int64_t start = now_ns(), last[APIS];
    int n_open = APIS;
    atomic_store(&is_slow, true);
    for (int i = 0; i < APIS; i++) {
        ask(&all[i], paths[i]);
        last[i] = now_ns();
    }
    while (n_open > 0) {
        n_open = 0;
        for (int i = 0; i < APIS; i++) {
            uint64_t before = all[i].n_events;
            listen_for(&all[i], 10);
            int64_t now = now_ns();
            if (all[i].n_events > before || all[i].has_ended) {
                if (now - last[i] > all[i].longest_ns) all[i].longest_ns = now - last[i];
                last[i] = now;
            }
            if (all[i].first_ns == 0 && has_token(&all[i])) {
                all[i].first_ns = now - start;
                if (i == 0) atomic_store(&is_slow, false); /* the prompts of all go together */
            }
            if (!all[i].has_ended && now - last[i] > IDLE_S * NS_PER_S) fail_msg("%s was silent", paths[i]);
            n_open += !all[i].has_ended;
        }
    }
    for (int i = 0; i < APIS; i++) {
        print_message("%s: first token after %.1f s, %llu events, longest silence %.2f s\n", paths[i],
                      (double)all[i].first_ns / 1e9, (unsigned long long)all[i].n_events,
                      (double)all[i].longest_ns / 1e9);
        check_end(&all[i]);
        close(all[i].fd);
    }
    assert_true(all[0].first_ns >= PREFILL_S * NS_PER_S);
    free(all);
}

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo.service_settings.fs = (struct file_system){.ops = &gate_ops};
    demo.service_settings.engine.experts_resident = 0.2;
    demo.service_settings.engine.streamed.device.make = make_pool;
    demo.service_settings.engine.prompt_cache_bytes = 0;
    demo.settings.keep_alive_ns = strtoll(options_find("keep-alive")->initial, NULL, 10) * NS_PER_S;
    demo.settings.queue_ns_max = 600 * NS_PER_S;
    if (!is_true) demo.settings.clock = (struct clock){.ops = &our_clock};
    demo_server_start(&demo);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

int main(int argc, char **argv)
{
    is_true = argc > 1 && strcmp(argv[1], "--true") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_broken_while_nothing_happens),
        cmocka_unit_test(five_seconds_are_never_silent),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
