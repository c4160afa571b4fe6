/* The reader over its three devices: every byte as in the file, whatever the device does in between. */
#include "plat/reader.h"
#include "support/check.h"
#include "support/mem_files.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_BYTES = 3 * 1024 * 1024 + 1234, PIECE = 64 * 1024 };

static uint64_t random_state;
static uint64_t rnd(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 24;
}

static unsigned char *make_bytes(uint64_t n)
{
    unsigned char *data = malloc(n);
    assert_non_null(data);
    for (uint64_t i = 0; i < n; i++) data[i] = (unsigned char)((i * 2654435761u) >> 13);
    return data;
}

struct bench {
    struct alloc alloc;
    struct mem_files memory;
    unsigned char *data;
    struct file file;
    struct sim_clock time;
    struct aio_sim device;
    struct reader *reader;
    uint32_t id;
};

static void bench_open(struct bench *b, unsigned depth, uint32_t requests_max)
{
    struct err err = {0};
    struct aio *aio;
    b->data = make_bytes(FILE_BYTES);
    mem_files_add(&b->memory, "m/one", b->data, FILE_BYTES);
    assert_true(file_open(&b->file, &b->alloc, mem_files_system(&b->memory), "m/one", &err));
    assert_true(aio_sim_new(&aio, &b->alloc, depth, &b->device, &b->time, &err));
    struct reader_settings settings = {.depth = depth, .requests_max = requests_max, .files_max = 4};
    assert_true(reader_new(&b->reader, &b->alloc, aio, clock_simulated(&b->time), &settings, &err));
    assert_true(reader_add_file(b->reader, &b->file, READER_BUFFERED, &b->id, &err));
}

static void bench_close(struct bench *b)
{
    reader_free(b->reader);
    file_close(&b->file);
    assert_int_equal(b->alloc.live, 0);
    assert_int_equal(b->memory.n_open, 0);
    free(b->data);
}

static struct read_request ask_for(const struct bench *b, uint64_t offset, uint64_t bytes, void *buffer, uint64_t tag)
{
    return (struct read_request){
        .file = b->id, .offset = offset, .bytes = bytes, .bytes_needed = bytes, .buffer = buffer, .tag = tag};
}

static void a_rough_device_changes_nothing(void **state)
{
    (void)state;
    uint64_t n_short = 0, n_interrupted = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct bench b = {.device = {.seed = seed,
                                     .delay_ns_min = 0,
                                     .delay_ns_max = 5000000,
                                     .short_chance = 200,
                                     .interrupt_chance = 100,
                                     .eio_chance = 20}};
        enum { N = 40 };
        static unsigned char buffers[N][PIECE];
        uint64_t offsets[N], bytes[N], useful = 0;
        unsigned n_done = 0, n_failed = 0, n_disorder = 0;
        random_state = seed;
        bench_open(&b, 8, N);
        for (unsigned i = 0; i < N; i++) {
            struct err err = {0};
            bytes[i] = 1 + rnd() % PIECE;
            offsets[i] = rnd() % (FILE_BYTES - bytes[i]);
            struct read_request ask = ask_for(&b, offsets[i], bytes[i], buffers[i], i);
            ask.priority = rnd() % READ_PRIORITIES;
            assert_true(reader_submit(b.reader, &ask, &err));
        }
        struct read_done done;
        uint64_t last_tag = 0;
        while (reader_wait(b.reader, &done)) {
            n_disorder += done.tag < last_tag;
            last_tag = done.tag;
            n_done++;
            if (done.error) {
                assert_int_equal(done.error, EIO);
                n_failed++;
                continue;
            }
            assert_int_equal(done.bytes, bytes[done.tag]);
            assert_memory_equal(buffers[done.tag], b.data + offsets[done.tag], bytes[done.tag]);
            useful += done.bytes;
        }
        const struct reader_stats *stats = reader_stats(b.reader);
        assert_int_equal(n_done, N);
        assert_int_equal(n_failed, stats->n_failed);
        assert_int_equal(stats->n_attempts, b.device.n_attempts);
        assert_int_equal(stats->bytes_landed, b.device.n_bytes);
        assert_int_equal(stats->n_eio, b.device.n_eio);
        assert_int_equal(stats->n_flying_max, b.device.n_flying_max);
        assert_int_equal(b.device.n_flying_max, 8);
        n_short += stats->n_short;
        n_interrupted += stats->n_interrupted;
        assert_true(n_disorder > 0);
        uint64_t told = 0;
        for (int p = 0; p < READ_PRIORITIES; p++) told += stats->bytes[p];
        assert_int_equal(told, useful);
        bench_close(&b);
    }
    printf("seeds 1..60: 40 reads each, every byte compared, %d short, %d interrupted\n", (int)n_short,
           (int)n_interrupted);
    assert_true(n_short > 100);
    assert_true(n_interrupted > 100);
}

