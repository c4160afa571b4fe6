#include "convert/convert_record.h"

#include "convert/convert_place.h"
#include "fmt/json_text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES_MAX (16u << 20)
#define SMALL_FILE_BYTES_MAX (UINT64_C(256) << 20)
#define COPY_ROOM (256u << 10)

/* A changed payload must be noticed without reading hundreds of GB: a checkpoint that was trained or quantised anew
 * differs in every sample. */
enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };

static bool add_samples(struct digest *digest, const struct shard *shard, unsigned char *buffer, struct err *err)
{
    uint64_t bytes = shard->file.identity.bytes;
    uint64_t last = bytes > SAMPLE_BYTES ? bytes - SAMPLE_BYTES : 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        /* last * i overflows beyond 2^58 bytes, so the whole steps and their rest are multiplied apart. */
        uint64_t at = last / (SAMPLES - 1) * i + last % (SAMPLES - 1) * i / (SAMPLES - 1);
        uint64_t n = bytes - at < SAMPLE_BYTES ? bytes - at : SAMPLE_BYTES;
        if (!file_read(&shard->file, buffer, n, at, err) || !digest_add(digest, buffer, n, err)) return false;
    }
    return true;
}

static bool print_shard(struct buf *head, const struct shard *shard, bool is_last, struct err *err)
{
    unsigned char buffer[SAMPLE_BYTES];
    char sum[DIGEST_TEXT];
    struct digest digest;
    if (!digest_init(&digest, err)) return false;
    bool ok = add_samples(&digest, shard, buffer, err) && digest_text(&digest, sum, err);
    digest_fini(&digest);
    return ok && buf_add_text(head, "  {\"name\": ", err) &&
           json_text_add_string(head, shard->name, strlen(shard->name), err) &&
           buf_printf(head, err, ", \"bytes\": %" PRIu64 ", \"sampled_sha256\": \"%s\"}%s\n",
                      shard->file.identity.bytes, sum, is_last ? "" : ",");
}

static bool print_shards(struct buf *head, const struct catalogue *catalogue, struct err *err)
{
    if (!buf_add_text(head, " \"source_shards\": [\n", err)) return false;
    for (uint32_t i = 0; i < catalogue->n_shards; i++)
        if (!print_shard(head, &catalogue->shards[i], i + 1 == catalogue->n_shards, err)) return false;
    return buf_add_text(head, " ],\n", err);
}

static bool describe_file(struct convert_file *out, struct alloc *alloc, struct file_system fs, const char *source,
                          struct err *err)
{
    struct convert_place place;
    struct file file = {0};
    void *buffer = NULL;
    if (!convert_place_set(&place, source, out->name, err) || !convert_place_look(&place, fs, &out->exists, err))
        return false;
    if (!out->exists) return true;
    bool ok = (buffer = alloc_get(alloc, COPY_ROOM, err)) != NULL && file_open(&file, alloc, fs, place.path, err);
    if (ok && file.identity.bytes > SMALL_FILE_BYTES_MAX)
        ok = err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, more than the limit of %" PRIu64, place.path,
                     file.identity.bytes, SMALL_FILE_BYTES_MAX);
    ok = ok && digest_file(out->sha256, &file, buffer, COPY_ROOM, err);
    if (ok) out->bytes = file.identity.bytes;
    file_close(&file);
    alloc_put(alloc, buffer);
    return ok;
}

static bool print_files(struct convert_record *r, struct file_system fs, const char *source, struct err *err)
{
    static const char *const names[CONVERT_FILES] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                                     "generation_config.json", "chat_template.jinja"};
    bool is_first = true;
    if (!buf_add_text(&r->head, " \"files\": [", err)) return false;
    for (int i = 0; i < CONVERT_FILES; i++) {
        struct convert_file *file = &r->files[i];
        file->name = names[i];
        if (!(r->plan->options.passes >> CONVERT_MAIN & 1)) continue; /* an overlay brings none */
        if (!describe_file(file, r->alloc, fs, source, err)) return false;
        if (!file->exists) continue;
        if (!buf_printf(&r->head, err, "%s  {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\"}",
                        is_first ? "\n" : ",\n", file->name, file->bytes, file->sha256))
            return false;
        is_first = false;
    }
    return buf_add_text(&r->head, "\n ],\n", err);
}

static bool print_options(struct buf *head, const struct convert_options *o, struct err *err)
{
    if (!buf_add_text(head, "{\n \"format\": \"weir-conversion 1\",\n \"passes\": \"", err)) return false;
    bool is_first = true;
    for (enum convert_pass pass = 0; pass < CONVERT_PASSES; pass++) {
        if (!(o->passes >> pass & 1)) continue;
        if (!buf_printf(head, err, "%s%s", is_first ? "" : ",", convert_pass_name(pass))) return false;
        is_first = false;
    }
    return buf_printf(head, err,
                      "\",\n \"bits\": %" PRIu32 ",\n \"expert_bits\": %" PRIu32 ",\n \"io_bits\": %" PRIu32
                      ",\n \"mtp_bits\": 8,\n \"indexer_bits\": 8,\n \"group\": %" PRIu32
                      ",\n \"keep_mtp_indexer\": %s,\n \"shard_bytes\": %" PRIu64 ",\n",
                      o->bits, o->expert_bits, o->io_bits, o->group, o->keep_mtp_indexer ? "true" : "false",
                      o->shard_bytes);
}

static bool print_identity(struct buf *head, const struct catalogue *catalogue, struct err *err)
{
    char text[DIGEST_TEXT];
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", catalogue->identity[i]);
    return buf_printf(head, err, " \"source_identity\": \"%s\",\n \"outputs\": [\n", text);
}

