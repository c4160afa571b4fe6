/* What goes wrong below an engine that runs, one thing at a time: each has its stated outcome, nothing is left over,
 * and where the model's files are still good the engine goes on with the right answers, as a server has to. */
#include "run/session.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 12, VOCAB = 40 };

static struct temp_folder folder;
static uint32_t tokens[TOKENS];
static float truth[TOKENS][VOCAB];

/* A device that is well, until it is told which file has a fault at which place. */
struct sick_device {
    struct sim_clock clock;
    struct aio_sim sim;
    int error;
    uint64_t from, to;  /* bytes of any file */
    const char *folder; /* only files in here are sick, and are counted; NULL: all */
    uint64_t n_in_folder, n_elsewhere;
};

static int fault(void *context, const struct aio_read *read)
{
    struct sick_device *d = context;
    bool is_in = !d->folder || strncmp(read->file->path, d->folder, strlen(d->folder)) == 0;
    d->n_in_folder += is_in;
    d->n_elsewhere += !is_in;
    return is_in && read->offset < d->to && read->offset + read->bytes > d->from ? d->error : 0;
}

static bool make_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    struct sick_device *d = context;
    d->sim.fault = fault;
    d->sim.fault_context = d;
    return aio_sim_new(aio, alloc, depth, &d->sim, &d->clock, err);
}

static struct engine_settings settings_for(struct sick_device *device)
{
    struct engine_settings s = engine_settings_default(folder.path);
    s.n_threads = 1;
    s.context_tokens = 32;
    s.prompt_cache_bytes = 0;
    s.ram_budget_bytes = UINT64_C(1) << 29;
    s.experts_resident = 0.2; /* of so few experts: one or two slots */
    s.streamed.direct = DIRECT_OFF;
    if (!device) return s;
    s.streamed.device = (struct device_source){make_device, device};
    s.streamed.clock = clock_simulated(&device->clock);
    return s;
}

struct bench {
    struct alloc alloc;
    struct engine *engine;
    struct session session;
};

static void bench_open(struct bench *b, const struct engine_settings *settings, struct file_system fs)
{
    struct err err = {0};
    *b = (struct bench){0};
    if (!engine_open(&b->engine, &b->alloc, fs, settings, &err)) fail_msg("%s", err.text);
    session_init(&b->session, b->engine);
}

static void bench_close(struct bench *b)
{
    session_fini(&b->session);
    engine_close(b->engine);
    assert_int_equal(b->alloc.live, 0);
}

static bool feed_one(struct bench *b, struct err *err)
{
    uint32_t at = session_tokens(&b->session);
    *err = (struct err){0};
    return session_feed(&b->session, tokens + at, 1, NULL, NULL, err);
}

/* All tokens that are left, one at a time, each with the right logits. */
static void feed_the_rest(struct bench *b)
{
    struct err err;
    for (uint32_t at = session_tokens(&b->session); at < TOKENS; at++) {
        if (!feed_one(b, &err)) fail_msg("%s", err.text);
        assert_memory_equal(b->session.logits, truth[at], sizeof truth[at]);
    }
}

static void write_model(void)
{
    struct made_model made;
    made_model_tiny(&made);
    made_write(&made, folder.path);
    made_model_fini(&made);
}

static int make_model_and_truth(void **state)
{
    (void)state;
    struct bench b;
    struct err err;
    temp_folder_make(&folder);
    write_model();
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (i * 11 + 5) % VOCAB;
    struct engine_settings settings = settings_for(NULL);
    settings.experts_resident = 1;
    bench_open(&b, &settings, file_system_real());
    for (uint32_t i = 0; i < TOKENS; i++) {
        if (!feed_one(&b, &err)) fail_msg("%s", err.text);
        memcpy(truth[i], b.session.logits, sizeof truth[i]);
    }
    bench_close(&b);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static const struct tensor *an_expert(const struct bench *b)
{
    return engine_inventory(b->engine)->layers[1].experts[0][EXPERT_UP].payload;
}

static void assert_names(const struct err *err, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(err->text, *words)) fail_msg("'%s' is not in: %s", *words, err->text);
}

