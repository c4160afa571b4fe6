#include "kern/vector/transposed_int.h"

DEFINE_TRANSPOSEDS(avx2)
DEFINE_UNPACKS(avx2)
