#include "kern/vector/peak_int.h"

DEFINE_PEAK(int8, avx512vnni)
