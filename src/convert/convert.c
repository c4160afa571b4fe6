#include "convert/convert.h"

#include "convert/convert_output.h"
#include "convert/convert_place.h"
#include "convert/convert_plan.h"
#include "convert/convert_record.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RECORD_BYTES_MAX (64u << 20)

struct conversion {
    const struct convert_job *job;
    struct config config;
    struct catalogue catalogue;
    struct convert_plan plan;
    struct convert_record record;
    struct convert_maker maker;
    struct folder_lock lock;
    bool found_record; /* an earlier run had finished */
    uint32_t output_number;
    uint64_t source_bytes, source_bytes_done; /* of this run */
    int64_t started_ns;
};

static bool look_for(const struct conversion *c, const char *name, struct convert_place *place, bool *exists,
                     struct err *err)
{
    return convert_place_set(place, c->job->destination, name, err) &&
           convert_place_look(place, c->job->fs, exists, err);
}

/* A folder without a manifest must hold no shard and none of the files to be written: they would belong to another
 * model. */
static bool refuse_strangers(const struct conversion *c, struct err *err)
{
    struct convert_place place;
    char name[256];
    if (!convert_place_find(name, c->job->destination, ".safetensors", err)) return false;
    for (int i = 0; i < CONVERT_FILES && !name[0]; i++) {
        bool exists = false;
        if (c->record.files[i].exists && !look_for(c, c->record.files[i].name, &place, &exists, err)) return false;
        if (exists) snprintf(name, sizeof name, "%s", c->record.files[i].name);
    }
    if (!name[0]) return true;
    return err_set(err, ERR_USER,
                   "%s holds %s, and nothing there tells that a conversion made it; choose an empty folder",
                   c->job->destination, name);
}

/* A finished output is believed when it is there with the right size and the right header; else it is made again. */
static bool believe_output(struct conversion *c, uint32_t i, void *header, struct err *err)
{
    const struct convert_output *output = &c->plan.outputs[i];
    struct convert_place place;
    bool exists;
    if (!look_for(c, output->name, &place, &exists, err)) return false;
    bool is_right = false;
    if (exists) {
        struct file file;
        if (!file_open(&file, c->job->alloc, c->job->fs, place.path, err)) return false;
        bool ok = true;
        if (file.identity.bytes == output->bytes) {
            ok = file_read(&file, header, output->header_bytes, 0, err);
            is_right = ok && memcmp(header, output->header, output->header_bytes) == 0;
        }
        file_close(&file);
        if (!ok) return false;
    }
    if (!is_right) c->record.made[i] = (struct convert_made){0};
    return true;
}

static bool believe_outputs(struct conversion *c, struct err *err)
{
    uint64_t room = 1;
    for (uint32_t i = 0; i < c->plan.n_outputs; i++)
        if (c->plan.outputs[i].header_bytes > room) room = c->plan.outputs[i].header_bytes;
    void *header = alloc_get(c->job->alloc, room, err);
    bool ok = header != NULL;
    for (uint32_t i = 0; i < c->plan.n_outputs && ok; i++)
        if (c->record.made[i].sha256[0]) ok = believe_output(c, i, header, err);
    alloc_put(c->job->alloc, header);
    return ok;
}

/* Finds out what an earlier run left. The record of a finished conversion is stronger than a manifest beside it, which
 * only means that the last step was interrupted. */
