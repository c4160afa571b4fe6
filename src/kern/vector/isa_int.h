#ifndef KERN_ISA_INT_H
#define KERN_ISA_INT_H
/* The instruction set that a file is compiled for, in one vocabulary, so that the frames of this folder are written
 * once:
 *
 *   wide           a register of WIDE floats: wide_zero, _set1, _load, _store, _fma
 *   struct lanes   the sixteen canonical lanes: lanes_load, _store, _fma, ..., and 16 unpacked weights. They may lie in
 *                  another order for a layout: what is not a weight passes lanes_ordered before it meets one, and sums
 *                  pass lanes_plain before they are folded or stored.
 *   dots           DOTS folded dot products: lanes_dots, lanes_fold_dots */
#if defined(__AVX512F__)
#include "kern/x86/avx512_int.h"
#elif defined(__AVX2__)
#include "kern/x86/avx2_int.h"
#include "kern/vector/lanes_dots_int.h" /* needs what stands above it */
#elif defined(__aarch64__)
#include "kern/arm/neon_int.h"
#include "kern/vector/lanes_dots_int.h"
#endif

#endif
