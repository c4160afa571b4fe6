#include "gram/matcher_int.h"

#include "base/assert.h"
#include "gram/text_kinds.h"
#include <string.h>

enum { KEEP_NODES_MIN = 2048 }; /* trie nodes looked at from which on a mask is worth keeping */

static void add_ids(const struct token_trie *trie, uint32_t node, uint64_t *mask)
{
    for (uint32_t i = trie->nodes[node].first; i < trie->nodes[node + 1].first; i++)
        mask[trie->ids[i] >> 6] |= UINT64_C(1) << (trie->ids[i] & 63);
}

/* Returns how many. */
static uint32_t add_ids_below(const struct token_trie *trie, uint32_t node, uint64_t *mask)
{
    uint32_t first = trie->nodes[node + 1].first, end = trie->nodes[trie->nodes[node].end].first;
    for (uint32_t i = first; i < end; i++) mask[trie->ids[i] >> 6] |= UINT64_C(1) << (trie->ids[i] & 63);
    return end - first;
}

/* ---- sets ---- */

static bool byte_set_is_empty(const struct byte_set *set)
{
    return !(set->word[0] | set->word[1] | set->word[2] | set->word[3]);
}

/* The kinds of text that these bytes are, or may be part of. */
static uint16_t kinds_of(const struct byte_set *set)
{
    uint32_t kinds = set->word[2] | set->word[3] ? 1u << KIND_CHARACTER | 1u << KIND_BROKEN : 0;
    for (unsigned w = 0; w < 2; w++)
        for (uint64_t bits = set->word[w]; bits; bits &= bits - 1)
            kinds |= 1u << text_kind_of((uint8_t)(w * 64 + (unsigned)__builtin_ctzll(bits)));
    return (uint16_t)kinds;
}

static struct byte_set bytes_of(uint16_t kinds)
{
    struct byte_set set = {{0}};
    for (unsigned byte = 0; byte < 0x80; byte++)
        if (kinds >> text_kind_of((uint8_t)byte) & 1) byte_set_add(&set, (uint8_t)byte, (uint8_t)byte);
    if (kinds & (1u << KIND_CHARACTER | 1u << KIND_BROKEN)) byte_set_add(&set, 0x80, 0xFF);
    return set;
}

/* Which bytes may come next in a set; never too few. */
static struct byte_set first_bytes(const struct matcher *m, uint32_t first, uint32_t end)
{
    struct byte_set set = {{0}};
    for (uint32_t p = first; p < end; p++) {
        const struct place *place = &m->places[p];
        const struct gram_node *node = &m->g->nodes[place->node];
        if (node->kind == NODE_TOKEN) continue;
        if (node->kind != NODE_DFA && node->kind != NODE_COUNT) {
            bool is_list = node->kind == NODE_WORDS;
            uint32_t base = m->g->lists[is_list ? node->a : m->g->member_lists[node->a].words].first;
            for (uint32_t k = place->a + base; k < place->b + base; k++) {
                const struct gram_word *word = &m->g->words[k];
                if (word->bytes <= place->c) continue;
                uint8_t byte = (uint8_t)m->g->word_bytes[word->offset + place->c];
                byte_set_add(&set, byte, byte);
            }
            continue;
        }
        const struct dfa *dfa = &m->g->dfas[node->a];
        for (unsigned byte = 0; byte < 256; byte++)
            if (dfa_step(dfa, place->a, byte) != DFA_DEAD) byte_set_add(&set, byte, byte);
    }
    return set;
}

/* Steps all places of a level; the new set is behind everything. */
static void step_level(struct matcher *m, const struct level *level, uint8_t byte)
{
    set_begin(m);
    for (uint32_t p = level->first; p < level->first + level->n && m->err.kind == ERR_NONE; p++)
        set_step(m, &m->places[p], byte);
}

/* ---- inside one automaton ---- */

static bool add_exit(struct matcher *m, uint32_t node)
{
    if (!matcher_room(m, &m->exits, &m->exits_room, (uint64_t)m->n_exits + 1, sizeof *m->exits)) return false;
    m->exits[m->n_exits++] = node;
    return true;
}

