#include "kern/vector/peak_int.h"

DEFINE_PEAK(f32, avx2)
DEFINE_PEAK(int8, avx2)
