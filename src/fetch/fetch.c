#include "fetch/fetch.h"

#include "base/checked.h"
#include "base/units.h"
#include "fetch/downloads.h"
#include "fetch/refusal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { URL_BYTES_MAX = 16 << 10, TRANSPORT_FAILURES_MAX = 2, TURN_MS = 100 };
#define PAUSE_STEP_NS INT64_C(10000000)

struct fetch_tuning fetch_tuning_default(void)
{
    return (struct fetch_tuning){
        .connections = 8,
        .failures_max = 8,
        .pause_ns = INT64_C(1000000000),
        .pause_ns_max = INT64_C(60000000000),
        .told_pause_ns_max = INT64_C(600000000000),
        .segment_bytes = UINT64_C(256) << 20,
        .save_bytes = UINT64_C(256) << 20,
        .save_ns = INT64_C(10000000000),
        .reserve_bytes = UINT64_C(1) << 30,
        .lock_ns_max = INT64_C(86400000000000),
    };
}

struct fetch {
    const struct fetch_job *job;
    struct fetch_result *result;
    struct hub_cache cache;
    struct http_options http_options;
    struct http *http;
    struct hub_listing listing;
    struct hub_file *wanted; /* [n_wanted] the chosen ones of the listing, by path */
    uint32_t n_wanted;
    struct blob *blobs; /* [n_blobs] each content once, in the order of the files */
    uint32_t n_blobs;
    uint32_t *blob_of; /* [n_wanted] */
};

static bool check_cancelled(const struct fetch *f, bool is_waiting, struct err *err)
{
    const struct fetch_watch *watch = &f->job->watch;
    const struct fetch_progress p = {.is_waiting = is_waiting, .bytes_per_second = -1, .seconds_left = -1};
    if (!watch->progress || watch->progress(watch->context, &p)) return true;
    return err_set(err, ERR_CANCELLED, "stopped; the same command goes on");
}

/* --- the list of files --- */

struct answer {
    struct buf body;
    struct err err;
};

static bool take_text(void *context, const void *data, size_t bytes)
{
    struct answer *answer = context;
    return buf_add(&answer->body, data, bytes, &answer->err);
}

static bool only_when_found(void *context, const struct http_answer *answer)
{
    (void)context;
    return answer->status == 200;
}

static bool ask_once(struct fetch *f, const char *url, struct answer *answer, struct http_done *done, struct err *err)
{
    const struct http_request request = {
        .url = url, .token = f->job->network.token, .context = answer, .begins = only_when_found, .takes = take_text};
    buf_clear(&answer->body);
    answer->err = (struct err){0};
    if (!http_start(f->http, &request, err)) return false;
    while (!http_take_done(f->http, done)) {
        if (!check_cancelled(f, false, err) || !http_wait(f->http, TURN_MS, err)) {
            http_cancel(f->http, answer);
            return false;
        }
    }
    if (!answer->err.kind) return true;
    *err = answer->err;
    return err_context(err, "%s: the hub's list", f->job->repo.id);
}

static bool pause_before_again(struct fetch *f, const struct http_done *done, unsigned n, struct err *err)
{
    int64_t pause_ns;
    if (!refusal_pause(&f->job->tuning, n, &done->answer, &pause_ns))
        return refusal_explain(err, &f->job->network, f->job->repo.id, done->answer.status);
    for (int64_t end = clock_now_ns(f->job->clock) + pause_ns; clock_now_ns(f->job->clock) < end;) {
        if (!check_cancelled(f, true, err)) return false;
        clock_sleep_ns(f->job->clock, PAUSE_STEP_NS);
    }
    return true;
}

static bool ask(struct fetch *f, const char *url, struct answer *answer, struct err *err)
{
    const struct fetch_job *job = f->job;
    struct http_done done;
    for (unsigned n = 1;; n++) {
        if (!ask_once(f, url, answer, &done, err)) return false;
        bool has_answer = done.ok || done.is_stopped;
        unsigned status = done.answer.status;
        if (done.ok && status == 200) return true;
        if (has_answer && (!refusal_passes(status) || n > job->tuning.failures_max)) {
            char what[HUB_ID_MAX + HUB_REVISION_MAX + 32];
            snprintf(what, sizeof what, "%s, revision %s", job->repo.id, job->repo.revision);
            return refusal_explain(err, &job->network, what, status);
        }
        if (!has_answer && (!done.can_retry || n > TRANSPORT_FAILURES_MAX))
            return err_set(err, ERR_NETWORK,
                           "%s: cannot ask the hub at %s: %s; is there a network, and are HF_ENDPOINT and the "
                           "proxy settings right?",
                           job->repo.id, job->network.endpoint, done.text);
        if (!pause_before_again(f, &done, n, err)) return false;
    }
}

