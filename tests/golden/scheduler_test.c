/* What the scheduler promises, one promise at a time, on a tiny model and a clock that passes only while passes run:
 * order, admission, the bounded queue, rows that ride along, the bound on standing still, failures that stay with their
 * job, thinking that is ended, progress and predictions. */
#include "run/random.h"
#include "run/scheduler.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <math.h>
#include <stdlib.h>

#define MODEL "tests/fixtures/glm52-tiny/mtp"
#define MS INT64_C(1000000)

enum {
    JOBS_MAX = 8,
    ANSWER_MAX = 64,
    PROMPT_MAX = 120,
    CONTEXT = 128,
    LOGIT_ROWS = 8,
    PASS_ROWS = 40 + LOGIT_ROWS,
    ROW_MS = 10
};

struct actor {
    struct job job;
    struct scheduler_rig *rig;
    struct sampling sampling;
    struct sampler_rules rules;
    uint32_t prompt[PROMPT_MAX], got[ANSWER_MAX], n_got;
    int64_t got_ns[ANSWER_MAX], started_ns, done_ns;
    uint32_t start_order; /* 1: started first; 0: not yet */
    uint32_t n_shown, show_fails_at;
    struct job_progress first_progress, last_progress;
    bool is_done, dead_end;
    struct job_result result;
};

struct scheduler_rig {
    struct alloc alloc;
    struct sim_clock time;
    struct engine *engine;
    struct scheduler *scheduler;
    struct scheduler_settings settings;
    struct actor actors[JOBS_MAX];
    uint32_t n_started;
    size_t poisoned_row; /* of a pass of two rows; SIZE_MAX: none */
    uint32_t n_last_layer;
};

/* A pass takes ROW_MS for each of its rows. */
static void see_hidden(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct scheduler_rig *rig = context;
    if (layer != rig->n_last_layer) return;
    rig->time.now_ns += (int64_t)n_rows * ROW_MS * MS;
    if (n_rows == 2 && rig->poisoned_row < 2)
        ((float *)(uintptr_t)x)[rig->poisoned_row * engine_config(rig->engine)->hidden] = NAN; /* on purpose */
}

static const struct forward_observer observer_of_passes = {.hidden = see_hidden};

