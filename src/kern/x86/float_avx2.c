#include "kern/vector/float_int.h"

DEFINE_FLOATS(avx2)