static bool list(struct fetch *f, struct err *err)
{
    struct answer answer = {0};
    struct buf url;
    const struct fetch_job *job = f->job;
    buf_init(&url, job->alloc, URL_BYTES_MAX);
    buf_init(&answer.body, job->alloc, HUB_LISTING_BYTES_MAX);
    bool ok = hub_listing_url(&url, job->network.endpoint, &job->repo, err) && ask(f, url.data, &answer, err) &&
              hub_listing_parse(&f->listing, job->alloc, job->repo.id, answer.body.data ? answer.body.data : "",
                                answer.body.bytes, err);
    buf_fini(&answer.body);
    buf_fini(&url);
    return ok;
}

/* --- which of them --- */

static bool has_weights(const struct fetch *f)
{
    for (uint32_t i = 0; i < f->n_wanted; i++)
        if (strstr(f->wanted[i].path, ".safetensors")) return true;
    return false;
}

static bool choose(struct fetch *f, struct err *err)
{
    char pattern[200];
    const struct fetch_job *job = f->job;
    if (hub_idle_pattern(&job->selection, &f->listing, pattern, sizeof pattern))
        return err_set(err, ERR_USER,
                       "--include: no file of %s matches '%s'; --include '*' --dry-run lists what there is",
                       job->repo.id, pattern);
    f->wanted = alloc_get_array(job->alloc, f->listing.n_files, sizeof *f->wanted, err);
    if (!f->wanted) return false;
    for (uint32_t i = 0; i < f->listing.n_files; i++)
        if (hub_selects(&job->selection, f->listing.files[i].path)) f->wanted[f->n_wanted++] = f->listing.files[i];
    if (f->n_wanted == 0)
        return err_set(err, ERR_USER, "%s: none of its %" PRIu32 " files is wanted; --include and --exclude say which",
                       job->repo.id, f->listing.n_files);
    if (!job->selection.include && !has_weights(f))
        return err_set(err, ERR_USER,
                       "%s: has no *.safetensors at its top, so it is no model for weir; --include fetches other files",
                       job->repo.id);
    return true;
}

/* Of the files with one content, the first in the order of paths comes first. */
static int compare_contents(const void *a, const void *b)
{
    const struct hub_file *const *x = a, *const *y = b;
    int order = strcmp((*x)->blob, (*y)->blob);
    return order ? order : (*x > *y) - (*x < *y);
}

/* For each wanted file the first wanted one with its content. */
static bool find_firsts(struct fetch *f, uint32_t *first, struct err *err)
{
    const struct hub_file **sorted = alloc_get_array(f->job->alloc, f->n_wanted, sizeof *sorted, err);
    if (!sorted) return false;
    for (uint32_t i = 0; i < f->n_wanted; i++) sorted[i] = &f->wanted[i];
    qsort(sorted, f->n_wanted, sizeof *sorted, compare_contents);
    for (uint32_t i = 0; i < f->n_wanted; i++) {
        uint32_t file = (uint32_t)(sorted[i] - f->wanted);
        bool is_same = i > 0 && strcmp(sorted[i]->blob, sorted[i - 1]->blob) == 0;
        first[file] = is_same ? first[sorted[i - 1] - f->wanted] : file;
    }
    alloc_put(f->job->alloc, sorted);
    return true;
}

static bool gather_blobs(struct fetch *f, struct err *err)
{
    struct alloc *alloc = f->job->alloc;
    f->blob_of = alloc_get_array(alloc, f->n_wanted, sizeof *f->blob_of, err);
    f->blobs = f->blob_of ? alloc_get_array(alloc, f->n_wanted, sizeof *f->blobs, err) : NULL;
    if (!f->blobs || !find_firsts(f, f->blob_of, err)) return false;
    for (uint32_t i = 0; i < f->n_wanted; i++) {
        uint32_t first = f->blob_of[i];
        if (first == i) blob_init(&f->blobs[f->n_blobs], &f->cache, &f->wanted[i]);
        f->blob_of[i] = first == i ? f->n_blobs++ : f->blob_of[first];
    }
    for (uint32_t i = 0; i < f->n_blobs; i++)
        if (!blob_credit(&f->blobs[i], err)) return false;
    return true;
}

/* --- the plan --- */

static enum fetch_state state_of(const struct blob *blob)
{
    if (blob->is_complete) return FETCH_COMPLETE;
    return blob->credit > 0 ? FETCH_PARTIAL : FETCH_MISSING;
}

static bool check_room(const struct fetch *f, const struct fetch_plan *plan, struct err *err)
{
    char need[UNITS_TEXT_MAX], reserve[UNITS_TEXT_MAX], room[UNITS_TEXT_MAX];
    uint64_t wanted, spare = f->job->tuning.reserve_bytes;
    if (plan->bytes_missing == 0) return true;
    if (checked_add(&wanted, plan->bytes_missing, spare) && plan->bytes_free >= wanted) return true;
    return err_set(err, ERR_FAILED,
                   "%s: %s are still to come and %s should stay free, but the disk has only %s; make room, or put the "
                   "cache elsewhere with HF_HUB_CACHE",
                   f->job->cache, units_format_bytes(need, plan->bytes_missing), units_format_bytes(reserve, spare),
                   units_format_bytes(room, plan->bytes_free));
}

