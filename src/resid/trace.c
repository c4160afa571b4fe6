#include "resid/trace.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

enum {
    HEADER_BYTES = 64,
    FRONT_BYTES = 16, /* length, pass, rows, layer, phase */
    CHECK_BYTES = 4,
    VERSION = 1,
    BUFFER_BYTES = 1 << 16,
    PER_ROW_MAX = 256,
};
static const char magic[8] = {'W', 'E', 'I', 'R', 'T', 'R', 'C', '1'};

/* CRC-32C (Castagnoli), four bits at a time. */
static uint32_t crc32c(const uint8_t *data, size_t n)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static void put32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint32_t id_bytes(const struct trace_shape *shape)
{
    return shape->n_experts <= 256 ? 1 : 2;
}

static uint64_t record_bytes(const struct trace_shape *shape, uint64_t n_rows)
{
    return FRONT_BYTES + n_rows * shape->n_per_row * id_bytes(shape) + CHECK_BYTES;
}

static void put_header(uint8_t out[HEADER_BYTES], const struct trace_shape *shape)
{
    memset(out, 0, HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    put32(out + 8, VERSION);
    put32(out + 12, shape->n_layers);
    put32(out + 16, shape->n_experts);
    put32(out + 20, shape->n_per_row);
    memcpy(out + 24, shape->identity, sizeof shape->identity);
    put32(out + 60, crc32c(out, 60));
}

static bool get_header(struct trace_shape *shape, const uint8_t in[HEADER_BYTES], const char *path, struct err *err)
{
    if (memcmp(in, magic, sizeof magic) != 0) return err_set(err, ERR_DATA, "%s: not a routing trace", path);
    if (get32(in + 60) != crc32c(in, 60)) return err_set(err, ERR_DATA, "%s: the trace's header is damaged", path);
    if (get32(in + 8) != VERSION)
        return err_set(err, ERR_DATA, "%s: a trace of version %" PRIu32 ", only %d is known", path, get32(in + 8),
                       VERSION);
    *shape = (struct trace_shape){.n_layers = get32(in + 12), .n_experts = get32(in + 16), .n_per_row = get32(in + 20)};
    memcpy(shape->identity, in + 24, sizeof shape->identity);
    if (shape->n_layers == 0 || shape->n_layers > UINT16_MAX || shape->n_experts == 0 ||
        shape->n_experts > UINT16_MAX || shape->n_per_row == 0 || shape->n_per_row > PER_ROW_MAX ||
        shape->n_per_row > shape->n_experts)
        return err_set(err, ERR_DATA,
                       "%s: a trace of %" PRIu32 " layers, %" PRIu32 " experts, %" PRIu32 " of a row cannot be", path,
                       shape->n_layers, shape->n_experts, shape->n_per_row);
    return true;
}

struct trace_reader {
    struct alloc *alloc;
    struct file file;
    struct trace_shape shape;
    uint64_t at;
    uint8_t *body;     /* the record, [record_max] */
    uint16_t *experts; /* [TRACE_ROWS_MAX * n_per_row at most; grows with what is read] */
    uint64_t body_room, experts_room;
};

bool trace_open(struct trace_reader **out, struct alloc *alloc, struct file_system fs, const char *path,
                struct err *err)
{
    uint8_t header[HEADER_BYTES];
    struct trace_reader *r = alloc_get(alloc, sizeof *r, err);
    if (!r) return false;
    r->alloc = alloc;
    if (!file_open(&r->file, alloc, fs, path, err)) goto fail;
    if (!file_read(&r->file, header, sizeof header, 0, err)) goto fail;
    if (!get_header(&r->shape, header, path, err)) goto fail;
    r->at = HEADER_BYTES;
    *out = r;
    return true;
fail:
    trace_end(r);
    return false;
}

void trace_end(struct trace_reader *r)
{
    if (!r) return;
    file_close(&r->file);
    alloc_put(r->alloc, r->body);
    alloc_put(r->alloc, r->experts);
    alloc_put(r->alloc, r);
}

const struct trace_shape *trace_shape(const struct trace_reader *r)
{
    return &r->shape;
}

uint64_t trace_dropped_bytes(const struct trace_reader *r)
{
    return r->file.identity.bytes - r->at;
}

static bool make_room(struct trace_reader *r, uint64_t bytes, uint64_t n_ids, struct err *err)
{
    if (bytes > r->body_room) {
        alloc_put(r->alloc, r->body);
        r->body = alloc_get(r->alloc, bytes, err);
        r->body_room = r->body ? bytes : 0;
    }
    if (n_ids > r->experts_room) {
        alloc_put(r->alloc, r->experts);
        r->experts = alloc_get_array(r->alloc, n_ids, sizeof *r->experts, err);
        r->experts_room = r->experts ? n_ids : 0;
    }
    return r->body && r->experts;
}

/* Whether the ids make sense: in range, ascending within each row. */
static bool unpack_ids(struct trace_reader *r, uint32_t n_rows)
{
    const uint8_t *in = r->body + FRONT_BYTES;
    uint32_t width = id_bytes(&r->shape), k = r->shape.n_per_row;
    for (uint64_t i = 0; i < (uint64_t)n_rows * k; i++, in += width) {
        r->experts[i] = width == 1 ? in[0] : (uint16_t)(in[0] | in[1] << 8);
        if (r->experts[i] >= r->shape.n_experts) return false;
        if (i % k != 0 && r->experts[i] <= r->experts[i - 1]) return false;
    }
    return true;
}

bool trace_next(struct trace_reader *r, struct trace_step *step, bool *is_end, struct err *err)
{
    uint8_t front[FRONT_BYTES];
    uint64_t left = r->file.identity.bytes - r->at;
    *is_end = true;
    if (left < FRONT_BYTES + CHECK_BYTES) return true;
    if (!file_read(&r->file, front, sizeof front, r->at, err)) return false;
    uint32_t n_rows = get32(front + 8), layer = front[12] | (uint32_t)front[13] << 8;
    uint64_t bytes = record_bytes(&r->shape, n_rows);
    if (n_rows == 0 || n_rows > TRACE_ROWS_MAX || bytes > left || get32(front) != bytes - 4 - CHECK_BYTES ||
        layer >= r->shape.n_layers || front[14] >= TRACE_PHASES)
        return true;
    if (!make_room(r, bytes, (uint64_t)n_rows * r->shape.n_per_row, err)) return false;
    if (!file_read(&r->file, r->body, bytes, r->at, err)) return false;
    if (get32(r->body + bytes - CHECK_BYTES) != crc32c(r->body, bytes - CHECK_BYTES)) return true;
    if (!unpack_ids(r, n_rows)) return true;
    *step = (struct trace_step){.pass = get32(front + 4),
                                .n_rows = n_rows,
                                .layer = layer,
                                .phase = (enum trace_phase)front[14],
                                .experts = r->experts};
    r->at += bytes;
    *is_end = false;
    return true;
}

struct trace_writer {
    struct alloc *alloc;
    struct write_system ws;
    struct trace_shape shape;
    char *path;
    int descriptor;
    uint64_t at;     /* where the next flush writes */
    uint8_t *buffer; /* [buffer_room] whole records */
    uint64_t buffered, buffer_room;
};

/* Where appending goes on: behind the last whole record. 0 when there is no file yet. */
static bool find_end(struct trace_writer *w, struct file_system fs, uint64_t *end, struct err *err)
{
    struct trace_reader *r;
    struct err why = {0};
    struct trace_step step;
    bool is_end = false;
    *end = 0;
    if (!trace_open(&r, w->alloc, fs, w->path, &why)) {
        struct file file;
        bool is_there = file_open(&file, w->alloc, fs, w->path, NULL);
        bool is_empty = is_there && file.identity.bytes == 0;
        if (is_there) file_close(&file);
        if ((!is_there && why.kind == ERR_DATA) || is_empty) return true;
        if (err) *err = why;
        return false;
    }
    const struct trace_shape *old = trace_shape(r);
    if (old->n_layers != w->shape.n_layers || old->n_experts != w->shape.n_experts ||
        old->n_per_row != w->shape.n_per_row || memcmp(old->identity, w->shape.identity, sizeof old->identity) != 0) {
        err_set(err, ERR_DATA, "%s: a trace of another model; choose another file", w->path);
        goto fail;
    }
    while (!is_end)
        if (!trace_next(r, &step, &is_end, err)) goto fail;
    *end = r->at;
    trace_end(r);
    return true;
fail:
    trace_end(r);
    return false;
}

static bool write_out(struct trace_writer *w, const uint8_t *data, uint64_t bytes, struct err *err)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = w->ws.ops->pwrite(w->ws.context, w->descriptor, data + done, bytes - done, (off_t)(w->at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return err_set(err, ERR_IO, "%s: writing %" PRIu64 " bytes at offset %" PRIu64 ": %s", w->path, bytes,
                           w->at, n < 0 ? strerror(errno) : "nothing was taken");
        done += (uint64_t)n;
    }
    w->at += bytes;
    return true;
}

bool trace_create(struct trace_writer **out, struct alloc *alloc, struct file_system fs, struct write_system ws,
                  const char *path, const struct trace_shape *shape, struct err *err)
{
    uint8_t header[HEADER_BYTES];
    ASSERT(shape->n_layers > 0 && shape->n_layers <= UINT16_MAX);
    ASSERT(shape->n_experts > 0 && shape->n_experts <= UINT16_MAX);
    ASSERT(shape->n_per_row > 0 && shape->n_per_row <= PER_ROW_MAX);
    struct trace_writer *w = alloc_get(alloc, sizeof *w, err);
    if (!w) return false;
    *w = (struct trace_writer){.alloc = alloc, .ws = ws, .shape = *shape, .descriptor = -1};
    w->path = alloc_text(alloc, path, err);
    if (!w->path) goto fail;
    w->buffer_room = BUFFER_BYTES;
    w->buffer = alloc_get(alloc, w->buffer_room, err);
    if (!w->buffer) goto fail;
    if (!find_end(w, fs, &w->at, err)) goto fail;
    do {
        w->descriptor = ws.ops->open(ws.context, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    } while (w->descriptor < 0 && errno == EINTR);
    if (w->descriptor < 0) {
        err_set(err, ERR_IO, "%s: cannot open for writing: %s", path, strerror(errno));
        goto fail;
    }
    put_header(header, shape);
    if (w->at == 0 && !write_out(w, header, sizeof header, err)) goto fail;
    *out = w;
    return true;
fail:
    trace_close(w);
    return false;
}

void trace_close(struct trace_writer *w)
{
    if (!w) return;
    if (w->descriptor >= 0) w->ws.ops->close(w->ws.context, w->descriptor);
    alloc_put(w->alloc, w->buffer);
    alloc_put(w->alloc, w->path);
    alloc_put(w->alloc, w);
}

static bool empty_buffer(struct trace_writer *w, struct err *err)
{
    if (!write_out(w, w->buffer, w->buffered, err)) return false;
    w->buffered = 0;
    return true;
}

bool trace_flush(struct trace_writer *w, struct err *err)
{
    if (!empty_buffer(w, err)) return false;
    int failure;
    do {
        failure = w->ws.ops->fsync(w->ws.context, w->descriptor);
    } while (failure != 0 && errno == EINTR);
    if (failure == 0) return true;
    return err_set(err, ERR_IO, "%s: cannot make it durable: %s", w->path, strerror(errno));
}

static void put_record(const struct trace_shape *shape, const struct trace_step *step, uint8_t *out, uint64_t bytes)
{
    uint32_t width = id_bytes(shape);
    put32(out, (uint32_t)(bytes - 4 - CHECK_BYTES));
    put32(out + 4, step->pass);
    put32(out + 8, step->n_rows);
    out[12] = (uint8_t)step->layer;
    out[13] = (uint8_t)(step->layer >> 8);
    out[14] = (uint8_t)step->phase;
    out[15] = 0;
    uint8_t *id = out + FRONT_BYTES;
    for (uint64_t i = 0; i < (uint64_t)step->n_rows * shape->n_per_row; i++, id += width) {
        ASSERT(step->experts[i] < shape->n_experts);
        id[0] = (uint8_t)step->experts[i];
        if (width == 2) id[1] = (uint8_t)(step->experts[i] >> 8);
    }
    put32(out + bytes - CHECK_BYTES, crc32c(out, bytes - CHECK_BYTES));
}

bool trace_add(struct trace_writer *w, const struct trace_step *step, struct err *err)
{
    uint64_t bytes = record_bytes(&w->shape, step->n_rows);
    ASSERT(step->n_rows > 0 && step->n_rows <= TRACE_ROWS_MAX);
    ASSERT(step->layer < w->shape.n_layers);
    if (w->buffered + bytes > w->buffer_room && !empty_buffer(w, err)) return false;
    if (bytes > w->buffer_room) {
        uint8_t *larger = alloc_get(w->alloc, bytes, err);
        if (!larger) return false;
        alloc_put(w->alloc, w->buffer);
        w->buffer = larger;
        w->buffer_room = bytes;
    }
    put_record(&w->shape, step, w->buffer + w->buffered, bytes);
    w->buffered += bytes;
    return true;
}