/* Fails on the way to the end, says why, and goes on as soon as the disk is well. */
static void fails_and_goes_on(int error, const char *const *words)
{
    struct sick_device device = {.to = UINT64_MAX};
    struct engine_settings settings = settings_for(&device);
    struct bench b;
    struct err err = {0};
    bench_open(&b, &settings, file_system_real());
    device.from = an_expert(&b)->offset & ~UINT64_C(4095);
    for (int round = 0; round < 3; round++) {
        device.error = error;
        uint32_t held = session_tokens(&b.session);
        if (feed_one(&b, &err)) fail_msg("round %d: nothing failed", round);
        printf("%s\n", err.text);
        assert_int_equal(err.kind, ERR_IO);
        assert_names(&err, words);
        assert_int_equal(session_tokens(&b.session), held); /* the sequence has not moved */
        assert_int_equal(slots_stats(streamed_slots(engine_streamed(b.engine)))->n_leased, 0);
        device.error = 0;
        if (!feed_one(&b, &err)) fail_msg("%s", err.text);
        assert_memory_equal(b.session.logits, truth[held], sizeof truth[held]);
    }
    feed_the_rest(&b);
    bench_close(&b);
}

static void eio_fails_the_pass_and_the_engine_goes_on(void **state)
{
    (void)state;
    static const char *const words[] = {".safetensors",       "mlp.experts.", "offset",
                                        "Input/output error", "tried again",  NULL};
    fails_and_goes_on(EIO, words);
}

static void other_errors_too(void **state)
{
    (void)state;
    static const char *const words[] = {".safetensors", "mlp.experts.", "offset", "Cannot allocate", NULL};
    fails_and_goes_on(ENOMEM, words);
}

static void delays_short_reads_and_interruptions_only_cost_time(void **state)
{
    (void)state;
    struct sick_device device = {.sim = {.seed = 3,
                                         .delay_ns_min = INT64_C(1000000000),
                                         .delay_ns_max = INT64_C(9000000000),
                                         .short_chance = 500,
                                         .interrupt_chance = 300}};
    struct engine_settings settings = settings_for(&device);
    struct bench b;
    bench_open(&b, &settings, file_system_real());
    feed_the_rest(&b);
    const struct reader_stats *stats = reader_stats(streamed_reader(engine_streamed(b.engine)));
    assert_true(stats->n_short > 10);
    assert_true(stats->n_interrupted > 10);
    assert_true(streamed_stats(engine_streamed(b.engine))->waited_ns > INT64_C(10000000000));
    bench_close(&b);
}

/* The model is over: the pass says which file and why, and so does every later pass, also when it needs no read. */
static void assert_over(struct bench *b, const char *const *words)
{
    struct err err = {0};
    uint32_t n = 0;
    while (n < TOKENS && session_tokens(&b->session) < TOKENS && feed_one(b, &err)) n++;
    printf("after %u more tokens: %s\n", n, err.text);
    assert_int_equal(err.kind, ERR_DATA);
    assert_names(&err, words);
    for (int again = 0; again < 3; again++) {
        assert_false(feed_one(b, &err));
        assert_int_equal(err.kind, ERR_DATA);
        assert_names(&err, words);
    }
}

static void a_shard_that_is_cut_is_the_end_of_the_model(void **state)
{
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        struct engine_settings settings = settings_for(NULL);
        struct bench b;
        struct err err;
        settings.streamed.direct = is_direct ? DIRECT_ON : DIRECT_OFF;
        bench_open(&b, &settings, file_system_real());
        if (!feed_one(&b, &err)) fail_msg("%s", err.text);
        const struct tensor *t = an_expert(&b);
        const char *path = engine_inventory(b.engine)->catalogue->shards[t->shard].file.path;
        if (truncate(path, (off_t)(t->offset + 1)) != 0) fail_msg("%s: cannot be cut", path);
        static const char *const words[] = {".safetensors", "changed while in use", "when opened", NULL};
        assert_over(&b, words);
        bench_close(&b);
        write_model();
    }
}

struct cut {
    const char *path;
    uint64_t bytes;
};

static bool cut_in_the_pass(void *context, uint32_t layer)
{
    const struct cut *cut = context;
    if (layer == 1 && truncate(cut->path, (off_t)cut->bytes) != 0) fail_msg("%s: cannot be cut", cut->path);
    return true;
}