/* The state takes all that tokens have behind a trie node, and what follows the automaton goes on nowhere among it. */
static bool takes_all(const struct token_trie *trie, uint32_t node, const struct dfa_run *run, uint16_t exit_kinds)
{
    uint16_t kinds = trie->kinds_below[node];
    if (kinds & ~run->kinds) return false;
    return trie->bytes_below[node] <= (kinds & exit_kinds ? run->bytes_inside : run->bytes);
}

/* Adds the tokens below trie node `parent` that end inside the automaton, and pushes the trie nodes, reached by one of
 * `exit_bytes`, at which what follows it goes on. Returns how many trie nodes it looked at. Only the automaton is
 * walked, so this is the tight loop. */
static uint32_t walk_leaf(struct matcher *m, const struct place *place, uint32_t parent,
                          const struct byte_set *exit_bytes, uint64_t *mask)
{
    const struct token_trie *trie = m->trie;
    const struct token_trie_node *nodes = trie->nodes;
    const struct gram_node *node = &m->g->nodes[place->node];
    const struct dfa *dfa = &m->g->dfas[node->a];
    struct leaf_level *level = m->leaf_levels;
    uint16_t exit_kinds = kinds_of(exit_bytes);
    bool has_runs = node->kind == NODE_DFA;
    uint32_t looked = 0, n = nodes[parent].end;
    *level = (struct leaf_level){.state = place->a, .units = place->b, .end = n};
    for (uint32_t i = parent + 1; i < n;) {
        while (i >= level->end) level--;
        uint32_t units = level->units, end = nodes[i].end;
        uint32_t next = leaf_step(dfa, node, level->state, &units, trie->bytes[i]);
        looked++;
        if (level->may_leave && byte_set_has(exit_bytes, trie->bytes[i]) && !add_exit(m, i)) return looked;
        if (next == DFA_DEAD) {
            i = end;
            continue;
        }
        add_ids(trie, i, mask);
        bool may_leave = leaf_accepts(dfa, node, next, units), goes_on = leaf_goes_on(dfa, node, next, units);
        bool is_done = end == i + 1 || !(may_leave || goes_on);
        if (!is_done && has_runs && takes_all(trie, i, &dfa->runs[next], exit_kinds)) {
            looked += add_ids_below(trie, i, mask);
            is_done = true;
        }
        if (is_done) {
            i = end;
            continue;
        }
        *++level =
            (struct leaf_level){.state = goes_on ? next : DFA_DEAD, .units = units, .end = end, .may_leave = may_leave};
        i++;
    }
    return looked;
}

static void set_units_of(struct matcher *m, uint32_t id, uint32_t units)
{
    uint16_t kept = units < MASK_NO_UNITS ? (uint16_t)units : MASK_NO_UNITS - 1;
    m->leaf_units[id] = kept;
    m->counted[id >> 6] |= UINT64_C(1) << (id & 63);
    if (kept > m->units_most) m->units_most = kept;
}

static void set_units(struct matcher *m, uint32_t node, uint32_t units, bool is_end)
{
    const struct token_trie *trie = m->trie;
    for (uint32_t i = trie->nodes[node].first; i < trie->nodes[node + 1].first; i++)
        set_units_of(m, trie->ids[i], units);
    if (is_end) add_ids(trie, node, m->leaf_mask);
}

static bool add_counted_exit(struct matcher *m, uint32_t node, uint32_t units)
{
    if (!matcher_room(m, &m->exit_units, &m->exit_units_room, (uint64_t)m->n_exits + 1, sizeof *m->exit_units) ||
        !add_exit(m, node))
        return false;
    m->exit_units[m->n_exits - 1] = units < MASK_NO_UNITS ? (uint16_t)units : MASK_NO_UNITS - 1;
    return true;
}

/* The kinds of text of which each character is one unit; none where something else might follow between them. */
static uint16_t unit_kinds(const struct dfa *dfa, const struct byte_set *exit_bytes)
{
    const struct dfa_run *run = &dfa->runs[DFA_START];
    bool is_unit = (run->kinds >> KIND_G_Z & 1) && dfa_step(dfa, DFA_START, 'z') == DFA_START;
    bool may_leave = (dfa->flags[DFA_START] & DFA_ACCEPTS) && !byte_set_is_empty(exit_bytes);
    return is_unit && !may_leave ? run->kinds : 0;
}

