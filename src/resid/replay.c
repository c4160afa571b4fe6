#include "resid/replay.h"

#include "base/assert.h"
#include <string.h>

#define NEVER UINT64_MAX

void wants_init(struct wants *w, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts)
{
    *w = (struct wants){.alloc = alloc, .n_layers = n_layers, .n_experts = n_experts};
}

void wants_fini(struct wants *w)
{
    if (!w->alloc) return;
    alloc_put(w->alloc, w->keys);
    alloc_put(w->alloc, w->begins);
    *w = (struct wants){0};
}

static bool make_room(struct wants *w, uint64_t n, struct err *err)
{
    if (w->n_keys + n > w->keys_room) {
        uint64_t room = 2 * (w->n_keys + n) + 64;
        uint32_t *keys = alloc_resize(w->alloc, w->keys, room * sizeof *keys, err);
        if (!keys) return false;
        w->keys = keys;
        w->keys_room = room;
    }
    if (w->n_wants + 2 > w->begins_room) {
        uint64_t room = 2 * w->n_wants + 64;
        uint64_t *begins = alloc_resize(w->alloc, w->begins, room * sizeof *begins, err);
        if (!begins) return false;
        w->begins = begins;
        w->begins_room = room;
    }
    return true;
}

bool wants_add(struct wants *w, uint32_t layer, const uint16_t *experts, uint64_t n, struct err *err)
{
    uint64_t present[(UINT16_MAX + 1) / 64] = {0};
    ASSERT(layer < w->n_layers);
    for (uint64_t i = 0; i < n; i++) {
        ASSERT(experts[i] < w->n_experts);
        present[experts[i] / 64] |= UINT64_C(1) << experts[i] % 64;
    }
    if (!make_room(w, n < w->n_experts ? n : w->n_experts, err)) return false;
    for (uint32_t word = 0; word <= (w->n_experts - 1) / 64; word++)
        for (uint64_t bits = present[word]; bits; bits &= bits - 1)
            w->keys[w->n_keys++] = layer * w->n_experts + word * 64 + (uint32_t)__builtin_ctzll(bits);
    w->begins[++w->n_wants] = w->n_keys;
    return true;
}

bool wants_read(struct wants *w, struct alloc *alloc, struct trace_reader *reader, struct err *err)
{
    const struct trace_shape *shape = trace_shape(reader);
    bool is_end;
    wants_init(w, alloc, shape->n_layers, shape->n_experts);
    for (;;) {
        struct trace_step step;
        if (!trace_next(reader, &step, &is_end, err)) goto fail;
        if (is_end) return true;
        if (!wants_add(w, step.layer, step.experts, (uint64_t)step.n_rows * shape->n_per_row, err)) goto fail;
    }
fail:
    wants_fini(w);
    return false;
}

static void count(struct replay_result *result, const struct wants *w, uint32_t key, bool is_hit)
{
    uint64_t *by_layer = is_hit ? result->layer_hits : result->layer_misses;
    result->n_hits += is_hit;
    result->n_misses += !is_hit;
    if (by_layer) by_layer[key / w->n_experts]++;
}

/* The cache of a replay: which keys are in, as a list and by key. */
struct cache {
    uint32_t *keys;   /* [n_slots]: first those that may be victims, then the held ones */
    uint32_t *places; /* [n keys] place in `keys`, or UINT32_MAX */
    uint32_t n, n_free_to_go, n_slots;
};

static void swap_places(struct cache *c, uint32_t a, uint32_t b)
{
    uint32_t key = c->keys[a];
    c->keys[a] = c->keys[b];
    c->keys[b] = key;
    c->places[c->keys[a]] = a;
    c->places[c->keys[b]] = b;
}

static void hold(struct cache *c, uint32_t key)
{
    swap_places(c, c->places[key], --c->n_free_to_go);
}

