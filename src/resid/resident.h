#ifndef RESID_RESIDENT_H
#define RESID_RESIDENT_H
/* The provider that keeps every weight in memory from the start.
 *
 * For models that fit, and as the reference for providers that stream: same bytes, no policy. Quantised weights stay in
 * their disk layout; a checkpoint's F16, BF16 and FP8 become F32 while they are read. Owned by the engine thread. */
#include "model/weights.h"

struct resident;

/* Reads and checks all weights in use: scales must be finite and above zero, floats finite. The message names file,
 * tensor and index. Keeps the inventory, which must outlive it. Reads go through the catalogue's open files; `fs` is
 * there because every provider is opened alike. */
bool resident_open(struct resident **resident, struct alloc *alloc, struct file_system fs,
                   const struct inventory *inventory, struct err *err) MUST_CHECK;

/* NULL is fine. No lease may be out. */
void resident_close(struct resident *resident);

/* Good until resident_close. */
struct weights *resident_weights(struct resident *resident);

#endif
