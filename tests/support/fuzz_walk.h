#ifndef SUPPORT_FUZZ_WALK_H
#define SUPPORT_FUZZ_WALK_H
/* What every fuzzer of constraints does with one. Aborts when something that must hold does not. */
#include "gram/constraint.h"

/* Compiles; a refusal must be ERR_USER with a code. What compiles is walked: something must be allowed as long as the
 * answer is not whole, what is allowed must be taken, and a mask must agree with single steps. */
void fuzz_walk(struct constraint_request *request);

#endif
