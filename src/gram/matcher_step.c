#include "gram/matcher_int.h"

#include "base/assert.h"
#include "gram/grow.h"
#include <string.h>

void matcher_limit(struct matcher *m, const char *what)
{
    if (m->err.kind == ERR_NONE) err_set(&m->err, ERR_FAILED, "grammar_limit: %s", what);
}

bool matcher_room(struct matcher *m, void *block, uint32_t *room, uint64_t need, uint32_t element_bytes)
{
    if (need <= *room) return true;
    const struct grow grow = {m->alloc, "places", MATCHER_WALK_MAX};
    if (m->err.kind != ERR_NONE) return false;
    if (need > grow.max) matcher_limit(m, "the answer nests too deeply");
    return m->err.kind == ERR_NONE && grow_room(&grow, block, room, need, element_bytes, &m->err);
}

/* ---- sets ---- */

void set_begin(struct matcher *m)
{
    m->set_first = m->n_places;
    m->set_accepts = false;
}

static bool same_frame(const struct frame *a, const struct frame *b)
{
    return a->node == b->node && a->data == b->data && a->step == b->step && a->nest == b->nest;
}

static bool same_stack(const struct matcher *m, uint32_t a, uint32_t b)
{
    while (a != b) {
        if (!same_frame(&m->frames[a], &m->frames[b])) return false;
        if (a == 0 || b == 0) return false;
        a = m->frames[a].below;
        b = m->frames[b].below;
    }
    return true;
}

static void add_place(struct matcher *m, struct place place)
{
    for (uint32_t i = m->set_first; i < m->n_places; i++) {
        const struct place *p = &m->places[i];
        if (p->node == place.node && p->a == place.a && p->b == place.b && p->c == place.c &&
            same_stack(m, p->stack, place.stack))
            return;
    }
    if (m->n_places - m->set_first == MATCHER_PLACES_MAX) {
        matcher_limit(m, "too many ways to read the answer at once");
        return;
    }
    if (!matcher_room(m, &m->places, &m->places_room, (uint64_t)m->n_places + 1, sizeof place)) return;
    m->places[m->n_places++] = place;
}

/* A frame on top of `below`, `deeper` levels of JSON further in. */
static uint32_t push(struct matcher *m, struct frame frame, uint32_t below, uint16_t deeper)
{
    if (!matcher_room(m, &m->frames, &m->frames_room, (uint64_t)m->n_frames + 1, sizeof frame)) return 0;
    frame.below = below;
    frame.nest = (uint16_t)(m->frames[below].nest + deeper);
    m->frames[m->n_frames] = frame;
    return m->n_frames++;
}

/* ---- member lists ---- */

static const struct gram_members *members_of(const struct matcher *m, uint32_t node)
{
    return &m->g->member_lists[m->g->nodes[node].a];
}

static uint32_t next_required(const struct matcher *m, const struct gram_members *list, uint32_t i)
{
    return m->g->members[list->first + i].next_required;
}

/* Whether the value of a member still fits below the deepest level. */
static bool fits(const struct matcher *m, const struct gram_members *list, uint32_t member, uint32_t stack)
{
    return m->frames[stack].nest + m->g->nodes[m->g->members[list->first + member].value].height <= GRAM_NEST_MAX;
}

static bool was_written(const struct matcher *m, uint32_t stack, uint32_t member)
{
    for (; m->frames[stack].data != GRAM_NONE; stack = m->frames[stack].below)
        if (m->frames[stack].data == member) return true;
    return false;
}

/* Whether this member may come now. `stack` is at STEP_KEYS or STEP_PAIRS. */
static bool is_open(const struct matcher *m, const struct gram_members *list, uint32_t member, uint32_t stack)
{
    const struct frame *frame = &m->frames[stack];
    if (!fits(m, list, member, stack)) return false;
    if (frame->step == STEP_PAIRS) return !was_written(m, stack, member);
    return member >= frame->data && member <= next_required(m, list, frame->data);
}

/* Whether any of words[first..end), counted from the first of the list, is a key that may come now. The shorter of two
 * ways to look: along the words, or along the members that are next in order. */
