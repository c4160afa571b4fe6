#include "run/history.h"

#include "base/assert.h"
#include <string.h>

bool history_reserve(struct history *history, struct alloc *alloc, uint32_t n_max, struct err *err)
{
    *history = (struct history){.alloc = alloc, .n_max = n_max};
    history->ids = alloc_get_array(alloc, n_max, sizeof *history->ids, err);
    return history->ids != NULL;
}

void history_fini(struct history *history)
{
    if (history->alloc) alloc_put(history->alloc, history->ids);
    *history = (struct history){0};
}

void history_start(struct history *history, const uint32_t *prompt, uint32_t n)
{
    ASSERT(n <= history->n_max);
    if (n) memcpy(history->ids, prompt, n * sizeof *prompt);
    history->n = history->n_prompt = n;
}

void history_push(struct history *history, uint32_t id)
{
    ASSERT(history->n < history->n_max);
    history->ids[history->n++] = id;
}

uint32_t history_generated(const struct history *history)
{
    return history->n - history->n_prompt;
}