/* The read that fails tells what came of it; the pass tells what happened. */
static void a_shard_that_is_cut_in_the_middle_of_a_pass_too(void **state)
{
    (void)state;
    struct engine_settings settings = settings_for(NULL);
    struct bench b;
    struct err err;
    bench_open(&b, &settings, file_system_real());
    const struct tensor *t = an_expert(&b);
    const struct cut cut = {engine_inventory(b.engine)->catalogue->shards[t->shard].file.path, 4096};
    forward_set_poll(engine_forward(b.engine), cut_in_the_pass, (void *)(uintptr_t)&cut);
    assert_false(feed_one(&b, &err));
    static const char *const words[] = {".safetensors", "changed while in use", "when opened", NULL};
    printf("%s\n", err.text);
    assert_names(&err, words);
    assert_over(&b, words);
    bench_close(&b);
    write_model();
}

static void a_shard_that_is_replaced_is_the_end_of_the_model(void **state)
{
    (void)state;
    struct engine_settings settings = settings_for(NULL);
    struct bench b;
    struct err err;
    bench_open(&b, &settings, file_system_real());
    if (!feed_one(&b, &err)) fail_msg("%s", err.text);
    const char *path = engine_inventory(b.engine)->catalogue->shards[an_expert(&b)->shard].file.path;
    size_t bytes;
    unsigned char *data = take_file(path, &bytes);
    const char *other = temp_path(&folder, "other.tmp");
    put_file(other, data, bytes);
    free(data);
    assert_int_equal(rename(other, path), 0); /* the same bytes: still not the file that was opened */
    static const char *const words[] = {".safetensors", "deleted or replaced", NULL};
    assert_over(&b, words);
    bench_close(&b);
}

static bool replace_in_the_pass(void *context, uint32_t layer)
{
    const char *path = context;
    size_t bytes;
    if (layer != 1) return true;
    unsigned char *data = take_file(path, &bytes);
    const char *other = temp_path(&folder, "other.tmp");
    put_file(other, data, bytes);
    free(data);
    if (rename(other, path) != 0) fail_msg("%s: cannot be replaced", path);
    return true;
}

/* What is open stays readable, so this pass may end well; the next ones may not. */
static void a_shard_that_is_replaced_in_the_middle_of_a_pass_too(void **state)
{
    (void)state;
    struct engine_settings settings = settings_for(NULL);
    struct bench b;
    struct err err;
    bench_open(&b, &settings, file_system_real());
    const char *path = engine_inventory(b.engine)->catalogue->shards[an_expert(&b)->shard].file.path;
    forward_set_poll(engine_forward(b.engine), replace_in_the_pass, (void *)(uintptr_t)path);
    if (feed_one(&b, &err)) assert_memory_equal(b.session.logits, truth[0], sizeof truth[0]);
    forward_set_poll(engine_forward(b.engine), NULL, NULL);
    static const char *const words[] = {".safetensors", "deleted or replaced", NULL};
    assert_over(&b, words);
    bench_close(&b);
}

/* The MTP layer's passes are passes: they look at the files and keep the budget. */
static void passes_of_the_mtp_layer_are_looked_after(void **state)
{
    (void)state;
    struct engine_settings settings = settings_for(NULL);
    settings.experts_resident = 1; /* slots enough that some can go back */
    struct bench b;
    struct err err = {0};
    bench_open(&b, &settings, file_system_real());
    assert_int_equal(engine_inventory(b.engine)->mtp, CAPABILITY_PRESENT);
    if (!feed_one(&b, &err)) fail_msg("%s", err.text);
    const float *hidden = forward_final(engine_forward(b.engine), 0);
    const struct forward_mtp_row row = {.kv = &b.session.kv, .token = tokens[1], .position = 0, .hidden = hidden};
    streamed_set_budget(engine_streamed(b.engine), 1);
    uint64_t n_shrinks = streamed_guard(engine_streamed(b.engine))->n_shrinks;
    if (!engine_mtp(b.engine, &row, 1, &err)) fail_msg("%s", err.text);
    assert_int_equal(b.session.kv.n_mtp_rows, 1);
    assert_true(streamed_guard(engine_streamed(b.engine))->n_shrinks > n_shrinks);
    const char *path = engine_inventory(b.engine)->catalogue->shards[an_expert(&b)->shard].file.path;
    if (truncate(path, 4096) != 0) fail_msg("%s: cannot be cut", path);
    session_rewind(&b.session, 0);
    int n = 0;
    while (n < 64 && engine_mtp(b.engine, &row, 1, &err)) {
        b.session.kv.n_mtp_rows = 0;
        n++;
    }
    printf("after %d more: %s\n", n, err.text);
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "changed while in use"));
    static const char *const words[] = {".safetensors", "changed while in use", NULL};
    assert_over(&b, words);
    bench_close(&b);
    write_model();
}

