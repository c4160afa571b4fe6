#ifndef RUN_ROUTE_RECORDER_H
#define RUN_ROUTE_RECORDER_H
/* Writes which experts every row of every pass of an engine was routed to into a trace (resid/trace.h).
 *
 * Watches through the engine's observer, of which there is one: nothing else may observe at the same time. A pass of
 * one row counts as decode, one of several as prefill. Owned by the engine thread. */
#include "plat/file_write.h"
#include "run/engine.h"

struct route_recorder;

/* Starts PATH, or continues it when it is a trace of the same model. */
bool route_recorder_open(struct route_recorder **recorder, struct engine *engine, struct file_system fs,
                         struct write_system ws, const char *path, struct err *err) MUST_CHECK;

/* Everything is on disk when this succeeds; a failure while recording shows here. NULL is fine. */
bool route_recorder_close(struct route_recorder *recorder, struct err *err) MUST_CHECK;

uint64_t route_recorder_steps(const struct route_recorder *recorder); /* layers of passes, so far */

#endif
