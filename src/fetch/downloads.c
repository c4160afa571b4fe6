#include "fetch/downloads.h"

#include "base/assert.h"
#include "base/units.h"
#include "base/pace.h"
#include "fetch/refusal.h"
#include <inttypes.h>
#include <stdio.h>

enum { URL_BYTES_MAX = 16 << 10, HASH_BYTES_A_TURN = 8 << 20, TURN_MS = 100 };
#define ASK_AGAIN_NS INT64_C(200000000) /* for a lock that another process holds */

/* A work's blob is not open (WORK_TO_OPEN), then it is (WORK_OPEN), then it is complete. */
enum work_state { WORK_TO_OPEN, WORK_OPEN, WORK_DONE };

struct work {
    struct blob *blob;
    enum work_state state;
    unsigned n_lanes;      /* transfers that fill it now */
    unsigned failures;     /* in a row, without a new byte */
    bool has_no_ranges;    /* the server sends the whole file, whatever is asked for */
    bool was_wrong;        /* complete once, with another digest */
    uint64_t most;         /* bytes that were here at once: what counts as progress when a file starts over */
    int64_t not_before_ns; /* pause */
    int64_t busy_since_ns; /* another process has it; 0: no */
    int64_t saved_ns;
};

/* One connection's transfer. */
struct lane {
    struct run *run;
    struct work *work; /* NULL: idle */
    uint32_t segment;
    bool is_stale; /* its work started over without it */
    bool has_brought;
    bool has_strayed; /* the server sent something else than was asked for */
};

struct run {
    const struct downloads *d;
    const struct fetch_tuning *tuning;
    struct work *works; /* [n_blobs] */
    struct lane lanes[HTTP_TRANSFERS_MAX];
    struct buf url;
    struct pace pace;
    int64_t now_ns, not_before_ns; /* the latter: the server asked all of us to wait */
    struct err fatal;              /* from inside a callback */
};

static uint64_t bytes_here(const struct work *w)
{
    if (w->blob->is_complete) return w->blob->bytes;
    return w->state == WORK_OPEN ? w->blob->segments.bytes_done : w->blob->credit;
}

static uint64_t bytes_done(const struct run *run)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < run->d->n_blobs; i++) sum += bytes_here(&run->works[i]);
    return sum;
}

/* --- inside a transfer --- */

static bool differs_in_size(struct err *err, const struct work *work, uint64_t bytes)
{
    return err_set(err, ERR_DATA,
                   "%s: the server's file has %" PRIu64 " bytes, the hub's list says %" PRIu64
                   "; was it changed just now? run the same command again",
                   work->blob->path, bytes, work->blob->bytes);
}

static bool answer_begins(void *context, const struct http_answer *answer)
{
    struct lane *lane = context;
    if (lane->is_stale) return false;
    struct work *work = lane->work;
    struct blob *blob = work->blob;
    struct segments *segments = &blob->segments;
    if (answer->status == 206) {
        if (answer->range_total != HTTP_UNKNOWN && answer->range_total != blob->bytes)
            return differs_in_size(&lane->run->fatal, work, answer->range_total);
        lane->has_strayed = answer->range_first != segments_offset(segments, lane->segment);
        return !lane->has_strayed;
    }
    if (answer->status != 200) return false;
    if (segments->n == 1 && segments->bytes_done == 0) return true; /* all of it, as it should be */
    /* Ranges are ignored: this transfer starts the file over, and the others let go of it. */
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++)
        lane->run->lanes[i].is_stale |= lane->run->lanes[i].work == work && &lane->run->lanes[i] != lane;
    work->has_no_ranges = true;
    lane->segment = 0;
    if (!blob_restart(blob, &lane->run->fatal)) return false;
    return segments_take(segments, &lane->segment);
}

