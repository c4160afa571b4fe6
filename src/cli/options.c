#include "cli/options.h"

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/settings.h"
#include "run/engine.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The offset of a field, which must have this type: anything else does not compile. */
#define FIELD(field, type) _Generic(((struct settings *)0)->field, type : offsetof(struct settings, field))

#define FLAG(label, field, on, text)                                                                        \
    {                                                                                                       \
        .name = label, .type = OPTION_FLAG, .offset = FIELD(field, bool), .initial = "off", .commands = on, \
        .help = text                                                                                        \
    }
#define WHOLE(label, kind, field, value, least, most, start, on, text)                                                 \
    {                                                                                                                  \
        .name = label, .type = kind, .offset = FIELD(field, uint64_t), .value_name = value, .min = least, .max = most, \
        .initial = start, .commands = on, .help = text                                                                 \
    }
#define COUNT(label, field, value, least, most, start, on, text) \
    WHOLE(label, OPTION_COUNT, field, value, least, most, start, on, text)
#define BYTES(label, field, least, most, start, on, text) \
    WHOLE(label, OPTION_BYTES, field, "SIZE", least, most, start, on, text)
#define SECONDS(label, field, least, most, start, on, text) \
    WHOLE(label, OPTION_SECONDS, field, "TIME", least, most, start, on, text)
#define NUMBER(label, field, least, most, start, on, text)                                                            \
    {                                                                                                                 \
        .name = label, .type = OPTION_NUMBER, .offset = FIELD(field, double), .value_name = "X", .number_min = least, \
        .number_max = most, .initial = start, .commands = on, .help = text                                            \
    }
#define CHOICE(label, field, start, on, text, ...)                                                        \
    {                                                                                                     \
        .name = label, .type = OPTION_CHOICE, .offset = FIELD(field, unsigned), .choices = {__VA_ARGS__}, \
        .initial = start, .commands = on, .help = text                                                    \
    }
#define TEXT(label, field, value, start, on, text)                                                     \
    {                                                                                                  \
        .name = label, .type = OPTION_TEXT, .offset = FIELD(field, const char *), .value_name = value, \
        .initial = start, .commands = on, .help = text                                                 \
    }
#define TEXTS(label, field, value, on, text)                                                                   \
    {                                                                                                          \
        .name = label, .type = OPTION_TEXTS, .offset = FIELD(field, struct option_texts), .value_name = value, \
        .commands = on, .help = text                                                                           \
    }
#define ON(command) (UINT64_C(1) << COMMAND_##command)
#define ON_ALL OPTIONS_OF_ALL

/* In the order of the help: a command's own options first, those that many share last. */
#define ON_ANSWER (ON(GENERATE) | ON(CHAT))                           /* commands that write text */
#define ON_SAMPLING (ON_ANSWER | ON(SERVE))                           /* those that choose tokens */
#define ON_MODEL_RUN (ON_SAMPLING | ON(SCORE) | ON(TRACE) | ON(TUNE)) /* those that open a model and run it */
#define ON_DRAFTS (ON_SAMPLING | ON(FIT) | ON(BENCH))                 /* those that draft, or plan for it */
#define ON_IDS (ON(GENERATE) | ON(SCORE) | ON(TRACE))
#define ON_MODEL_PLAN (ON_MODEL_RUN | ON(FIT) | ON(DOCTOR)) /* and those that plan for it */

