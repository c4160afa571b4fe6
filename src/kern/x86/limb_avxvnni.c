#include "kern/vector/limb_matmul_int.h"

DEFINE_LIMB_MATMULS(avxvnni)
