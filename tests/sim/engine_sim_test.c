/* The whole engine over a simulated device, thousands of seeded schedules: reads come late, in any order, in parts,
 * interrupted, and fail; any number of slots, policy, depth, size of pass, prefetch or not; the memory budget is
 * lowered on the way. Whatever happens, every token's logits are bit for bit those of the provider that keeps
 * everything in memory, in the same numerics; a failed pass can be run again, the counters say what the device did, and
 * in the end nothing is left.
 *
 *   engine_sim_test [FIRST_SEED [COUNT]]
 * runs other schedules than the ones of every commit; the seed of a failure is printed. */
#include "run/session.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/temp_folder.h"
#include "support/tiny_model.h"

#include <stdlib.h>

enum { TOKENS = 14, VOCAB = 40 };

#ifdef WEIR_SLOW_ASSERTS /* sanitizer builds are many times slower and look for other things */
enum { SCHEDULES = 300 };
#else
enum { SCHEDULES = 3000 };
#endif

static uint64_t first_seed = 1, n_schedules = SCHEDULES;

static const char config_text[] =
    "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 40, \"hidden_size\": 64, \"num_hidden_layers\": 4,"
    " \"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1, \"n_routed_experts\": 12,"
    " \"num_experts_per_tok\": 3, \"n_shared_experts\": 1, \"routed_scaling_factor\": 2.5, \"num_attention_heads\": 2,"
    " \"q_lora_rank\": 32, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 4, \"v_head_dim\": 16,"
    " \"index_topk\": 4, \"index_n_heads\": 2, \"index_head_dim\": 8, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,"
    " \"eos_token_id\": 39, \"num_nextn_predict_layers\": 1,"
    " \"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]}";

static struct temp_folder folder;
static uint32_t tokens[TOKENS];
static float truth[2][TOKENS][VOCAB]; /* by numerics */

static uint64_t roll(uint64_t *random, uint64_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % n;
}

/* Experts must differ, or a wrong one would not show; router weights of both signs make all of them chosen. */
static void spread_routers(struct made_model *model)
{
    uint64_t random = 7;
    for (size_t t = 0; t < model->n_tensors; t++) {
        struct made_tensor *tensor = &model->tensors[t];
        bool is_router = strstr(tensor->name, "mlp.gate.weight") != NULL;
        bool is_bias = strstr(tensor->name, "e_score_correction_bias") != NULL;
        for (uint64_t i = 0; (is_router || is_bias) && i < tensor->bytes / 4; i++)
            made_set_float(tensor, i, is_bias ? 0.0f : 0.2f * ((float)roll(&random, 2001) / 1000.0f - 1.0f));
    }
}

static int make_model_and_truth(void **state)
{
    (void)state;
    struct made_model made;
    struct tiny_model model;
    struct tiny_run run;
    struct kv kv;
    temp_folder_make(&folder);
    made_model_init(&made, config_text, MADE_MTP | MADE_INDEXERS, 4, 1, 1);
    spread_routers(&made);
    made_write(&made, folder.path);
    made_model_fini(&made);
    for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = (i * 7 + 3) % VOCAB;

    tiny_model_open(&model, folder.path);
    for (int numerics = NUMERICS_EXACT; numerics <= NUMERICS_INT8; numerics++) {
        const struct forward_options options = {
            .rows_max = 16, .logit_rows_max = 16, .positions_max = 32, .numerics = (enum numerics)numerics};
        tiny_run_init(&run, &model, NULL, 1, UINT32_MAX, &options);
        kv_init(&kv, forward_kv_pool(run.forward));
        tiny_run_feed(&run, &kv, tokens, TOKENS, 1, truth[numerics][0]);
        kv_fini(&kv);
        tiny_run_fini(&run);
    }
    tiny_model_close(&model);
    return memcmp(truth[0], truth[1], sizeof truth[0]) != 0 ? 0 : -1; /* or the numerics were not used */
}

static int remove_model(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

struct world {
    uint64_t seed, random;
    enum numerics numerics;
    struct sim_clock clock;
    struct aio_sim device;
    uint64_t n_failed_passes;
    uint64_t n_bytes_to_open; /* that the device gave before anything ran */
};

static bool make_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    struct world *w = context;
    return aio_sim_new(aio, alloc, depth, &w->device, &w->clock, err);
}

