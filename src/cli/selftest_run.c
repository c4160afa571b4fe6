#include "base/assert.h"
#include "cli/selftest.h"
#include "run/dialogue.h"
#include "run/session.h"
#include "run/state_identity.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAVE_EVERY = 8, KILL_AFTER = 24, HELD_MAX = SELFTEST_PROMPT + SELFTEST_ANSWER, BUDGET_MIB = 512 };
static_assert(KILL_AFTER + SAVE_EVERY < SELFTEST_ANSWER, "the process is killed while it answers");

uint32_t selftest_prompt(uint32_t i)
{
    return (i * 37 + i / 7 + 1) % SELFTEST_VOCAB;
}

/* FNV-1a, 64 bits: two rows of logits that differ in one bit have different digests. */
static uint64_t digest_of(const float *logits, size_t n)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const unsigned char *bytes = (const unsigned char *)logits;
    for (size_t i = 0; i < n * sizeof *logits; i++) digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static uint32_t likeliest(const float *logits, size_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

struct engine_settings selftest_engine_settings(const struct selftest_way *way)
{
    struct engine_settings settings = engine_settings_default(way->folder);
    settings.n_threads = way->n_threads;
    settings.cpu_mask = way->cpu_mask;
    settings.context_tokens = SELFTEST_CONTEXT;
    settings.ram_budget_bytes = (uint64_t)BUDGET_MIB << 20;
    settings.experts_resident = way->experts_resident;
    if (way->n_drafts > 0) {
        settings.drafts = (struct draft_choice){.kind = DRAFT_MTP, .n_max = way->n_drafts};
        settings.logit_rows += way->n_drafts;
        settings.streamed.spine.with_mtp = true;
    }
    return settings;
}

static bool open_way(struct engine **engine, struct alloc *alloc, const struct selftest_way *way, struct err *err)
{
    const struct engine_settings settings = selftest_engine_settings(way);
    return engine_open(engine, alloc, file_system_real(), &settings, err);
}

static bool feed_prompt(struct session *session, struct err *err)
{
    uint32_t prompt[SELFTEST_PROMPT];
    for (uint32_t i = 0; i < SELFTEST_PROMPT; i++) prompt[i] = selftest_prompt(i);
    return session_feed(session, prompt, SELFTEST_PROMPT, NULL, NULL, err);
}

/* One more token of the answer, which is also fed. */
static bool step(struct session *session, struct transcript *out, uint32_t at, struct err *err)
{
    size_t vocab = engine_config(session->engine)->vocab;
    out->digests[at] = digest_of(session->logits, vocab);
    out->ids[at] = likeliest(session->logits, vocab);
    return session_feed(session, &out->ids[at], 1, NULL, NULL, err);
}

bool selftest_answer(struct transcript *out, struct alloc *alloc, const struct selftest_way *way, struct err *err)
{
    struct engine *engine;
    struct session session;
    if (!open_way(&engine, alloc, way, err)) return false;
    session_init(&session, engine);
    bool ok = feed_prompt(&session, err);
    for (uint32_t i = 0; ok && i < SELFTEST_ANSWER; i++) ok = step(&session, out, i, err);
    session_fini(&session);
    engine_close(engine);
    return ok;
}

/* The answer of a dialogue that has begun. */
static bool take_answer(struct dialogue *dialogue, struct transcript *out, struct err *err)
{
    struct sampled token;
    for (uint32_t i = 0; i < SELFTEST_ANSWER; i++) {
        if (!dialogue_next(dialogue, &token, err)) return false;
        if (dialogue_result(dialogue)->reason != STOP_NONE)
            return err_set(err, ERR_FAILED, "the answer ended behind %" PRIu32 " tokens", i);
        out->ids[i] = token.id;
    }
    return true;
}

bool selftest_scheduled(struct transcript *out, uint32_t *n_drafted, struct alloc *alloc,
                        const struct selftest_way *way, struct err *err)
{
    uint32_t prompt[SELFTEST_PROMPT];
    struct engine *engine = NULL;
    struct dialogue *dialogue = NULL;
    struct sampling sampling = sampling_built_in();
    sampling.temperature = 0;
    sampling.max_tokens = SELFTEST_ANSWER + 1; /* so that the last token is not the end */
    sampling.ignore_eos = true;
    for (uint32_t i = 0; i < SELFTEST_PROMPT; i++) prompt[i] = selftest_prompt(i);
    const struct dialogue_request request = {.prompt = prompt, .n_prompt = SELFTEST_PROMPT, .sampling = &sampling};
    *out = (struct transcript){.ids = {0}};
    bool ok = open_way(&engine, alloc, way, err) && dialogue_new(&dialogue, engine, NULL, clock_real(), err) &&
              dialogue_start(dialogue, &request, err) && take_answer(dialogue, out, err);
    if (ok) *n_drafted = (uint32_t)dialogue_stats(dialogue).n_drafted;
    dialogue_free(dialogue);
    engine_close(engine);
    return ok;
}

bool selftest_reread(uint64_t *digest, struct alloc *alloc, const struct selftest_way *way,
                     const struct transcript *transcript, struct err *err)
{
    struct engine *engine;
    struct session session;
    uint32_t text[HELD_MAX - 1]; /* all but the last token: the logits it was taken from */
    for (uint32_t i = 0; i < HELD_MAX - 1; i++)
        text[i] = i < SELFTEST_PROMPT ? selftest_prompt(i) : transcript->ids[i - SELFTEST_PROMPT];
    if (!open_way(&engine, alloc, way, err)) return false;
    session_init(&session, engine);
    bool ok = session_feed(&session, text, HELD_MAX - 1, NULL, NULL, err);
    if (ok) *digest = digest_of(session.logits, engine_config(engine)->vocab);
    session_fini(&session);
    engine_close(engine);
    return ok;
}

static bool save(struct session *session, const struct transcript *so_far, uint32_t n_answered, const char *path,
                 struct err *err)
{
    const struct state_identity identity = state_identity_of(session->engine);
    uint32_t ids[HELD_MAX], n = SELFTEST_PROMPT + n_answered;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i < SELFTEST_PROMPT ? selftest_prompt(i) : so_far->ids[i - SELFTEST_PROMPT];
    return state_file_write(path, engine_alloc(session->engine), write_system_real(), &identity, &session->kv, ids, n,
                            err);
}

/* What the process that is to be killed tells through a pipe. */
struct word {
    uint32_t n_saved; /* 0: it failed */
    struct err err;
};

/* Answers, saves now and then and tells so. Does not wait to be killed at a good moment. */
static bool answer_and_save(const struct selftest_way *way, const char *state_path, int pipe_end, struct err *err)
{
    struct alloc alloc = {0};
    struct engine *engine;
    struct session session;
    struct transcript answer;
    if (!open_way(&engine, &alloc, way, err)) return false;
    session_init(&session, engine);
    if (!feed_prompt(&session, err)) return false;
    for (uint32_t i = 0; i < SELFTEST_ANSWER; i++) {
        struct word word = {.n_saved = i + 1};
        if (!step(&session, &answer, i, err)) return false;
        if ((i + 1) % SAVE_EVERY) continue;
        if (!save(&session, &answer, i + 1, state_path, err)) return false;
        if (write(pipe_end, &word, sizeof word) != (ssize_t)sizeof word)
            return err_set(err, ERR_IO, "a pipe cannot be written: %s", strerror(errno));
    }
    return true;
}

/* The process to be killed. It never ends by itself, and not after its parent either. */
static void be_killed(const struct selftest_way *way, const char *state_path, int pipe_end)
{
    struct word word = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!answer_and_save(way, state_path, pipe_end, &word.err)) (void)!write(pipe_end, &word, sizeof word);
    for (;;) pause();
}