/* A crash loses at most what the last few minutes added to the history. */
static void the_history_is_written_while_the_model_is_open(void **state)
{
    (void)state;
    struct temp_folder histories;
    struct sick_device device = {.to = UINT64_MAX};
    struct engine_settings settings = settings_for(&device);
    struct bench b;
    struct err err;
    char path[512], note[STREAMED_NOTE_MAX];
    temp_folder_make(&histories);
    settings.streamed.usage_folder = histories.path;
    bench_open(&b, &settings, file_system_real());
    const uint8_t *identity = engine_inventory(b.engine)->catalogue->identity;
    int n = snprintf(path, sizeof path, "%s/usage-", histories.path);
    for (int i = 0; i < 8; i++) n += snprintf(path + n, sizeof path - (size_t)n, "%02x", identity[i]);
    if (!feed_one(&b, &err)) fail_msg("%s", err.text);
    assert_false(file_exists(path));
    clock_sleep_ns(clock_simulated(&device.clock), INT64_C(301000000000));
    if (!feed_one(&b, &err)) fail_msg("%s", err.text);
    assert_true(file_exists(path));
    assert_false(streamed_take_note(engine_streamed(b.engine), note));

    temp_folder_remove(&histories); /* nowhere to write any more: told once, and no reason to stop */
    for (int i = 0; i < 3; i++) {
        clock_sleep_ns(clock_simulated(&device.clock), INT64_C(301000000000));
        if (!feed_one(&b, &err)) fail_msg("%s", err.text);
        assert_int_equal(streamed_take_note(engine_streamed(b.engine), note), i == 0);
    }
    printf("%s\n", note);
    assert_non_null(strstr(note, "will not be remembered"));
    feed_the_rest(&b);
    bench_close(&b);
}

/* --- mirrors --- */

static void copy_model(const struct temp_folder *to)
{
    struct made_model made;
    made_model_tiny(&made);
    made_write(&made, to->path);
    made_model_fini(&made);
}

static struct engine_settings settings_with_mirror(struct sick_device *device, const char *const *mirror)
{
    struct engine_settings settings = settings_for(device);
    settings.streamed.mirrors = mirror;
    settings.streamed.n_mirrors = 1;
    return settings;
}

static void a_mirror_shares_the_reads_and_may_fail(void **state)
{
    (void)state;
    struct temp_folder mirror;
    struct bench b;
    char note[STREAMED_NOTE_MAX];
    temp_folder_make(&mirror);
    copy_model(&mirror);
    const char *const mirrors[] = {mirror.path};
    struct sick_device device = {.to = UINT64_MAX, .folder = mirror.path};
    struct engine_settings settings = settings_with_mirror(&device, mirrors);

    bench_open(&b, &settings, file_system_real());
    device.n_in_folder = device.n_elsewhere = 0;
    feed_the_rest(&b);
    printf("%d reads in the mirror, %d elsewhere\n", (int)device.n_in_folder, (int)device.n_elsewhere);
    assert_true(device.n_in_folder > 5);
    assert_true(device.n_elsewhere > 5);
    assert_false(streamed_take_note(engine_streamed(b.engine), note));
    bench_close(&b);

    bench_open(&b, &settings, file_system_real());
    device.error = EIO; /* from here on, for good */
    feed_the_rest(&b);
    assert_true(slots_stats(streamed_slots(engine_streamed(b.engine)))->n_fallbacks > 0);
    assert_true(streamed_take_note(engine_streamed(b.engine), note));
    assert_non_null(strstr(note, mirror.path));
    assert_false(streamed_take_note(engine_streamed(b.engine), note));
    device.n_in_folder = 0;
    session_rewind(&b.session, 0);
    feed_the_rest(&b);
    assert_int_equal(device.n_in_folder, 0);
    bench_close(&b);
    temp_folder_remove(&mirror);
}

