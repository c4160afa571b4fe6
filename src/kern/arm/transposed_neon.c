#include "kern/vector/transposed_int.h"

DEFINE_TRANSPOSEDS(neon)
DEFINE_UNPACKS(neon)