static bool any_open(const struct matcher *m, const struct gram_members *list, uint32_t first, uint32_t end,
                     uint32_t stack)
{
    const struct gram_words *words = &m->g->lists[list->words];
    const struct frame *frame = &m->frames[stack];
    uint32_t last = list->n_members;
    if (frame->step == STEP_KEYS) last = next_required(m, list, frame->data);
    if (last == list->n_members) last = list->n_members - 1; /* may wrap when there are none: then no words either */
    if (frame->step == STEP_KEYS && end > first && last + 1 - frame->data < end - first) {
        for (uint32_t member = frame->data; member <= last; member++) {
            uint32_t place = m->g->members[list->first + member].place;
            if (place >= first && place < end && fits(m, list, member, stack)) return true;
        }
        return false;
    }
    for (uint32_t k = first; k < end; k++)
        if (is_open(m, list, m->g->words[words->first + k].label, stack)) return true;
    return false;
}

/* The frame at STEP_PAIRS below a key, or the frame itself. */
static uint32_t filter_of(const struct matcher *m, uint32_t stack)
{
    return m->frames[stack].step == STEP_PAIR ? m->frames[stack].below : stack;
}

/* ---- entering ---- */

/* Parts from `next` on of a sequence; true when all of them may be nothing. */
static bool enter_seq(struct matcher *m, uint32_t id, uint32_t next, uint32_t below)
{
    const struct gram_node *node = &m->g->nodes[id];
    for (; next < node->b; next++) {
        uint32_t part = m->g->parts[node->a + next], stack = below;
        if (next + 1 < node->b)
            stack = push(m, (struct frame){.node = id, .step = STEP_SEQ, .data = next + 1}, below, 0);
        if (m->err.kind != ERR_NONE) return false;
        set_enter(m, part, stack);
        if (!m->g->nodes[part].has_empty) return false;
    }
    return true;
}

/* One more turn behind `turns`. */
static void enter_turn(struct matcher *m, uint32_t id, uint32_t turns, uint32_t below)
{
    const struct gram_node *node = &m->g->nodes[id];
    if (turns >= node->max) return;
    if (node->max != REGULAR_MANY || turns < node->min) turns++; /* beyond that, all numbers mean the same */
    uint32_t stack = below;
    if (turns < node->max) stack = push(m, (struct frame){.node = id, .step = STEP_REPEAT, .data = turns}, below, 0);
    if (m->err.kind == ERR_NONE) set_enter(m, node->a, stack);
}

/* Whether a member that is not declared may come now. `stack` is at STEP_KEYS. */
static bool extra_is_open(const struct matcher *m, const struct gram_members *list, uint32_t stack)
{
    return list->extra_key != GRAM_NONE && next_required(m, list, m->frames[stack].data) == list->n_members &&
           m->frames[stack].nest + m->g->nodes[list->extra_value].height <= GRAM_NEST_MAX;
}

/* A key that is declared, or one that is not. `stack` is at STEP_KEYS. */
static void enter_keys(struct matcher *m, uint32_t id, uint32_t stack)
{
    const struct gram_members *list = members_of(m, id);
    const struct frame frame = m->frames[stack];
    uint32_t n = m->g->lists[list->words].n;
    if (any_open(m, list, 0, n, stack)) add_place(m, (struct place){id, 0, n, 0, stack});
    if (!extra_is_open(m, list, stack)) return;
    uint32_t extra = push(m, (struct frame){.node = id, .step = STEP_EXTRA}, frame.below, 0);
    if (m->err.kind != ERR_NONE) return;
    m->frames[extra].nest = frame.nest;
    set_enter(m, list->extra_key, extra);
}

/* What may come in an object whose next member is `next`: its end, or a mark and a key. `stack` is inside the object.
 */
static void enter_members(struct matcher *m, uint32_t id, uint32_t next, uint32_t mark, uint32_t stack)
{
    const struct gram_members *list = members_of(m, id);
    const struct frame frame = m->frames[stack];
    if (next_required(m, list, next) == list->n_members) set_enter(m, list->close, frame.below);
    uint32_t keys = push(m, (struct frame){.node = id, .step = STEP_KEYS, .data = next}, frame.below, 0);
    if (m->err.kind != ERR_NONE) return;
    m->frames[keys].nest = frame.nest;
    if (!any_open(m, list, 0, m->g->lists[list->words].n, keys) && !extra_is_open(m, list, keys)) return;
    set_enter(m, mark, keys);
    if (m->g->nodes[mark].has_empty) enter_keys(m, id, keys);
}

