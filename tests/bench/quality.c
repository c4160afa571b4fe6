/* usage: quality MODEL...
 * MODEL is a folder; with @int8 behind it, it is run with those numerics, with @f16 or @q8 its rows are stored so.
 * How well models of the demo's family do on its held-out documents (tests/fixtures/demo): one table in Markdown, with
 * a column for each folder. It takes a minute or two for each. docs/QUALITY.md says what the rows mean. */
#include "fmt/json_doc.h"
#include "support/generation.h"
#include "run/score.h"
#include "run/text_model.h"
#include "support/lines.h"

#include <inttypes.h>
#include <json-c/json_object.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURES "tests/fixtures/demo"

enum { IDS_MAX = 4096, COLUMNS_MAX = 8, ANSWER_TOKENS_MAX = 200 };

enum kind { CHAT, TOOLS, RECALL, NEEDLE, TEXT, KINDS };
static const char *const kind_names[KINDS] = {"chat", "tools", "recall", "needle", "text"};

struct loss {
    double sum;
    uint64_t n;
};

struct share {
    uint32_t hits, n;
};

struct column {
    const char *name;
    char dir[1024];
    enum numerics numerics;
    enum kv_storage kv;
    struct loss all[KINDS], replies[KINDS];
    double apart; /* the largest difference of a document's loss per token from the recorded one */
    struct share needle, recall, call, observation, json_valid, json_equal, repeated;
};

struct subject {
    struct alloc alloc;
    struct engine *engine;
    struct text_model model;
    struct session session;
    struct column *column;
    /* of the document in hand */
    uint32_t ids[IDS_MAX];
    size_t n;
    double loss[IDS_MAX];  /* of token i given those before it */
    bool is_best[IDS_MAX]; /* it is the likeliest one */
};

static void stop_if(bool failed, const char *what, const struct err *err)
{
    if (!failed) return;
    fprintf(stderr, "quality: %s: %s\n", what, err->text);
    exit(1);
}

static bool see_token(void *context, const struct score_token *token, struct err *err)
{
    struct subject *s = context;
    (void)err;
    s->loss[token->position] = -token->logprob;
    s->is_best[token->position] = token->n_top && token->top[0].token == token->token;
    return true;
}

static size_t take_ids(struct json_object *list, uint32_t ids[IDS_MAX])
{
    size_t n = json_object_array_length(list);
    if (n > IDS_MAX) n = IDS_MAX;
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)json_object_get_int(json_object_array_get_idx(list, i));
    return n;
}

static enum chat_control control(const struct subject *s, size_t i)
{
    return chat_ids_control(&s->model.chat, s->ids[i]);
}

static bool ends_turn(const struct subject *s, size_t i)
{
    for (uint32_t e = 0; e < s->model.n_ends_chat; e++)
        if (s->model.ends[e] == s->ids[i]) return true;
    return false;
}

static bool all_best(const struct subject *s, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (!s->is_best[i]) return false;
    return true;
}

static void add_share(struct share *share, bool hit)
{
    share->hits += hit;
    share->n++;
}

static void text_of(const struct subject *s, size_t first, size_t end, struct buf *out)
{
    struct err err = {0};
    buf_clear(out);
    for (size_t i = first; i < end; i++) {
        struct token token = tokenizer_token(s->model.tokenizer, s->ids[i]);
        stop_if(!buf_add(out, token.bytes, token.n_bytes, &err), "text", &err);
    }
}

/* The user asks for something that was told before. */
static bool asks_for_recall(struct subject *s, size_t first, size_t end)
{
    static const char *const words[] = {" I ", " my ", "you remember"};
    struct buf text;
    bool asks = false;
    buf_init(&text, &s->alloc, 1 << 20);
    text_of(s, first, end, &text);
    for (size_t w = 0; text.bytes && w < sizeof words / sizeof *words; w++) asks = asks || strstr(text.data, words[w]);
    asks = asks && text.data[text.bytes - 1] == '?';
    buf_fini(&text);
    return asks;
}

/* Greedy text after the first n ids of the document, without what ends it. */
static void write_answer(struct subject *s, size_t n, struct token_list *out)
{
    struct err err = {0};
    struct generation g;
    struct sampling sampling = sampling_built_in();
    struct sampler_rules rules = {.sampling = &sampling, .eos = s->model.ends, .n_eos = s->model.n_ends_model};
    struct sampled token;
    sampling.temperature = 0;
    sampling.max_tokens = ANSWER_TOKENS_MAX;
    session_rewind(&s->session, 0);
    stop_if(!generation_init(&g, &s->session, &rules, s->model.n_tokens, &err), "generation", &err);
    stop_if(!generation_start(&g, s->ids, (uint32_t)n, &err), "generation", &err);
    for (;;) {
        stop_if(!generation_next(&g, &token, &err), "generation", &err);
        if (g.reason != STOP_NONE) break;
        stop_if(!token_list_add(out, &token.id, 1, &err), "generation", &err);
    }
    generation_fini(&g);
}

