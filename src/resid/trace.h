#ifndef RESID_TRACE_H
#define RESID_TRACE_H
/* The routing trace: which experts each row of each pass asked for. Append-only, compact, checksummed; the format is in
 * docs/formats/trace.md. Writers and readers are owned by one thread. */
#include "plat/file.h"
#include "plat/file_write.h"

enum trace_phase { TRACE_PREFILL, TRACE_DECODE, TRACE_VERIFY, TRACE_DRAFT, TRACE_PHASES };

enum { TRACE_ROWS_MAX = 1 << 16 };

struct trace_shape {
    uint32_t n_layers, n_experts, n_per_row;
    uint8_t identity[32];
};

struct trace_step {
    uint32_t pass, n_rows, layer;
    enum trace_phase phase;
    const uint16_t *experts; /* [n_rows][n_per_row], ascending within a row */
};

struct trace_writer;

/* Starts a trace, or continues one of the same model and shape from its last whole record; a foreign or damaged file is
 * refused (ERR_DATA) and left as it is. Never writes through a symbolic link. */
bool trace_create(struct trace_writer **writer, struct alloc *alloc, struct file_system fs, struct write_system ws,
                  const char *path, const struct trace_shape *shape, struct err *err) MUST_CHECK;

/* May keep the step in memory until the next flush. A failure may leave a torn record at the end of the file, which
 * readers cut off. */
bool trace_add(struct trace_writer *writer, const struct trace_step *step, struct err *err) MUST_CHECK;
bool trace_flush(struct trace_writer *writer, struct err *err) MUST_CHECK; /* and fsync */

/* Without a flush, what was kept in memory is lost. NULL is fine. */
void trace_close(struct trace_writer *writer);

struct trace_reader;

bool trace_open(struct trace_reader **reader, struct alloc *alloc, struct file_system fs, const char *path,
                struct err *err) MUST_CHECK;
void trace_end(struct trace_reader *reader); /* NULL is fine */
const struct trace_shape *trace_shape(const struct trace_reader *reader);

/* The next step, good until the call after; *is_end at the last whole record. Fails only when the disk does. */
bool trace_next(struct trace_reader *reader, struct trace_step *step, bool *is_end, struct err *err) MUST_CHECK;

/* Once trace_next said is_end: bytes behind the last whole record. */
uint64_t trace_dropped_bytes(const struct trace_reader *reader);

#endif