static const struct option options[] = {
    TEXT("revision", revision, "NAME", NULL, ON(GET), "a branch, a tag or a commit instead of main"),
    TEXT("include", include, "LIST", NULL, ON(GET),
         "fetch files that match one of these patterns (with commas between them), instead of what weir needs"),
    TEXT("exclude", exclude, "LIST", NULL, ON(GET), "but no file that matches one of these"),
    FLAG("dry-run", dry_run, ON(GET), "tell what would be fetched, and fetch nothing"),
    TEXT("pass", passes, "LIST", NULL, ON(CONVERT), "main, mtp, indexer, or several with commas; all that SOURCE has"),
    CHOICE("bits", bits, "4", ON(CONVERT), "of attention, dense and shared expert matrices", "4", "8"),
    CHOICE("expert-bits", expert_bits, "same", ON(CONVERT), "of the routed experts; same: as --bits", "same", "4", "8"),
    CHOICE("io-bits", io_bits, "8", ON(CONVERT), "of embedding and output head", "4", "8"),
    COUNT("group", group, "N", 0, 256, "64", ON(CONVERT), "columns per scale of 4-bit rows; 0: one scale per row"),
    FLAG("keep-mtp-indexer", keep_mtp_indexer, ON(CONVERT), "keep the MTP layer's own indexer, which GLM-5.2 drops"),
    BYTES("shard-size", shard_bytes, 1, UINT64_MAX - 1, "5GB", ON(CONVERT),
          "start another file before one would be larger"),
    FLAG("decode", decode, ON(TOKENIZE), "read token ids and print their text"),
    CHOICE("special", special, "all", ON(TOKENIZE) | ON(TEMPLATE),
           "all: markers in text become tokens, special tokens are printed; none (template's default): neither", "none",
           "all"),
    TEXT("host", host, "ADDRESS", "127.0.0.1", ON(SERVE), "where to listen; beyond this machine only with a key"),
    COUNT("port", port, "N", 0, 65535, "8080", ON(SERVE), "0: any that is free; the URL is printed"),
    TEXT("api-key-file", api_key_file, "FILE", NULL, ON(SERVE),
         "clients must send one of the keys in FILE, one a line"),
    TEXTS(
        "cors-origin", cors_origins, "ORIGIN", ON(SERVE),
        "a web page that may ask, such as https://ui.example; may be given up to 16 times; * is all, and needs a key"),
    TEXTS("allow-host", allowed_hosts, "NAME", ON(SERVE), "another name of this server; may be given up to 16 times"),
    TEXT("alias", alias, "NAME", NULL, ON(SERVE), "what the model is called; without it, as its folder"),
    COUNT("batch", batch, "N", 1, 64, "8", ON(SERVE), "requests that are answered together"),
    COUNT("max-queue", max_queue, "N", 0, 65536, "64", ON(SERVE), "requests that may wait; more are told to try later"),
    SECONDS("queue-timeout", queue_timeout_s, 1, 86400, "600", ON(SERVE), "a request that waits longer has failed"),
    COUNT("max-connections", max_connections, "N", 1, 4096, "64", ON(SERVE), "clients at the same time"),
    COUNT("max-per-client", max_per_client, "N", 1, 4096, "8", ON(SERVE),
          "of these from one address, when others than this machine can ask"),
    BYTES("max-body", max_body_bytes, 1024, UINT64_C(1) << 30, "16M", ON(SERVE), "of one request"),
    SECONDS("keep-alive", keep_alive_s, 1, 3600, "4", ON(SERVE), "silence after which a stream shows that it lives"),
    SECONDS("keep-alive-whole", keep_alive_whole_s, 0, 3600, "0", ON(SERVE),
            "silence after which an answer that is not streamed begins with a blank; its status is then 200 whatever "
            "becomes of it; 0: never"),
    CHOICE("reasoning-field", reasoning_field, "reasoning_content", ON(SERVE),
           "what chat completions call reasoning; both: also `reasoning`, which some clients read", "reasoning_content",
           "both"),
    SECONDS("max-decode-stall", decode_stall_s, 1, 3600, "30", ON(SERVE),
            "how long answers may stand still for somebody's long prompt"),
    SECONDS("drain-time", drain_time_s, 0, 86400, "30", ON(SERVE), "after SIGTERM or Ctrl-C, for answers to end"),
    FLAG("isolate", isolate, ON(SERVE),
         "the engine in a process of its own: when it crashes, clients are told and it is started again"),
    COUNT("model-pool", model_pool, "N", 1, 16, "1", ON(SERVE),
          "of several models, engines that are open at a time, each in a process of its own; they share --ram-budget"),
    FLAG("strict-model", strict_model, ON(SERVE), "refuse requests for a model of another name"),
    FLAG("strict-fields", strict_fields, ON(SERVE), "refuse requests with fields or tools that have no effect"),
    FLAG("print-config", print_config, ON(SERVE), "show every value and where it came from, and do nothing else"),
    TEXT("prompt", prompt, "TEXT", NULL, ON(GENERATE), "the prompt, if it is no operand"),
    TEXT("prompt-file", prompt_file, "FILE", NULL, ON(GENERATE), "read the prompt from FILE; - is standard input"),
    FLAG("raw", raw, ON(GENERATE), "continue the prompt itself, without the chat template"),
    TEXT("system", system, "TEXT", NULL, ON_ANSWER, "what the model is told about its role, before the first message"),
    CHOICE("thinking", thinking, "off", ON_SAMPLING | ON(TEMPLATE),
           "let the model reason before it answers; what a request of serve or template says is stronger", "off", "on"),
    CHOICE("effort", effort, "max", ON_SAMPLING, "how much it reasons, with --thinking on", "max", "high"),
    TEXT("ids", ids, "LIST", NULL, ON_IDS, "token ids, such as \"1 2 3\" or 1,2,3"),
    TEXT("ids-file", ids_file, "FILE", NULL, ON_IDS, "read the token ids from FILE"),
    TEXT("text-file", text_file, "FILE", NULL, ON(SCORE), "score the text of FILE, markers in it recognised"),
    COUNT("top", top, "N", 0, 1000, "0", ON(SCORE), "list the N likeliest tokens of each position"),
    TEXT("dump-logits", dump_logits, "FILE", NULL, ON(SCORE),
         "write the logits behind each token to FILE: rows of little-endian float32"),
    TEXT("dump-trace", dump_trace, "FILE", NULL, ON(SCORE),
         "write hidden-state hash, experts and selected positions of each layer to FILE, as JSON lines"),
    COUNT("max-tokens", max_tokens, "N", 1, 1 << 20, "128", ON_SAMPLING | ON(TRACE), "tokens of an answer at most"),
    NUMBER("temperature", temperature, 0, 2, "model", ON_SAMPLING,
           "0 takes the likeliest token, more is more varied; model: what generation_config.json says"),
    NUMBER("top-p", top_p, 0, 1, "model", ON_SAMPLING, "draw from the likeliest tokens that make up this share"),
    COUNT("top-k", top_k, "N", 0, 1 << 20, "model", ON_SAMPLING, "draw from the N likeliest tokens; 0: all"),
    NUMBER("min-p", min_p, 0, 1, "model", ON_SAMPLING, "leave out tokens less likely than this share of the likeliest"),
    NUMBER("repetition-penalty", repetition_penalty, 0, 2, "model", ON_SAMPLING,
           "above 1 makes the last 20 tokens less likely to come again"),
    NUMBER("presence-penalty", presence_penalty, -2, 2, "0", ON_SAMPLING,
           "lowers the logit of each token that the answer has"),
    NUMBER("frequency-penalty", frequency_penalty, -2, 2, "0", ON_SAMPLING,
           "the same, once for each time that the answer has it"),
    COUNT("seed", seed, "N", 0, INT64_MAX, "random", ON_SAMPLING, "the same seed gives the same text"),
    TEXTS("stop", stop, "TEXT", ON_ANSWER, "end the answer before this text; may be given up to 16 times"),
    FLAG("ignore-eos", ignore_eos, ON(GENERATE), "go on past the end of the answer, up to --max-tokens"),
    CHOICE("mtp", mtp, "auto", ON_DRAFTS,
           "let the model's MTP layer draft tokens, which one pass verifies; auto: when the model has the layer",
           "auto", "on", "off"),
    CHOICE("draft", draft, "auto", ON_DRAFTS,
           "where drafts come from; ngram: from earlier in the text; auto: as --mtp says. The text stays the same",
           "auto", "mtp", "ngram", "off"),
    COUNT("num-draft-tokens", num_draft_tokens, "N", 1, 64, "auto", ON_DRAFTS,
          "drafts of each pass; auto: as many as pay, by what they cost here and how often they come true"),
    COUNT("ngram-max", ngram_max, "N", 1, 16, "3", ON_DRAFTS, "tokens that must match, with --draft ngram: at first"),
    COUNT("ngram-min", ngram_min, "N", 1, 16, "1", ON_DRAFTS, "and at last"),
    NUMBER("latent-norm-eps", latent_norm_eps, 0, 1, "model", ON_MODEL_RUN,
           "epsilon of the norms inside attention; model: what config.json says"),
    TEXT("slots", slots, "LIST", "1%,3%,10%,25%,50%", ON(TRACE),
         "numbers of expert slots to replay a trace with, or shares of the experts"),
    FLAG("machines", machines, ON(FIT), "a table for machines of 16 to 128 GiB instead of this one"),
    BYTES("disk-rate", disk_rate_bytes, 1 << 20, UINT64_C(1) << 40, "none", ON(FIT),
          "bytes a second that the disk reads, to predict tokens a second from"),
    TEXT("sizes", sizes, "LIST", NULL, ON(BENCH),
         "tokens of the prompts (16,64,256), of the contexts that are decoded behind (16,2048), sequences of batch "
         "(1,2,4,8), or fixed numbers of drafts (1,2,3)"),
    TEXT("throttle", throttle, "LIST", "0", ON(BENCH),
         "of draft: MB a second that the disk may give, one after the other; 0: all that it has"),
    TEXT("hits", hits, "LIST", "0,50,80,95", ON(BENCH),
         "of draft: percent of drafts that come true, one after the other"),
    COUNT("depth", depth, "N", 0, 1 << 20, "0", ON(BENCH), "tokens in front of a measured prompt"),
    COUNT("sequences", sequences, "N", 1, 64, "1", ON(BENCH), "sequences that are decoded together"),
    COUNT("runs", runs, "N", 1, 32, "5", ON(BENCH) | ON(TUNE),
          "runs of each size or pairs of each trial; medians count"),
    TEXT("only", only, "LIST", NULL, ON(TUNE), "try values of these options only, such as io-depth,direct-io"),
    BYTES("ram-budget", ram_budget_bytes, UINT64_C(1) << 20, UINT64_MAX - 1, "auto", ON_MODEL_PLAN | ON(BENCH),
          "everything the process may hold; auto: what is available to it, less a reserve"),
    TEXT("experts-resident", experts_resident, "PERCENT", NULL, ON_MODEL_PLAN | ON(BENCH),
         "keep at most this share of the experts in memory, such as 10%; without it, as many as fit"),
    COUNT("context-length", context_length, "N", 1, 1 << 20, "4096", ON_MODEL_PLAN, "tokens per sequence to plan for"),
    COUNT("prefill-chunk", prefill_chunk, "N", 1, ENGINE_CHUNK_MAX, "auto", ON_MODEL_PLAN | ON(BENCH),
          "tokens of a prompt in one pass"),
    CHOICE("numerics", numerics, "exact", ON_MODEL_RUN | ON(BENCH),
           "int8 rounds what meets int4 and int8 weights to 8 bits: faster, and another answer; exact does not",
           "exact", "int8"),
    CHOICE("kv", kv, "f32", ON_MODEL_PLAN | ON(BENCH),
           "how sequence state is stored; anything but f32 changes results slightly", "f32", "f16", "q8"),
    BYTES("prompt-cache", prompt_cache_bytes, 0, UINT64_MAX - 1, "auto", ON_MODEL_PLAN | ON(BENCH),
          "memory for the state of earlier prompts, inside the budget"),
    TEXT(
        "ssd-cache", ssd_cache, "DIR", NULL, ON_SAMPLING,
        "keep the state of conversations in DIR, which is made if it is missing, so that a restart goes on from there"),
    BYTES("ssd-cache-max", ssd_cache_max_bytes, 1 << 20, UINT64_MAX - 1, "50G", ON_SAMPLING,
          "of all states in DIR together; the one that was used longest ago leaves first"),
    SECONDS("demote-idle", demote_idle_s, 1, 86400 * 30, "300", ON(SERVE),
            "a conversation that rests for so long is written to --ssd-cache"),
    CHOICE("direct-io", direct_io, "auto", ON_MODEL_RUN | ON(BENCH),
           "read around the page cache; auto: what a measurement finds faster", "auto", "on", "off"),
    CHOICE("usage-history", usage_history, "on", ON_SAMPLING | ON(SCORE),
           "start with the experts in memory that earlier runs used most, and remember this run's", "on", "off"),
    TEXT("usage-import", usage_import, "FILE", NULL, ON_SAMPLING | ON(SCORE),
         "start from the .coli_usage that another engine left"),
    TEXTS("mirror", mirror, "DIR", ON_MODEL_RUN | ON(BENCH),
          "read also from the copies of the model's files in DIR, on another drive; may be given up to 16 times"),
    CHOICE("prefetch", prefetch, "on", ON_MODEL_RUN | ON(BENCH),
           "read the experts that the next layer will probably want while the disk has nothing better to do", "off",
           "on"),
    COUNT("io-depth", io_depth, "N", 1, 1024, "auto", ON_MODEL_RUN | ON(BENCH) | ON(DOCTOR), "reads in flight"),
    TEXT("policy", policy, "NAME", NULL, ON_MODEL_RUN | ON(BENCH),
         "which expert makes room, such as lru (see docs/experiments)"),
    COUNT("threads", threads, "N", 1, 1024, "auto", ON_MODEL_PLAN | ON(BENCH),
          "threads that compute; auto: the physical cores this process may use"),
    TEXT("cpu-mask", cpu_mask, "LIST", NULL, ON_MODEL_RUN | ON(BENCH) | ON(DOCTOR),
         "instruction sets not to use, such as avx512,avx2 (see weir version)"),
    CHOICE("profile", profile, "on", ON_SAMPLING | ON(SCORE) | ON(FIT) | ON(DOCTOR),
           "use what weir tune found for this model, where nothing else is said", "on", "off"),
    FLAG("tensors", tensors, ON(INSPECT), "list every tensor: name, dtype, shape, bytes, file, offset"),
    FLAG("man", man, ON(HELP), "print the manual page: weir help --man | man -l -"),
    FLAG("json", json,
         ON_IDS | ON(FIT) | ON(BENCH) | ON(TUNE) | ON(DOCTOR) | ON(INSPECT) | ON(VERIFY) | ON(GET) | ON(SCAN) |
             ON(MODELS) | ON(TOKENIZE) | ON(TEMPLATE) | ON(VERSION),
         "print one JSON object instead of text"),
    TEXT("config", config, "FILE", NULL, ON_ALL,
         "read options from FILE (name = value lines) instead of $XDG_CONFIG_HOME/weir/config.ini"),
};

