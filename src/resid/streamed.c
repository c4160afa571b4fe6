#include "resid/streamed.h"

#include "base/assert.h"
#include "base/buf.h"
#include "resid/shard_files.h"
#include "resid/usage.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { IO_DEPTH = 16, IO_THREADS = 8, RECHECKS_A_PASS = 8, NOTES_MAX = 8 };
#define PIECE_BYTES (UINT64_C(4) << 20)
#define USAGE_EVERY_NS INT64_C(300000000000) /* between writes of the usage history: what a crash may lose */
#define QUIET_NS INT64_C(60000000000)        /* without a shrink before a slot comes back */
#define LIMITS_EVERY_NS                                                                          \
    INT64_C(500000000) /* between looks at the control groups, which cost more than a look at us \
                        */
#define GROUP_RESERVE_BYTES (UINT64_C(64) << 20) /* that a control group must have left */

struct streamed {
    struct alloc *alloc;
    const struct inventory *inventory;
    struct reader *reader;
    uint32_t *files;
    struct mirrors *mirrors;
    struct regret regret;
    struct spine_store *spine;
    struct policy *policy;
    struct weights *weights;
    bool is_direct;

    struct clock clock;
    struct guard guard;
    struct file held; /* tells how much memory we hold; not open where there is none */
    int64_t limits_seen_ns;
    uint64_t group_lacks_bytes; /* of the reserve, when the limits were last looked at */
    uint32_t next_recheck;      /* shard */
    struct err broken;          /* why the model cannot go on; no kind: it can */
    char notes[NOTES_MAX][STREAMED_NOTE_MAX];
    uint32_t n_notes;
    bool is_open;
    struct usage usage; /* without counts: none is kept */
    char *usage_path;
    int64_t usage_written_ns;
    bool usage_has_failed; /* told once */
};

static void note(struct streamed *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct streamed *s, const char *format, ...)
{
    va_list arguments;
    if (s->n_notes == NOTES_MAX) return;
    va_start(arguments, format);
    vsnprintf(s->notes[s->n_notes++], STREAMED_NOTE_MAX, format, arguments);
    va_end(arguments);
}

bool streamed_take_note(struct streamed *s, char text[STREAMED_NOTE_MAX])
{
    if (s->n_notes == 0) return false;
    memcpy(text, s->notes[0], STREAMED_NOTE_MAX);
    memmove(s->notes[0], s->notes[1], --s->n_notes * sizeof s->notes[0]);
    return true;
}

struct streamed_settings streamed_settings_default(void)
{
    return (struct streamed_settings){.spine = {.with_dsa = true, .with_mtp = true},
                                      .direct = DIRECT_AUTO,
                                      .io_depth = IO_DEPTH,
                                      .n_io_threads = IO_THREADS,
                                      .policy = POLICY_DEFAULT,
                                      .prefetch = true,
                                      .clock = clock_real()};
}

static bool new_reader(struct streamed *s, const struct streamed_settings *settings, const struct reader_settings *with,
                       struct err *err)
{
    const struct device_source *source = &settings->device;
    struct aio *aio;
    if (source->make)
        return source->make(source->context, &aio, s->alloc, with->depth, err) &&
               reader_new(&s->reader, s->alloc, aio, settings->clock, with, err);
    if (!reader_new_real(&s->reader, s->alloc, with, settings->n_io_threads, err)) return false;
    if (*reader_why_not_uring(s->reader))
        note(s, "io_uring is not to be had here (%s); %u threads read instead", reader_why_not_uring(s->reader),
             settings->n_io_threads);
    return true;
}

