#include "kern/vector/transposed_int.h"

DEFINE_TRANSPOSEDS(avx512)
