#ifndef KERN_UNROLL_INT_H
#define KERN_UNROLL_INT_H
/* For loops of constant length over arrays that must become registers. */

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

#endif
