#include "run/stop_text.h"

#include "base/assert.h"

void stop_text_init(struct stop_text *text, const struct stop_set *set)
{
    *text = (struct stop_text){.set = set, .match = STOP_NO_STRING};
}

uint32_t stop_text_held(const struct stop_text *text)
{
    return text->set->nodes[text->state].depth;
}

/* Lets go of the first n bytes of those that `node` holds and the byte behind them. */
static bool release(struct stop_text *text, struct buf *out, const struct stop_node *node, char byte, uint32_t n,
                    struct err *err)
{
    ASSERT(n <= node->depth + 1u);
    uint32_t n_held = n < node->depth ? n : node->depth;
    if (n_held && !utf8_stream_add(&text->utf8, out, text->set->strings[node->string].bytes, n_held, err)) return false;
    return n == n_held || utf8_stream_add(&text->utf8, out, &byte, 1, err);
}

bool stop_text_add(struct stop_text *text, struct buf *out, const char *bytes, size_t n, struct err *err)
{
    for (size_t i = 0; i < n && text->match == STOP_NO_STRING; i++) {
        const struct stop_node *before = &text->set->nodes[text->state];
        text->state = stop_set_step(text->set, text->state, (uint8_t)bytes[i]);
        const struct stop_node *after = &text->set->nodes[text->state];

        text->match = after->match;
        bool is_over = after->match != STOP_NO_STRING;
        uint32_t kept = is_over ? (uint32_t)text->set->strings[after->match].n_bytes : after->depth;
        if (!release(text, out, before, bytes[i], before->depth + 1u - kept, err)) return false;
        if (!is_over) continue;
        text->state = 0;
        return utf8_stream_end(&text->utf8, out, err);
    }
    return true;
}

bool stop_text_end(struct stop_text *text, struct buf *out, struct err *err)
{
    const struct stop_node *node = &text->set->nodes[text->state];
    text->state = 0;
    return release(text, out, node, 0, node->depth, err) && utf8_stream_end(&text->utf8, out, err);
}