/* Other bytes where the experts are, of the same number, in the file that is open. */
static void write_over_experts(const struct bench *b, const struct temp_folder *to)
{
    const struct catalogue *catalogue = engine_inventory(b->engine)->catalogue;
    for (uint32_t i = 0; i < catalogue->n_tensors; i++) {
        const struct tensor *t = &catalogue->tensors[i];
        const char *original = catalogue->shards[t->shard].file.path;
        const char *path = temp_path(to, strrchr(original, '/') + 1);
        unsigned char *other = malloc(t->bytes);
        if (!strstr(t->name, ".mlp.experts.") || strstr(t->name, ".qs")) goto next;
        memset(other, 0x35, t->bytes);
        int fd = open(path, O_WRONLY);
        static const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}}; /* the clock may be coarse */
        if (fd < 0 || pwrite(fd, other, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes || futimens(fd, times) != 0)
            fail_msg("%s: cannot be written over", path);
        close(fd);
    next:
        free(other);
    }
}

static void a_mirror_that_changes_is_the_end_of_the_model(void **state)
{
    (void)state;
    struct temp_folder mirror;
    struct bench b;
    struct err err;
    temp_folder_make(&mirror);
    copy_model(&mirror);
    const char *const mirrors[] = {mirror.path};
    struct engine_settings settings = settings_with_mirror(NULL, mirrors);
    bench_open(&b, &settings, file_system_real());
    if (!feed_one(&b, &err)) fail_msg("%s", err.text);
    write_over_experts(&b, &mirror);
    static const char *const words[] = {".safetensors", "changed while in use", NULL};
    assert_over(&b, words);
    bench_close(&b);
    temp_folder_remove(&mirror);
}

/* It is still what it was, until it is closed; the originals are enough. */
static void a_mirror_that_is_deleted_is_given_up(void **state)
{
    (void)state;
    struct temp_folder mirror;
    struct bench b;
    char note[STREAMED_NOTE_MAX];
    temp_folder_make(&mirror);
    copy_model(&mirror);
    const char *const mirrors[] = {mirror.path};
    struct sick_device device = {.to = UINT64_MAX, .folder = mirror.path};
    struct engine_settings settings = settings_with_mirror(&device, mirrors);
    bench_open(&b, &settings, file_system_real());
    temp_folder_remove(&mirror);
    device.n_in_folder = 0;
    feed_the_rest(&b);
    assert_true(streamed_take_note(engine_streamed(b.engine), note));
    assert_non_null(strstr(note, mirror.path));
    assert_int_equal(device.n_in_folder, 0);
    bench_close(&b);
}

static void refuse_mirror(const char *path, const char *words)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct engine *engine;
    struct engine_settings settings = settings_for(NULL);
    const char *const mirrors[] = {path};
    settings.streamed.mirrors = mirrors;
    settings.streamed.n_mirrors = 1;
    assert_false(engine_open(&engine, &alloc, file_system_real(), &settings, &err));
    assert_int_equal(err.kind, ERR_DATA);
    if (!strstr(err.text, words)) fail_msg("'%s' is not in: %s", words, err.text);
    assert_int_equal(alloc.live, 0);
}

static void what_is_no_copy_is_refused(void **state)
{
    (void)state;
    struct temp_folder mirror;
    size_t bytes;
    temp_folder_make(&mirror);
    refuse_mirror(mirror.path, "holds no copy");
    copy_model(&mirror);
    const char *path = temp_path(&mirror, "out-00001.safetensors");
    unsigned char *data = take_file(path, &bytes);
    data[20] ^= 1;
    put_file(path, data, bytes);
    refuse_mirror(mirror.path, "headers differ");
    data[20] ^= 1;
    put_file(path, data, bytes - 1);
    refuse_mirror(mirror.path, "not a copy");
    free(data);

    for (uint64_t k = 1;; k++) { /* any allocation may fail */
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct engine *engine;
        struct engine_settings settings = settings_for(NULL);
        const char *const mirrors[] = {mirror.path};
        settings.streamed.mirrors = mirrors;
        settings.streamed.n_mirrors = 1;
        if (k == 1) copy_model(&mirror);
        bool ok = engine_open(&engine, &alloc, file_system_real(), &settings, &err);
        if (ok) engine_close(engine);
        assert_int_equal(alloc.live, 0);
        if (ok && alloc.calls < k) break;
    }
    temp_folder_remove(&mirror);
}