/* Gives every token behind a trie node its units: those of the node, and its characters from there on, where `chars` of
 * them are not behind it. Returns how many. */
static uint32_t set_units_below(struct matcher *m, uint32_t node, uint32_t units, uint32_t chars)
{
    const struct token_trie *trie = m->trie;
    uint32_t first = trie->nodes[node + 1].first, end = trie->nodes[trie->nodes[node].end].first;
    for (uint32_t i = first; i < end; i++) set_units_of(m, trie->ids[i], units + trie->chars[i] - chars);
    return end - first;
}

/* Fills leaf_units, leaf_mask and the exits for any number of units at once: what is allowed with few units left is a
 * comparison then, and not another walk. */
static uint32_t walk_units(struct matcher *m, const struct place *place, uint32_t parent,
                           const struct byte_set *exit_bytes)
{
    const struct token_trie *trie = m->trie;
    const struct dfa *dfa = &m->g->dfas[m->g->nodes[place->node].a];
    struct leaf_level *level = m->leaf_levels;
    uint16_t kinds = unit_kinds(dfa, exit_bytes);
    uint32_t looked = 0, n = trie->nodes[parent].end;
    bool has_end = !(dfa->flags[DFA_START] & DFA_ACCEPTS);
    memset(m->leaf_units, 0xFF, trie->id_end * sizeof *m->leaf_units);
    memset(m->counted, 0, token_trie_words(trie) * sizeof *m->counted);
    m->units_most = 0;
    *level = (struct leaf_level){.state = place->a, .end = n};
    for (uint32_t i = parent + 1; i < n;) {
        while (i >= level->end) level--;
        uint8_t byte = trie->bytes[i];
        uint32_t state = level->state, end = trie->nodes[i].end, next = dfa_step(dfa, state, byte);
        looked++;
        if (level->may_leave && byte_set_has(exit_bytes, byte) && !add_counted_exit(m, i, level->units)) return looked;
        if (next == DFA_DEAD) {
            i = end;
            continue;
        }
        bool is_end = has_end && (dfa->flags[next] & DFA_ACCEPTS);
        uint32_t units = level->units + (state == DFA_START && !is_end);
        uint32_t chars = level->chars + ((byte & 0xC0) != 0x80), depth = (uint32_t)(level - m->leaf_levels) + 1;
        set_units(m, i, units, is_end);
        /* What stands in front of the parent would have to be counted too, so the walk begins at the root. */
        bool is_plain = next == DFA_START && !(trie->kinds_below[i] & ~kinds) && parent == 0;
        bool is_done = is_plain && depth + trie->bytes_below[i] < UINT8_MAX;
        if (is_done) looked += set_units_below(m, i, units, chars);
        if (is_done || end == i + 1) {
            i = end;
            continue;
        }
        *++level = (struct leaf_level){next, units, chars, end, dfa->flags[next] & DFA_ACCEPTS};
        i++;
    }
    return looked;
}

/* Takes the exits from `base` on off the stack and puts them in the order of their bytes. */
static bool sort_exits(struct matcher *m, uint32_t base, bool has_units)
{
    uint32_t at[257] = {0}, n = m->n_exits - base;
    if (!matcher_room(m, &m->sorted_exits, &m->sorted_room, n, sizeof *m->sorted_exits)) return false;
    if (has_units && !matcher_room(m, &m->sorted_units, &m->sorted_units_room, n, sizeof *m->sorted_units))
        return false;
    for (uint32_t e = base; e < m->n_exits; e++) at[m->trie->bytes[m->exits[e]] + 1]++;
    for (unsigned byte = 0; byte < 256; byte++) at[byte + 1] += at[byte];
    for (uint32_t e = base; e < m->n_exits; e++) {
        uint32_t to = at[m->trie->bytes[m->exits[e]]]++;
        m->sorted_exits[to] = m->exits[e];
        if (has_units) m->sorted_units[to] = m->exit_units[e];
    }
    m->n_exits = base;
    return true;
}

/* ---- masks that are kept ---- */

/* How many units may and must still begin at a place. */
struct units {
    uint32_t left, need;
};

