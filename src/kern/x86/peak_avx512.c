#include "kern/vector/peak_int.h"

DEFINE_PEAK(f32, avx512)
