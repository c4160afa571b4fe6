#ifndef RUN_ENGINE_CHILD_H
#define RUN_ENGINE_CHILD_H
/* The engine in a process of its own: what runs there. The service in the other process (service_remote.c) sends it
 * jobs and hears what becomes of them, over a stream of engine_link.h.
 *
 * Returns when it is told to stop and its jobs are done, when the other side is gone, or with the reason for which the
 * engine did not open, which the other side is told too. Uses the calling thread as its engine thread. */
#include "run/service.h"

bool engine_child_run(int fd, struct alloc *alloc, const struct service_settings *settings, struct err *err) MUST_CHECK;

#endif