/* Runs a check in a process of its own, for limits that cannot be taken back. */
static void in_a_child(int (*check)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(check());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool refuse_io_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 425 /* io_uring_setup, everywhere */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int runs_without_io_uring(void)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct engine *engine;
    struct session session;
    struct engine_settings settings = settings_for(NULL);
    char note[STREAMED_NOTE_MAX];
    if (!refuse_io_uring()) return 0; /* a sandbox that forbids to forbid */
    if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) return 1;
    if (strcmp(reader_device(streamed_reader(engine_streamed(engine))), "threads") != 0) return 2;
    if (!streamed_take_note(engine_streamed(engine), note) || !strstr(note, "io_uring")) return 3;
    if (streamed_take_note(engine_streamed(engine), note)) return 4; /* once */
    session_init(&session, engine);
    for (uint32_t i = 0; i < TOKENS; i++) {
        if (!session_feed(&session, tokens + i, 1, NULL, NULL, &err)) return 5;
        if (memcmp(session.logits, truth[i], sizeof truth[i]) != 0) return 6;
    }
    session_fini(&session);
    engine_close(engine);
    return alloc.live == 0 ? 0 : 7;
}

static void io_uring_may_be_refused(void **state)
{
    (void)state;
    in_a_child(runs_without_io_uring);
}

/* A file system that takes no O_DIRECT, as some do. */
static int open_without_direct(void *context, const char *path, int flags)
{
    const struct file_system *real = context;
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return real->ops->open(real->context, path, flags);
}

static void without_direct_reads_the_page_cache_serves(void **state)
{
    (void)state;
    struct file_system real = file_system_real();
    struct file_ops ops = *real.ops;
    ops.open = open_without_direct;
    struct engine_settings settings = settings_for(NULL);
    char note[STREAMED_NOTE_MAX];
    struct bench b;
    settings.streamed.direct = DIRECT_ON;
    bench_open(&b, &settings, (struct file_system){&ops, &real});
    assert_false(streamed_is_direct(engine_streamed(b.engine)));
    bool told = false;
    while (streamed_take_note(engine_streamed(b.engine), note)) told |= strstr(note, "page cache") != NULL;
    assert_true(told);
    feed_the_rest(&b);
    bench_close(&b);
}

/* The same on the real thing, where there is one: a file system in memory. */
static void a_model_in_memory_runs_too(void **state)
{
    (void)state;
    char in_memory[] = "/dev/shm/weir-test-XXXXXX";
    if (!mkdtemp(in_memory)) {
        printf("no file system in memory here\n");
        skip();
    }
    struct temp_folder there = {0};
    snprintf(there.path, sizeof there.path, "%s", in_memory);
    copy_model(&there);
    struct engine_settings settings = settings_for(NULL);
    struct bench b;
    settings.model_dir = there.path;
    settings.streamed.direct = DIRECT_ON;
    bench_open(&b, &settings, file_system_real());
    printf("this kernel's tmpfs has %sdirect reads\n", streamed_is_direct(engine_streamed(b.engine)) ? "" : "no ");
    feed_the_rest(&b);
    bench_close(&b);
    temp_folder_remove(&there);
}

/* Every file that is opened may be the one too many. */
static void a_full_file_table_is_an_error_that_leaves_nothing(void **state)
{
    (void)state;
    uint64_t n_failed = 0;
    for (uint64_t k = 1;; k++) {
        struct faulty_files faulty = {.fail_at = k, .error = EMFILE};
        struct engine_settings settings = settings_for(NULL);
        struct alloc alloc = {0};
        struct err err = {0};
        struct engine *engine;
        settings.streamed.direct = DIRECT_ON;
        bool ok = engine_open(&engine, &alloc, faulty_files_system(&faulty), &settings, &err);
        if (ok) engine_close(engine);
        assert_int_equal(alloc.live, 0);
        assert_int_equal(faulty.n_open, 0);
        if (ok && faulty.calls < k) break;
        n_failed += !ok;
        if (!ok && err.kind == ERR_NONE) fail_msg("call %d failed without a reason", (int)k);
    }
    printf("%d calls failed\n", (int)n_failed);
    assert_true(n_failed > 20);
}

/* With room for 3, 4, 5 ... files: too few are named as such, and from some number on the model opens and runs, also
 * when the table is full as soon as it is open. */