static struct units units_at(const struct gram_node *node, const struct place *place)
{
    uint32_t begun = place->b + (place->a != DFA_START);
    struct units units = {UINT32_MAX, node->min > begun ? node->min - begun : 0};
    if (node->max != REGULAR_MANY) units.left = node->max - begun;
    return units;
}

/* Which of 64 tokens, those of a mask's word, begin at most `most` units. */
static uint64_t at_most(const uint16_t *units, uint32_t n, uint32_t most)
{
    uint64_t fits = 0;
    for (uint32_t k = 0; k < n; k++) fits |= (uint64_t)(units[k] <= most) << k;
    return fits;
}

/* A token fits if it begins no more units than are left, and ends the string only where no more are needed. */
static void add_counted(const struct matcher *m, const struct mask_entry *entry, struct units units, uint64_t *mask)
{
    uint32_t id_end = m->trie->id_end;
    bool all_fit = units.left >= entry->units_most;
    for (uint32_t id = 0; id < id_end; id += 64) {
        uint32_t n = id_end - id < 64 ? id_end - id : 64, w = id / 64;
        uint64_t fits = entry->counted[w], ends = units.need > 0 ? entry->mask[w] & fits : 0;
        if (fits && !all_fit) fits &= at_most(entry->units + id, n, units.left);
        if (ends) fits &= ~(ends & at_most(entry->units + id, n, units.need - 1));
        mask[w] |= fits;
    }
}

/* The entry of a state for the tokens below a trie node, from the cache or made. It has the exits by all bytes of the
 * kinds, so that what follows a string in an object and in an array makes no difference. */
static bool entry_of(struct matcher *m, uint32_t parent, const struct place *place, uint16_t exit_kinds,
                     struct mask_entry *entry)
{
    const struct byte_set exit_bytes = bytes_of(exit_kinds);
    const struct gram_node *node = &m->g->nodes[place->node];
    bool counted = node->kind == NODE_COUNT;
    const struct mask_key key = {m->constraint, &m->g->dfas[node->a], place->a, parent, exit_kinds, counted};
    if (mask_cache_get(m->cache, &key, entry)) return true;
    uint32_t exits = m->n_exits;
    memset(m->leaf_mask, 0, token_trie_words(m->trie) * sizeof *m->leaf_mask);
    uint32_t looked =
        counted ? walk_units(m, place, parent, &exit_bytes) : walk_leaf(m, place, parent, &exit_bytes, m->leaf_mask);
    uint32_t n_exits = m->n_exits - exits;
    if (m->err.kind != ERR_NONE || !sort_exits(m, exits, counted)) return false;
    *entry = (struct mask_entry){.mask = m->leaf_mask, .exits = m->sorted_exits, .n_exits = n_exits};
    if (counted) {
        entry->units = m->leaf_units;
        entry->exit_units = m->sorted_units;
        entry->counted = m->counted;
        entry->units_most = m->units_most;
    }
    return looked < KEEP_NODES_MIN || mask_cache_put(m->cache, &key, entry, &m->err);
}

/* Adds the tokens of an entry, and pushes the exits that lead on with one of these bytes. The entry may be gone when
 * what is behind the exits is looked at. */
static void add_entry(struct matcher *m, const struct mask_entry *entry, struct units units,
                      const struct byte_set *bytes, uint64_t *mask)
{
    uint32_t n_words = token_trie_words(m->trie);
    for (uint32_t w = 0; !entry->units && w < n_words; w++) mask[w] |= entry->mask[w];
    if (entry->units) add_counted(m, entry, units, mask);
    for (uint32_t e = 0; e < entry->n_exits; e++) {
        if (!byte_set_has(bytes, m->trie->bytes[entry->exits[e]])) continue;
        bool fits = !entry->units || (entry->exit_units[e] <= units.left && entry->exit_units[e] >= units.need);
        if (fits && !add_exit(m, entry->exits[e])) return;
    }
}

/* ---- everywhere else ---- */

enum { RECURSION_MAX = 200 }; /* tokens longer than that are walked another way */

/* Adds to the mask all tokens below trie node `parent` that go on from places[first..first + n): the plain way, byte
 * by byte with whole sets. */