static int always_eio(void *context, const struct aio_read *read)
{
    (void)read;
    unsigned *left = context;
    return *left > 0 ? (*left)--, EIO : 0;
}

static void eio_is_tried_three_more_times_with_a_pause(void **state)
{
    (void)state;
    for (unsigned n_faults = 3; n_faults <= 4; n_faults++) {
        unsigned left = n_faults;
        struct bench b = {.device = {.seed = 1, .fault = always_eio, .fault_context = &left}};
        unsigned char buffer[100];
        struct err err = {0};
        struct read_done done;
        bench_open(&b, 2, 4);
        struct read_request ask = ask_for(&b, 4321, sizeof buffer, buffer, 7);
        assert_true(reader_submit(b.reader, &ask, &err));
        assert_true(reader_wait(b.reader, &done));
        assert_int_equal(b.device.n_attempts, 4);
        assert_int_equal(b.time.now_ns, 210000000); /* 10 + 40 + 160 ms */
        if (n_faults == 3) {
            assert_int_equal(done.error, 0);
            assert_memory_equal(buffer, b.data + 4321, sizeof buffer);
        } else {
            assert_int_equal(done.error, EIO);
            assert_false(reader_explain(b.reader, &done, &err));
            assert_int_equal(err.kind, ERR_IO);
            assert_non_null(strstr(err.text, "m/one"));
            assert_non_null(strstr(err.text, "4321"));
            assert_non_null(strstr(err.text, strerror(EIO)));
        }
        assert_false(reader_wait(b.reader, &done));
        bench_close(&b);
    }
}

static void the_ceiling_may_pass_the_end_but_a_cut_file_is_told(void **state)
{
    (void)state;
    struct bench b = {.device = {.seed = 1}};
    static unsigned char buffer[8192];
    struct err err = {0};
    struct read_done done;
    bench_open(&b, 2, 4);
    uint64_t from = FILE_BYTES / 4096 * 4096, rest = FILE_BYTES - from;
    struct read_request ask = ask_for(&b, from, 4096, buffer, 1);
    ask.bytes_needed = rest;
    assert_true(reader_submit(b.reader, &ask, &err));
    assert_true(reader_wait(b.reader, &done));
    assert_int_equal(done.error, 0);
    assert_int_equal(done.bytes, rest);
    assert_memory_equal(buffer, b.data + from, rest);

    ask.bytes_needed = rest + 1;
    assert_true(reader_submit(b.reader, &ask, &err));
    assert_true(reader_wait(b.reader, &done));
    assert_int_equal(done.error, ENODATA);
    assert_false(reader_explain(b.reader, &done, &err));
    assert_int_equal(err.kind, ERR_DATA);
    bench_close(&b);
}

static int note_priority(void *context, const struct aio_read *read)
{
    (void)read;
    ++*(unsigned *)context;
    return 0;
}

