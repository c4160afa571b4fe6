#include "resid/regret.h"

#include "base/assert.h"
#include <string.h>

enum { WANTS_ROOM = 8192, KEYS_ROOM = 1 << 16 }; /* a hundred decoded tokens of the full model */

bool regret_init(struct regret *r, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts, struct err *err)
{
    *r = (struct regret){0};
    wants_init(&r->window, alloc, n_layers, n_experts);
    ASSERT(n_experts <= KEYS_ROOM / 4);
    r->window.keys = alloc_get_array(alloc, KEYS_ROOM, sizeof *r->window.keys, err);
    if (!r->window.keys) goto fail;
    r->window.begins = alloc_get_array(alloc, WANTS_ROOM + 1, sizeof *r->window.begins, err);
    if (!r->window.begins) goto fail;
    r->misses = alloc_get_array(alloc, WANTS_ROOM, sizeof *r->misses, err);
    if (!r->misses) goto fail;
    r->window.keys_room = KEYS_ROOM;
    r->window.begins_room = WANTS_ROOM + 1;
    return true;
fail:
    regret_fini(r);
    return false;
}

void regret_fini(struct regret *r)
{
    if (r->window.alloc) alloc_put(r->window.alloc, r->misses);
    wants_fini(&r->window);
    *r = (struct regret){0};
}

static void forget_half(struct regret *r)
{
    struct wants *w = &r->window;
    uint64_t gone = w->n_wants / 2 + 1, first = w->begins[gone];
    w->n_wants -= gone;
    w->n_keys -= first;
    memmove(w->keys, w->keys + first, w->n_keys * sizeof *w->keys);
    memmove(r->misses, r->misses + gone, w->n_wants * sizeof *r->misses);
    for (uint64_t i = 0; i <= w->n_wants; i++) w->begins[i] = w->begins[i + gone] - first;
}

void regret_add(struct regret *r, const uint32_t *keys, uint32_t n, uint32_t n_misses)
{
    struct wants *w = &r->window;
    ASSERT(n > 0);
    ASSERT(n_misses <= n);
    while (w->n_wants == WANTS_ROOM || w->n_keys + n > KEYS_ROOM) forget_half(r);
    memcpy(w->keys + w->n_keys, keys, n * sizeof *keys);
    r->misses[w->n_wants++] = n_misses;
    w->begins[w->n_wants] = w->n_keys += n;
}

bool regret_now(const struct regret *r, struct alloc *alloc, uint32_t n_slots, struct regret_figures *out,
                struct err *err)
{
    const struct wants *w = &r->window;
    struct replay_result best;
    *out = (struct regret_figures){.n_wants = w->n_wants, .n_wanted = w->n_keys};
    for (uint64_t i = 0; i < w->n_wants; i++) out->n_misses += r->misses[i];
    best = (struct replay_result){0};
    if (!replay_optimum(&best, alloc, w, n_slots, err)) return false;
    /* The optimum began with nothing; whatever could have been there at most saves one miss for each slot. */
    out->n_misses_best = best.n_misses > n_slots ? best.n_misses - n_slots : 0;
    if (out->n_misses_best > out->n_misses) out->n_misses_best = out->n_misses;
    return true;
}