static void walk_below(struct matcher *m, uint32_t parent, uint32_t first, uint32_t n, uint64_t *mask)
{
    const struct token_trie *trie = m->trie;
    uint32_t depth = 0, i = parent + 1, stop = trie->nodes[parent].end, places = m->n_places;
    m->levels[0] = (struct level){first, n, m->n_frames, stop};
    while (i < stop && m->err.kind == ERR_NONE) {
        while (i >= m->levels[depth].end) {
            m->n_places = m->levels[depth].first;
            m->n_frames = m->levels[depth].n_frames;
            depth--;
        }
        uint32_t frames = m->n_frames;
        step_level(m, &m->levels[depth], trie->bytes[i]);
        uint32_t made = m->n_places - m->set_first;
        if (made || m->set_accepts) add_ids(trie, i, mask);
        if (made && trie->nodes[i].end > i + 1) {
            m->levels[++depth] = (struct level){m->set_first, made, frames, trie->nodes[i].end};
            i++;
        } else {
            m->n_places = m->set_first;
            m->n_frames = frames;
            i = trie->nodes[i].end;
        }
    }
    m->n_places = places;
    m->n_frames = m->levels[0].n_frames;
}

static void allow_below(struct matcher *m, uint32_t parent, const struct place *place, uint32_t depth, uint64_t *mask);

/* The token at a trie node, and those below it, from a set that was reached with its byte. */
static void allow_set(struct matcher *m, uint32_t trie_node, uint32_t first, uint32_t n, uint32_t depth, uint64_t *mask)
{
    add_ids(m->trie, trie_node, mask);
    if (m->trie->nodes[trie_node].end == trie_node + 1) return;
    if (depth >= RECURSION_MAX) {
        walk_below(m, trie_node, first, n, mask);
        return;
    }
    for (uint32_t p = first; p < first + n && m->err.kind == ERR_NONE; p++) {
        const struct place place = m->places[p];
        allow_below(m, trie_node, &place, depth + 1, mask);
    }
}

/* Goes on from places[behind] at one trie node. */
static void allow_at(struct matcher *m, uint32_t trie_node, const struct level *behind, uint32_t depth, uint64_t *mask)
{
    uint32_t places = m->n_places, frames = m->n_frames;
    step_level(m, behind, m->trie->bytes[trie_node]);
    uint32_t first = m->set_first, n = m->n_places - first;
    if (n > 0 || m->set_accepts) allow_set(m, trie_node, first, n, depth, mask);
    m->n_places = places;
    m->n_frames = frames;
}

/* Goes on at the exits from `base` on, which are in the order of their bytes, and takes them off the stack. */
static void allow_exits(struct matcher *m, uint32_t base, const struct level *behind, uint32_t depth, uint64_t *mask)
{
    uint32_t places = m->n_places, frames = m->n_frames, end = m->n_exits, first = 0, n = 0;
    int byte = -1;
    for (uint32_t e = base; e < end && m->err.kind == ERR_NONE; e++) {
        uint32_t node = m->exits[e];
        if (m->trie->bytes[node] != byte) {
            byte = m->trie->bytes[node];
            m->n_places = places;
            m->n_frames = frames;
            step_level(m, behind, (uint8_t)byte);
            first = m->set_first;
            n = m->n_places - first;
            if (n == 0 && !m->set_accepts) {
                while (e + 1 < end && m->trie->bytes[m->exits[e + 1]] == byte) e++;
                continue;
            }
        }
        allow_set(m, node, first, n, depth, mask);
    }
    m->n_exits = base;
    m->n_places = places;
    m->n_frames = frames;
}

/* Tokens below trie node `parent` that go on from a place in an automaton: those that end in it, and those that leave
 * it. Large sets of tokens are kept. */
static void allow_leaf(struct matcher *m, uint32_t parent, const struct place *place, uint32_t depth, uint64_t *mask)
{
    const struct gram_node *node = &m->g->nodes[place->node];
    uint32_t places = m->n_places, frames = m->n_frames, exits = m->n_exits;
    struct mask_entry entry;
    set_begin(m);
    set_resume(m, place->stack);
    struct level behind = {.first = m->set_first, .n = m->n_places - m->set_first};
    struct byte_set bytes = first_bytes(m, behind.first, behind.first + behind.n);
    if (m->trie->nodes[parent].end - parent < KEEP_NODES_MIN)
        walk_leaf(m, place, parent, &bytes, mask);
    else if (m->err.kind == ERR_NONE && entry_of(m, parent, place, kinds_of(&bytes), &entry))
        add_entry(m, &entry, units_at(node, place), &bytes, mask);
    allow_exits(m, exits, &behind, depth, mask);
    m->n_places = places;
    m->n_frames = frames;
}