static bool open_reader(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    const struct catalogue *catalogue = s->inventory->catalogue;
    struct reader_settings with = {.depth = settings->io_depth,
                                   .requests_max = STREAMED_REQUESTS_MAX,
                                   .files_max = catalogue->n_shards * (1 + settings->n_mirrors) + 2};
    if (!new_reader(s, settings, &with, err)) return false;
    s->is_direct = settings->direct != DIRECT_OFF;
    if (settings->direct == DIRECT_AUTO) {
        struct read_rates rates;
        if (!read_rates_measure(&rates, s->alloc, catalogue, s->reader, settings->clock, err)) return false;
        s->is_direct = rates.direct_bytes_per_s >= rates.buffered_bytes_per_s;
    }
    enum reader_direct direct = s->is_direct ? READER_DIRECT_IF_POSSIBLE : READER_BUFFERED;
    s->files = shard_files_add(s->alloc, s->reader, catalogue, direct, err);
    if (!s->files) return false;
    s->is_direct = reader_is_direct(s->reader, s->files[0]);
    if (settings->n_mirrors > 0 && !mirrors_new(&s->mirrors, s->alloc, s->reader, catalogue, s->files,
                                                settings->mirrors, settings->n_mirrors, direct, settings->clock, err))
        return false;
    if (settings->direct == DIRECT_ON && !s->is_direct)
        note(s, "%s: this file system has no direct reads; they go through the page cache",
             catalogue->shards[0].file.path);
    return true;
}

static bool open_streamer(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    const struct plan *plan = settings->plan;
    const struct config *config = s->inventory->config;
    struct policy_shape shape = {config->n_layers + 1, config->n_experts, plan->n_slots_total};
    if (!regret_init(&s->regret, s->alloc, config->n_layers + 1, config->n_experts, err)) return false;
    if (!policy_new(&s->policy, s->alloc, settings->policy, &shape, err)) return false;
    struct streamer_settings with = {.spine = spine_of(s->spine),
                                     .clock = settings->clock,
                                     .regret = &s->regret,
                                     .embedding_rows_kept = STREAMED_EMBEDDING_ROWS,
                                     .slots = {.inventory = s->inventory,
                                               .classes = &plan->classes,
                                               .reader = s->reader,
                                               .policy = s->policy,
                                               .files = s->files,
                                               .mirrors = s->mirrors,
                                               .piece_bytes = PIECE_BYTES}};
    for (uint32_t c = 0; c < plan->classes.n; c++) with.slots.n_slots[c] = plan->n_slots[c];
    return streamer_new(&s->weights, s->alloc, &with, err);
}

