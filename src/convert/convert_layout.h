#ifndef CONVERT_LAYOUT_H
#define CONVERT_LAYOUT_H
/* The cut into output shards, and each shard's header.
 *
 * Shard layout: 8 bytes of header length, compact JSON padded with spaces to a multiple of 8, then all F32 tensors by
 * name (scales among them), then all U8 tensors by name, without gaps. */
#include "convert/convert_plan.h"

/* Fills plan->outputs and the offsets of plan->tensors, which are sorted by pass and name. */
bool convert_layout(struct convert_plan *plan, struct err *err) MUST_CHECK;

#endif
