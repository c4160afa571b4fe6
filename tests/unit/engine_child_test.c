/* The engine's process, on a thread of the test: what comes back over the stream. */
#include "run/engine_child.h"
#include "run/engine_link.h"
#include "support/check.h"
#include "support/demo_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

struct child {
    struct demo_server demo; /* its settings; no server is started */
    struct alloc alloc;      /* the process's own */
    int fds[2];
    pthread_t thread;
    bool ok;
    struct err err;
    struct buf payload;
};

static void *live(void *context)
{
    struct child *c = context;
    c->ok = engine_child_run(c->fds[1], &c->alloc, &c->demo.service_settings, &c->err);
    close(c->fds[1]);
    return NULL;
}

/* The next frame of this kind; others are dropped. */
static struct link_head next_frame(struct child *c, enum link_kind kind)
{
    struct link_head head;
    do {
        struct pollfd event = {.fd = c->fds[0], .events = POLLIN};
        if (poll(&event, 1, PATIENCE_MS) != 1) fail_msg("nothing comes, and a frame of kind %d was to", (int)kind);
        if (!link_read(c->fds[0], &head, &c->payload)) fail_msg("the stream has ended: %s", c->err.text);
    } while (head.kind != (uint32_t)kind);
    return head;
}

static void start(struct child *c)
{
    struct link_opened opened;
    *c = (struct child){.ok = false};
    demo_server_init(&c->demo);
    buf_init(&c->payload, &c->demo.alloc, LINK_BYTES_MAX);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c->fds), 0);
    assert_int_equal(pthread_create(&c->thread, NULL, live, c), 0);
    next_frame(c, LINK_OPENED);
    assert_true(link_take(&c->payload, &opened, sizeof opened));
    if (!opened.ok) fail_msg("%s", opened.err.text);
}

static void stop(struct child *c)
{
    assert_true(link_send(c->fds[0], LINK_STOP, 0, NULL, 0));
    assert_int_equal(pthread_join(c->thread, NULL), 0);
    assert_true(c->ok);
    assert_int_equal(c->alloc.live, 0);
    close(c->fds[0]);
    buf_fini(&c->payload);
    demo_server_stop(&c->demo);
}

static void submit(struct child *c, uint32_t number)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct link_job job;
    memset(&job, 0, sizeof job);
    job.sampling = c->demo.sampling;
    job.sampling.max_tokens = 1;
    job.n_prompt = sizeof prompt / sizeof *prompt;
    const struct link_part parts[] = {{&job, sizeof job}, {prompt, sizeof prompt}};
    assert_true(link_send(c->fds[0], LINK_SUBMIT, number, parts, 2));
}

static void expect_done(struct child *c, uint32_t number, enum stop_reason reason, const char *says)
{
    struct job_result result;
    struct link_head head = next_frame(c, LINK_DONE);
    assert_int_equal(head.job, number);
    assert_true(link_take(&c->payload, &result, sizeof result));
    assert_int_equal(result.reason, reason);
    assert_non_null(strstr(result.err.text, says));
}

/* Gives its one token the answer that the text of it would. */
static void answer_token(struct child *c)
{
    struct link_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.reason = STOP_NONE;
    const struct link_part part = {&verdict, sizeof verdict};
    struct link_head head = next_frame(c, LINK_TOKEN);
    assert_true(link_send(c->fds[0], LINK_REPLY, head.job, &part, 1));
}

static void a_job_that_cannot_be_taken_ends(void **state)
{
    (void)state;
    struct child c;
    static const char cut[] = "cut";
    const struct link_part part = {cut, sizeof cut};
    start(&c);
    for (uint32_t number = 1; number < 200; number++) { /* more than may be open at a time */
        assert_true(link_send(c.fds[0], LINK_SUBMIT, number, &part, 1));
        expect_done(&c, number, STOP_ERROR, "has no memory for this request");
    }
    submit(&c, 7); /* the others go on */
    answer_token(&c);
    expect_done(&c, 7, STOP_LENGTH, "");
    stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_cannot_be_taken_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