static bool answer_brings(void *context, const void *data, size_t bytes)
{
    struct lane *lane = context;
    if (lane->is_stale) return false;
    struct work *work = lane->work;
    if (bytes > segments_missing(&work->blob->segments, lane->segment)) {
        lane->has_strayed = true;
        return false;
    }
    if (!blob_put(work->blob, lane->segment, data, bytes, &lane->run->fatal)) return false;
    if (work->blob->segments.bytes_done > work->most) {
        work->most = work->blob->segments.bytes_done;
        lane->has_brought = true;
    }
    return true;
}

/* --- behind a transfer --- */

/* Counts a failure, or gives up. Failures during a pause belong to the incident that caused it. */
static bool count_failure(struct run *run, struct work *work, const struct http_done *done, const char *why,
                          struct err *err)
{
    int64_t pause_ns;
    if (run->now_ns < work->not_before_ns) return true;
    work->failures++;
    if (work->failures > run->tuning->failures_max) {
        if (refusal_passes(done->answer.status))
            return refusal_explain(err, &run->d->job->network, work->blob->path, done->answer.status);
        return err_set(err, ERR_NETWORK, "%s: %s, %u times in a row; run the same command again to go on",
                       work->blob->path, why, work->failures);
    }
    if (!refusal_pause(run->tuning, work->failures, &done->answer, &pause_ns))
        return err_set(err, ERR_NETWORK,
                       "%s: the hub answers %u and asks to wait for %" PRIu64
                       " seconds; run the same command again then to go on",
                       work->blob->path, done->answer.status, done->answer.retry_after_s);
    work->not_before_ns = run->now_ns + pause_ns;
    if (done->answer.retry_after_s > 0) run->not_before_ns = work->not_before_ns;
    return true;
}

/* The server has no such range. */
static bool start_without_ranges(struct run *run, struct work *work, const struct http_done *done, struct err *err)
{
    uint64_t total = done->answer.range_total;
    if (total != HTTP_UNKNOWN && total != work->blob->bytes) return differs_in_size(err, work, total);
    work->has_no_ranges = true;
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++) run->lanes[i].is_stale |= run->lanes[i].work == work;
    return blob_restart(work->blob, err) && count_failure(run, work, done, "the server refuses ranges", err);
}

static bool take_done(struct run *run, const struct http_done *done, struct err *err)
{
    struct lane *lane = (struct lane *)done->context;
    struct work *work = lane->work;
    unsigned status = done->answer.status;
    lane->work = NULL;
    work->n_lanes--;
    if (run->fatal.kind) {
        *err = run->fatal;
        return false;
    }
    if (lane->is_stale) return true;
    segments_untake(&work->blob->segments, lane->segment);
    if (lane->has_brought) work->failures = 0;
    if (segments_missing(&work->blob->segments, lane->segment) == 0) return true;
    if (lane->has_strayed)
        return count_failure(run, work, done, "the server sent other bytes than it was asked for", err);
    if (status == 416) return start_without_ranges(run, work, done, err);
    if (!done->ok && !done->is_stopped) {
        if (done->can_retry) return count_failure(run, work, done, done->text, err);
        return err_set(err, ERR_NETWORK, "%s: the transfer failed: %s; are HF_ENDPOINT and the proxy settings right?",
                       work->blob->path, done->text);
    }
    if (status == 200 || status == 206) return count_failure(run, work, done, "the answer ended early", err);
    if (refusal_passes(status)) return count_failure(run, work, done, "the hub cannot answer", err);
    return refusal_explain(err, &run->d->job->network, work->blob->path, status);
}

/* --- starting transfers --- */

static bool has_room(const struct run *run, struct err *err)
{
    uint64_t free_bytes, missing = run->d->bytes - bytes_done(run);
    char need[UNITS_TEXT_MAX], room[UNITS_TEXT_MAX];
    if (!hub_cache_free_bytes(run->works[0].blob->cache, &free_bytes, err)) return false;
    if (missing == 0) return true;
    if (free_bytes >= missing && free_bytes - missing >= run->tuning->reserve_bytes) return true;
    return err_set(err, ERR_FAILED,
                   "%s: the disk has filled up: %s are still to come, %s are free; make room and run the same command "
                   "again to go on",
                   run->d->job->cache, units_format_bytes(need, missing), units_format_bytes(room, free_bytes));
}