static_assert(sizeof options / sizeof *options <= OPTIONS_MAX, "struct settings remembers an origin for every option");
static_assert(COMMAND_COUNT <= 64, "an option has one bit for each command");

size_t options_count(void)
{
    return sizeof options / sizeof *options;
}

const struct option *options_at(size_t row)
{
    ASSERT(row < options_count());
    return &options[row];
}

size_t options_row(const struct option *option)
{
    return (size_t)(option - options);
}

const struct option *options_find(const char *name)
{
    for (size_t i = 0; i < options_count(); i++)
        if (strcmp(options[i].name, name) == 0) return &options[i];
    return NULL;
}

const char *options_nearest(const char *name, uint64_t commands)
{
    struct nearest nearest = {.word = name};
    for (size_t i = 0; i < options_count(); i++)
        if (options[i].commands & commands) nearest_offer(&nearest, options[i].name);
    return nearest.best;
}

const char *options_environment_name(const struct option *option, char name[OPTION_ENVIRONMENT_NAME_MAX])
{
    int n = snprintf(name, OPTION_ENVIRONMENT_NAME_MAX, "WEIR_%s", option->name);
    ASSERT(n > 0 && n < OPTION_ENVIRONMENT_NAME_MAX);
    for (char *c = name; *c; c++) {
        if (*c == '-') *c = '_';
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
    }
    return name;
}

