#ifndef RUN_PROMPT_LOOKUP_H
#define RUN_PROMPT_LOOKUP_H
/* Drafts without a model: what followed the last few ids when they first occurred in this sequence.
 *
 * For k from max down to min, the last k ids of the stream are looked up; the first k with an occurrence that something
 * follows gives the draft: the ids behind the smallest such place. Occurrences may overlap the end of the stream, and a
 * draft may be shorter than asked for.
 *
 * One table for each k maps k ids to their first place, by hash, compared with the stream itself. A step costs what it
 * adds: each new id enters each table once. Memory is taken in init. Owned by one thread. */
#include "base/alloc.h"

enum { PROMPT_LOOKUP_LENGTH_MAX = 16, PROMPT_LOOKUP_DRAFT_MAX = 64 };

struct prompt_lookup_limits {
    uint32_t n_min, n_max; /* ids to match: 1 <= n_min <= n_max <= 16; usual 1 and 3 */
    uint32_t n_draft;      /* ids to propose: 1 to 64; usual 10 */
};

struct prompt_lookup {
    struct alloc *alloc;
    struct prompt_lookup_limits limits;
    uint32_t *places; /* [n_max - n_min + 1][1 << room_log2], place + 1 of the first id; 0: free */
    uint32_t room_log2;
    uint64_t key; /* of the hash, so that no prompt can be made of collisions; drafts do not depend on it */
    uint32_t n_ids_max;
    uint32_t n_seen; /* ids of the stream that the tables know */
};

/* ERR_USER, with the name of the option, for limits that are not legal. Room for streams of up to n_ids_max ids. */
bool prompt_lookup_init(struct prompt_lookup *lookup, struct alloc *alloc, struct prompt_lookup_limits limits,
                        uint32_t n_ids_max, struct err *err) MUST_CHECK;
/* What it takes. */
uint64_t prompt_lookup_bytes(struct prompt_lookup_limits limits, uint32_t n_ids_max);
void prompt_lookup_fini(struct prompt_lookup *lookup); /* safe twice and on a zeroed struct */

/* Forgets the stream; call it before the next sequence, or when ids of this one were taken back. */
void prompt_lookup_reset(struct prompt_lookup *lookup);

/* The stream is prompt and generated ids, the pending one included and no drafts. From one call to the next it may only
 * grow at its end. Writes up to n_draft ids and returns how many; 0: no match, decode plainly. */
uint32_t prompt_lookup_draft(struct prompt_lookup *lookup, const uint32_t *ids, uint32_t n_ids,
                             uint32_t draft[PROMPT_LOOKUP_DRAFT_MAX]);

#endif