bool convert_record_init(struct convert_record *record, struct alloc *alloc, struct file_system fs,
                         const struct convert_plan *plan, const struct catalogue *catalogue, const char *source,
                         struct err *err)
{
    *record = (struct convert_record){.plan = plan, .alloc = alloc};
    buf_init(&record->head, alloc, HEAD_BYTES_MAX);
    record->made = alloc_get_array(alloc, plan->n_outputs, sizeof *record->made, err);
    if (record->made && print_options(&record->head, &plan->options, err) && print_files(record, fs, source, err) &&
        print_shards(&record->head, catalogue, err) && print_identity(&record->head, catalogue, err))
        return true;
    convert_record_fini(record);
    return false;
}

void convert_record_fini(struct convert_record *record)
{
    if (!record->alloc) return;
    buf_fini(&record->head);
    alloc_put(record->alloc, record->made);
    record->made = NULL;
}

/* The facts of an output that the plan knows, up to where its digest begins. */
static int print_output_front(char *out, size_t room, const struct convert_output *output)
{
    return snprintf(out, room, "  {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"tensors\": %" PRIu32 ", \"sha256\": \"",
                    output->name, output->bytes, output->n_tensors);
}

static const char after_sha256[] = "\", \"worst_relative_error\": ";
static const char after_loss[] = ", \"worst_tensor\": \"";

bool convert_record_print(const struct convert_record *record, struct buf *text, struct err *err)
{
    if (!buf_add(text, record->head.data, record->head.bytes, err)) return false;
    bool is_first = true;
    for (uint32_t i = 0; i < record->plan->n_outputs; i++) {
        const struct convert_made *made = &record->made[i];
        char front[256];
        if (!made->sha256[0]) continue;
        print_output_front(front, sizeof front, &record->plan->outputs[i]);
        if (!buf_printf(text, err, "%s%s%s%s%.6f%s%s\"}", is_first ? "" : ",\n", front, made->sha256, after_sha256,
                        made->loss_max, after_loss, made->loss_tensor))
            return false;
        is_first = false;
    }
    return buf_add_text(text, "\n ]\n}\n", err);
}

/* The line at *text without its end; moves behind it. */
static size_t next_line(const char **text, const char **line)
{
    *line = *text;
    size_t n = strcspn(*text, "\n");
    *text += n + ((*text)[n] == '\n');
    return n;
}

/* A line as a message shows it: no indentation, no comma, not too long. */
static void shown(char *out, size_t room, const char *line, size_t n)
{
    while (n > 0 && *line == ' ') line++, n--;
    while (n > 0 && line[n - 1] == ',') n--;
    snprintf(out, room, "%.*s", n > 180 ? 180 : (int)n, line);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ') *c = '?';
    if (!out[0]) snprintf(out, room, "(nothing)");
}

static bool same_head(const char *path, const char **theirs, const char *ours, struct err *err)
{
    while (*ours) {
        const char *line_theirs, *line_ours;
        size_t n_theirs = next_line(theirs, &line_theirs), n_ours = next_line(&ours, &line_ours);
        if (n_theirs == n_ours && memcmp(line_theirs, line_ours, n_ours) == 0) continue;
        char was[200], is[200];
        shown(was, sizeof was, line_theirs, n_theirs);
        shown(is, sizeof is, line_ours, n_ours);
        return err_set(err, ERR_USER,
                       "%s: this folder was begun with %s, now it would be %s; convert into another folder, or use the "
                       "same source and options as before",
                       path, was, is);
    }
    return true;
}

/* What stands between `front` and the first `end` behind it; false when the text does not start so. */
static bool take(const char **text, const char *front, char *out, size_t room, char end)
{
    size_t n_front = strlen(front);
    if (strncmp(*text, front, n_front) != 0) return false;
    const char *value = *text + n_front;
    size_t n = 0;
    while (value[n] && value[n] != '\n' && value[n] != end) n++;
    if (value[n] != end || n >= room) return false;
    memcpy(out, value, n);
    out[n] = 0;
    *text = value + n;
    return true;
}

static bool take_output(struct convert_made *made, const char *line, const struct convert_output *output)
{
    char front[256], loss[32];
    print_output_front(front, sizeof front, output);
    if (!take(&line, front, made->sha256, sizeof made->sha256, '"')) return false;
    if (strspn(made->sha256, "0123456789abcdef") != 64) return false;
    if (!take(&line, after_sha256, loss, sizeof loss, ',')) return false;
    char *end;
    made->loss_max = strtod(loss, &end);
    if (*end || end == loss || strspn(loss, "0123456789.") != strlen(loss)) return false;
    if (!take(&line, after_loss, made->loss_tensor, sizeof made->loss_tensor, '"')) return false;
    return strspn(line + 1, "},") == strcspn(line + 1, "\n") && line[1] == '}';
}

bool convert_record_resume(struct convert_record *record, const char *path, const char *text, struct err *err)
{
    if (!same_head(path, &text, record->head.data, err)) return false;
    uint32_t next = 0;
    while (*text) {
        const char *line;
        size_t n = next_line(&text, &line);
        if (n == 0 || strncmp(line, " ]", 2) == 0) break;
        struct convert_made made = {0};
        while (next < record->plan->n_outputs && !take_output(&made, line, &record->plan->outputs[next])) next++;
        if (next == record->plan->n_outputs) {
            char was[200];
            shown(was, sizeof was, line, n);
            return err_set(err, ERR_DATA,
                           "%s: damaged, it tells of an output that this conversion does not have: %s; "
                           "convert into another folder",
                           path, was);
        }
        record->made[next++] = made;
    }
    return true;
}