static void rig_open(struct scheduler_rig *rig, uint32_t n_running, uint32_t n_waiting)
{
    struct err err = {0};
    static struct forward_observer observer;
    struct engine_settings settings = engine_settings_default(MODEL);
    memset(rig, 0, sizeof *rig);
    rig->time.now_ns = MS;
    rig->poisoned_row = SIZE_MAX;
    settings.n_threads = 1;
    settings.context_tokens = CONTEXT;
    settings.pass_rows = PASS_ROWS - LOGIT_ROWS; /* a checkpoint's engine adds them */
    settings.logit_rows = LOGIT_ROWS;
    if (!engine_open(&rig->engine, &rig->alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    rig->n_last_layer = engine_config(rig->engine)->n_layers - 1;
    observer = observer_of_passes;
    observer.context = rig;
    forward_observe(engine_forward(rig->engine), &observer);
    rig->settings = (struct scheduler_settings){.n_tokens = engine_config(rig->engine)->vocab,
                                                .n_running_max = n_running,
                                                .n_waiting_max = n_waiting,
                                                .decode_stall_ns_max = 1000000 * MS,
                                                .ngram_min = 1,
                                                .ngram_max = 3,
                                                .clock = clock_simulated(&rig->time)};
}

static void rig_start(struct scheduler_rig *rig)
{
    struct err err = {0};
    if (!scheduler_new(&rig->scheduler, rig->engine, &rig->settings, &err)) fail_msg("%s", err.text);
}

static void rig_close(struct scheduler_rig *rig)
{
    scheduler_free(rig->scheduler);
    engine_close(rig->engine);
    assert_int_equal(rig->alloc.live, 0);
}

static void see_started(void *context, const struct job_progress *progress)
{
    struct actor *a = context;
    a->start_order = ++a->rig->n_started;
    a->started_ns = a->rig->time.now_ns;
    a->first_progress = a->last_progress = *progress;
}

static void see_progress(void *context, const struct job_progress *progress)
{
    struct actor *a = context;
    assert_true(progress->n_done >= a->last_progress.n_done);
    assert_true(progress->left_ns_low <= progress->left_ns_high);
    a->last_progress = *progress;
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct actor *a = context;
    a->got_ns[a->n_got] = a->rig->time.now_ns;
    a->got[a->n_got++] = sampled->id;
    return STOP_NONE;
}

static void see_done(void *context, const struct job_result *result)
{
    struct actor *a = context;
    assert_false(a->is_done);
    a->is_done = true;
    a->result = *result;
    a->done_ns = a->rig->time.now_ns;
}

static bool see_prompt_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct actor *a = context;
    (void)logits;
    assert_int_equal(position, a->n_shown);
    return ++a->n_shown < a->show_fails_at || err_set(err, ERR_FAILED, "enough was shown");
}

/* Job i of the rig, with a prompt that only it has; it never ends by itself. */
static struct actor *cast(struct scheduler_rig *rig, uint32_t i, uint32_t n_prompt, uint32_t n_answer)
{
    struct actor *a = &rig->actors[i];
    uint32_t vocab = engine_config(rig->engine)->vocab;
    *a = (struct actor){.rig = rig, .sampling = sampling_built_in()};
    for (uint32_t p = 0; p < n_prompt; p++) a->prompt[p] = (i * 17 + p * 5 + p * p % 11) % vocab;
    a->sampling.temperature = 0.9;
    a->sampling.max_tokens = n_answer;
    a->rules = (struct sampler_rules){.sampling = &a->sampling, .key = random_key_from_seed(i)};
    a->job.prompt = a->prompt;
    a->job.n_prompt = n_prompt;
    a->job.rules = &a->rules;
    a->job.events = (struct job_events){
        .context = a, .started = see_started, .progress = see_progress, .token = see_token, .done = see_done};
    return a;
}

static void submit(struct scheduler_rig *rig, struct actor *a)
{
    struct err err = {0};
    if (!scheduler_submit(rig->scheduler, &a->job, &err)) fail_msg("%s", err.text);
}

static void run_out(struct scheduler_rig *rig)
{
    while (scheduler_step(rig->scheduler)) continue;
}

static void the_queue_is_bounded(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    struct err err = {0};
    rig_open(&rig, 1, 2);
    rig_start(&rig);
    for (uint32_t i = 0; i < 4; i++) cast(&rig, i, 5, 3);
    submit(&rig, &rig.actors[0]);
    submit(&rig, &rig.actors[1]);
    assert_false(scheduler_submit(rig.scheduler, &rig.actors[2].job, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(scheduler_stats(rig.scheduler).n_refused, 1);
    scheduler_step(rig.scheduler); /* the first leaves the queue */
    submit(&rig, &rig.actors[2]);
    assert_false(scheduler_submit(rig.scheduler, &rig.actors[3].job, &err));
    run_out(&rig);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(rig.actors[i].result.reason, STOP_LENGTH);
    assert_false(rig.actors[3].is_done); /* nobody heard of it */
    rig_close(&rig);
}

static void first_come_first_served_and_people_before_programs(void **state)
{
    (void)state;
    static const enum job_priority priority[5] = {JOB_BACKGROUND, JOB_INTERACTIVE, JOB_BACKGROUND, JOB_INTERACTIVE,
                                                  JOB_INTERACTIVE};
    static const uint32_t order[5] = {4, 1, 5, 2, 3};
    struct scheduler_rig rig;
    rig_open(&rig, 1, 8);
    rig_start(&rig);
    for (uint32_t i = 0; i < 5; i++) {
        cast(&rig, i, 5 + 20 * (i == 1), 3)->job.priority = priority[i]; /* the long one is not overtaken */
        submit(&rig, &rig.actors[i]);
    }
    run_out(&rig);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(rig.actors[i].start_order, order[i]);
    rig_close(&rig);
}

/* Blocks that may come to be needed are there before a job starts; nobody small overtakes somebody large who waits. */
static void admission_is_by_projected_bytes(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    struct err err = {0};
    rig_open(&rig, 4, 8);
    struct kv_pool *pool = forward_kv_pool(engine_forward(rig.engine));
    pool->n_blocks_max = 3;
    rig.settings.prefix_blocks_max = 3; /* kept prefixes are in nobody's way */
    rig_start(&rig);
    cast(&rig, 0, 10, 60); /* two blocks, though its prompt fills a part of one */
    cast(&rig, 1, 60, 30); /* two blocks: must wait */
    cast(&rig, 2, 5, 5);   /* one block: there would be room */
    for (uint32_t i = 0; i < 3; i++) submit(&rig, &rig.actors[i]);
    for (int step = 0; step < 20; step++) {
        scheduler_step(rig.scheduler);
        assert_true(pool->n_blocks <= 3);
        if (!rig.actors[0].is_done) assert_int_equal(scheduler_stats(rig.scheduler).n_running, 1);
    }
    assert_false(rig.actors[0].is_done);
    run_out(&rig);
    assert_int_equal(rig.actors[1].start_order, 2);
    assert_true(rig.actors[1].started_ns >= rig.actors[0].done_ns);
    assert_int_equal(rig.actors[2].start_order, 3);
    assert_true(rig.actors[2].started_ns < rig.actors[1].done_ns); /* these two fit together */
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(rig.actors[i].result.reason, STOP_LENGTH); /* and none failed */

    pool->n_blocks_max = 1; /* what could never run is told at once */
    cast(&rig, 3, 10, 60);
    assert_false(scheduler_submit(rig.scheduler, &rig.actors[3].job, &err));
    assert_int_equal(err.kind, ERR_USER);
    pool->n_blocks_max = 3;
    rig_close(&rig);
}

/* Saves make way for somebody who waits for blocks; and go on when whoever waited has left. */
static void who_left_the_queue_holds_up_no_save(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    struct temp_folder folder;
    struct ssd_cache *ssd;
    struct err err = {0};
    temp_folder_make(&folder);
    rig_open(&rig, 4, 8);
    struct kv_pool *pool = forward_kv_pool(engine_forward(rig.engine));
    const struct ssd_settings settings = {
        .dir = folder.path,
        .bytes_max = 1 << 30,
        .pool = pool,
        .fs = file_system_real(),
        .saver = {.ws = write_system_real(), .clock = clock_simulated(&rig.time)},
    };
    if (!ssd_cache_open(&ssd, &rig.alloc, &settings, &err)) fail_msg("%s", err.text);
    pool->n_blocks_max = 3;
    rig.settings.prefix_blocks_max = 3;
    rig.settings.ssd = ssd;
    rig.settings.demote_idle_ns = 1000 * MS;
    rig_start(&rig);
    submit(&rig, cast(&rig, 0, 10, 60)); /* two blocks */
    submit(&rig, cast(&rig, 1, 60, 30)); /* two blocks: must wait */
    for (int step = 0; step < 3; step++) scheduler_step(rig.scheduler);
    assert_int_equal(rig.actors[1].start_order, 0);
    job_cancel(&rig.actors[1].job);
    run_out(&rig);
    assert_int_equal(rig.actors[1].result.reason, STOP_CANCELLED);
    assert_int_equal(rig.actors[0].result.reason, STOP_LENGTH);
    assert_int_equal(ssd_cache_stats(ssd).n_saved, 0);
    rig.time.now_ns += rig.settings.demote_idle_ns;
    for (int step = 0; step < 20; step++) scheduler_step(rig.scheduler);
    assert_int_equal(ssd_cache_stats(ssd).n_saved, 1); /* what rests is saved though nobody comes any more */
    scheduler_free(rig.scheduler);
    ssd_cache_close(ssd);
    engine_close(rig.engine);
    assert_int_equal(rig.alloc.live, 0);
    temp_folder_remove(&folder);
}

/* The longest time between two ids of an answer while somebody's long prompt is read beside it. */
static int64_t longest_stall(int64_t stall_ns_max, uint32_t *n_passes)
{
    struct scheduler_rig rig;
    int64_t longest = 0;
    rig_open(&rig, 2, 4);
    rig.settings.decode_stall_ns_max = stall_ns_max;
    rig_start(&rig);
    submit(&rig, cast(&rig, 0, 20, 60));
    scheduler_step(rig.scheduler); /* its prompt; now the scheduler knows what a row takes */
    submit(&rig, cast(&rig, 1, 110, 5));
    run_out(&rig);
    const struct actor *a = &rig.actors[0];
    uint64_t steps = scheduler_stats(rig.scheduler).n_passes;
    for (uint32_t i = 1; i < a->n_got; i++)
        if (a->got_ns[i] - a->got_ns[i - 1] > longest) longest = a->got_ns[i] - a->got_ns[i - 1];
    /* Rows ride along: the answer has an id from every pass until it is over, prompt or not. */
    assert_int_equal(a->n_got, 60);
    assert_int_equal(a->result.usage.n_passes, 60);
    assert_true(steps <= 60 + 5);
    *n_passes = (uint32_t)steps;
    rig_close(&rig);
    return longest;
}

static void answers_stand_still_for_so_long_only(void **state)
{
    (void)state;
    uint32_t n_passes;
    static const int64_t bounds[] = {60 * MS, 120 * MS, 250 * MS};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        int64_t stall = longest_stall(bounds[i], &n_passes);
        print_message("at most %lld ms: %lld ms, %u passes\n", (long long)(bounds[i] / MS), (long long)(stall / MS),
                      n_passes);
        assert_true(stall <= bounds[i] + ROW_MS * MS); /* the answer's own row comes on top */
        assert_true(stall > bounds[i] / 2);            /* and what may be used is used */
    }
    assert_true(longest_stall(100000 * MS, &n_passes) > 300 * MS); /* or nothing would have been seen above */
}

static void a_failure_stays_with_its_job(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    uint32_t alone[ANSWER_MAX];
    rig_open(&rig, 2, 4);
    rig_start(&rig);
    submit(&rig, cast(&rig, 0, 12, 40));
    run_out(&rig);
    memcpy(alone, rig.actors[0].got, sizeof alone);

    /* logits that are no numbers, in one row of a pass */
    submit(&rig, cast(&rig, 0, 12, 40));
    submit(&rig, cast(&rig, 1, 9, 40));
    for (int i = 0; i < 6; i++) scheduler_step(rig.scheduler);
    rig.poisoned_row = 1;
    run_out(&rig);
    assert_int_equal(rig.actors[1].result.reason, STOP_ERROR);
    print_message("%s\n", rig.actors[1].result.err.text);
    assert_int_equal(rig.actors[0].result.reason, STOP_LENGTH);
    assert_memory_equal(rig.actors[0].got, alone, sizeof(uint32_t) * 40);
    rig.poisoned_row = SIZE_MAX;

    /* somebody who has enough of his prompt's logits */
    submit(&rig, cast(&rig, 0, 12, 40));
    struct actor *shown = cast(&rig, 1, 30, 5);
    shown->show_fails_at = 10;
    shown->job.events.prompt_logits = see_prompt_logits;
    submit(&rig, shown);
    run_out(&rig);
    assert_int_equal(shown->result.reason, STOP_ERROR);
    assert_int_equal(shown->n_shown, 10);
    assert_memory_equal(rig.actors[0].got, alone, sizeof(uint32_t) * 40);

    /* memory that is not to be had, once: a pass of both fails, and neither job does */
    submit(&rig, cast(&rig, 0, 12, 40));
    submit(&rig, cast(&rig, 1, 60, 40));
    kv_pool_trim(forward_kv_pool(engine_forward(rig.engine)));
    scheduler_step(rig.scheduler);
    kv_pool_trim(forward_kv_pool(engine_forward(rig.engine)));
    rig.alloc.fail_at = atomic_load(&rig.alloc.calls) + 1; /* the second job's next block */
    run_out(&rig);
    assert_true(atomic_load(&rig.alloc.calls) > rig.alloc.fail_at);
    assert_int_equal(rig.actors[0].result.reason, STOP_LENGTH);
    assert_int_equal(rig.actors[1].result.reason, STOP_LENGTH);
    assert_memory_equal(rig.actors[0].got, alone, sizeof(uint32_t) * 40);
    rig.alloc.fail_at = 0;
    rig_close(&rig);
}

/* Everything about thinking with these two ids, whatever the drafts. */
static void think(enum draft_kind draft)
{
    enum { BEGIN = 7, END = 9 };
    struct scheduler_rig rig;
    uint32_t free_run[ANSWER_MAX];
    rig_open(&rig, 2, 4);
    rig.settings.draft = draft;
    rig.settings.n_drafts_max = draft == DRAFT_OFF ? 0 : 3;
    rig_start(&rig);
    for (int kind = 0; kind < 4; kind++) {
        struct actor *a = cast(&rig, 0, 12, 40);
        bool is_open = kind != 3;
        a->sampling.temperature = 0;
        a->job.thinking = (struct job_thinking){is_open, BEGIN, END, kind == 1 ? 5 : 0};
        submit(&rig, a);
        if (kind == 2) {
            while (a->n_got < 8) scheduler_step(rig.scheduler);
            uint32_t before = a->n_got;
            job_end_thinking(&a->job);
            scheduler_step(rig.scheduler);
            assert_int_equal(a->got[before], END); /* the very next */
        }
        run_out(&rig);
        assert_int_equal(a->n_got, 40);
        if (kind == 0) memcpy(free_run, a->got, sizeof free_run);
        if (kind == 1) {
            for (uint32_t i = 0; i < 5; i++) assert_int_equal(a->got[i], free_run[i]);
            assert_int_equal(a->got[5], END);
            for (uint32_t i = 0; i < 5; i++) assert_int_not_equal(free_run[i], END); /* or it ended by itself */
        }
        if (kind == 3) { /* it does not think: a wish to end it changes nothing */
            assert_memory_equal(a->got, free_run, sizeof(uint32_t) * 40);
        }
    }
    struct actor *a = cast(&rig, 0, 12, 40);
    a->sampling.temperature = 0;
    a->job.thinking = (struct job_thinking){false, BEGIN, END, 5};
    job_end_thinking(&a->job);
    submit(&rig, a);
    run_out(&rig);
    assert_memory_equal(a->got, free_run, sizeof(uint32_t) * 40);
    rig_close(&rig);
}

static void thinking_ends_when_it_is_told_to(void **state)
{
    (void)state;
    think(DRAFT_OFF);
    think(DRAFT_NGRAM);
    think(DRAFT_MTP);
}

static void a_cancelled_prompt_calls_its_pass_off(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    rig_open(&rig, 2, 4);
    rig_start(&rig);
    submit(&rig, cast(&rig, 0, 100, 5));
    scheduler_step(rig.scheduler);
    assert_int_equal(rig.actors[0].last_progress.n_done, PASS_ROWS);
    job_cancel(&rig.actors[0].job);
    int64_t before = rig.time.now_ns;
    run_out(&rig);
    assert_int_equal(rig.actors[0].result.reason, STOP_CANCELLED);
    assert_int_equal(rig.time.now_ns, before); /* not another pass for it */
    assert_int_equal(forward_kv_pool(engine_forward(rig.engine))->n_blocks, 0);
    rig_close(&rig);
}

/* Here every row takes the same time, so what is told must come true, for the prompt in front and the one behind it. */
static void finishes_are_told_and_come_true(void **state)
{
    (void)state;
    struct scheduler_rig rig;
    rig_open(&rig, 2, 4);
    rig_start(&rig);
    submit(&rig, cast(&rig, 0, 100, 1));
    submit(&rig, cast(&rig, 1, 110, 1));
    scheduler_step(rig.scheduler);
    const struct job_progress *p = &rig.actors[0].last_progress;
    assert_int_equal(p->n_done, PASS_ROWS);
    int64_t left = (100 - PASS_ROWS) * ROW_MS * MS;
    print_message("%lld ms are left; told: %lld to %lld ms\n", (long long)(left / MS), (long long)(p->left_ns_low / MS),
                  (long long)(p->left_ns_high / MS));
    assert_true(p->left_ns_low <= left && left <= p->left_ns_high && p->left_ns_low > 0);
    run_out(&rig);
    submit(&rig, cast(&rig, 2, 115, 1)); /* by now something is known from the start */
    run_out(&rig);
    p = &rig.actors[2].first_progress;
    left = 115 * ROW_MS * MS;
    assert_true(p->left_ns_low <= left && left <= p->left_ns_high && p->left_ns_low > 0);
    struct scheduler_stats stats = scheduler_stats(rig.scheduler);
    assert_int_equal(stats.n_finishes_told, 3);
    assert_int_equal(stats.n_finishes_held, 3);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(first_come_first_served_and_people_before_programs),
        cmocka_unit_test(admission_is_by_projected_bytes),
        cmocka_unit_test(who_left_the_queue_holds_up_no_save),
        cmocka_unit_test(answers_stand_still_for_so_long_only),
        cmocka_unit_test(a_failure_stays_with_its_job),
        cmocka_unit_test(thinking_ends_when_it_is_told_to),
        cmocka_unit_test(a_cancelled_prompt_calls_its_pass_off),
        cmocka_unit_test(finishes_are_told_and_come_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