static bool compare(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct world *w = context;
    (void)err;
    if (memcmp(logits, truth[w->numerics][position], sizeof truth[0][0]) != 0)
        fail_msg("seed %llu: the logits behind token %u differ", (unsigned long long)w->seed, position);
    return true;
}

static struct engine_settings settings_of(struct world *w)
{
    struct engine_settings s = engine_settings_default(folder.path);
    s.n_threads = 1;
    s.context_tokens = 32;
    s.logit_rows = (uint32_t)(1 + roll(&w->random, 16));
    s.prompt_cache_bytes = 0;
    s.ram_budget_bytes = UINT64_C(1) << 29;
    s.experts_resident = (double)(1 + roll(&w->random, 100)) / 100;
    s.streamed.direct = DIRECT_OFF;
    s.streamed.io_depth = (unsigned)(1 + roll(&w->random, 32));
    s.streamed.policy = policy_kind_at(roll(&w->random, policy_count())).name;
    s.streamed.prefetch = roll(&w->random, 2);
    s.streamed.device = (struct device_source){make_device, w};
    s.streamed.clock = clock_simulated(&w->clock);
    s.numerics = w->numerics = w->seed % 3 == 0 ? NUMERICS_INT8 : NUMERICS_EXACT;
    return s;
}

static void set_weather(struct world *w)
{
    w->device = (struct aio_sim){.seed = roll(&w->random, UINT32_MAX)};
    w->device.delay_ns_max = (int64_t)(roll(&w->random, 4) == 0 ? 0 : roll(&w->random, 3000000000)); /* up to 3 s */
    w->device.short_chance = (unsigned)(roll(&w->random, 2) * roll(&w->random, 300));
    w->device.interrupt_chance = (unsigned)(roll(&w->random, 2) * roll(&w->random, 200));
}

/* What the device gave since the model was open went into slots, to the byte; nothing else reads. */
static void check_bytes(const struct world *w, struct engine *engine)
{
    struct slots *slots = streamed_slots(engine_streamed(engine));
    struct err why;
    uint32_t key;
    while (slots_poll(slots, true, &key, &why) != SLOTS_QUIET) continue; /* what nobody waits for any more */
    assert_int_equal(slots_stats(slots)->n_loading + slots_stats(slots)->n_draining, 0);
    assert_int_equal(slots_stats(slots)->bytes_loaded, w->device.n_bytes - w->n_bytes_to_open);
    assert_true(slots_stats(slots)->bytes_needed <= slots_stats(slots)->bytes_wanted);
}

static void check_counters(struct world *w, struct engine *engine)
{
    check_bytes(w, engine);
    const struct reader_stats *reader = reader_stats(streamed_reader(engine_streamed(engine)));
    const struct slots_stats *slots = slots_stats(streamed_slots(engine_streamed(engine)));
    const struct streamer_stats *streamer = streamed_stats(engine_streamed(engine));
    assert_int_equal(reader->n_attempts, w->device.n_attempts);
    assert_int_equal(reader->bytes_landed, w->device.n_bytes);
    assert_int_equal(reader->n_eio, w->device.n_eio);
    assert_int_equal(reader->n_flying_max, w->device.n_flying_max);
    assert_int_equal(slots->n_leased, 0);
    assert_true(slots->n_hits + slots->n_misses + slots->n_joined >= streamer->n_handed_out);
    if (w->n_failed_passes == 0 && streamer->n_gave_way == 0)
        assert_int_equal(slots->n_hits + slots->n_misses + slots->n_joined, streamer->n_handed_out);
    assert_int_equal(slots->n_loads, slots->n_misses + slots->n_hints);
    assert_true(slots->n_hint_hits + slots->n_hints_dropped <= slots->n_hints);
    if (slots->n_evictions == 0) /* what was given up before it came left its slot without one */
        assert_true(slots->n_loads <= slots->n_slots + slots->n_failed_loads + slots->n_hints_dropped);
    assert_true(slots_check(streamed_slots(engine_streamed(engine))));
}

static uint64_t total_evictions, total_failed_passes, total_shrinks, total_hints;