static bool wait_and_kill(pid_t child, int pipe_end, struct err *err)
{
    struct word word = {.n_saved = 0};
    int status = 0;
    ssize_t got = (ssize_t)sizeof word;
    while (got == (ssize_t)sizeof word && word.n_saved < KILL_AFTER) {
        got = read(pipe_end, &word, sizeof word);
        if (got == (ssize_t)sizeof word && word.n_saved == 0) break;
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (got == (ssize_t)sizeof word && word.n_saved == 0) {
        *err = word.err;
        return err_context(err, "in the process that is killed");
    }
    if (got != (ssize_t)sizeof word || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return err_set(err, ERR_FAILED, "the process that was to be killed ended by itself (status %d)", status);
    return true;
}

static bool run_and_kill(const struct selftest_way *way, const char *state_path, struct err *err)
{
    int ends[2];
    if (pipe(ends) != 0) return err_set(err, ERR_IO, "a pipe cannot be made: %s", strerror(errno));
    pid_t child = fork(); /* no engine is open here, so there is one thread */
    if (child == 0) be_killed(way, state_path, ends[1]);
    close(ends[1]);
    bool ok = child > 0 ? wait_and_kill(child, ends[0], err)
                        : err_set(err, ERR_IO, "a process cannot be started: %s", strerror(errno));
    close(ends[0]);
    return ok;
}

static bool check_restored_ids(const struct token_list *ids, struct err *err)
{
    if (ids->n < SELFTEST_PROMPT + KILL_AFTER || ids->n > HELD_MAX)
        return err_set(err, ERR_FAILED, "the saved state has %zu tokens, not %d or more", ids->n,
                       SELFTEST_PROMPT + KILL_AFTER);
    for (uint32_t i = 0; i < SELFTEST_PROMPT; i++)
        if (ids->ids[i] != selftest_prompt(i)) return err_set(err, ERR_FAILED, "the saved state is of another prompt");
    return true;
}

/* The logits behind the last token are not in a state: that token is fed once more. */
static bool restore(struct session *session, struct transcript *out, uint32_t *n_answered, const char *path,
                    struct err *err)
{
    const struct state_identity identity = state_identity_of(session->engine);
    struct alloc *alloc = engine_alloc(session->engine);
    struct token_list ids;
    bool is_torn = false;
    token_list_init(&ids, alloc, HELD_MAX);
    bool ok = state_file_peek(path, alloc, file_system_real(), &identity, &session->kv.pool->layout, &ids, err) &&
              check_restored_ids(&ids, err);
    ok = ok && state_file_read(path, alloc, file_system_real(), &identity, &session->kv, ids.ids, (uint32_t)ids.n - 1,
                               &is_torn, err);
    if (ok && (is_torn || session->kv.n_rows != ids.n - 1))
        ok = err_set(err, ERR_FAILED, "the saved state is damaged: %" PRIu32 " of %zu tokens", session->kv.n_rows,
                     ids.n);
    if (ok) {
        *n_answered = (uint32_t)ids.n - SELFTEST_PROMPT;
        memcpy(out->ids, ids.ids + SELFTEST_PROMPT, *n_answered * sizeof *out->ids);
        ok = session_feed(session, &ids.ids[ids.n - 1], 1, NULL, NULL, err);
    }
    token_list_fini(&ids);
    return ok;
}

bool selftest_answer_killed(struct transcript *out, uint32_t *n_restored, struct alloc *alloc,
                            const struct selftest_way *way, const char *state_path, struct err *err)
{
    struct engine *engine;
    struct session session;
    uint32_t n_answered = 0;
    *out = (struct transcript){.ids = {0}};
    if (!run_and_kill(way, state_path, err)) return false;
    if (!open_way(&engine, alloc, way, err)) return false;
    session_init(&session, engine);
    bool ok = restore(&session, out, &n_answered, state_path, err);
    for (uint32_t i = n_answered; ok && i < SELFTEST_ANSWER; i++) ok = step(&session, out, i, err);
    *n_restored = SELFTEST_PROMPT + n_answered - 1;
    session_fini(&session);
    engine_close(engine);
    return ok;
}