/* The mark in front of one more pair of a call. `stack` is at STEP_PAIRS. */
static void enter_pair(struct matcher *m, uint32_t id, uint32_t stack)
{
    const struct gram_members *list = members_of(m, id);
    if (!any_open(m, list, 0, m->g->lists[list->words].n, stack)) return;
    uint32_t pair = push(m, (struct frame){.node = id, .step = STEP_PAIR}, stack, 0);
    if (m->err.kind == ERR_NONE) set_enter(m, list->open, pair);
}

static void enter_dfa(struct matcher *m, uint32_t id, uint32_t stack)
{
    const struct gram_node *node = &m->g->nodes[id];
    const struct dfa *dfa = &m->g->dfas[node->a];
    if (dfa->n_states > 1 && leaf_goes_on(dfa, node, DFA_START, 0))
        add_place(m, (struct place){id, DFA_START, 0, 0, stack});
}

void set_enter(struct matcher *m, uint32_t id, uint32_t stack)
{
    const struct gram_node *node = &m->g->nodes[id];
    if (m->err.kind != ERR_NONE || m->frames[stack].nest + node->height > GRAM_NEST_MAX) return;
    switch ((enum gram_kind)node->kind) {
    case NODE_DFA:
    case NODE_COUNT: enter_dfa(m, id, stack); return;
    case NODE_WORDS: add_place(m, (struct place){id, 0, m->g->lists[node->a].n, 0, stack}); return;
    case NODE_TOKEN: add_place(m, (struct place){id, 0, 0, 0, stack}); return;
    case NODE_SEQ: (void)enter_seq(m, id, 0, stack); return;
    case NODE_UNION:
        for (uint32_t i = 0; i < node->b; i++) set_enter(m, m->g->parts[node->a + i], stack);
        return;
    case NODE_REPEAT: enter_turn(m, id, 0, stack); return;
    case NODE_NEST:
        stack = push(m, (struct frame){.node = id, .step = STEP_NEST}, stack, 1);
        if (m->err.kind == ERR_NONE) set_enter(m, node->a, stack);
        return;
    case NODE_OBJECT:
        stack = push(m, (struct frame){.node = id, .step = STEP_OPENED}, stack, 1);
        if (m->err.kind == ERR_NONE) set_enter(m, members_of(m, id)->open, stack);
        return;
    case NODE_ARGS:
        stack = push(m, (struct frame){.node = id, .step = STEP_PAIRS, .data = GRAM_NONE}, stack, 0);
        if (m->err.kind == ERR_NONE) enter_pair(m, id, stack);
        return;
    case NODE_LINK: break;
    }
    ASSERT(node->kind != NODE_LINK);
}

/* ---- resuming ---- */

/* Behind a pair of a call. Returns the stack below all pairs when the call may end here, else GRAM_NONE. */
static uint32_t resume_pairs(struct matcher *m, uint32_t stack)
{
    uint32_t id = m->frames[stack].node, n_required = 0;
    const struct gram_members *list = members_of(m, id);
    enter_pair(m, id, stack);
    for (; m->frames[stack].data != GRAM_NONE; stack = m->frames[stack].below) {
        uint32_t member = m->frames[stack].data;
        n_required += next_required(m, list, member) == member;
    }
    return n_required == list->n_required ? m->frames[stack].below : GRAM_NONE;
}

/* One frame; returns what to resume next, or GRAM_NONE. */
static uint32_t resume_one(struct matcher *m, uint32_t stack)
{
    const struct frame frame = m->frames[stack];
    const struct gram_node *node = frame.step == STEP_BOTTOM ? NULL : &m->g->nodes[frame.node];
    switch ((enum frame_step)frame.step) {
    case STEP_BOTTOM: m->set_accepts = true; return GRAM_NONE;
    case STEP_SEQ: return enter_seq(m, frame.node, frame.data, frame.below) ? frame.below : GRAM_NONE;
    case STEP_REPEAT:
        enter_turn(m, frame.node, frame.data, frame.below);
        return frame.data >= node->min || m->g->nodes[node->a].has_empty ? frame.below : GRAM_NONE;
    case STEP_NEST: return frame.below;
    case STEP_OPENED: enter_members(m, frame.node, 0, members_of(m, frame.node)->blanks, stack); return GRAM_NONE;
    case STEP_KEYS: enter_keys(m, frame.node, stack); return GRAM_NONE;
    case STEP_EXTRA: {
        uint32_t n = members_of(m, frame.node)->n_members;
        uint32_t value = push(m, (struct frame){.node = frame.node, .step = STEP_VALUE, .data = n}, frame.below, 0);
        if (m->err.kind != ERR_NONE) return GRAM_NONE;
        m->frames[value].nest = frame.nest;
        set_enter(m, members_of(m, frame.node)->extra_value, value);
        return GRAM_NONE;
    }
    case STEP_VALUE:
        enter_members(m, frame.node, frame.data, members_of(m, frame.node)->separator, stack);
        return GRAM_NONE;
    case STEP_PAIRS: return resume_pairs(m, stack);
    case STEP_PAIR:
        add_place(m, (struct place){frame.node, 0, m->g->lists[members_of(m, frame.node)->words].n, 0, stack});
        return GRAM_NONE;
    }
    return GRAM_NONE;
}

