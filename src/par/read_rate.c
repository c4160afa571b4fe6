#include "par/read_rate.h"

#include "plat/pages.h"
#include <stdatomic.h>

/* Words that are read in one step, and how far ahead they are asked for: loads of single words, and memory in small
 * pages, are slower than products that read their weights. */
enum { GRAIN = 1 << 16, LINE_WORDS = 8, STEP = 4 * LINE_WORDS, AHEAD = 64 * LINE_WORDS };

/* Two words: the widest that every processor of its family has. */
typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));

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
    pair a = {0}, b = {0}, c = {0}, d = {0};
    (void)thread;
    size_t i = begin;
    for (; i + STEP <= end; i += STEP) {
        for (size_t k = i; k < i + STEP; k += LINE_WORDS) {
            const pair *line = (const pair *)(words + k);
            __builtin_prefetch(words + k + AHEAD);
            a += line[0], b += line[1], c += line[2], d += line[3];
        }
    }
    a += b + c + d;
    uint64_t sum = a[0] + a[1];
    for (; i < end; i++) sum += words[i];
    atomic_fetch_add(&reading->sum, sum);
}

bool read_rate_init(struct read_rate *rate, struct alloc *alloc, struct team *team, uint64_t bytes, struct err *err)
{
    *rate = (struct read_rate){.alloc = alloc, .n_words = (size_t)(bytes / sizeof(uint64_t))};
    rate->words = pages_get(alloc, bytes, err); /* in large pages, as weights are */
    if (!rate->words) return false;
    team_run(team, rate->n_words, GRAIN, write_range, rate); /* each page a page of its own, not the page of zeros */
    return true;
}

void read_rate_fini(struct read_rate *rate)
{
    if (rate->words) pages_put(rate->alloc, rate->words, rate->n_words * sizeof(uint64_t));
    *rate = (struct read_rate){0};
}

void read_rate_run(struct read_rate *rate, struct team *team)
{
    struct reading reading = {.rate = rate};
    team_run(team, rate->n_words, GRAIN, read_range, &reading);
    rate->sum = atomic_load(&reading.sum);
}