static void bring_in(struct cache *c, struct policy *policy, uint32_t key)
{
    if (c->n == c->n_slots) {
        if (c->n_free_to_go == 0) c->n_free_to_go = c->n; /* the want is larger than the cache: used ones may go */
        uint32_t victim = (uint32_t)policy_choose_victim(policy, c->keys, c->n_free_to_go, key);
        uint32_t gone = c->keys[victim];
        swap_places(c, victim, --c->n_free_to_go);
        swap_places(c, c->n_free_to_go, --c->n);
        c->places[gone] = UINT32_MAX;
        policy_on_evict(policy, gone);
    }
    c->keys[c->n] = key;
    c->places[key] = c->n++;
    policy_on_admit(policy, key);
}

struct replay {
    struct replay_result *result;
    const struct wants *wants;
    struct cache cache;
    struct policy *policy;
    uint32_t *misses; /* [n_experts] of the want at hand */
};

static void replay_want(struct replay *r, uint64_t i)
{
    const struct wants *w = r->wants;
    uint32_t n_misses = 0;
    r->cache.n_free_to_go = r->cache.n;
    for (uint64_t k = w->begins[i]; k < w->begins[i + 1]; k++) {
        uint32_t key = w->keys[k];
        bool is_hit = r->cache.places[key] != UINT32_MAX;
        count(r->result, w, key, is_hit);
        if (is_hit) {
            policy_on_touch(r->policy, key);
            hold(&r->cache, key);
        } else {
            r->misses[n_misses++] = key;
        }
    }
    for (uint32_t k = 0; k < n_misses; k++) {
        bring_in(&r->cache, r->policy, r->misses[k]);
        policy_on_touch(r->policy, r->misses[k]);
    }
}

static void clear(struct replay_result *result, const struct wants *w)
{
    result->n_hits = result->n_misses = 0;
    if (result->layer_hits) memset(result->layer_hits, 0, w->n_layers * sizeof *result->layer_hits);
    if (result->layer_misses) memset(result->layer_misses, 0, w->n_layers * sizeof *result->layer_misses);
}

static bool cache_init(struct cache *c, struct alloc *alloc, uint64_t n_keys, uint32_t n_slots, struct err *err)
{
    *c = (struct cache){.n_slots = n_slots};
    c->keys = alloc_get_array(alloc, n_slots, sizeof *c->keys, err);
    if (!c->keys) return false;
    c->places = alloc_get_array(alloc, n_keys, sizeof *c->places, err);
    if (!c->places) return false;
    memset(c->places, 0xff, n_keys * sizeof *c->places);
    return true;
}

bool replay_policy(struct replay_result *result, struct alloc *alloc, const struct wants *w, const char *policy,
                   uint32_t n_slots, struct err *err)
{
    struct replay r = {.result = result, .wants = w};
    struct policy_shape shape = {w->n_layers, w->n_experts, n_slots};
    uint32_t layer, last_layer = 0;
    bool ok = false;
    ASSERT(n_slots > 0);
    clear(result, w);
    if (!cache_init(&r.cache, alloc, (uint64_t)w->n_layers * w->n_experts, n_slots, err)) goto fail;
    r.misses = alloc_get_array(alloc, w->n_experts, sizeof *r.misses, err);
    if (!r.misses) goto fail;
    if (!policy_new(&r.policy, alloc, policy, &shape, err)) goto fail;
    for (uint64_t i = 0; i < w->n_wants; i++, last_layer = layer) {
        layer = w->keys[w->begins[i]] / w->n_experts;
        if (i > 0 && layer <= last_layer) policy_on_turn(r.policy);
        replay_want(&r, i);
    }
    ok = true;
fail:
    policy_free(r.policy);
    alloc_put(alloc, r.misses);
    alloc_put(alloc, r.cache.places);
    alloc_put(alloc, r.cache.keys);
    return ok;
}

/* Keys in memory by when they are wanted again, the latest on top. Entries of a key that was touched since are stale:
 * they say another time than next[key] and are thrown away when they come up. */
struct entry {
    uint64_t next;
    uint32_t key;
};

