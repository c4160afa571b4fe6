#include "kern/vector/matmul_int.h"

DEFINE_MATMULS(avx512)
