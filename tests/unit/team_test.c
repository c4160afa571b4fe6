#include "base/alloc.h"
#include "par/team.h"
#include "support/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers keep shadow memory, which does not live under an address space limit. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOW_MEMORY 1
#else
#define SHADOW_MEMORY (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#endif

struct tally {
    size_t n_items;
    unsigned n_threads;
    unsigned *visits; /* [n_items], each item is one thread's alone, so this needs no atomics */
    size_t grain;
    atomic_size_t short_ranges; /* ranges below the grain that are not the last */
    atomic_uint wrong_threads;
    atomic_size_t ranges;
};

static void visit(void *context, size_t begin, size_t end, unsigned thread)
{
    struct tally *tally = context;
    if (thread >= tally->n_threads) atomic_fetch_add(&tally->wrong_threads, 1);
    if (end - begin < tally->grain && end != tally->n_items) atomic_fetch_add(&tally->short_ranges, 1);
    atomic_fetch_add(&tally->ranges, 1);
    for (size_t i = begin; i < end; i++) tally->visits[i]++;
}

static void every_item_runs_once(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 31, 32, 33, 100, 1000, 4097};
    static const size_t grains[] = {0, 1, 5, 64, 5000};
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct team *team;
        assert_true(team_new(&team, &alloc, threads, &err));
        assert_int_equal(team_threads(team), threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                struct tally tally = {.n_items = sizes[s], .n_threads = threads, .grain = grains[g]};
                tally.visits = calloc(sizes[s] + 1, sizeof *tally.visits);
                team_run(team, sizes[s], grains[g], visit, &tally);
                for (size_t i = 0; i < sizes[s]; i++) assert_int_equal(tally.visits[i], 1);
                assert_int_equal(tally.visits[sizes[s]], 0);
                assert_int_equal(atomic_load(&tally.short_ranges), 0);
                assert_int_equal(atomic_load(&tally.wrong_threads), 0);
                if (sizes[s] == 0) assert_int_equal(atomic_load(&tally.ranges), 0);
                free(tally.visits);
            }
        }
        team_free(team);
        assert_int_equal(alloc.live, 0);
    }
}

/* Each loop reads what the loop before wrote at other places: a worker that is one loop late would be seen. */
struct chain {
    const uint32_t *from;
    uint32_t *to;
    size_t n;
};

static void step(void *context, size_t begin, size_t end, unsigned thread)
{
    struct chain *chain = context;
    (void)thread;
    for (size_t i = begin; i < end; i++) chain->to[i] = chain->from[(i + 7) % chain->n] * 1664525u + (uint32_t)i;
}

static void many_tiny_loops_see_each_other(void **state)
{
    (void)state;
    enum { ITEMS = 24, LOOPS = 5000 };
    uint32_t expected[2][ITEMS] = {{0}};
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct team *team;
        uint32_t values[2][ITEMS] = {{0}};
        assert_true(team_new(&team, &alloc, threads, &err));
        for (int loop = 0; loop < LOOPS; loop++) {
            struct chain chain = {values[loop % 2], values[1 - loop % 2], ITEMS};
            team_run(team, ITEMS, 1, step, &chain);
        }
        if (threads == 1) memcpy(expected, values, sizeof values);
        assert_memory_equal(values, expected, sizeof values);
        team_free(team);
    }
}

/* Items that wait for all threads to be in the loop: passes only if every thread really takes part. */
struct meeting {
    atomic_uint present;
    unsigned expected;
    atomic_bool gave_up;
};

static void meet(void *context, size_t begin, size_t end, unsigned thread)
{
    struct meeting *meeting = context;
    (void)begin, (void)end, (void)thread;
    time_t deadline = time(NULL) + 20;
    atomic_fetch_add(&meeting->present, 1);
    while (atomic_load(&meeting->present) < meeting->expected && !atomic_load(&meeting->gave_up))
        if (time(NULL) > deadline) atomic_store(&meeting->gave_up, true);
}

static void all_threads_take_part_after_a_rest(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct team *team;
    assert_true(team_new(&team, &alloc, 4, &err));
    for (int round = 0; round < 5; round++) {
        struct timespec rest = {.tv_nsec = 3000000}; /* far beyond the spin: the workers are asleep by then, or not */
        nanosleep(&rest, NULL);
        struct meeting meeting = {.expected = 4};
        team_run(team, 4, 1, meet, &meeting);
        assert_false(atomic_load(&meeting.gave_up));
    }
    team_free(team);
}

static uint64_t busy_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void idle_means_idle(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct team *team;
    struct chain chain = {(uint32_t[8]){0}, (uint32_t[8]){0}, 8};
    assert_true(team_new(&team, &alloc, 8, &err));
    team_run(team, 8, 1, step, &chain);
    uint64_t before = busy_ns();
    struct timespec rest = {.tv_nsec = 500000000};
    nanosleep(&rest, NULL);
    uint64_t used = busy_ns() - before;
    printf("8 threads, idle for 500 ms: %.2f ms of processor time\n", (double)used / 1e6);
    assert_true(used < 50000000); /* spinning threads would take 500 ms each */
    team_free(team);
}

static void errors_are_clean(void **state)
{
    (void)state;
    struct err err = {0};
    struct team *team;
    struct alloc alloc = {0};
    assert_false(team_new(&team, &alloc, 0, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_false(team_new(&team, &alloc, 1000000, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_null(team);
    team_free(NULL);
    bool worked = false;
    for (uint64_t k = 1; !worked; k++) {
        struct alloc failing = {.fail_at = k};
        worked = team_new(&team, &failing, 3, &err);
        if (!worked) assert_int_equal(err.kind, ERR_NOMEM);
        team_free(team);
        assert_int_equal(failing.live, 0);
        assert_true(k < 10);
    }
}

/* With no address space left for their stacks, some of 64 threads cannot start. Run in a child, whose limit it is. */
static int child_without_room(void)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct team *team;
    struct rlimit limit;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) return 2;
    fclose(file);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (10 << 20);
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    if (team_new(&team, &alloc, 64, &err)) return 3;
    if (err.kind != ERR_FAILED || !strstr(err.text, "of 64")) return 4;
    return alloc.live == 0 && team == NULL ? 0 : 5;
}

static void a_thread_that_cannot_start_is_an_error(void **state)
{
    (void)state;
    if (SHADOW_MEMORY) skip();
    int status;
    pid_t child = fork();
    if (child == 0) _exit(child_without_room());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_team_unused_or_used_once_is_freed(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct team *team;
        struct chain chain = {(uint32_t[8]){0}, (uint32_t[8]){0}, 8};
        assert_true(team_new(&team, &alloc, 1 + (unsigned)i % 5, &err));
        if (i % 2) team_run(team, 8, 1, step, &chain);
        team_free(team);
        assert_int_equal(alloc.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(many_tiny_loops_see_each_other),
        cmocka_unit_test(all_threads_take_part_after_a_rest),
        cmocka_unit_test(idle_means_idle),
        cmocka_unit_test(errors_are_clean),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error),
        cmocka_unit_test(a_team_unused_or_used_once_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