static void demand_overtakes_and_hints_leave_room(void **state)
{
    (void)state;
    unsigned n = 0;
    struct bench b = {
        .device = {.seed = 1, .delay_ns_min = 1000, .delay_ns_max = 1000, .fault = note_priority, .fault_context = &n}};
    static unsigned char buffers[30][256];
    struct err err = {0};
    struct read_done done;
    bench_open(&b, 4, 30);
    for (unsigned i = 0; i < 10; i++) {
        struct read_request ask = ask_for(&b, i * 256, 256, buffers[i], 100);
        ask.priority = READ_HINT;
        assert_true(reader_submit(b.reader, &ask, &err));
    }
    assert_false(reader_poll(b.reader, &done));
    assert_int_equal(b.device.n_flying, 2); /* half of the depth */
    assert_true(reader_has_queued(b.reader, READ_HINT));
    assert_false(reader_has_queued(b.reader, READ_SWEEP));
    for (unsigned i = 10; i < 16; i++) {
        struct read_request ask = ask_for(&b, i * 256, 256, buffers[i], i % 2 ? 200 : 300);
        ask.priority = i % 2 ? READ_SWEEP : READ_DEMAND;
        assert_true(reader_submit(b.reader, &ask, &err));
    }
    unsigned order[16], k = 0;
    while (reader_wait(b.reader, &done)) order[k++] = (unsigned)done.tag;
    assert_int_equal(k, 16);
    unsigned last_demand = 0, last_sweep = 0, n_hints_before = 0;
    for (unsigned i = 0; i < k; i++) {
        if (order[i] == 300) last_demand = i;
        if (order[i] == 200) last_sweep = i;
    }
    for (unsigned i = 0; i < last_sweep; i++) n_hints_before += order[i] == 100;
    assert_true(last_demand < last_sweep);
    assert_int_equal(n_hints_before, 2); /* only those that were already in flight */
    bench_close(&b);
}

/* A device that is done as soon as it is asked: what is fetched one by one must not make all that is queued begin. */
static void a_device_that_is_done_at_once_is_not_given_everything(void **state)
{
    (void)state;
    enum { READS = 64, DEPTH = 4 };
    static unsigned char buffers[READS][256];
    struct bench b = {.device = {.seed = 1}};
    struct err err = {0};
    struct read_done done;
    bench_open(&b, DEPTH, READS);
    for (unsigned i = 0; i < READS; i++) {
        struct read_request ask = ask_for(&b, i * 256, 256, buffers[i], i);
        assert_true(reader_submit(b.reader, &ask, &err));
    }
    for (unsigned k = 1; k <= READS; k++) {
        assert_true(reader_poll(b.reader, &done));
        assert_int_equal(done.error, 0);
        uint64_t n_landed = reader_stats(b.reader)->n_requests[READ_DEMAND];
        assert_true(n_landed >= k);
        assert_true(n_landed < k + DEPTH);
    }
    assert_int_equal(reader_outstanding(b.reader), 0);
    bench_close(&b);
}

/* Of eight places hints take four, guesses two, and neither begins beside a read that is wanted. */
static void what_nobody_asked_for_waits_until_nothing_else_flies(void **state)
{
    (void)state;
    static const enum read_priority priorities[] = {READ_HINT, READ_GUESS, READ_STATE};
    static const unsigned flying[] = {4, 2, 2};
    static unsigned char buffers[8][256];
    for (int p = 0; p < 3; p++) {
        struct bench b = {.device = {.seed = 1, .delay_ns_min = 1000, .delay_ns_max = 1000}};
        struct err err = {0};
        struct read_done done;
        unsigned n = 0;
        bench_open(&b, 8, 8);
        for (unsigned i = 0; i < 8; i++) {
            struct read_request ask = ask_for(&b, i * 256, 256, buffers[i], i);
            ask.priority = i == 0 ? READ_DEMAND : priorities[p];
            assert_true(reader_submit(b.reader, &ask, &err));
        }
        assert_false(reader_poll(b.reader, &done));
        assert_int_equal(b.device.n_flying, 1);
        assert_true(reader_wait(b.reader, &done));
        assert_int_equal(done.tag, 0);
        assert_int_equal(b.device.n_flying, flying[p]);
        while (reader_wait(b.reader, &done)) {
            n++;
            assert_true(b.device.n_flying <= flying[p]);
        }
        assert_int_equal(n, 7);
        bench_close(&b);
    }
}

