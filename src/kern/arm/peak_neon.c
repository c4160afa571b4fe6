#include "kern/vector/peak_int.h"

DEFINE_PEAK(f32, neon)
DEFINE_PEAK(int8, neon)
