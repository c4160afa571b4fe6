#include "kern/x86/limb_avx2_int.h"

DEFINE_LIMB_MATMULS(avxvnni)
