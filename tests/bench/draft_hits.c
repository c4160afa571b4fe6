/* How often the MTP layer's drafts come true: at every place of greedy answers to the prompts of an evaluation file,
 * one draft and three chained ones, by kind of prompt.
 *
 *   draft_hits MODEL PROMPTS.jsonl [block_output|head_norm]
 * The last argument is what a chain hands on; without it, what the model says. Lines of the file are prompts, or whole
 * documents (those that tell how many tokens were predicted), of which chat and tools are prompts up to their first
 * answer, and plain text with its first 60 tokens. As in the demo model's card a place counts when three more tokens
 * follow it. */
#include "run/engine.h"
#include "run/session.h"
#include "support/check.h"
#include "support/lines.h"

#include <json-c/json_object.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 2048, ANSWER_MAX = 80, TEXT_PROMPT = 60, DRAFTS = 3, CHUNK = 128, KINDS = 3 };

static const char *const kinds[KINDS] = {"chat", "tools", "text"};

struct counting {
    struct engine *engine;
    bool is_raw;
    uint32_t assistant;                                  /* the id in front of an answer */
    uint64_t n_places[KINDS], n_accepted[KINDS][DRAFTS]; /* the j-th and all before it */
};

static void stop_unless(bool ok, const struct err *err)
{
    if (ok) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static bool is_end(const struct counting *c, uint32_t id)
{
    const struct config *config = engine_config(c->engine);
    for (uint32_t i = 0; i < config->n_eos; i++)
        if (config->eos[i] == id) return true;
    return false;
}

/* Greedy ids behind the prompt, the one that ends them included. */
static uint32_t answer(struct counting *c, uint32_t *ids, uint32_t n)
{
    struct session session;
    struct err err = {0};
    uint32_t n_prompt = n;
    session_init(&session, c->engine);
    stop_unless(session_feed(&session, ids, n, NULL, NULL, &err), &err);
    while (n < n_prompt + ANSWER_MAX) {
        ids[n] = forward_argmax(session.logits, engine_config(c->engine)->vocab);
        if (is_end(c, ids[n++])) break;
        stop_unless(session_feed(&session, &ids[n - 1], 1, NULL, NULL, &err), &err);
    }
    session_fini(&session);
    return n;
}

/* Runs ids [first .. first + n) through the model and their pairs through the MTP layer. */
static void feed(struct counting *c, struct kv *kv, const uint32_t *ids, uint32_t first, uint32_t n)
{
    struct forward_row rows[CHUNK];
    struct forward_mtp_row pairs[CHUNK];
    struct forward *forward = engine_forward(c->engine);
    struct err err = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct forward_row){.kv = kv, .token = ids[first + i], .position = first + i};
    stop_unless(engine_pass(c->engine, rows, n, &err), &err);
    for (uint32_t i = 0; i < n; i++)
        pairs[i] = (struct forward_mtp_row){.kv = kv,
                                            .token = ids[first + i + 1],
                                            .position = first + i,
                                            .hidden = forward_final(forward, i),
                                            .wants_logits = i + 1 == n};
    stop_unless(forward_mtp(forward, pairs, n, &err), &err);
}

/* How many of the chained drafts behind the row that was fed last are the ids that follow. */
static uint32_t chain(struct counting *c, struct kv *kv, const uint32_t *want, uint32_t n_want, size_t row)
{
    struct forward *forward = engine_forward(c->engine);
    struct err err = {0};
    uint32_t n_right = 0, first = kv->n_mtp_rows;
    for (uint32_t g = 0; g < DRAFTS && g < n_want; g++) {
        uint32_t draft = forward_argmax(forward_logits(forward, row), engine_config(c->engine)->vocab);
        if (draft != want[g]) break;
        n_right++;
        const struct forward_mtp_row link = {.kv = kv,
                                             .token = draft,
                                             .position = first + g,
                                             .hidden =
                                                 c->is_raw ? forward_stream(forward, row) : forward_final(forward, row),
                                             .wants_logits = true};
        if (g + 1 < DRAFTS) stop_unless(forward_mtp(forward, &link, 1, &err), &err);
        row = 0;
    }
    kv->n_mtp_rows = first;
    return n_right;
}

static void count_document(void *context, struct json_object *line, size_t number)
{
    struct counting *c = context;
    static uint32_t ids[IDS_MAX + ANSWER_MAX + 1];
    struct json_object *array = json_object_object_get(line, "ids");
    const char *kind = json_object_get_string(json_object_object_get(line, "kind"));
    uint32_t k = 0, n = 0, total = (uint32_t)json_object_array_length(array);
    bool is_document = json_object_object_get(line, "predicted") != NULL;
    (void)number;
    while (k < KINDS && strcmp(kind, kinds[k]) != 0) k++;
    if (k == KINDS) return;
    while (n < total && n < IDS_MAX) {
        ids[n] = (uint32_t)json_object_get_int(json_object_array_get_idx(array, n));
        n++;
        if (is_document && (k < 2 ? ids[n - 1] == c->assistant : n == TEXT_PROMPT)) break;
    }
    uint32_t end = answer(c, ids, n);
    struct kv kv;
    kv_init(&kv, forward_kv_pool(engine_forward(c->engine)));
    for (uint32_t at = 0; at + 1 < n;) {
        uint32_t some = n - 1 - at < CHUNK ? n - 1 - at : CHUNK;
        feed(c, &kv, ids, at, some);
        at += some;
    }
    for (uint32_t p = n - 1; p + 1 + DRAFTS < end; p++) { /* a pass that gave ids[p + 1]; drafts are for what follows */
        feed(c, &kv, ids, p, 1);
        uint32_t n_right = chain(c, &kv, ids + p + 2, end - p - 2, 0);
        c->n_places[k]++;
        for (uint32_t j = 0; j < n_right; j++) c->n_accepted[k][j]++;
    }
    kv_fini(&kv);
}

int main(int argc, char **argv)
{
    static struct counting c;
    struct alloc alloc = {0};
    struct err err = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: draft_hits MODEL PROMPTS.jsonl [block_output|head_norm]\n");
        return 2;
    }
    struct engine_settings settings = engine_settings_default(argv[1]);
    settings.context_tokens = IDS_MAX + ANSWER_MAX + 8;
    settings.ram_budget_bytes = UINT64_C(2) << 30;
    stop_unless(engine_open(&c.engine, &alloc, file_system_real(), &settings, &err), &err);
    c.is_raw = engine_config(c.engine)->mtp_chain == MTP_CHAIN_BLOCK_OUTPUT;
    if (argc > 3) c.is_raw = strcmp(argv[3], "block_output") == 0;
    c.assistant = 4068;
    fixture_lines(&alloc, argv[2], count_document, &c);
    printf("%s, chain by %s\n", argv[1], c.is_raw ? "block_output" : "head_norm");
    for (int k = 0; k < KINDS; k++) {
        double n = (double)c.n_places[k], sum = 1;
        printf("%-6s %6.0f places: 1 draft accepted %.3f, 2 of 2 %.3f, 3 of 3 %.3f", kinds[k], n,
               (double)c.n_accepted[k][0] / n, (double)c.n_accepted[k][1] / n, (double)c.n_accepted[k][2] / n);
        for (int j = 0; j < DRAFTS; j++) sum += (double)c.n_accepted[k][j] / n;
        printf("; tokens a pass %.2f with 1, %.2f with 3\n", 1 + (double)c.n_accepted[k][0] / n, sum);
    }
    engine_close(c.engine);
    return 0;
}