const char *options_word(const char *name, const void *values)
{
    const struct option *option = options_find(name);
    unsigned choice;
    ASSERT(option && option->type == OPTION_CHOICE);
    memcpy(&choice, (const char *)values + option->offset, sizeof choice);
    return option->choices[choice];
}

static bool parse_count(const char *text, uint64_t *out)
{
    bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = is_hex ? text + 2 : text;
    if (!*digits || strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789") != strlen(digits)) return false;
    errno = 0;
    *out = strtoull(digits, NULL, is_hex ? 16 : 10);
    return errno == 0;
}

/* A default that is not a value itself is a word that the option knows, such as `auto`. */
static bool is_word(const struct option *option, const char *text)
{
    return option->initial && (*option->initial < '0' || *option->initial > '9') && strcmp(option->initial, text) == 0;
}

static bool store_flag(bool *out, const char *text, const char *where, struct err *err)
{
    static const char *const on[] = {"on", "true", "yes", "1"}, *const off[] = {"off", "false", "no", "0"};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        if (strcmp(text, on[i]) == 0) return *out = true;
        if (strcmp(text, off[i]) == 0) return !(*out = false);
    }
    return err_set(err, ERR_USER, "%s: '%s' is neither on nor off", where, text);
}

static bool store_whole(const struct option *option, uint64_t *out, const char *text, const char *where,
                        struct err *err)
{
    static const struct {
        bool (*parse)(const char *text, uint64_t *out);
        const char *what;
    } kinds[] = {
        [OPTION_COUNT] = {parse_count, "a whole number"},
        [OPTION_BYTES] = {units_parse_bytes, "a size such as 512M or 20GiB"},
        [OPTION_SECONDS] = {units_parse_seconds, "a time such as 300 or 5m"},
    };
    uint64_t value;
    if (is_word(option, text)) {
        *out = SETTING_WORD;
        return true;
    }
    if (!kinds[option->type].parse(text, &value))
        return err_set(err, ERR_USER, "%s: '%s' is not %s", where, text, kinds[option->type].what);
    if (value < option->min)
        return err_set(err, ERR_USER, "%s: %s is less than the least possible value, %" PRIu64, where, text,
                       option->min);
    if (value > option->max)
        return err_set(err, ERR_USER, "%s: %s is more than the greatest possible value, %" PRIu64, where, text,
                       option->max);
    *out = value;
    return true;
}

