#include "gram/matcher_int.h"

#include "base/assert.h"
#include <string.h>

/* ---- making ---- */

/* Keeps the frames that the position needs, and moves it to the front. Frames point down to smaller numbers, so one
 * pass upwards keeps their order. */
static bool compact(struct matcher *m)
{
    if (!matcher_room(m, &m->renumber, &m->renumber_room, m->n_frames, sizeof *m->renumber)) return false;
    memset(m->renumber, 0, m->n_frames * sizeof *m->renumber);
    for (uint32_t p = 0; p < m->n_now; p++)
        for (uint32_t f = m->places[p].stack; f != 0 && !m->renumber[f]; f = m->frames[f].below) m->renumber[f] = 1;
    uint32_t n = 1;
    for (uint32_t f = 1; f < m->n_frames; f++) {
        if (!m->renumber[f]) continue;
        struct frame frame = m->frames[f];
        frame.below = m->renumber[frame.below];
        m->frames[n] = frame;
        m->renumber[f] = n++;
    }
    for (uint32_t p = 0; p < m->n_now; p++) m->places[p].stack = m->renumber[m->places[p].stack];
    m->n_frames = n;
    if (n > MATCHER_FRAMES_MAX) matcher_limit(m, "the answer nests too deeply");
    return m->err.kind == ERR_NONE;
}

/* The set that was made last becomes the position. */
static bool arrive(struct matcher *m)
{
    uint32_t n = m->n_places - m->set_first;
    memmove(m->places, m->places + m->set_first, n * sizeof *m->places);
    m->n_now = m->n_places = n;
    m->accepts = m->set_accepts;
    return compact(m);
}

static bool start(struct matcher *m)
{
    if (!matcher_room(m, &m->frames, &m->frames_room, 1, sizeof *m->frames)) return false;
    m->frames[0] = (struct frame){.node = GRAM_NONE, .step = STEP_BOTTOM};
    m->n_frames = 1;
    set_begin(m);
    set_enter(m, m->g->root, 0);
    if (m->g->nodes[m->g->root].has_empty) m->set_accepts = true;
    return m->err.kind == ERR_NONE && matcher_room(m, &m->places, &m->places_room, 1, sizeof *m->places) && arrive(m);
}

struct matcher *matcher_new(struct alloc *alloc, const struct matcher_rules *rules, struct err *err)
{
    struct matcher *m = alloc_get(alloc, sizeof *m, err);
    if (!m) return NULL;
    m->alloc = alloc;
    m->constraint = constraint_hold(rules->constraint);
    m->g = constraint_grammar(rules->constraint);
    m->cache = rules->cache;
    m->trie = mask_cache_trie(rules->cache);
    m->ids = *rules->ids;
    m->thinks = rules->starts_in_think;
    uint64_t words = token_trie_words(m->trie), depths = (uint64_t)m->trie->depth_max + 2;
    m->levels = alloc_get_array(alloc, depths, sizeof *m->levels, &m->err);
    m->leaf_levels = m->levels ? alloc_get_array(alloc, depths, sizeof *m->leaf_levels, &m->err) : NULL;
    m->leaf_mask = m->leaf_levels ? alloc_get_array(alloc, words, sizeof *m->leaf_mask, &m->err) : NULL;
    m->leaf_units = m->leaf_mask ? alloc_get_array(alloc, m->trie->id_end, sizeof *m->leaf_units, &m->err) : NULL;
    m->counted = m->leaf_units ? alloc_get_array(alloc, words, sizeof *m->counted, &m->err) : NULL;
    m->forced_mask = m->counted ? alloc_get_array(alloc, words, sizeof *m->forced_mask, &m->err) : NULL;
    if (m->forced_mask && start(m)) return m;
    if (err) *err = m->err;
    matcher_free(m);
    return NULL;
}

