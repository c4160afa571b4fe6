#include "fmt/token_list.h"

#include <string.h>

#define BETWEEN " \t\r\n,[]"

void token_list_init(struct token_list *list, struct alloc *alloc, size_t n_max)
{
    *list = (struct token_list){.alloc = alloc, .n_max = n_max};
}

void token_list_fini(struct token_list *list)
{
    if (list->ids) alloc_put(list->alloc, list->ids);
    list->ids = NULL;
    list->n = list->room = 0;
}

static bool grow(struct token_list *list, size_t n, struct err *err)
{
    if (n > list->n_max - list->n)
        return err_set(err, ERR_BUSY, "%zu tokens more would pass the limit of %zu tokens", n, list->n_max);
    size_t room = list->room ? list->room : 64;
    while (room < list->n + n) room *= 2;
    uint32_t *ids = alloc_resize(list->alloc, list->ids, room * sizeof *ids, err);
    if (!ids) return false;
    list->ids = ids;
    list->room = room;
    return true;
}

bool token_list_add(struct token_list *list, const uint32_t *ids, size_t n, struct err *err)
{
    /* The room doubles, so that it may pass the ceiling, which holds exactly. */
    if (n > list->room - list->n || n > list->n_max - list->n)
        if (!grow(list, n, err)) return false;
    for (size_t i = 0; i < n; i++) list->ids[list->n + i] = ids[i];
    list->n += n;
    return true;
}

static bool parse_id(uint32_t *id, const char *digits, size_t n)
{
    uint64_t value = 0;
    if (n == 0 || n > 10) return false;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        value = value * 10 + (uint64_t)(digits[i] - '0');
    }
    *id = (uint32_t)value;
    return value <= UINT32_MAX;
}

bool token_list_parse(struct token_list *list, struct alloc *alloc, const char *source, const char *text,
                      struct err *err)
{
    token_list_init(list, alloc, strlen(text));
    for (text += strspn(text, BETWEEN); *text; text += strspn(text, BETWEEN)) {
        size_t n = strcspn(text, BETWEEN);
        uint32_t id;
        if (!parse_id(&id, text, n)) {
            err_set(err, ERR_USER, "%s: '%.*s' (number %zu) is not a token id", source, n < 40 ? (int)n : 40, text,
                    list->n + 1);
            goto fail;
        }
        if (!token_list_add(list, &id, 1, err)) goto fail;
        text += n;
    }
    if (list->n > 0) return true;
    err_set(err, ERR_USER, "%s: no token ids", source);
fail:
    token_list_fini(list);
    return false;
}