static bool resume(struct conversion *c, struct err *err)
{
    struct convert_place place;
    bool exists;
    if (!look_for(c, CONVERT_RECORD_NAME, &place, &exists, err)) return false;
    c->found_record = exists;
    if (!exists && !look_for(c, CONVERT_MANIFEST_NAME, &place, &exists, err)) return false;
    if (!exists) return refuse_strangers(c, err);
    size_t bytes;
    char *text = file_read_all(c->job->alloc, c->job->fs, place.path, RECORD_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = convert_record_resume(&c->record, place.path, text, err) && believe_outputs(c, err);
    alloc_put(c->job->alloc, text);
    return ok;
}

static void summarise(const struct conversion *c, struct convert_summary *s)
{
    *s = (struct convert_summary){
        .options = c->plan.options,
        .n_outputs = c->plan.n_outputs,
        .source_bytes = c->source_bytes,
        .n_unused = c->plan.n_unused,
        .unused = c->plan.unused,
    };
    for (uint32_t i = 0; i < c->plan.n_outputs; i++) {
        const struct convert_output *output = &c->plan.outputs[i];
        s->n_outputs_done += c->record.made[i].sha256[0] != 0;
        s->pass_bytes[output->pass] += output->bytes;
    }
    for (uint32_t i = 0; i < c->plan.n_tensors; i++) {
        const struct convert_tensor *t = &c->plan.tensors[i];
        if (t->format == FORMAT_F32)
            s->tensors[t->pass].kept++;
        else
            s->tensors[t->pass].quantised++;
    }
}

static bool cancelled(struct err *err)
{
    return err_set(err, ERR_CANCELLED, "stopped; the same command goes on where it was");
}

static bool tick(void *context, const struct convert_output *output, uint64_t source_bytes, struct err *err)
{
    struct conversion *c = context;
    const struct convert_watch *watch = &c->job->watch;
    c->source_bytes_done += source_bytes;
    if (!watch->progress) return true;
    struct convert_progress p = {
        .output = output->name,
        .output_number = c->output_number,
        .n_outputs = c->plan.n_outputs,
        .source_bytes_done = c->source_bytes_done,
        .source_bytes = c->source_bytes,
        .seconds_left = -1,
    };
    double seconds = (double)(clock_now_ns(c->job->clock) - c->started_ns) * 1e-9;
    if (seconds > 0) {
        p.bytes_per_second = (double)c->source_bytes_done / seconds;
        p.seconds_left = (double)(c->source_bytes - c->source_bytes_done) / p.bytes_per_second;
    }
    return watch->progress(watch->context, &p) || cancelled(err);
}

static bool check_room(const struct conversion *c, const char *what, uint64_t bytes, struct err *err)
{
    uint64_t free_bytes;
    if (!folder_free_bytes(c->job->ws, c->job->destination, &free_bytes, err)) return false;
    uint64_t reserve = c->plan.options.reserve_bytes;
    if (free_bytes >= bytes && free_bytes - bytes >= reserve) return true;
    return err_set(err, ERR_IO,
                   "%s: %s needs %" PRIu64 " bytes and %" PRIu64 " must stay free, but the disk has room for %" PRIu64
                   "; make room and run the same command again",
                   c->job->destination, what, bytes, reserve, free_bytes);
}

/* Told for everything at once, because running out of room after hours helps nobody. */
static bool check_room_for_all(const struct conversion *c, struct err *err)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->plan.n_outputs; i++)
        if (!c->record.made[i].sha256[0]) bytes += c->plan.outputs[i].bytes;
    return bytes == 0 || check_room(c, "what is left to write", bytes, err);
}

static bool save(const struct conversion *c, const char *name, struct err *err)
{
    struct convert_place place;
    struct buf text;
    buf_init(&text, c->job->alloc, RECORD_BYTES_MAX);
    bool ok = convert_record_print(&c->record, &text, err) &&
              convert_place_set(&place, c->job->destination, name, err) &&
              file_write_all(c->job->alloc, c->job->ws, place.path, text.data, text.bytes, err);
    buf_fini(&text);
    return ok;
}

static bool make_outputs(struct conversion *c, struct err *err)
{
    for (uint32_t i = 0; i < c->plan.n_outputs; i++) {
        const struct convert_output *output = &c->plan.outputs[i];
        struct convert_place place;
        if (c->record.made[i].sha256[0]) continue;
        c->output_number = i + 1;
        if (!check_room(c, output->name, output->bytes, err) ||
            !convert_place_set(&place, c->job->destination, output->name, err) ||
            !convert_maker_make(&c->maker, output, place.path, &c->record.made[i], tick, c, err) ||
            !save(c, CONVERT_MANIFEST_NAME, err))
            return false;
    }
    return true;
}