static struct json_object *parse(struct subject *s, const char *text, size_t bytes)
{
    struct err err = {0};
    struct json_object *value = NULL;
    return json_doc_parse(&value, &s->alloc, &json_rules_request, "answer", text, bytes, &err) ? value : NULL;
}

/* Content that is a JSON object is written by the model itself and compared as a value. */
static void try_json(struct subject *s, size_t first, size_t end)
{
    struct err err = {0};
    struct token_list written;
    struct buf text;
    buf_init(&text, &s->alloc, 1 << 20);
    text_of(s, first, end, &text);
    struct json_object *want = text.bytes && text.data[0] == '{' ? parse(s, text.data, text.bytes) : NULL;
    if (want) {
        token_list_init(&written, &s->alloc, IDS_MAX);
        write_answer(s, first, &written);
        buf_clear(&text);
        for (size_t i = 0; i < written.n; i++) {
            struct token token = tokenizer_token(s->model.tokenizer, written.ids[i]);
            stop_if(!buf_add(&text, token.bytes, token.n_bytes, &err), "text", &err);
        }
        struct json_object *got = text.bytes ? parse(s, text.data, text.bytes) : NULL;
        add_share(&s->column->json_valid, got != NULL);
        add_share(&s->column->json_equal, got && json_object_equal(got, want));
        json_object_put(got);
        token_list_fini(&written);
        json_object_put(want);
    }
    buf_fini(&text);
}

/* One reply: ids[first] is behind <|assistant|>, ids[end - 1] ends the turn; `asked` is where the message before it
 * begins. */
static void see_reply(struct subject *s, enum kind kind, size_t asked, size_t first, size_t end)
{
    struct column *c = s->column;
    size_t content = first, call = end, call_end = end;
    for (size_t i = first; i < end; i++) {
        if (control(s, i) == CHAT_THINK_END) content = i + 1;
        if (control(s, i) == CHAT_CALL && call == end) call = i;
        if (control(s, i) == CHAT_CALL_END) call_end = i + 1;
        c->replies[kind].sum += s->loss[i];
        c->replies[kind].n++;
    }
    /* <think>, and </think> where nothing is thought, belong to the prompt. */
    size_t own = content == first + 2 ? content : first + (control(s, first) == CHAT_THINK);
    bool follows_tool = asked > 0 && control(s, asked - 1) == CHAT_OBSERVATION;
    if (kind == NEEDLE) add_share(&c->needle, all_best(s, own, end));
    if (kind == RECALL && asks_for_recall(s, asked, first - 1)) add_share(&c->recall, all_best(s, own, end));
    if (kind == TOOLS && call < end) add_share(&c->call, all_best(s, call, call_end));
    if (kind == TOOLS && follows_tool) add_share(&c->observation, all_best(s, content, end));
    if (kind == CHAT) try_json(s, content, end - 1);
}

static void see_replies(struct subject *s, enum kind kind)
{
    size_t asked = 0;
    for (size_t i = 0; i < s->n; i++) {
        enum chat_control c = control(s, i);
        if (c == CHAT_USER || c == CHAT_OBSERVATION) asked = i + 1;
        if (c != CHAT_ASSISTANT) continue;
        size_t end = i + 1;
        while (end < s->n && !ends_turn(s, end)) end++;
        if (end < s->n) see_reply(s, kind, asked, i + 1, end + 1);
    }
}

static void see_document(void *context, struct json_object *line, size_t number)
{
    struct subject *s = context;
    struct err err = {0};
    struct score_result result;
    const struct score_watcher watcher = {.context = s, .token = see_token};
    const char *name = json_object_get_string(json_object_object_get(line, "kind"));
    enum kind kind = CHAT;
    while (kind < TEXT && strcmp(kind_names[kind], name) != 0) kind++;
    s->n = take_ids(json_object_object_get(line, "ids"), s->ids);
    session_rewind(&s->session, 0);
    stop_if(!score_run(&s->session, s->ids, s->n, 1, s->model.n_tokens, &watcher, &result, &err), "score", &err);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%s: document %zu", s->column->name, number);
    s->column->all[kind].sum -= result.logprob_sum;
    s->column->all[kind].n += result.n_scored;
    double recorded = json_object_get_double(json_object_object_get(line, "nll_sparse"));
    double apart = fabs(-result.logprob_sum - recorded) / (double)result.n_scored;
    if (apart > s->column->apart) s->column->apart = apart;
    if (kind == TEXT) return;
    double before = s->column->replies[kind].sum;
    see_replies(s, kind);
    /* The recording counts the token behind <sop> among the replies. */
    recorded = json_object_get_double(json_object_object_get(line, "nll_reply_sparse")) - s->loss[2];
    apart = fabs(s->column->replies[kind].sum - before - recorded) / (double)result.n_scored;
    if (apart > s->column->apart) s->column->apart = apart;
}

