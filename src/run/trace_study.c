#include "run/trace_study.h"

#include "base/assert.h"
#include "resid/replay.h"
#include <math.h>

static bool read_wants(struct trace_study *study, struct wants *wants, struct file_system fs, const char *path,
                       struct err *err)
{
    struct trace_reader *reader;
    if (!trace_open(&reader, study->alloc, fs, path, err)) return false;
    bool ok = wants_read(wants, study->alloc, reader, err);
    study->dropped_bytes = ok ? trace_dropped_bytes(reader) : 0;
    trace_end(reader);
    if (ok && wants->n_wants == 0) ok = err_set(err, ERR_DATA, "%s: a trace without a single step", path);
    return ok;
}

/* How many experts there are in layers that have any: the base of shares. */
static bool count_distinct(struct trace_study *study, const struct wants *wants, uint32_t *n_experts_all,
                           struct err *err)
{
    bool *seen = alloc_get_array(study->alloc, (uint64_t)wants->n_layers * wants->n_experts, sizeof *seen, err);
    if (!seen) return false;
    for (uint64_t i = 0; i < wants->n_keys; i++) {
        study->n_distinct += !seen[wants->keys[i]];
        seen[wants->keys[i]] = true;
    }
    *n_experts_all = 0;
    for (uint32_t layer = 0; layer < wants->n_layers; layer++) {
        bool is_used = false;
        for (uint32_t e = 0; e < wants->n_experts; e++) is_used |= seen[layer * wants->n_experts + e];
        *n_experts_all += is_used ? wants->n_experts : 0;
    }
    alloc_put(study->alloc, seen);
    return true;
}

static bool make_scores(struct trace_study *study, const char *policy, struct err *err)
{
    study->n_scores = (policy ? 1 : (uint32_t)policy_count()) + 1;
    uint64_t n = (uint64_t)study->n_sizes * study->n_scores;
    study->scores = alloc_get_array(study->alloc, n, sizeof *study->scores, err);
    if (!study->scores) return false;
    study->by_layer = alloc_get_array(study->alloc, 2 * n * study->n_layers, sizeof *study->by_layer, err);
    if (!study->by_layer) return false;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)(i % study->n_scores);
        study->scores[i].policy = k + 1 == study->n_scores ? "belady" : policy ? policy : policy_kind_at(k).name;
        study->scores[i].layer_hits = study->by_layer + 2 * i * study->n_layers;
        study->scores[i].layer_misses = study->scores[i].layer_hits + study->n_layers;
    }
    return true;
}

static bool run_one(struct trace_study *study, const struct wants *wants, uint32_t size, uint32_t k, struct err *err)
{
    struct trace_score *score = &study->scores[size * study->n_scores + k];
    struct replay_result result = {.layer_hits = score->layer_hits, .layer_misses = score->layer_misses};
    bool ok = k + 1 == study->n_scores
                  ? replay_optimum(&result, study->alloc, wants, study->n_slots[size], err)
                  : replay_policy(&result, study->alloc, wants, score->policy, study->n_slots[size], err);
    score->n_hits = result.n_hits;
    score->n_misses = result.n_misses;
    return ok;
}

bool trace_study_run(struct trace_study *study, struct alloc *alloc, struct file_system fs, const char *path,
                     const char *policy, const struct trace_size *sizes, uint32_t n_sizes, struct err *err)
{
    struct wants wants = {0};
    uint32_t n_all;
    ASSERT(n_sizes > 0);
    ASSERT(n_sizes <= TRACE_STUDY_SIZES_MAX);
    *study = (struct trace_study){.alloc = alloc, .n_sizes = n_sizes};
    if (!read_wants(study, &wants, fs, path, err)) goto fail;
    study->n_layers = wants.n_layers;
    study->n_experts = wants.n_experts;
    study->n_wants = wants.n_wants;
    study->n_wanted = wants.n_keys;
    if (!count_distinct(study, &wants, &n_all, err)) goto fail;
    for (uint32_t i = 0; i < n_sizes; i++) {
        double n = sizes[i].is_share ? ceil(sizes[i].value * n_all) : sizes[i].value;
        study->n_slots[i] = n < 1 ? 1 : (uint32_t)n;
    }
    if (!make_scores(study, policy, err)) goto fail;
    for (uint32_t i = 0; i < n_sizes; i++)
        for (uint32_t k = 0; k < study->n_scores; k++)
            if (!run_one(study, &wants, i, k, err)) goto fail;
    wants_fini(&wants);
    return true;
fail:
    wants_fini(&wants);
    trace_study_fini(study);
    return false;
}

void trace_study_fini(struct trace_study *study)
{
    if (!study->alloc) return;
    alloc_put(study->alloc, study->scores);
    alloc_put(study->alloc, study->by_layer);
    *study = (struct trace_study){0};
}

const struct trace_score *trace_study_score(const struct trace_study *study, uint32_t size, uint32_t score)
{
    ASSERT(size < study->n_sizes);
    ASSERT(score < study->n_scores);
    return &study->scores[size * study->n_scores + score];
}

uint64_t trace_study_regret(const struct trace_study *study, uint32_t size, uint32_t score)
{
    uint64_t misses = trace_study_score(study, size, score)->n_misses;
    uint64_t best = trace_study_score(study, size, study->n_scores - 1)->n_misses;
    return misses > best ? misses - best : 0;
}
