#include "par/read_rate.h"

#include <stdatomic.h>

enum { GRAIN = 1 << 16 };

struct reading {
    struct read_rate *rate;
    atomic_uint_least64_t sum;
};

static void write_range(void *context, size_t begin, size_t end, unsigned thread)
{
    struct read_rate *rate = context;
    (void)thread;
    for (size_t i = begin; i < end; i++) rate->words[i] = i;
}

static void read_range(void *context, size_t begin, size_t end, unsigned thread)
{
    struct reading *reading = context;
    const uint64_t *words = reading->rate->words;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    (void)thread;
    size_t i = begin;
    for (; i + 4 <= end; i += 4) a += words[i], b += words[i + 1], c += words[i + 2], d += words[i + 3];
    for (; i < end; i++) a += words[i];
    atomic_fetch_add(&reading->sum, a + b + c + d);
}

bool read_rate_init(struct read_rate *rate, struct alloc *alloc, struct team *team, uint64_t bytes, struct err *err)
{
    *rate = (struct read_rate){.alloc = alloc, .n_words = (size_t)(bytes / sizeof(uint64_t))};
    rate->words = alloc_get(alloc, bytes, err);
    if (!rate->words) return false;
    team_run(team, rate->n_words, GRAIN, write_range, rate); /* each page a page of its own, not the page of zeros */
    return true;
}

void read_rate_fini(struct read_rate *rate)
{
    if (rate->words) alloc_put(rate->alloc, rate->words);
    *rate = (struct read_rate){0};
}

void read_rate_run(struct read_rate *rate, struct team *team)
{
    struct reading reading = {.rate = rate};
    team_run(team, rate->n_words, GRAIN, read_range, &reading);
    rate->sum = atomic_load(&reading.sum);
}
