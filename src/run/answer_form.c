#include "run/answer_form.h"

#include <inttypes.h>
#include <string.h>

#define MASK_CACHE_BYTES (UINT64_C(32) << 20)

struct answer_form {
    struct form_tables *tables;
    struct matcher *now, *ahead; /* where the answer stands; a copy that runs in front, NULL until it is needed */
    struct matcher_rules rules;
    uint64_t mask[]; /* [token_trie_words] */
};

void form_tables_init(struct form_tables *tables, struct alloc *alloc, const struct text_model *model)
{
    *tables = (struct form_tables){.alloc = alloc, .model = model};
    tables->controls = control_ids_of(&model->chat, model->ends, model->n_ends_chat);
}

void form_tables_fini(struct form_tables *tables)
{
    mask_cache_free(tables->masks);
    token_trie_free(tables->trie);
    tables->masks = NULL;
    tables->trie = NULL;
}

static bool make_tables(struct form_tables *t, struct err *err)
{
    if (t->masks) return true;
    if (!t->trie) t->trie = token_trie_new(t->alloc, t->model->tokenizer, err);
    if (t->trie) t->masks = mask_cache_new(t->alloc, t->trie, MASK_CACHE_BYTES, err);
    return t->masks != NULL;
}

bool answer_form_new(struct answer_form **form, struct form_tables *tables, struct constraint *constraint,
                     bool starts_in_think, struct err *err)
{
    if (!make_tables(tables, err)) return false;
    struct answer_form *f = alloc_get(tables->alloc, sizeof *f + token_trie_words(tables->trie) * sizeof *f->mask, err);
    if (!f) return false;
    f->tables = tables;
    f->rules = (struct matcher_rules){
        .constraint = constraint, .cache = tables->masks, .ids = &tables->controls, .starts_in_think = starts_in_think};
    f->now = matcher_new(tables->alloc, &f->rules, err);
    if (!f->now) goto fail;
    *form = f;
    return true;
fail:
    answer_form_free(f);
    return false;
}

void answer_form_free(struct answer_form *form)
{
    if (!form) return;
    matcher_free(form->ahead);
    matcher_free(form->now);
    alloc_put(form->tables->alloc, form);
}

const uint64_t *answer_form_allowed(struct answer_form *form, struct err *failure)
{
    if (!matcher_allowed(form->now, form->mask, failure))
        memset(form->mask, 0, token_trie_words(form->tables->trie) * sizeof *form->mask);
    return form->mask;
}

enum stop_reason answer_form_advance(struct answer_form *form, uint32_t id, struct err *failure)
{
    bool taken = false;
    if (!matcher_advance(form->now, id, &taken, failure)) return STOP_ERROR;
    if (!taken) {
        err_set(failure, ERR_FAILED, "grammar_dead_end: token %" PRIu32 " came although it was not allowed", id);
        return STOP_ERROR;
    }
    return matcher_is_complete(form->now) ? STOP_GRAMMAR : STOP_NONE;
}

uint32_t answer_form_forced(struct answer_form *form, uint32_t *ids, uint32_t n_max)
{
    struct err ignored;
    bool forced, taken;
    uint32_t n = 0, id;
    if (n_max == 0 || matcher_is_thinking(form->now)) return 0; /* nothing is forced while it thinks */
    if (!matcher_forced(form->now, &id, &forced, &ignored) || !forced) return 0;
    if (!form->ahead) form->ahead = matcher_new(form->tables->alloc, &form->rules, &ignored);
    if (!form->ahead || !matcher_copy(form->ahead, form->now, &ignored)) return 0;
    while (forced && n < n_max && !control_ids_ends(&form->tables->controls, id)) {
        ids[n++] = id;
        if (!matcher_advance(form->ahead, id, &taken, &ignored) || !taken || matcher_is_complete(form->ahead)) break;
        if (!matcher_forced(form->ahead, &id, &forced, &ignored)) break;
    }
    return n;
}