static int runs_in_a_full_table(void)
{
    for (rlim_t n = 3; n < 200; n++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct engine *engine;
        struct session session;
        struct engine_settings settings = settings_for(NULL);
        struct rlimit limit = {n, 200};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
        if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) {
            if (err.kind != ERR_IO || !strstr(err.text, "Too many open files") || alloc.live != 0) return 2;
            continue;
        }
        if (n == 3) return 3; /* or nothing was limited */
        limit.rlim_cur = 0;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 4;
        session_init(&session, engine);
        for (uint32_t i = 0; i < TOKENS; i++) {
            if (!session_feed(&session, tokens + i, 1, NULL, NULL, &err)) return 5;
            if (memcmp(session.logits, truth[i], sizeof truth[i]) != 0) return 6;
        }
        session_fini(&session);
        engine_close(engine);
        return alloc.live == 0 ? 0 : 7;
    }
    return 8;
}

static void a_real_limit_on_files_is_named(void **state)
{
    (void)state;
    in_a_child(runs_in_a_full_table);
}

/* How much more a process may hold in the end. A sanitizer keeps what was given back for a while, to see late uses. */
#ifdef WEIR_SLOW_ASSERTS
#define HELD_MORE_MAX (UINT64_C(300) << 20)
#else
#define HELD_MORE_MAX (UINT64_C(2) << 20)
#endif

/* The bundled model with room for 2 % of its experts: ten thousand experts come and go, and nothing grows. */
static void ten_thousand_evictions_leave_memory_as_it_was(void **state)
{
    (void)state;
    struct engine_settings settings = settings_for(NULL);
    struct alloc proc = {0};
    struct bench b;
    struct err err = {0};
    settings.model_dir = "models/demo";
    settings.experts_resident = 0.02;
    bench_open(&b, &settings, file_system_real());
    const struct slots_stats *stats = slots_stats(streamed_slots(engine_streamed(b.engine)));
    uint64_t live = 0, live_bytes = 0, held = 0;
    for (uint32_t i = 0; stats->n_evictions < 10000; i++) {
        if (i % 16 == 15) session_rewind(&b.session, 0);
        uint32_t token = (i * 2654435761u >> 9) % 4000;
        if (!session_feed(&b.session, &token, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
        if (i != 32) continue; /* warm */
        live = b.alloc.live;
        live_bytes = b.alloc.live_bytes;
        held = memory_resident_now(&proc, file_system_real(), "").bytes;
    }
    session_rewind(&b.session, 0);
    uint64_t now = memory_resident_now(&proc, file_system_real(), "").bytes;
    printf("%u slots, %d evictions, held %d KiB when warm and %d KiB at the end\n", stats->n_slots,
           (int)stats->n_evictions, (int)(held / 1024), (int)(now / 1024));
    assert_true(b.alloc.live <= live);
    assert_true(b.alloc.live_bytes <= live_bytes);
    assert_true(now <= held + HELD_MORE_MAX);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eio_fails_the_pass_and_the_engine_goes_on),
        cmocka_unit_test(other_errors_too),
        cmocka_unit_test(delays_short_reads_and_interruptions_only_cost_time),
        cmocka_unit_test(a_shard_that_is_cut_is_the_end_of_the_model),
        cmocka_unit_test(a_shard_that_is_cut_in_the_middle_of_a_pass_too),
        cmocka_unit_test(a_shard_that_is_replaced_is_the_end_of_the_model),
        cmocka_unit_test(a_shard_that_is_replaced_in_the_middle_of_a_pass_too),
        cmocka_unit_test(passes_of_the_mtp_layer_are_looked_after),
        cmocka_unit_test(the_history_is_written_while_the_model_is_open),
        cmocka_unit_test(a_mirror_shares_the_reads_and_may_fail),
        cmocka_unit_test(a_mirror_that_changes_is_the_end_of_the_model),
        cmocka_unit_test(a_mirror_that_is_deleted_is_given_up),
        cmocka_unit_test(what_is_no_copy_is_refused),
        cmocka_unit_test(io_uring_may_be_refused),
        cmocka_unit_test(without_direct_reads_the_page_cache_serves),
        cmocka_unit_test(a_model_in_memory_runs_too),
        cmocka_unit_test(a_full_file_table_is_an_error_that_leaves_nothing),
        cmocka_unit_test(a_real_limit_on_files_is_named),
        cmocka_unit_test(ten_thousand_evictions_leave_memory_as_it_was),
    };
    return cmocka_run_group_tests(tests, make_model_and_truth, remove_model);
}