struct foresight {
    struct entry *heap; /* [n_heap]; one entry for each access at most */
    uint64_t n_heap;
    uint64_t *next;    /* [n_keys] when a key in memory is wanted again */
    uint64_t *next_of; /* [accesses] the same for each access */
    bool *is_in;       /* [n_keys] */
    uint64_t n_in;
};

static void push(struct foresight *f, struct entry entry)
{
    uint64_t i = f->n_heap++;
    for (; i > 0 && f->heap[(i - 1) / 2].next < entry.next; i = (i - 1) / 2) f->heap[i] = f->heap[(i - 1) / 2];
    f->heap[i] = entry;
}

static struct entry pop(struct foresight *f)
{
    struct entry top = f->heap[0], last = f->heap[--f->n_heap];
    uint64_t i = 0;
    for (;;) {
        uint64_t child = 2 * i + 1;
        if (child >= f->n_heap) break;
        if (child + 1 < f->n_heap && f->heap[child + 1].next > f->heap[child].next) child++;
        if (f->heap[child].next <= last.next) break;
        f->heap[i] = f->heap[child];
        i = child;
    }
    f->heap[i] = last;
    return top;
}

static void evict_latest(struct foresight *f)
{
    struct entry e;
    do {
        ASSERT(f->n_heap > 0);
        e = pop(f);
    } while (!f->is_in[e.key] || f->next[e.key] != e.next);
    f->is_in[e.key] = false;
    f->n_in--;
}

/* For each access the number of the want that asks for the same key next. */
static void look_ahead(struct foresight *f, const struct wants *w)
{
    uint64_t n_keys = (uint64_t)w->n_layers * w->n_experts;
    for (uint64_t key = 0; key < n_keys; key++) f->next[key] = NEVER;
    for (uint64_t i = w->n_wants; i-- > 0;)
        for (uint64_t k = w->begins[i]; k < w->begins[i + 1]; k++) {
            f->next_of[k] = f->next[w->keys[k]];
            f->next[w->keys[k]] = i;
        }
}

/* Everything that was in memory or came for this want may stay; what is wanted again last does not. */
static void optimum_of_want(struct foresight *f, const struct wants *w, uint64_t i, uint32_t n_slots,
                            struct replay_result *result)
{
    for (uint64_t k = w->begins[i]; k < w->begins[i + 1]; k++) {
        uint32_t key = w->keys[k];
        count(result, w, key, f->is_in[key]);
        f->n_in += !f->is_in[key];
        f->is_in[key] = true;
        f->next[key] = f->next_of[k];
        push(f, (struct entry){f->next_of[k], key});
    }
    while (f->n_in > n_slots) evict_latest(f);
}

bool replay_optimum(struct replay_result *result, struct alloc *alloc, const struct wants *w, uint32_t n_slots,
                    struct err *err)
{
    struct foresight f = {0};
    uint64_t n_keys = (uint64_t)w->n_layers * w->n_experts;
    bool ok = false;
    ASSERT(n_slots > 0);
    clear(result, w);
    f.heap = alloc_get_array(alloc, w->n_keys + 1, sizeof *f.heap, err);
    if (!f.heap) goto fail;
    f.next = alloc_get_array(alloc, n_keys, sizeof *f.next, err);
    if (!f.next) goto fail;
    f.next_of = alloc_get_array(alloc, w->n_keys + 1, sizeof *f.next_of, err);
    if (!f.next_of) goto fail;
    f.is_in = alloc_get_array(alloc, n_keys, sizeof *f.is_in, err);
    if (!f.is_in) goto fail;
    look_ahead(&f, w);
    for (uint64_t i = 0; i < w->n_wants; i++) optimum_of_want(&f, w, i, n_slots, result);
    ok = true;
fail:
    alloc_put(alloc, f.is_in);
    alloc_put(alloc, f.next_of);
    alloc_put(alloc, f.next);
    alloc_put(alloc, f.heap);
    return ok;
}
