#ifndef SUPPORT_LIMB_CHECK_H
#define SUPPORT_LIMB_CHECK_H
/* The equivalence check of the fixed-point limbs: splits byte by byte, products bit by bit, and the references against
 * float64: the split by what the contract says an integer may be off, the product by the rest of the error. */
#include "kern/limb_int.h"
#include "support/guarded.h"

bool check_split(struct check *check, split_fn *fn, split_fn *ref, struct limbs l);
bool check_matmul_split(struct check *check, matmul_split_fn *fn, matmul_split_fn *ref, split_fn *split, struct limbs l,
                        bool is_grouped);

#endif