static bool copy_file(const struct conversion *c, const struct convert_file *file, struct err *err)
{
    struct convert_place from, to;
    if (!convert_place_set(&from, c->job->source, file->name, err) ||
        !convert_place_set(&to, c->job->destination, file->name, err))
        return false;
    size_t bytes = 0;
    char *data = file_read_all(c->job->alloc, c->job->fs, from.path, file->bytes, &bytes, err);
    if (!data) return false;
    bool ok = bytes == file->bytes || err_set(err, ERR_DATA, "%s: changed while it was converted", from.path);
    ok = ok && file_write_all(c->job->alloc, c->job->ws, to.path, data, bytes, err);
    alloc_put(c->job->alloc, data);
    return ok;
}

static bool copy_files(const struct conversion *c, struct err *err)
{
    for (int i = 0; i < CONVERT_FILES; i++) {
        const struct convert_file *file = &c->record.files[i];
        struct convert_place place;
        bool exists = false;
        if (!file->exists) continue;
        if (c->found_record && !look_for(c, file->name, &place, &exists, err)) return false;
        if (!exists && !copy_file(c, file, err)) return false;
    }
    return true;
}

/* The record comes last: a folder that has it is whole. */
static bool finish(struct conversion *c, struct err *err)
{
    if (!copy_files(c, err)) return false;
    for (uint32_t i = 0; i < c->catalogue.n_shards; i++)
        if (!file_recheck(&c->catalogue.shards[i].file, err)) return false;
    struct convert_place manifest;
    bool nothing_new = c->found_record && c->source_bytes == 0;
    return (nothing_new || save(c, CONVERT_RECORD_NAME, err)) &&
           convert_place_set(&manifest, c->job->destination, CONVERT_MANIFEST_NAME, err) &&
           file_remove(c->job->alloc, c->job->ws, manifest.path, err);
}

static void report(const struct conversion *c, struct convert_result *result)
{
    *result = (struct convert_result){.n_outputs = c->plan.n_outputs};
    for (uint32_t i = 0; i < c->plan.n_outputs; i++) {
        const struct convert_made *made = &c->record.made[i];
        result->bytes += c->plan.outputs[i].bytes;
        if (made->loss_tensor[0] && (made->loss_max > result->worst_loss || !result->worst_tensor[0])) {
            result->worst_loss = made->loss_max;
            snprintf(result->worst_tensor, sizeof result->worst_tensor, "%s", made->loss_tensor);
        }
    }
}

static bool prepare(struct conversion *c, struct err *err)
{
    const struct convert_job *job = c->job;
    return config_read(&c->config, job->alloc, job->fs, job->source, err) &&
           catalogue_open(&c->catalogue, job->alloc, job->fs, job->source, err) &&
           convert_plan_make(&c->plan, job->alloc, &job->options, &c->config, &c->catalogue, err) &&
           convert_record_init(&c->record, job->alloc, job->fs, &c->plan, &c->catalogue, job->source, err) &&
           folder_lock(&c->lock, job->ws, job->destination, err) && resume(c, err);
}

static bool work(struct conversion *c, struct convert_result *result, struct err *err)
{
    const struct convert_watch *watch = &c->job->watch;
    struct convert_summary summary;
    for (uint32_t i = 0; i < c->plan.n_outputs; i++)
        if (!c->record.made[i].sha256[0]) c->source_bytes += c->plan.outputs[i].source_bytes;
    summarise(c, &summary);
    if (watch->planned && !watch->planned(watch->context, &summary)) return cancelled(err);
    if (!check_room_for_all(c, err) || !convert_maker_init(&c->maker, c->job, &c->plan, &c->catalogue, err))
        return false;
    c->started_ns = clock_now_ns(c->job->clock);
    /* From the first shard on the folder tells what it is becoming. */
    if (c->source_bytes > 0 && !save(c, CONVERT_MANIFEST_NAME, err)) return false;
    if (!make_outputs(c, err) || !finish(c, err)) return false;
    report(c, result);
    return true;
}

bool convert_folder(const struct convert_job *job, struct convert_result *result, struct err *err)
{
    struct conversion *c = alloc_get(job->alloc, sizeof *c, err);
    if (!c) return false;
    c->job = job;
    bool ok = prepare(c, err) && work(c, result, err);
    convert_maker_fini(&c->maker);
    folder_unlock(&c->lock);
    convert_record_fini(&c->record);
    convert_plan_fini(&c->plan);
    catalogue_close(&c->catalogue);
    alloc_put(job->alloc, c);
    return ok;
}