void matcher_free(struct matcher *m)
{
    if (!m) return;
    constraint_drop(m->constraint);
    alloc_put(m->alloc, m->frames);
    alloc_put(m->alloc, m->places);
    alloc_put(m->alloc, m->renumber);
    alloc_put(m->alloc, m->levels);
    alloc_put(m->alloc, m->leaf_levels);
    alloc_put(m->alloc, m->leaf_mask);
    alloc_put(m->alloc, m->forced_mask);
    alloc_put(m->alloc, m->exits);
    alloc_put(m->alloc, m->sorted_exits);
    alloc_put(m->alloc, m->exit_units);
    alloc_put(m->alloc, m->sorted_units);
    alloc_put(m->alloc, m->leaf_units);
    alloc_put(m->alloc, m->counted);
    alloc_put(m->alloc, m);
}

/* ---- moving ---- */

/* Makes the set behind one id; it is empty and not accepting when the id is not allowed. */
static void step_id(struct matcher *m, uint32_t id)
{
    uint32_t first = 0, end = m->n_now;
    set_begin(m);
    for (uint32_t p = first; p < end; p++) {
        const struct place place = m->places[p];
        const struct gram_node *node = &m->g->nodes[place.node];
        if (node->kind == NODE_TOKEN && node->a == id) set_resume(m, place.stack);
    }
    const struct token *token = id < m->trie->id_end ? &m->trie->tokens[id] : NULL;
    if (!token || token->n_bytes == 0) return;
    for (uint32_t i = 0; i < token->n_bytes && m->err.kind == ERR_NONE; i++) {
        set_begin(m);
        for (uint32_t p = first; p < end; p++) set_step(m, &m->places[p], (uint8_t)token->bytes[i]);
        first = m->set_first;
        end = m->n_places;
        if (first == end && i + 1 < token->n_bytes) m->set_accepts = false;
        if (first == end) return;
    }
}

static bool give_error(struct matcher *m, struct err *err)
{
    if (err) *err = m->err;
    return false;
}

static bool advance_in_thoughts(struct matcher *m, uint32_t id)
{
    if (id == m->ids.tool_call || control_ids_ends(&m->ids, id) || id >= m->trie->id_end) return false;
    if (id == m->ids.think_end) m->thinks = false;
    return true;
}

bool matcher_advance(struct matcher *m, uint32_t id, bool *taken, struct err *err)
{
    uint32_t n_frames = m->n_frames;
    m->err.kind = ERR_NONE;
    if (m->thinks) {
        *taken = advance_in_thoughts(m, id);
        return true;
    }
    *taken = m->accepts && control_ids_ends(&m->ids, id);
    if (*taken) {
        m->n_now = m->n_places = 0;
        return true;
    }
    step_id(m, id);
    if (m->err.kind == ERR_NONE && (m->n_places > m->set_first || m->set_accepts)) {
        *taken = true;
        return arrive(m) || give_error(m, err);
    }
    m->n_places = m->n_now;
    m->n_frames = n_frames;
    return m->err.kind == ERR_NONE || give_error(m, err);
}

bool matcher_copy(struct matcher *to, const struct matcher *from, struct err *err)
{
    ASSERT(to->constraint == from->constraint);
    ASSERT(to->trie == from->trie);
    to->err.kind = ERR_NONE;
    if (!matcher_room(to, &to->frames, &to->frames_room, from->n_frames, sizeof *to->frames) ||
        !matcher_room(to, &to->places, &to->places_room, from->n_now, sizeof *to->places))
        return give_error(to, err);
    memcpy(to->frames, from->frames, from->n_frames * sizeof *to->frames);
    memcpy(to->places, from->places, from->n_now * sizeof *to->places);
    to->n_frames = from->n_frames;
    to->n_now = to->n_places = from->n_now;
    to->accepts = from->accepts;
    to->thinks = from->thinks;
    return true;
}

/* ---- asking ---- */

bool matcher_accepts(const struct matcher *m)
{
    return !m->thinks && m->accepts;
}

bool matcher_can_continue(const struct matcher *m)
{
    return m->thinks || m->n_now > 0;
}

bool matcher_is_complete(const struct matcher *m)
{
    return matcher_accepts(m) && !matcher_can_continue(m);
}

bool matcher_is_thinking(const struct matcher *m)
{
    return m->thinks;
}