static bool open_work(struct run *run, struct work *work, struct err *err)
{
    struct err why = {0};
    if (!has_room(run, err)) return false;
    if (blob_open(work->blob, run->tuning->segment_bytes, &why)) {
        work->state = work->blob->is_complete ? WORK_DONE : WORK_OPEN;
        work->most = bytes_here(work);
        work->saved_ns = run->now_ns;
        work->busy_since_ns = 0;
        return true;
    }
    if (why.kind == ERR_BUSY && work->busy_since_ns == 0) work->busy_since_ns = run->now_ns;
    if (why.kind == ERR_BUSY && run->now_ns - work->busy_since_ns <= run->tuning->lock_ns_max) {
        work->not_before_ns = run->now_ns + ASK_AGAIN_NS;
        return true;
    }
    *err = why;
    return false;
}

static bool start_lane(struct run *run, struct lane *lane, struct work *work, struct err *err)
{
    const struct downloads *d = run->d;
    struct segments *segments = &work->blob->segments;
    uint64_t first = segments_offset(segments, lane->segment), bytes = segments_missing(segments, lane->segment);
    bool wants_all = work->has_no_ranges || bytes == work->blob->bytes;
    if (!has_room(run, err) ||
        !hub_file_url(&run->url, d->job->network.endpoint, d->job->repo.id, d->commit, work->blob->path, err))
        return false;
    const struct http_request request = {
        .url = run->url.data,
        .token = d->job->network.token,
        .first = first,
        .bytes = wants_all ? 0 : bytes,
        .context = lane,
        .begins = answer_begins,
        .takes = answer_brings,
    };
    if (!http_start(d->http, &request, err)) return false;
    lane->work = work;
    lane->is_stale = lane->has_brought = lane->has_strayed = false;
    work->n_lanes++;
    return true;
}

/* The first work that has something to ask for; *work NULL: there is none now. */
static bool next_work(struct run *run, struct work **work, uint32_t *segment, struct err *err)
{
    *work = NULL;
    for (uint32_t i = 0; i < run->d->n_blobs && !*work; i++) {
        struct work *w = &run->works[i];
        if (w->state == WORK_DONE || run->now_ns < w->not_before_ns) continue;
        if (w->state == WORK_TO_OPEN && !open_work(run, w, err)) return false;
        if (w->state != WORK_OPEN || (w->has_no_ranges && w->n_lanes > 0)) continue;
        if (segments_take(&w->blob->segments, segment)) *work = w;
    }
    return true;
}

static bool start_lanes(struct run *run, struct err *err)
{
    ASSERT(run->tuning->connections <= HTTP_TRANSFERS_MAX);
    for (unsigned i = 0; i < run->tuning->connections && run->now_ns >= run->not_before_ns; i++) {
        struct lane *lane = &run->lanes[i];
        struct work *work;
        if (lane->work) continue;
        if (!next_work(run, &work, &lane->segment, err)) return false;
        if (!work) return true;
        if (!start_lane(run, lane, work, err)) return false;
    }
    return true;
}

/* --- the turns --- */

static bool tell(struct run *run, const struct work *work, bool has_finished, struct err *err)
{
    const struct fetch_watch *watch = &run->d->job->watch;
    struct fetch_progress p = {.path = work ? work->blob->path : NULL,
                               .has_finished = has_finished,
                               .is_waiting = http_active(run->d->http) == 0 && !has_finished,
                               .bytes_done = bytes_done(run),
                               .bytes = run->d->bytes};
    if (!watch->progress) return true;
    pace_add(&run->pace, run->now_ns, p.bytes_done);
    p.bytes_per_second = pace_per_second(&run->pace);
    p.seconds_left = pace_seconds_left(&run->pace, p.bytes - p.bytes_done);
    return watch->progress(watch->context, &p) || err_set(err, ERR_CANCELLED, "stopped; the same command goes on");
}