/* Tokens below trie node `parent` that go on from one place. */
static void allow_below(struct matcher *m, uint32_t parent, const struct place *place, uint32_t depth, uint64_t *mask)
{
    const struct token_trie *trie = m->trie;
    const struct gram_node *node = &m->g->nodes[place->node];
    uint32_t places = m->n_places;
    if (node->kind == NODE_TOKEN) return;
    if (node->kind == NODE_DFA || node->kind == NODE_COUNT) {
        allow_leaf(m, parent, place, depth, mask);
        return;
    }
    if (!matcher_room(m, &m->places, &m->places_room, (uint64_t)places + 1, sizeof *place)) return;
    m->places[m->n_places++] = *place;
    const struct level level = {.first = places, .n = 1};
    struct byte_set bytes = first_bytes(m, places, places + 1);
    for (uint32_t i = parent + 1; i < trie->nodes[parent].end && m->err.kind == ERR_NONE; i = trie->nodes[i].end)
        if (byte_set_has(&bytes, trie->bytes[i])) allow_at(m, i, &level, depth, mask);
    m->n_places = places;
}

/* ---- the whole mask ---- */

static void allow_place(struct matcher *m, uint32_t at, uint64_t *mask)
{
    const struct place place = m->places[at];
    const struct gram_node *node = &m->g->nodes[place.node];
    if (node->kind != NODE_TOKEN)
        allow_below(m, 0, &place, 0, mask);
    else if (node->a < m->trie->id_end)
        mask[node->a >> 6] |= UINT64_C(1) << (node->a & 63);
}

static void set_bit(const struct matcher *m, uint32_t id, bool on, uint64_t *mask)
{
    if (id >= m->trie->id_end) return;
    uint64_t bit = UINT64_C(1) << (id & 63);
    mask[id >> 6] = on ? mask[id >> 6] | bit : mask[id >> 6] & ~bit;
}

/* Everything but what would end the answer, or begin a call, inside the thoughts. */
static void allow_thoughts(const struct matcher *m, uint64_t *mask)
{
    memset(mask, 0xFF, m->trie->id_end / 64 * sizeof *mask);
    if (m->trie->id_end % 64) mask[m->trie->id_end / 64] = (UINT64_C(1) << m->trie->id_end % 64) - 1;
    for (uint32_t i = 0; i < m->ids.n_eos; i++) set_bit(m, m->ids.eos[i], false, mask);
    set_bit(m, m->ids.tool_call, false, mask);
}

bool matcher_allowed(struct matcher *m, uint64_t *mask, struct err *err)
{
    memset(mask, 0, token_trie_words(m->trie) * sizeof *mask);
    m->err.kind = ERR_NONE;
    m->n_exits = 0;
    if (m->thinks) {
        allow_thoughts(m, mask);
        return true;
    }
    ASSERT(m->n_places == m->n_now);
    for (uint32_t p = 0; p < m->n_now && m->err.kind == ERR_NONE; p++) allow_place(m, p, mask);
    m->n_places = m->n_now;
    if (m->accepts)
        for (uint32_t i = 0; i < m->ids.n_eos; i++) set_bit(m, m->ids.eos[i], true, mask);
    if (m->err.kind == ERR_NONE) return true;
    if (err) *err = m->err;
    return false;
}

bool matcher_forced(struct matcher *m, uint32_t *id, bool *forced, struct err *err)
{
    uint32_t n = 0;
    *forced = false;
    if (!matcher_allowed(m, m->forced_mask, err)) return false;
    for (uint32_t w = 0; w < token_trie_words(m->trie); w++) {
        uint64_t word = m->forced_mask[w];
        n += (uint32_t)__builtin_popcountll(word);
        if (n > 1) return true;
        if (word) *id = w * 64 + (uint32_t)__builtin_ctzll(word);
    }
    *forced = n == 1;
    return true;
}