void set_resume(struct matcher *m, uint32_t stack)
{
    while (stack != GRAM_NONE && m->err.kind == ERR_NONE) stack = resume_one(m, stack);
}

/* ---- stepping ---- */

/* The words of a list that go on with `byte` behind `depth` bytes, among words[*first..*end). */
static void narrow_words(const struct grammar *g, uint32_t *first, uint32_t *end, uint32_t depth, uint8_t byte)
{
    uint32_t bounds[2];
    for (int i = 0; i < 2; i++) { /* the first word whose byte is not below `byte`, then not below byte + 1 */
        uint32_t low = *first, high = *end;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            const struct gram_word *word = &g->words[middle];
            int at = word->bytes <= depth ? -1 : (uint8_t)g->word_bytes[word->offset + depth];
            if (at < byte + i)
                low = middle + 1;
            else
                high = middle;
        }
        bounds[i] = low;
    }
    *first = bounds[0];
    *end = bounds[1];
}

/* A whole word was read. */
static void word_done(struct matcher *m, const struct place *place, const struct gram_word *word)
{
    const struct gram_node *node = &m->g->nodes[place->node];
    uint32_t then = word->then, stack = place->stack;
    if (node->kind != NODE_WORDS) {
        const struct gram_members *list = &m->g->member_lists[node->a];
        const struct frame frame = m->frames[stack];
        struct frame value = {.node = place->node, .step = STEP_VALUE, .data = word->label + 1};
        if (node->kind == NODE_ARGS)
            value = (struct frame){.node = place->node, .step = STEP_PAIRS, .data = word->label};
        then = m->g->members[list->first + word->label].value;
        stack = push(m, value, frame.below, 0);
        if (m->err.kind != ERR_NONE) return;
        m->frames[stack].nest = frame.nest;
    }
    if (then == GRAM_NONE) {
        set_resume(m, stack);
        return;
    }
    set_enter(m, then, stack);
    if (m->g->nodes[then].has_empty) set_resume(m, stack);
}

static void step_words(struct matcher *m, const struct place *place, uint8_t byte)
{
    const struct grammar *g = m->g;
    const struct gram_node *node = &g->nodes[place->node];
    const struct gram_members *list = node->kind == NODE_WORDS ? NULL : &g->member_lists[node->a];
    uint32_t base = g->lists[list ? list->words : node->a].first;
    uint32_t first = place->a + base, end = place->b + base, depth = place->c, filter = filter_of(m, place->stack);
    narrow_words(g, &first, &end, depth, byte);
    if (first == end) return;
    const struct gram_word *word = &g->words[first];
    if (word->bytes == depth + 1) {
        if (!list || is_open(m, list, word->label, filter)) word_done(m, place, word);
        first++;
    }
    if (first < end && (!list || any_open(m, list, first - base, end - base, filter)))
        add_place(m, (struct place){place->node, first - base, end - base, depth + 1, place->stack});
}

void set_step(struct matcher *m, const struct place *from, uint8_t byte)
{
    const struct place place = *from; /* the array may move */
    const struct gram_node *node = &m->g->nodes[place.node];
    if (node->kind == NODE_TOKEN) return;
    if (node->kind != NODE_DFA && node->kind != NODE_COUNT) {
        step_words(m, &place, byte);
        return;
    }
    const struct dfa *dfa = &m->g->dfas[node->a];
    uint32_t units = place.b, state = leaf_step(dfa, node, place.a, &units, byte);
    if (state == DFA_DEAD) return;
    if (leaf_accepts(dfa, node, state, units)) set_resume(m, place.stack);
    if (leaf_goes_on(dfa, node, state, units)) add_place(m, (struct place){place.node, state, units, 0, place.stack});
}
