#include "run/stop.h"

#include "base/assert.h"

static_assert(SAMPLING_STOP_STRINGS_MAX * SAMPLING_STOP_BYTES_MAX < UINT16_MAX, "a state fits in 16 bits");
static_assert(SAMPLING_STOP_STRINGS_MAX < (int)STOP_NO_STRING, "a string fits in 8 bits");

const char *stop_reason_name(enum stop_reason reason)
{
    static const char *const names[] = {
        [STOP_NONE] = "none",    [STOP_EOS] = "eos",   [STOP_ID] = "stop",       [STOP_STRING] = "stop",
        [STOP_GRAMMAR] = "stop", [STOP_TOOL] = "tool", [STOP_LENGTH] = "length", [STOP_CANCELLED] = "cancelled",
        [STOP_ERROR] = "error",
    };
    ASSERT(reason <= STOP_ERROR);
    return names[reason];
}

enum stop_reason stop_on_id(uint32_t id, const uint32_t *eos, uint32_t n_eos, const struct sampling *sampling)
{
    for (uint32_t i = 0; i < n_eos; i++)
        if (eos[i] == id) return STOP_EOS;
    for (size_t i = 0; i < sampling->n_stop_ids; i++)
        if (sampling->stop_ids[i] == id) return STOP_ID;
    return STOP_NONE;
}

/* The child along this byte, 0 if there is none. A node has at most one child per string, so the list is short. */
static uint32_t child_of(const struct stop_set *set, uint32_t node, uint8_t byte)
{
    uint32_t child = set->nodes[node].child;
    while (child && set->nodes[child].byte != byte) child = set->nodes[child].sibling;
    return child;
}

static void add_string(struct stop_set *set, uint8_t string)
{
    const struct stop_string *text = &set->strings[string];
    uint32_t node = 0;
    for (size_t i = 0; i < text->n_bytes; i++) {
        uint8_t byte = (uint8_t)text->bytes[i];
        uint32_t child = child_of(set, node, byte);
        if (!child) {
            child = set->n_nodes++;
            set->nodes[child] = (struct stop_node){.sibling = set->nodes[node].child,
                                                   .depth = (uint16_t)(i + 1),
                                                   .byte = byte,
                                                   .string = string,
                                                   .match = STOP_NO_STRING};
            set->nodes[node].child = (uint16_t)child;
        }
        node = child;
    }
    if (set->nodes[node].match == STOP_NO_STRING) set->nodes[node].match = string; /* the first of equal strings */
}

/* Level by level, because a failure link points to a smaller depth. A node's own string is its longest match. */
static void link_failures(struct stop_set *set, uint16_t *queue)
{
    uint32_t n_queued = 1; /* the root is first */
    for (uint32_t i = 0; i < n_queued; i++) {
        uint32_t parent = queue[i];
        for (uint32_t node = set->nodes[parent].child; node; node = set->nodes[node].sibling) {
            struct stop_node *fresh = &set->nodes[node];
            fresh->fail = (uint16_t)(parent ? stop_set_step(set, set->nodes[parent].fail, fresh->byte) : 0);
            if (fresh->match == STOP_NO_STRING) fresh->match = set->nodes[fresh->fail].match;
            queue[n_queued++] = (uint16_t)node;
        }
    }
    ASSERT(n_queued == set->n_nodes);
}

bool stop_set_init(struct stop_set *set, struct alloc *alloc, const struct stop_string *strings, size_t n,
                   struct err *err)
{
    ASSERT(n <= SAMPLING_STOP_STRINGS_MAX);
    *set = (struct stop_set){.alloc = alloc, .strings = strings};
    uint16_t *queue = NULL;
    uint64_t n_nodes_max = 1;
    for (size_t i = 0; i < n; i++) {
        ASSERT(strings[i].n_bytes >= 1);
        ASSERT(strings[i].n_bytes <= SAMPLING_STOP_BYTES_MAX);
        n_nodes_max += strings[i].n_bytes;
    }
    set->nodes = alloc_get_array(alloc, n_nodes_max, sizeof *set->nodes, err);
    if (!set->nodes) goto fail;
    queue = alloc_get_array(alloc, n_nodes_max, sizeof *queue, err);
    if (!queue) goto fail;

    set->nodes[0] = (struct stop_node){.match = STOP_NO_STRING};
    set->n_nodes = 1;
    for (size_t i = 0; i < n; i++) add_string(set, (uint8_t)i);
    link_failures(set, queue);
    alloc_put(alloc, queue);
    return true;
fail:
    stop_set_fini(set);
    return false;
}

void stop_set_fini(struct stop_set *set)
{
    if (set->alloc) alloc_put(set->alloc, set->nodes);
    *set = (struct stop_set){0};
}

uint32_t stop_set_step(const struct stop_set *set, uint32_t state, uint8_t byte)
{
    for (;;) {
        uint32_t child = child_of(set, state, byte);
        if (child || state == 0) return child;
        state = set->nodes[state].fail;
    }
}
