#ifndef RUN_TRACE_DUMP_H
#define RUN_TRACE_DUMP_H
/* What a forward pass did, as JSON lines: for comparing two runs or two programs, layer by layer.
 *
 * One line per layer and row:
 *   {"position":5,"layer":3,"hidden":"9f…","experts":[1,6],"selected":"all"}
 * hidden is the XXH3-64 (hexadecimal) of the row's residual stream behind the layer, float32 little endian; experts are
 * absent in dense layers; selected is there in layers that have an indexer: a list of positions, or "all". */
#include "run/engine.h"

struct trace_dump;

/* Watches the engine's forward pass from now on; the sequence begins at position `first`. */
bool trace_dump_open(struct trace_dump **dump, struct engine *engine, const char *path, uint32_t first,
                     struct err *err) MUST_CHECK;

/* Stops watching and makes the file durable. Reports whatever went wrong since it was opened. NULL is fine. */
bool trace_dump_close(struct trace_dump *dump, struct err *err) MUST_CHECK;

#endif