static bool tell_plan(struct fetch *f, struct err *err)
{
    const struct fetch_job *job = f->job;
    struct fetch_file *files = alloc_get_array(job->alloc, f->n_wanted, sizeof *files, err);
    if (!files) return false;
    struct fetch_plan plan = {.commit = f->listing.commit,
                              .files = files,
                              .n_files = f->n_wanted,
                              .n_left_out = f->listing.n_files - f->n_wanted};
    for (uint32_t i = 0; i < f->n_wanted; i++) {
        const struct blob *blob = &f->blobs[f->blob_of[i]];
        files[i] = (struct fetch_file){.file = &f->wanted[i], .state = state_of(blob), .credit = blob->credit};
    }
    for (uint32_t i = 0; i < f->n_blobs; i++) {
        plan.bytes += f->blobs[i].bytes;
        plan.bytes_missing += f->blobs[i].bytes - f->blobs[i].credit;
    }
    f->result->bytes = plan.bytes;
    f->result->bytes_fetched = plan.bytes_missing;
    bool ok = hub_cache_free_bytes(&f->cache, &plan.bytes_free, err);
    if (ok && job->watch.planned && !job->watch.planned(job->watch.context, &plan))
        ok = err_set(err, ERR_CANCELLED, "stopped before anything was fetched");
    ok = ok && check_room(f, &plan, err);
    alloc_put(job->alloc, files);
    return ok;
}

/* --- the work --- */

static bool download(struct fetch *f, struct err *err)
{
    struct downloads downloads = {
        .job = f->job, .http = f->http, .commit = f->listing.commit, .blobs = f->blobs, .n_blobs = f->n_blobs};
    for (uint32_t i = 0; i < f->n_blobs; i++) {
        downloads.bytes += f->blobs[i].bytes;
        if (f->blobs[i].is_complete && !blob_tidy(&f->blobs[i], err)) return false;
    }
    return hub_cache_prepare(&f->cache, err) && downloads_run(&downloads, err);
}

static bool link_all(struct fetch *f, struct err *err)
{
    const char *revision = f->job->repo.revision, *commit = f->listing.commit;
    for (uint32_t i = 0; i < f->n_wanted; i++)
        if (!hub_cache_link(&f->cache, commit, &f->wanted[i], err)) return false;
    return strcmp(revision, commit) == 0 || hub_cache_write_ref(&f->cache, revision, commit, err);
}

static bool report(struct fetch *f, const char *commit, struct err *err)
{
    struct hub_path path;
    if (!hub_cache_snapshot(&path, &f->cache, commit, err)) return false;
    snprintf(f->result->path, sizeof f->result->path, "%s", path.text);
    snprintf(f->result->commit, sizeof f->result->commit, "%s", commit);
    f->result->n_files = f->n_wanted;
    return true;
}

static bool fetch_online(struct fetch *f, struct err *err)
{
    const struct fetch_network *network = &f->job->network;
    f->http_options = (struct http_options){
        .agent = network->agent,
        .proxy = network->proxy,
        .no_proxy = network->no_proxy,
        .allows_plain = strncmp(network->endpoint, "https://", 8) != 0,
        .connect_s_max = network->connect_s_max,
        .stall_s_max = network->stall_s_max,
    };
    if (!http_new(&f->http, f->job->alloc, &f->http_options, err)) return false;
    if (!list(f, err) || !choose(f, err) || !gather_blobs(f, err) || !tell_plan(f, err)) return false;
    if (!report(f, f->listing.commit, err)) return false;
    return f->job->only_plan || (download(f, err) && link_all(f, err));
}

static bool find_offline(struct fetch *f, struct err *err)
{
    char commit[HUB_COMMIT_TEXT];
    struct stat st;
    const struct hub_repo *repo = &f->job->repo;
    bool found = hub_is_commit(repo->revision);
    if (found)
        memcpy(commit, repo->revision, sizeof commit);
    else if (!hub_cache_read_ref(&f->cache, repo->revision, commit, &found, err))
        return false;
    if (found && !report(f, commit, err)) return false;
    if (!found || stat(f->result->path, &st) != 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_NETWORK,
                       "%s, revision %s: not in the cache %s, and the hub is not asked because HF_HUB_OFFLINE is set; "
                       "unset it once to fetch the model",
                       repo->id, repo->revision, f->job->cache);
    f->result->was_offline = true;
    return true;
}

bool fetch_repo(const struct fetch_job *job, struct fetch_result *result, struct err *err)
{
    struct fetch f = {.job = job, .result = result};
    *result = (struct fetch_result){0};
    hub_cache_init(&f.cache, job->cache, job->repo.id, job->alloc, job->fs, job->ws);
    bool ok = job->network.is_offline ? find_offline(&f, err) : fetch_online(&f, err);
    http_free(f.http);
    alloc_put(job->alloc, f.blobs);
    alloc_put(job->alloc, f.blob_of);
    alloc_put(job->alloc, f.wanted);
    hub_listing_fini(&f.listing);
    return ok;
}