static void cancel_and_promote(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct bench b = {.device = {.seed = seed, .delay_ns_max = 100000, .eio_chance = 100}};
        static unsigned char buffers[20][512];
        struct err err = {0};
        struct read_done done;
        unsigned n = 0, n_cancelled = 0;
        bench_open(&b, 4, 20);
        for (unsigned i = 0; i < 20; i++) {
            struct read_request ask = ask_for(&b, i * 512, 512, buffers[i], i / 5);
            ask.priority = READ_HINT;
            assert_true(reader_submit(b.reader, &ask, &err));
        }
        struct read_request one_more = ask_for(&b, 0, 512, buffers[0], 9);
        assert_false(reader_submit(b.reader, &one_more, &err));
        assert_int_equal(err.kind, ERR_BUSY);
        if (reader_poll(b.reader, &done)) n++, n_cancelled += done.error == ECANCELED;
        reader_reprioritise(b.reader, 3, READ_DEMAND);
        reader_cancel(b.reader, 0);
        reader_cancel(b.reader, 1);
        uint64_t first_landed = UINT64_MAX;
        while (reader_wait(b.reader, &done)) {
            n++;
            n_cancelled += done.error == ECANCELED;
            if (done.error == 0 && done.tag >= 2 && first_landed == UINT64_MAX) first_landed = done.tag;
            if (done.error == 0) assert_memory_equal(buffers[done.offset / 512], b.data + done.offset, 512);
        }
        assert_int_equal(n, 20);
        assert_true(n_cancelled >= 8);
        assert_int_equal(n_cancelled, reader_stats(b.reader)->n_cancelled);
        assert_int_equal(first_landed, 3);
        bench_close(&b);
    }
}

static void freeing_with_reads_in_flight_leaves_nothing(void **state)
{
    (void)state;
    struct bench b = {.device = {.seed = 3, .delay_ns_min = 10, .delay_ns_max = 100000}};
    static unsigned char buffers[8][512];
    struct err err = {0};
    struct read_done done;
    bench_open(&b, 4, 8);
    for (unsigned i = 0; i < 8; i++) {
        struct read_request ask = ask_for(&b, i * 512, 512, buffers[i], i);
        assert_true(reader_submit(b.reader, &ask, &err));
    }
    assert_false(reader_poll(b.reader, &done));
    assert_int_equal(b.device.n_flying, 4);
    bench_close(&b);
    assert_int_equal(b.device.n_flying, 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct reader *reader = NULL;
        struct reader_settings settings = {.depth = 4, .requests_max = 8, .files_max = 2};
        bool ok = reader_new_real(&reader, &alloc, &settings, 2, &err);
        if (ok) reader_free(reader);
        assert_int_equal(alloc.live, 0);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok) {
            assert_true(k > 3);
            break;
        }
    }
}

/* Real files and real devices. */