static void run_schedule(uint64_t seed)
{
    struct world w = {.seed = seed, .random = seed * UINT64_C(0x9e3779b97f4a7c15)};
    struct alloc alloc = {0};
    struct err err = {0};
    struct engine *engine;
    struct session session;
    set_weather(&w);
    struct engine_settings settings = settings_of(&w);
    if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
    session_init(&session, engine);
    w.n_bytes_to_open = w.device.n_bytes;
    w.device.eio_chance = (unsigned)(roll(&w.random, 2) * roll(&w.random, 350));
    uint64_t lower_after = roll(&w.random, 3) == 0 ? roll(&w.random, TOKENS) : UINT64_MAX;
    while (session_tokens(&session) < TOKENS) {
        uint32_t held = session_tokens(&session);
        size_t n = 1 + roll(&w.random, TOKENS - held);
        if (held >= lower_after) streamed_set_budget(engine_streamed(engine), 1); /* far too little: all but one go */
        if (session_feed(&session, tokens + held, n, compare, &w, &err)) continue;
        w.n_failed_passes++;
        if (err.kind != ERR_IO || !strstr(err.text, ".safetensors") || !strstr(err.text, "offset") ||
            !strstr(err.text, "mlp.experts."))
            fail_msg("seed %llu: kind %d: %s", (unsigned long long)seed, (int)err.kind, err.text);
        if (w.n_failed_passes % 8 == 0) w.device.eio_chance /= 2;
    }
    check_counters(&w, engine);
    total_evictions += slots_stats(streamed_slots(engine_streamed(engine)))->n_evictions;
    total_hints += slots_stats(streamed_slots(engine_streamed(engine)))->n_hints;
    total_failed_passes += w.n_failed_passes;
    total_shrinks += streamed_guard(engine_streamed(engine))->n_shrinks;
    session_fini(&session);
    engine_close(engine);
    assert_int_equal(w.device.n_flying, 0);
    assert_int_equal(alloc.live, 0);
}

static void every_schedule_gives_the_same_logits(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < n_schedules; i++) run_schedule(first_seed + i);
    printf(
        "%llu schedules from seed %llu: %llu evictions, %llu hints, %llu failed passes, %llu times slots went back\n",
        (unsigned long long)n_schedules, (unsigned long long)first_seed, (unsigned long long)total_evictions,
        (unsigned long long)total_hints, (unsigned long long)total_failed_passes, (unsigned long long)total_shrinks);
    if (n_schedules < 100) return;
    assert_true(total_evictions > 20 * n_schedules); /* or it would not have streamed */
    assert_true(total_failed_passes > n_schedules / 20);
    assert_true(total_shrinks > n_schedules / 20);
    assert_true(total_hints > n_schedules);
}

/* A comparison that cannot fail proves nothing: with one byte of one expert changed, the logits must differ. */
static void the_comparison_sees_one_changed_byte(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct engine *engine;
    struct session session;
    struct world w = {.seed = 1, .random = 1};
    struct engine_settings settings = settings_of(&w);
    if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    uint64_t at;
    const struct tensor *t = engine_inventory(engine)->layers[1].experts[0][EXPERT_DOWN].payload;
    const char *path = engine_inventory(engine)->catalogue->shards[t->shard].file.path;
    size_t bytes;
    unsigned char *data = take_file(path, &bytes);
    at = t->offset;
    data[at] ^= 0x77;
    char other[512];
    snprintf(other, sizeof other, "%s", path);
    engine_close(engine);
    put_file(other, data, bytes);
    if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    session_init(&session, engine);
    bool differs = false;
    for (uint32_t i = 0; i < TOKENS; i++) {
        if (!session_feed(&session, tokens + i, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
        differs |= memcmp(session.logits, truth[w.numerics][i], sizeof truth[0][0]) != 0;
    }
    assert_true(differs);
    session_fini(&session);
    engine_close(engine);
    data[at] ^= 0x77;
    put_file(other, data, bytes);
    free(data);
    assert_int_equal(alloc.live, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2) n_schedules = strtoull(argv[2], NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_same_logits),
        cmocka_unit_test(the_comparison_sees_one_changed_byte),
    };
    return cmocka_run_group_tests(tests, make_model_and_truth, remove_model);
}