static bool name_usage(struct streamed *s, const char *folder, struct err *err)
{
    const uint8_t *identity = s->inventory->catalogue->identity;
    struct buf path;
    buf_init(&path, s->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s/usage-", folder);
    for (int i = 0; ok && i < 8; i++) ok = buf_printf(&path, err, "%02x", identity[i]);
    if (ok) s->usage_path = buf_take(&path);
    buf_fini(&path);
    return ok;
}

/* Whether this run keeps experts of the layer: a history may tell of layers that it leaves out. */
static bool has_experts(const struct streamed *s, const struct streamed_settings *settings, uint32_t layer)
{
    return s->inventory->layers[layer].experts && (layer < s->inventory->config->n_layers || settings->spine.with_mtp);
}

/* A history that cannot be had is a note, not a failure: it is advice. */
static bool read_usage(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    const struct inventory *inventory = s->inventory;
    const struct config *config = inventory->config;
    struct file_system fs = inventory->catalogue->shards[0].file.fs;
    struct err why = {0};
    bool ok = true;
    if (!settings->usage_folder && !settings->usage_import) return true;
    if (!usage_init(&s->usage, s->alloc, config->n_layers + 1, config->n_experts, inventory->catalogue->identity, err))
        return false;
    if (settings->usage_folder && !name_usage(s, settings->usage_folder, err)) return false;
    if (settings->usage_import) {
        bool *kept = alloc_get_array(s->alloc, config->n_layers + 1, sizeof *kept, err);
        if (!kept) return false;
        for (uint32_t l = 0; l <= config->n_layers; l++) kept[l] = has_experts(s, settings, l);
        ok = usage_import(&s->usage, fs, settings->usage_import, kept, err); /* asked for by name */
        alloc_put(s->alloc, kept);
        return ok;
    }
    if (!usage_read(&s->usage, fs, s->usage_path, &why))
        note(s, "%s; placement starts from nothing, and a new history will take its place", why.text);
    return true;
}

static bool use_usage(struct streamed *s, const struct streamed_settings *settings, struct err *err)
{
    uint32_t n_slots = settings->plan->n_slots_total;
    if (!s->usage.counts) return true;
    usage_seed(&s->usage, s->policy);
    uint32_t *keys = alloc_get_array(s->alloc, n_slots, sizeof *keys, err);
    if (!keys) return false;
    uint32_t n = 0, n_top = usage_top(&s->usage, keys, n_slots);
    for (uint32_t i = 0; i < n_top; i++)
        if (has_experts(s, settings, keys[i] / s->usage.n_experts)) keys[n++] = keys[i];
    bool ok = streamer_preload(s->weights, keys, n, err);
    alloc_put(s->alloc, keys);
    return ok;
}

static void write_usage(struct streamed *s)
{
    if (!s->is_open || !s->usage_path) return;
    usage_take(&s->usage, s->policy);
    struct err why = {0};
    s->usage_written_ns = clock_now_ns(s->clock);
    if (usage_write(&s->usage, write_system_real(), s->usage_path, &why) || s->usage_has_failed) return;
    s->usage_has_failed = true;
    note(s, "%s; what this run uses most will not be remembered", why.text);
}

bool streamed_open(struct streamed **out, struct alloc *alloc, const struct inventory *inventory,
                   const struct streamed_settings *settings, struct err *err)
{
    ASSERT(settings->plan->n_slots_total > 0);
    struct streamed *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    *s = (struct streamed){.alloc = alloc, .inventory = inventory, .clock = settings->clock};
    if (!open_reader(s, settings, err)) goto fail;
    if (!spine_load(&s->spine, alloc, inventory, settings->spine, s->reader, s->files, PIECE_BYTES, err)) goto fail;
    if (!read_usage(s, settings, err)) goto fail;
    if (!open_streamer(s, settings, err)) goto fail;
    if (!use_usage(s, settings, err)) goto fail;
    s->guard = (struct guard){.budget_bytes = settings->plan->budget_bytes,
                              .slot_bytes = settings->plan->classes.of[0].slot_bytes,
                              .quiet_ns = QUIET_NS};
    if (!file_open(&s->held, alloc, file_system_real(), "/proc/self/statm", NULL)) s->held = (struct file){0};
    s->usage_written_ns = clock_now_ns(s->clock);
    s->is_open = true;
    *out = s;
    return true;
fail:
    streamed_close(s);
    return false;
}

void streamed_close(struct streamed *s)
{
    if (!s) return;
    write_usage(s);
    usage_fini(&s->usage);
    file_close(&s->held);
    alloc_put(s->alloc, s->usage_path);
    streamer_free(s->weights);
    policy_free(s->policy);
    regret_fini(&s->regret);
    spine_free(s->spine);
    reader_free(s->reader);
    mirrors_free(s->mirrors);
    alloc_put(s->alloc, s->files);
    alloc_put(s->alloc, s);
}

/* --- between passes --- */

static bool recheck(struct streamed *s, uint32_t n)
{
    const struct catalogue *catalogue = s->inventory->catalogue;
    for (uint32_t i = 0; i < n && i < catalogue->n_shards; i++) {
        const struct file *file = &catalogue->shards[s->next_recheck].file;
        s->next_recheck = (s->next_recheck + 1) % catalogue->n_shards;
        if (!file_recheck(file, &s->broken)) goto fail;
    }
    if (!s->mirrors || mirrors_recheck(s->mirrors, n, &s->broken)) return true;
fail:
    err_context(&s->broken, "the model's files must stay as they are while it is open");
    return false;
}

bool streamed_before_pass(struct streamed *s, struct err *err)
{
    if (s->broken.kind == ERR_NONE && recheck(s, RECHECKS_A_PASS)) return true;
    if (err) *err = s->broken;
    return false;
}

/* What a control group lacks counts as held in excess: it will take memory from us sooner than our own budget does. */
static uint64_t group_lacks(struct streamed *s, int64_t now_ns)
{
    if (s->limits_seen_ns != 0 && now_ns - s->limits_seen_ns < LIMITS_EVERY_NS) return s->group_lacks_bytes;
    struct memory_facts facts;
    memory_facts_read(&facts, s->alloc, file_system_real(), "");
    s->limits_seen_ns = now_ns;
    s->group_lacks_bytes = 0;
    if (facts.cgroup_free.state == FACT_KNOWN && facts.cgroup_free.bytes < GROUP_RESERVE_BYTES)
        s->group_lacks_bytes = GROUP_RESERVE_BYTES - facts.cgroup_free.bytes;
    return s->group_lacks_bytes;
}

static void keep_budget(struct streamed *s)
{
    int64_t now_ns = clock_now_ns(s->clock);
    struct memory_fact held = memory_resident_from(&s->held);
    uint64_t lacks = group_lacks(s, now_ns);
    s->guard.held_bytes = held.state == FACT_KNOWN ? held.bytes : 0;
    if (held.state != FACT_KNOWN) return;
    if (lacks > 0 && held.bytes + lacks <= s->guard.budget_bytes) held.bytes = s->guard.budget_bytes + lacks;
    int32_t change = guard_step(&s->guard, streamed_slots(s), held.bytes, now_ns);
    if (change < 0 && s->guard.n_shrinks == 1)
        note(s, "%" PRIu64 " MiB of memory are held, more than the budget of %" PRIu64 " MiB%s; expert slots go back",
             held.bytes >> 20, s->guard.budget_bytes >> 20, lacks > 0 ? " or the control group allows" : "");
    if (change < 0) s->limits_seen_ns = 0; /* look again soon: what went back shows */
}

void streamed_after_pass(struct streamed *s, struct err *why)
{
    bool may_be_files = why && (why->kind == ERR_IO || why->kind == ERR_DATA);
    if (may_be_files && s->broken.kind == ERR_NONE && !recheck(s, s->inventory->catalogue->n_shards)) *why = s->broken;
    const char *folder = s->mirrors ? mirrors_news(s->mirrors) : NULL;
    if (folder) note(s, "the mirror in %s fails; its reads go to the model's own files", folder);
    keep_budget(s);
    if (s->usage_path && clock_now_ns(s->clock) - s->usage_written_ns >= USAGE_EVERY_NS) write_usage(s);
}

void streamed_set_budget(struct streamed *s, uint64_t bytes)
{
    s->guard.budget_bytes = bytes;
}

const struct guard *streamed_guard(const struct streamed *s)
{
    return &s->guard;
}

struct weights *streamed_weights(struct streamed *s)
{
    return s->weights;
}

void streamed_forget_use(struct streamed *s)
{
    policy_forget(s->policy);
}

struct slots *streamed_slots(struct streamed *s)
{
    return streamer_slots(s->weights);
}

const struct reader *streamed_reader(const struct streamed *s)
{
    return s->reader;
}

const struct streamer_stats *streamed_stats(const struct streamed *s)
{
    return streamer_stats(s->weights);
}

bool streamed_regret(const struct streamed *s, struct regret_figures *figures, struct err *err)
{
    return regret_now(&s->regret, s->alloc, slots_stats(streamer_slots(s->weights))->n_slots, figures, err);
}

bool streamed_is_direct(const struct streamed *s)
{
    return s->is_direct;
}