static bool store_number(const struct option *option, double *out, const char *text, const char *where, struct err *err)
{
    char *end;
    if (is_word(option, text)) {
        *out = NAN;
        return true;
    }
    double value = strtod(text, &end);
    /* strtod also takes "inf", "nan", "0x1p3" and blanks in front, which nobody means here */
    if (end == text || *end || strspn(text, "+-.0123456789eE") != strlen(text) || !isfinite(value))
        return err_set(err, ERR_USER, "%s: '%s' is not a number", where, text);
    if (value < option->number_min || value > option->number_max)
        return err_set(err, ERR_USER, "%s: %s is not between %g and %g", where, text, option->number_min,
                       option->number_max);
    *out = value;
    return true;
}

static bool store_choice(const struct option *option, unsigned *out, const char *text, const char *where,
                         struct err *err)
{
    struct nearest nearest = {.word = text};
    for (unsigned i = 0; option->choices[i]; i++) {
        nearest_offer(&nearest, option->choices[i]);
        if (strcmp(text, option->choices[i]) != 0) continue;
        *out = i;
        return true;
    }
    return err_set(err, ERR_USER, "%s: there is no '%s'; the nearest is '%s'", where, text, nearest.best);
}

static bool store_text(const char **out, const char *text, const char *where, struct err *err)
{
    if (!*text) return err_set(err, ERR_USER, "%s: the value is empty; give one, or leave the option out", where);
    *out = text;
    return true;
}

static bool store_texts(struct option_texts *out, const char *text, const char *where, struct err *err)
{
    if (out->n == OPTION_TEXTS_MAX)
        return err_set(err, ERR_USER, "%s: given more than %d times; leave some out", where, OPTION_TEXTS_MAX);
    if (!store_text(&out->text[out->n], text, where, err)) return false;
    out->n++;
    return true;
}

bool options_store(const struct option *option, void *values, const char *text, const char *where, struct err *err)
{
    void *field = (char *)values + option->offset;
    switch (option->type) {
    case OPTION_FLAG: return store_flag(field, text, where, err);
    case OPTION_COUNT:
    case OPTION_BYTES:
    case OPTION_SECONDS: return store_whole(option, field, text, where, err);
    case OPTION_NUMBER: return store_number(option, field, text, where, err);
    case OPTION_CHOICE: return store_choice(option, field, text, where, err);
    case OPTION_TEXT: return store_text(field, text, where, err);
    case OPTION_TEXTS: return store_texts(field, text, where, err);
    }
    ASSERT(!"an option type without a parser");
    return false;
}
