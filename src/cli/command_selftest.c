/* weir selftest: a small random model is made, converted, run in different ways, served, killed and restored. All ways
 * must give the same bits. Needs no model, no network beyond the loopback, and a minute at most. */
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/selftest.h"
#include "convert/convert.h"
#include "plat/cpu.h"
#include "plat/file_write.h"
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <string.h>

enum { FOLDER_BYTES_MAX = 2048, PATH_BYTES_MAX = FOLDER_BYTES_MAX + 32, OPEN_FOLDERS = 8, DRAFTS = 3 };

struct selftest {
    const struct command_context *context;
    char folder[FOLDER_BYTES_MAX];
    char checkpoint[PATH_BYTES_MAX], container[PATH_BYTES_MAX], state[PATH_BYTES_MAX], served[PATH_BYTES_MAX];
    struct transcript want; /* by one thread, with all experts in memory */
};

static bool make_folder(struct selftest *t, struct err *err)
{
    const char *root = environment_get(t->context->environment, "TMPDIR");
    int n = snprintf(t->folder, sizeof t->folder, "%s/weir-selftest-XXXXXX", root ? root : "/tmp");
    if (n >= (int)sizeof t->folder) {
        t->folder[0] = 0;
        return err_set(err, ERR_USER, "TMPDIR is longer than %d bytes; name a shorter path", FOLDER_BYTES_MAX - 32);
    }
    if (!mkdtemp(t->folder)) {
        err_set(err, ERR_IO, "%s: no folder can be made: %s; TMPDIR names another place", t->folder, strerror(errno));
        t->folder[0] = 0;
        return false;
    }
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s/checkpoint", t->folder);
    snprintf(t->container, sizeof t->container, "%s/container", t->folder);
    snprintf(t->state, sizeof t->state, "%s/state", t->folder);
    snprintf(t->served, sizeof t->served, "%s/served", t->folder);
    return folder_make(t->context->alloc, write_system_real(), t->checkpoint, err) &&
           folder_make(t->context->alloc, write_system_real(), t->served, err);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static void remove_folder(const struct selftest *t)
{
    if (!t->folder[0]) return;
    if (nftw(t->folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(t->context->log, "weir: %s could not be removed: %s\n", t->folder, strerror(errno));
}

static bool make_model(struct selftest *t, struct err *err)
{
    struct convert_result result;
    const struct convert_job job = {
        .source = t->checkpoint,
        .destination = t->container,
        .options = convert_options_default(),
        .alloc = t->context->alloc,
        .fs = t->context->fs,
        .ws = write_system_real(),
        .clock = clock_real(),
    };
    if (!selftest_model_write(t->context->alloc, t->checkpoint, err)) return false;
    if (!convert_folder(&job, &result, err)) return err_context(err, "converting");
    fprintf(t->context->out, "ok  a model was made and converted (largest relative error %.3f)\n", result.worst_loss);
    return true;
}

static struct selftest_way usual_way(const struct selftest *t)
{
    return (struct selftest_way){
        .folder = t->container, .n_threads = 2, .cpu_mask = UINT32_MAX, .experts_resident = 0.1};
}

static bool compare_ids(const struct selftest *t, const struct transcript *got, const char *how, struct err *err)
{
    for (uint32_t i = 0; i < SELFTEST_ANSWER; i++)
        if (got->ids[i] != t->want.ids[i])
            return err_set(err, ERR_FAILED, "%s: token %" PRIu32 " of the answer is %" PRIu32 ", not %" PRIu32, how, i,
                           got->ids[i], t->want.ids[i]);
    return true;
}

static bool compare(const struct selftest *t, const struct transcript *got, uint32_t first, const char *how,
                    struct err *err)
{
    if (!compare_ids(t, got, how, err)) return false;
    for (uint32_t i = first; i < SELFTEST_ANSWER; i++)
        if (got->digests[i] != t->want.digests[i])
            return err_set(err, ERR_FAILED, "%s: other bits in the logits of token %" PRIu32, how, i);
    fprintf(t->context->out, "ok  %s: the same tokens, bit for bit the same logits\n", how);
    return true;
}

/* The reference answer must say something, or to find it again would prove nothing. */
static bool make_reference(struct selftest *t, struct err *err)
{
    struct selftest_way way = usual_way(t);
    uint32_t n_different = 0;
    way.n_threads = 1;
    way.experts_resident = 1;
    if (!selftest_answer(&t->want, t->context->alloc, &way, err)) return err_context(err, "one thread");
    for (uint32_t i = 1; i < SELFTEST_ANSWER; i++) n_different += t->want.digests[i] != t->want.digests[i - 1];
    if (n_different != SELFTEST_ANSWER - 1) return err_set(err, ERR_FAILED, "the model answers the same all the time");
    fprintf(t->context->out, "ok  one thread, all experts in memory: %d tokens answered\n", SELFTEST_ANSWER);
    return true;
}

static bool run_way(const struct selftest *t, const struct selftest_way *way, const char *how, struct err *err)
{
    struct transcript got;
    if (!selftest_answer(&got, t->context->alloc, way, err)) return err_context(err, "%s", how);
    return compare(t, &got, 0, how, err);
}

static bool go_on(const atomic_bool *stop, struct err *err)
{
    return !*stop || err_set(err, ERR_CANCELLED, "stopped before all was compared");
}

static bool run_in_other_ways(const struct selftest *t, const atomic_bool *stop, struct err *err)
{
    struct selftest_way way = usual_way(t);
    uint64_t digest;
    if (!run_way(t, &way, "two threads, a tenth of the experts in memory", err)) return false;
    if (!selftest_reread(&digest, t->context->alloc, &way, &t->want, err)) return err_context(err, "reading it again");
    if (digest != t->want.digests[SELFTEST_ANSWER - 1])
        return err_set(err, ERR_FAILED, "prompt and answer read as one text give other logits");
    fputs("ok  prompt and answer read as one text: bit for bit the same logits\n", t->context->out);
    for (uint32_t mask = cpu_mask(); mask;) {
        char how[64];
        uint32_t last = UINT32_C(1) << (31 - __builtin_clz(mask));
        mask &= ~last; /* the newest instruction set left goes */
        snprintf(how, sizeof how, "kernels without %s", cpu_feature_name(31 - (unsigned)__builtin_clz(last)));
        way.cpu_mask = mask;
        if (!go_on(stop, err) || !run_way(t, &way, how, err)) return false;
    }
    return true;
}

static bool kill_and_restore(const struct selftest *t, const atomic_bool *stop, struct err *err)
{
    (void)stop;
    struct selftest_way way = usual_way(t);
    struct transcript got;
    uint32_t n_restored;
    char how[96];
    if (!selftest_answer_killed(&got, &n_restored, t->context->alloc, &way, t->state, err))
        return err_context(err, "killed and restored");
    snprintf(how, sizeof how, "killed while it answered, %" PRIu32 " tokens restored", n_restored);
    return compare(t, &got, n_restored + 1 - SELFTEST_PROMPT, how, err);
}

static bool draft(const struct selftest *t, const atomic_bool *stop, struct err *err)
{
    static const char how[] = "drafts by the MTP layer";
    struct selftest_way way = usual_way(t);
    struct transcript got;
    uint32_t n_drafted = 0;
    (void)stop;
    way.n_drafts = DRAFTS;
    if (!selftest_scheduled(&got, &n_drafted, t->context->alloc, &way, err)) return err_context(err, "%s", how);
    if (n_drafted == 0) return err_set(err, ERR_FAILED, "%s: there were none", how);
    if (!compare_ids(t, &got, how, err)) return false;
    fprintf(t->context->out, "ok  %s, %" PRIu32 " of them: the same tokens\n", how, n_drafted);
    return true;
}

static bool serve(const struct selftest *t, const atomic_bool *stop, struct err *err)
{
    struct selftest_way way = usual_way(t);
    struct served served;
    (void)stop;
    way.n_drafts = DRAFTS;
    if (!selftest_serve(&served, t->context->alloc, &way, t->served, &t->want, err)) return err_context(err, "served");
    fprintf(t->context->out,
            "ok  a server on the loopback, killed while it answered, and another with its states (%" PRIu32
            " tokens of the prompt): the same tokens, twice the same log-probabilities\n",
            served.n_cached);
    return true;
}

static bool run_all(struct selftest *t, const atomic_bool *stop, struct err *err)
{
    bool (*const steps[])(const struct selftest *t, const atomic_bool *stop,
                          struct err *err) = {run_in_other_ways, draft, kill_and_restore, serve};
    if (!make_folder(t, err) || !make_model(t, err) || !make_reference(t, err)) return false;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (!go_on(stop, err) || !steps[i](t, stop, err)) return false;
    }
    return true;
}

int command_selftest(struct command_context *context)
{
    struct err err = {0};
    struct selftest *t = alloc_get(context->alloc, sizeof *t, &err);
    if (!t) return command_fail(context, &err);
    t->context = context;
    bool ok = run_all(t, interrupt_watch(), &err);
    interrupt_unwatch();
    remove_folder(t);
    alloc_put(context->alloc, t);
    if (!ok) return command_fail(context, &err);
    fputs("This build computes as it should on this machine.\n", context->out);
    return EXIT_CODE_DONE;
}