static void see_reference(void *context, struct json_object *line, size_t number)
{
    struct subject *s = context;
    uint32_t want[IDS_MAX];
    struct token_list got;
    (void)number;
    size_t n_want = take_ids(json_object_object_get(line, "continuation_ids"), want);
    s->n = take_ids(json_object_object_get(line, "prompt_ids"), s->ids);
    bool is_whole = false; /* it ends with the end of the turn, and not where the recording was cut */
    for (uint32_t e = 0; e < s->model.n_ends_model; e++) is_whole = is_whole || s->model.ends[e] == want[n_want - 1];
    size_t n_text = n_want - is_whole;
    token_list_init(&got, &s->alloc, IDS_MAX);
    write_answer(s, s->n, &got);
    bool same = (is_whole ? got.n == n_text : got.n >= n_text) && memcmp(got.ids, want, n_text * sizeof *want) == 0;
    add_share(&s->column->repeated, same);
    token_list_fini(&got);
}

static void evaluate(struct column *column)
{
    static struct subject s;
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(column->dir);
    settings.numerics = column->numerics;
    settings.kv_storage = column->kv;
    s = (struct subject){.column = column};
    stop_if(!engine_open(&s.engine, &s.alloc, file_system_real(), &settings, &err), column->dir, &err);
    stop_if(!text_model_open(&s.model, &s.alloc, file_system_real(), column->dir, engine_config(s.engine), &err),
            column->dir, &err);
    session_init(&s.session, s.engine);
    fixture_lines(&s.alloc, FIXTURES "/eval.jsonl", see_document, &s);
    fixture_lines(&s.alloc, FIXTURES "/reference.jsonl", see_reference, &s);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\n");
    session_fini(&s.session);
    text_model_close(&s.model);
    engine_close(s.engine);
}

static void print_losses(const char *what, const struct column *columns, size_t n, size_t offset, enum kind kind)
{
    const struct loss *first = (const struct loss *)((const char *)&columns[0] + offset) + kind;
    printf("| %s: perplexity, %s (%" PRIu64 " tokens) |", kind_names[kind], what, first->n);
    for (size_t i = 0; i < n; i++) {
        const struct loss *loss = (const struct loss *)((const char *)&columns[i] + offset) + kind;
        printf(" %.4f |", exp(loss->sum / (double)loss->n));
    }
    printf("\n");
}

static void print_shares(const char *what, const struct column *columns, size_t n, size_t offset)
{
    printf("| %s |", what);
    for (size_t i = 0; i < n; i++) {
        const struct share *share = (const struct share *)((const char *)&columns[i] + offset);
        printf(" %" PRIu32 " of %" PRIu32 " |", share->hits, share->n);
    }
    printf("\n");
}

/* MODEL, MODEL@int8 for other numerics, MODEL@f16 or MODEL@q8 for another storage of rows. */
static void name_column(struct column *column, const char *name)
{
    const char *how = strrchr(name, '@');
    bool is_storage = false;
    column->name = name;
    for (enum kv_storage storage = 0; how && storage < KV_STORAGES; storage++)
        if (strcmp(how + 1, kv_codec_of(storage)->name) == 0) {
            column->kv = storage;
            is_storage = true;
        }
    bool is_int8 = how && strcmp(how + 1, "int8") == 0;
    column->numerics = is_int8 ? NUMERICS_INT8 : NUMERICS_EXACT;
    snprintf(column->dir, sizeof column->dir, "%.*s", (int)(is_int8 || is_storage ? how - name : (long)strlen(name)),
             name);
}

int main(int argc, char **argv)
{
    static struct column columns[COLUMNS_MAX];
    size_t n = (size_t)argc - 1;
    if (argc < 2 || n > COLUMNS_MAX) {
        fprintf(stderr, "usage: quality MODEL... (up to %d)\n", COLUMNS_MAX);
        return 2;
    }
    for (size_t i = 0; i < n; i++) {
        name_column(&columns[i], argv[i + 1]);
        evaluate(&columns[i]);
    }
    printf("| |");
    for (size_t i = 0; i < n; i++) printf(" %s |", columns[i].name);
    printf("\n|---|");
    for (size_t i = 0; i < n; i++) printf("---|");
    printf("\n");
    for (enum kind kind = CHAT; kind < KINDS; kind++) {
        print_losses("all", columns, n, offsetof(struct column, all), kind);
        if (kind != TEXT) print_losses("replies", columns, n, offsetof(struct column, replies), kind);
    }
    print_shares("needle: answers exact", columns, n, offsetof(struct column, needle));
    print_shares("recall: answers exact", columns, n, offsetof(struct column, recall));
    print_shares("tools: calls exact", columns, n, offsetof(struct column, call));
    print_shares("tools: answers to results exact", columns, n, offsetof(struct column, observation));
    print_shares("JSON: valid", columns, n, offsetof(struct column, json_valid));
    print_shares("JSON: equal", columns, n, offsetof(struct column, json_equal));
    print_shares("greedy answers of the reference repeated", columns, n, offsetof(struct column, repeated));
    printf("| largest difference from the recorded loss of a document, per token |");
    for (size_t i = 0; i < n; i++) printf(" %.2g |", columns[i].apart);
    printf("\n");
    return 0;
}