static void read_everything(struct reader *reader, uint32_t id, const unsigned char *data, uint64_t bytes)
{
    struct err err = {0};
    struct read_done done;
    uint64_t n_pieces = (bytes + PIECE - 1) / PIECE;
    unsigned char *buffer = mmap(NULL, n_pieces * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(buffer != MAP_FAILED);
    for (int round = 0; round < 2; round++) { /* the second time with the buffer made known, where that works */
        memset(buffer, 0, n_pieces * PIECE);
        bool is_lent = round == 1 && reader_lend_memory(reader, buffer, n_pieces * PIECE, &err);
        if (round == 1) printf("  buffer made known: %s\n", is_lent ? "yes" : err.text);
        for (uint64_t i = 0; i < n_pieces; i++) {
            uint64_t rest = bytes - i * PIECE;
            struct read_request ask = {.file = id,
                                       .offset = i * PIECE,
                                       .bytes = PIECE,
                                       .bytes_needed = rest < PIECE ? rest : PIECE,
                                       .buffer = buffer + i * PIECE,
                                       .tag = i};
            assert_true(reader_submit(reader, &ask, &err));
        }
        uint64_t n = 0, sum = 0;
        for (; reader_wait(reader, &done); n++) {
            assert_int_equal(done.error, 0);
            assert_int_equal(done.bytes, done.bytes_needed);
            sum += done.bytes;
        }
        assert_int_equal(n, n_pieces);
        assert_int_equal(sum, bytes);
        assert_memory_equal(buffer, data, bytes);
        reader_withdraw_memory(reader);
    }
    /* A block behind the end: nothing is made up. */
    struct read_request ask = {
        .file = id, .offset = bytes / 4096 * 4096, .bytes = 4096, .bytes_needed = bytes % 4096 + 1, .buffer = buffer};
    assert_true(reader_submit(reader, &ask, &err));
    assert_true(reader_wait(reader, &done));
    assert_int_equal(done.error, ENODATA);
    munmap(buffer, n_pieces * PIECE);
}

static struct reader *open_device(struct alloc *alloc, bool threads)
{
    struct err err = {0};
    struct aio *aio;
    struct reader *reader;
    struct reader_settings settings = {.depth = 8, .requests_max = 64, .files_max = 4};
    bool ok = threads ? aio_pool_new(&aio, alloc, 8, 3, &err) : aio_uring_new(&aio, alloc, 8, &err);
    if (!ok) {
        printf("  skipped: %s\n", err.text);
        assert_false(threads);
        return NULL;
    }
    assert_true(reader_new(&reader, alloc, aio, clock_real(), &settings, &err));
    return reader;
}

static void real_files_through_real_devices(void **state)
{
    (void)state;
    unsigned char *data = make_bytes(FILE_BYTES);
    static const char *const folders[] = {"/dev/shm", "."}; /* tests run in the source tree: a disk */
    for (unsigned i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/weir-reader-XXXXXX", folders[i]);
        int fd = mkstemp(path);
        if (fd < 0) {
            printf("  skipped: no file in %s: %s\n", folders[i], strerror(errno));
            continue;
        }
        assert_int_equal(write(fd, data, FILE_BYTES), FILE_BYTES);
        fsync(fd);
        close(fd);
        for (int kind = 0; kind < 4; kind++) {
            struct alloc alloc = {0};
            struct err err = {0};
            struct file file;
            uint32_t id;
            struct reader *reader = open_device(&alloc, kind & 1);
            if (!reader) continue;
            assert_true(file_open(&file, &alloc, file_system_real(), path, &err));
            assert_true(
                reader_add_file(reader, &file, kind & 2 ? READER_DIRECT_IF_POSSIBLE : READER_BUFFERED, &id, &err));
            printf("%s, %s, %s\n", folders[i], reader_device(reader),
                   reader_is_direct(reader, id) ? "direct" : "buffered");
            if (!(kind & 2)) assert_false(reader_is_direct(reader, id));
            read_everything(reader, id, data, FILE_BYTES);
            reader_free(reader);
            file_close(&file);
            assert_int_equal(alloc.live, 0);
        }
        unlink(path);
    }
    free(data);
}

static void without_direct_reads_it_falls_back(void **state)
{
    (void)state;
    struct bench b = {.memory = {.refuses_direct = 1}, .device = {.seed = 1}};
    struct err err = {0};
    uint32_t id;
    bench_open(&b, 2, 4);
    assert_true(reader_add_file(b.reader, &b.file, READER_DIRECT_IF_POSSIBLE, &id, &err));
    assert_false(reader_is_direct(b.reader, id));
    b.memory.refuses_direct = 0;
    assert_true(reader_add_file(b.reader, &b.file, READER_DIRECT_IF_POSSIBLE, &id, &err));
    assert_true(reader_is_direct(b.reader, id));
    b.memory.open_max = b.memory.n_open; /* a full descriptor table */
    assert_false(reader_add_file(b.reader, &b.file, READER_DIRECT_IF_POSSIBLE, &id, &err));
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "ulimit -n"));
    assert_true(reader_add_file(b.reader, &b.file, READER_BUFFERED, &id, &err));
    assert_false(reader_add_file(b.reader, &b.file, READER_BUFFERED, &id, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    bench_close(&b);
}

/* In a child, so that the filter ends with it. Exit status 0 when the fallback did its work. */
static int run_without_uring(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    struct reader_settings settings = {.depth = 4, .requests_max = 8, .files_max = 2};
    struct alloc alloc = {0};
    struct err err = {0};
    struct reader *reader;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 77;
    if (!reader_new_real(&reader, &alloc, &settings, 2, &err)) return 1;
    bool is_right = strcmp(reader_device(reader), "threads") == 0 && reader_why_not_uring(reader)[0];
    printf("  %s: %s\n", reader_device(reader), reader_why_not_uring(reader));
    fflush(stdout);
    reader_free(reader);
    return is_right && alloc.live == 0 ? 0 : 2;
}

static void a_sandbox_without_io_uring_gets_threads_and_a_reason(void **state)
{
    (void)state;
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(run_without_uring());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        printf("  skipped: no seccomp filters here\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* A slowed device serves one after the other, gives back time that a cancelled read would have taken, and goes at the
 * device's own speed when it is told no pace. */
static void a_slowed_device_keeps_its_pace(void **state)
{
    (void)state;
    enum { READS = 8, BYTES = 100000 };
    struct bench b = {.device = {.seed = 5, .delay_ns_min = 1000, .delay_ns_max = 1000}};
    struct aio_pace pace = {.bytes_per_s = 1000000}; /* 100 ms a read */
    struct aio *under, *aio;
    struct err err = {0};
    struct aio_result got[READS];
    static unsigned char room[READS][BYTES];
    b.data = make_bytes(FILE_BYTES);
    mem_files_add(&b.memory, "m/one", b.data, FILE_BYTES);
    assert_true(file_open(&b.file, &b.alloc, mem_files_system(&b.memory), "m/one", &err));
    assert_true(aio_sim_new(&under, &b.alloc, READS, &b.device, &b.time, &err));
    assert_true(aio_throttled_new(&aio, &b.alloc, under, &pace, clock_simulated(&b.time), &err));
    for (int round = 0; round < 3; round++) {
        int64_t began_ns = b.time.now_ns;
        if (round == 2) pace.bytes_per_s = 0;
        for (uint32_t op = 0; op < READS; op++) {
            const struct aio_read read = {.file = &b.file,
                                          .descriptor = b.file.descriptor,
                                          .registered_file = -1,
                                          .buffer = room[op],
                                          .bytes = BYTES,
                                          .offset = (uint64_t)op * BYTES,
                                          .op = op};
            aio->ops->start(aio, &read);
        }
        size_t n = 0;
        if (round == 1) { /* the fourth does not run: those behind it come one place sooner */
            aio->ops->cancel(aio, 3);
            n += aio->ops->reap(aio, got, READS, 10000000);
            assert_int_equal(n, 1);
            assert_int_equal(got[0].op, 3);
        }
        while (n < READS) {
            size_t some = aio->ops->reap(aio, got, READS, -1);
            int64_t took_ms = (b.time.now_ns - began_ns) / 1000000;
            for (size_t i = 0; i < some; i++, n++) {
                uint32_t place = got[i].op + 1 - (round == 1 && got[i].op > 3);
                assert_int_equal(got[i].result, BYTES);
                assert_memory_equal(room[got[i].op], b.data + (uint64_t)got[i].op * BYTES, BYTES);
                assert_int_equal(took_ms, round == 2 ? 0 : 100 * place);
            }
        }
        assert_int_equal(aio->ops->reap(aio, got, READS, 0), 0);
    }
    aio->ops->free(aio);
    file_close(&b.file);
    free(b.data);
    for (uint64_t k = 1; k <= 3; k++) { /* what cannot be had leaves nothing, not even the device under it */
        struct alloc tight = {0};
        assert_true(aio_sim_new(&under, &tight, READS, &b.device, &b.time, &err));
        tight.fail_at = tight.calls + k;
        assert_false(aio_throttled_new(&aio, &tight, under, &pace, clock_simulated(&b.time), &err));
        assert_int_equal(tight.live, 0);
    }
    assert_int_equal(b.alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slowed_device_keeps_its_pace),
        cmocka_unit_test(a_rough_device_changes_nothing),
        cmocka_unit_test(eio_is_tried_three_more_times_with_a_pause),
        cmocka_unit_test(the_ceiling_may_pass_the_end_but_a_cut_file_is_told),
        cmocka_unit_test(demand_overtakes_and_hints_leave_room),
        cmocka_unit_test(a_device_that_is_done_at_once_is_not_given_everything),
        cmocka_unit_test(what_nobody_asked_for_waits_until_nothing_else_flies),
        cmocka_unit_test(cancel_and_promote),
        cmocka_unit_test(freeing_with_reads_in_flight_leaves_nothing),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(real_files_through_real_devices),
        cmocka_unit_test(without_direct_reads_it_falls_back),
        cmocka_unit_test(a_sandbox_without_io_uring_gets_threads_and_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