static bool finish(struct run *run, struct work *work, struct err *err)
{
    bool matches;
    if (!blob_finish(work->blob, &matches, err)) return false;
    if (matches) {
        work->state = WORK_DONE;
        return tell(run, work, true, err);
    }
    if (!blob_restart(work->blob, err)) return false;
    if (work->was_wrong)
        return err_set(err, ERR_DATA,
                       "%s: what the server sends has not the digest %s that the hub's list gives, twice; is something "
                       "between here and the hub changing it?",
                       work->blob->path, work->blob->name);
    work->was_wrong = true;
    return true;
}

/* Hashes, saves and finishes; *is_behind: there is more to hash already. */
static bool tend(struct run *run, struct work *work, bool *is_behind, struct err *err)
{
    struct blob *blob = work->blob;
    if (work->state != WORK_OPEN) return true;
    if (!blob_hash(blob, HASH_BYTES_A_TURN, err)) return false;
    if (blob->bytes_hashed == blob->bytes && work->n_lanes == 0) return finish(run, work, err);
    *is_behind |= blob->bytes_hashed < segments_prefix(&blob->segments);
    if (blob->segments.bytes_done < blob->bytes_saved + run->tuning->save_bytes &&
        run->now_ns - work->saved_ns < run->tuning->save_ns)
        return true;
    work->saved_ns = run->now_ns;
    return blob_save(blob, err);
}

static bool turn(struct run *run, bool *is_over, struct err *err)
{
    struct http_done done;
    const struct work *shown = NULL;
    bool is_behind = false;
    *is_over = true;
    run->now_ns = clock_now_ns(run->d->job->clock);
    if (!start_lanes(run, err)) return false;
    while (http_take_done(run->d->http, &done))
        if (!take_done(run, &done, err)) return false;
    for (uint32_t i = 0; i < run->d->n_blobs; i++) {
        if (!tend(run, &run->works[i], &is_behind, err)) return false;
        *is_over &= run->works[i].state == WORK_DONE;
        if (!shown && run->works[i].state == WORK_OPEN) shown = &run->works[i];
    }
    if (*is_over) return true;
    if (!tell(run, shown, false, err)) return false;
    if (http_active(run->d->http) == 0 && !is_behind) clock_sleep_ns(run->d->job->clock, ASK_AGAIN_NS / 20);
    if (!http_wait(run->d->http, is_behind ? 0 : TURN_MS, err)) return false;
    if (!run->fatal.kind) return true;
    *err = run->fatal;
    return false;
}

bool downloads_run(const struct downloads *downloads, struct err *err)
{
    struct alloc *alloc = downloads->job->alloc;
    struct run run = {.d = downloads, .tuning = &downloads->job->tuning};
    bool ok = true, is_over = downloads->n_blobs == 0;
    buf_init(&run.url, alloc, URL_BYTES_MAX);
    run.works = alloc_get_array(alloc, downloads->n_blobs, sizeof *run.works, err);
    if (!run.works) return false;
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++) run.lanes[i].run = &run;
    for (uint32_t i = 0; i < downloads->n_blobs; i++) run.works[i].blob = &downloads->blobs[i];
    while (ok && !is_over) ok = turn(&run, &is_over, err);

    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++)
        if (run.lanes[i].work) http_cancel(downloads->http, &run.lanes[i]);
    for (uint32_t i = 0; i < downloads->n_blobs; i++) {
        struct err why = {0};
        struct blob *blob = &downloads->blobs[i];
        bool is_saved = !blob->is_open || blob_save(blob, &why);
        if (!is_saved && ok) ok = err_set(err, why.kind, "%s", why.text); /* else the first error is the one to tell */
        blob_close(blob);
    }
    alloc_put(alloc, run.works);
    buf_fini(&run.url);
    return ok;
}
