#include "serve/histograms.h"

#include "run/service.h"
#include <inttypes.h>

static const struct {
    const char *name, *help;
    bool in_tokens;
} kinds[] = {
#define X(id, name, help, in_tokens) {name, help, in_tokens},
    HISTOGRAM_LIST(X)
#undef X
};

/* Upper bounds: a token may take milliseconds or half a minute, an answer hours. */
static const double seconds[HISTOGRAM_BUCKETS] = {0.001, 0.005, 0.02, 0.05, 0.1, 0.25,  0.5,   1,
                                                  2.5,   5,     10,   30,   60,  300.0, 1800., 7200.};
static const double tokens[HISTOGRAM_BUCKETS] = {1,    4,    16,   64,    128,   256,   512,    1024,
                                                 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1048576};

static void add(struct histogram *h, const double *bounds, double value, uint64_t units)
{
    size_t i = 0;
    while (i < HISTOGRAM_BUCKETS && value > bounds[i]) i++;
    atomic_fetch_add(&h->bucket[i], 1);
    atomic_fetch_add(&h->sum, units);
}

static void add_ns(struct histograms *h, enum histogram_id id, int64_t ns)
{
    add(&h->of[id], seconds, (double)ns / 1e9, ns > 0 ? (uint64_t)ns : 0);
}

static void add_tokens(struct histograms *h, enum histogram_id id, uint32_t n)
{
    add(&h->of[id], tokens, n, n);
}

void histograms_add(struct histograms *histograms, const struct service_result *r)
{
    struct histograms *h = histograms;
    add_ns(h, HISTOGRAM_QUEUE, r->queued_ns);
    add_ns(h, HISTOGRAM_ANSWER, r->queued_ns + r->prompt_ns + r->decode_ns);
    if (r->usage.n_prompt == 0) return; /* it never left the queue */
    add_tokens(h, HISTOGRAM_PROMPT_TOKENS, r->usage.n_prompt);
    add_tokens(h, HISTOGRAM_ANSWER_TOKENS, r->usage.n_generated);
    if (r->usage.n_generated == 0) return;
    add_ns(h, HISTOGRAM_PROMPT, r->prompt_ns);
    add_ns(h, HISTOGRAM_FIRST_TOKEN, r->queued_ns + r->prompt_ns);
    if (r->usage.n_generated > 1) add_ns(h, HISTOGRAM_TOKEN, r->decode_ns / (r->usage.n_generated - 1));
}

static bool write_one(struct histogram *h, enum histogram_id id, struct buf *out, struct err *err)
{
    const char *name = kinds[id].name;
    const double *bounds = kinds[id].in_tokens ? tokens : seconds;
    uint64_t n = 0;
    if (!buf_printf(out, err, "# HELP weir_%s %s\n# TYPE weir_%s histogram\n", name, kinds[id].help, name))
        return false;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        n += atomic_load(&h->bucket[i]);
        if (!buf_printf(out, err, "weir_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], n)) return false;
    }
    n += atomic_load(&h->bucket[HISTOGRAM_BUCKETS]);
    double sum = (double)atomic_load(&h->sum) / (kinds[id].in_tokens ? 1 : 1e9);
    return buf_printf(out, err,
                      "weir_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nweir_%s_sum %.17g\nweir_%s_count %" PRIu64 "\n", name,
                      n, name, sum, name, n);
}

bool histograms_write(struct histograms *histograms, struct buf *out, struct err *err)
{
    for (int id = 0; id < HISTOGRAMS; id++)
        if (!write_one(&histograms->of[id], (enum histogram_id)id, out, err)) return false;
    return true;
}
