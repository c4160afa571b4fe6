#ifndef KERN_LIST_INT_H
#define KERN_LIST_INT_H
/* Every kernel there is: op, instruction set, and the CPU_ bits it needs. For each op the reference comes first and a
 * later line is preferred. One list feeds prototypes, dispatch, the equivalence check and the benchmark, so that no
 * kernel can exist untested. A new kernel is one function and one line here; a family with another arithmetic is new
 * ops in kern.h with a reference of their own, as the fixed-point limbs are. */
#include "kern/kern.h"

#define KERN_LIST_REF(X)                      \
    X(matmul_f32, ref, 0)                     \
    X(matmul_int8, ref, 0)                    \
    X(matmul_int4, ref, 0)                    \
    X(matmul_int4_grouped, ref, 0)            \
    X(matmul_int2, ref, 0)                    \
    X(matmul_int3, ref, 0)                    \
    X(split_limb3_int4, ref, 0)               \
    X(split_limb1_int8, ref, 0)               \
    X(split_limb1_int4, ref, 0)               \
    X(matmul_limb3_int4, ref, 0)              \
    X(matmul_limb3_int4_grouped, ref, 0)      \
    X(matmul_limb1_int8, ref, 0)              \
    X(matmul_limb1_int4, ref, 0)              \
    X(matmul_limb1_int4_grouped, ref, 0)      \
    X(matmul_transposed_f32, ref, 0)          \
    X(matmul_transposed_int8, ref, 0)         \
    X(matmul_transposed_int4, ref, 0)         \
    X(matmul_transposed_int4_grouped, ref, 0) \
    X(matmul_transposed_int2, ref, 0)         \
    X(matmul_transposed_int3, ref, 0)         \
    X(unpack_f32, ref, 0)                     \
    X(unpack_int8, ref, 0)                    \
    X(unpack_int4, ref, 0)                    \
    X(unpack_int4_grouped, ref, 0)            \
    X(unpack_int2, ref, 0)                    \
    X(unpack_int3, ref, 0)                    \
    X(rmsnorm, ref, 0)                        \
    X(layernorm, ref, 0)                      \
    X(rope, ref, 0)                           \
    X(swiglu, ref, 0)                         \
    X(sigmoid, ref, 0)                        \
    X(add, ref, 0)                            \
    X(axpy, ref, 0)                           \
    X(softmax, ref, 0)                        \
    X(gather_dots, ref, 0)                    \
    X(gather_mixes, ref, 0)                   \
    X(index_scores, ref, 0)                   \
    X(select_top, ref, 0)                     \
    X(peak_f32, ref, 0)                       \
    X(peak_int8, ref, 0)

#if defined(__x86_64__)
#define KERN_LIST_SIMD(X)                                     \
    X(matmul_f32, avx2, CPU_AVX2)                             \
    X(matmul_int8, avx2, CPU_AVX2)                            \
    X(matmul_int4, avx2, CPU_AVX2)                            \
    X(matmul_int4_grouped, avx2, CPU_AVX2)                    \
    X(matmul_int2, avx2, CPU_AVX2)                            \
    X(matmul_int3, avx2, CPU_AVX2)                            \
    X(split_limb3_int4, avx2, CPU_AVX2)                       \
    X(split_limb1_int8, avx2, CPU_AVX2)                       \
    X(split_limb1_int4, avx2, CPU_AVX2)                       \
    X(matmul_limb3_int4, avx2, CPU_AVX2)                      \
    X(matmul_limb3_int4_grouped, avx2, CPU_AVX2)              \
    X(matmul_limb1_int8, avx2, CPU_AVX2)                      \
    X(matmul_limb1_int4, avx2, CPU_AVX2)                      \
    X(matmul_limb1_int4_grouped, avx2, CPU_AVX2)              \
    X(matmul_transposed_f32, avx2, CPU_AVX2)                  \
    X(matmul_transposed_int8, avx2, CPU_AVX2)                 \
    X(matmul_transposed_int4, avx2, CPU_AVX2)                 \
    X(matmul_transposed_int4_grouped, avx2, CPU_AVX2)         \
    X(matmul_transposed_int2, avx2, CPU_AVX2)                 \
    X(matmul_transposed_int3, avx2, CPU_AVX2)                 \
    X(unpack_f32, avx2, CPU_AVX2)                             \
    X(unpack_int8, avx2, CPU_AVX2)                            \
    X(unpack_int4, avx2, CPU_AVX2)                            \
    X(unpack_int4_grouped, avx2, CPU_AVX2)                    \
    X(unpack_int2, avx2, CPU_AVX2)                            \
    X(unpack_int3, avx2, CPU_AVX2)                            \
    X(rmsnorm, avx2, CPU_AVX2)                                \
    X(layernorm, avx2, CPU_AVX2)                              \
    X(rope, avx2, CPU_AVX2)                                   \
    X(swiglu, avx2, CPU_AVX2)                                 \
    X(sigmoid, avx2, CPU_AVX2)                                \
    X(add, avx2, CPU_AVX2)                                    \
    X(axpy, avx2, CPU_AVX2)                                   \
    X(softmax, avx2, CPU_AVX2)                                \
    X(gather_dots, avx2, CPU_AVX2)                            \
    X(gather_mixes, avx2, CPU_AVX2)                           \
    X(index_scores, avx2, CPU_AVX2)                           \
    X(select_top, avx2, CPU_AVX2)                             \
    X(peak_f32, avx2, CPU_AVX2)                               \
    X(peak_int8, avx2, CPU_AVX2)                              \
    X(peak_f32, avx512, CPU_AVX512)                           \
    X(peak_int8, avxvnni, CPU_AVX_VNNI)                       \
    X(peak_int8, avx512vnni, CPU_AVX512_VNNI)                 \
    X(matmul_f32, avx512, CPU_AVX512)                         \
    X(matmul_int8, avx512, CPU_AVX512)                        \
    X(matmul_int4, avx512, CPU_AVX512)                        \
    X(matmul_int4_grouped, avx512, CPU_AVX512)                \
    X(matmul_int2, avx512, CPU_AVX512)                        \
    X(matmul_int3, avx512, CPU_AVX512)                        \
    X(matmul_transposed_f32, avx512, CPU_AVX512)              \
    X(matmul_transposed_int8, avx512, CPU_AVX512)             \
    X(matmul_transposed_int4, avx512, CPU_AVX512)             \
    X(matmul_transposed_int4_grouped, avx512, CPU_AVX512)     \
    X(matmul_transposed_int2, avx512, CPU_AVX512)             \
    X(matmul_transposed_int3, avx512, CPU_AVX512)             \
    X(matmul_limb3_int4, avxvnni, CPU_AVX_VNNI)               \
    X(matmul_limb3_int4_grouped, avxvnni, CPU_AVX_VNNI)       \
    X(matmul_limb1_int8, avxvnni, CPU_AVX_VNNI)               \
    X(matmul_limb1_int4, avxvnni, CPU_AVX_VNNI)               \
    X(matmul_limb1_int4_grouped, avxvnni, CPU_AVX_VNNI)       \
    X(matmul_limb3_int4, avx512vnni, CPU_AVX512_VNNI)         \
    X(matmul_limb3_int4_grouped, avx512vnni, CPU_AVX512_VNNI) \
    X(matmul_limb1_int8, avx512vnni, CPU_AVX512_VNNI)         \
    X(matmul_limb1_int4, avx512vnni, CPU_AVX512_VNNI)         \
    X(matmul_limb1_int4_grouped, avx512vnni, CPU_AVX512_VNNI) \
    X(gather_dots, avx512, CPU_AVX512)                        \
    X(gather_mixes, avx512, CPU_AVX512)                       \
    X(index_scores, avx512, CPU_AVX512)
#elif defined(__aarch64__)
#define KERN_LIST_SIMD(X)                                   \
    X(matmul_f32, neon, CPU_NEON)                           \
    X(matmul_int8, neon, CPU_NEON)                          \
    X(matmul_int4, neon, CPU_NEON)                          \
    X(matmul_int4_grouped, neon, CPU_NEON)                  \
    X(matmul_int2, neon, CPU_NEON)                          \
    X(matmul_int3, neon, CPU_NEON)                          \
    X(split_limb3_int4, neon, CPU_NEON)                     \
    X(split_limb1_int8, neon, CPU_NEON)                     \
    X(split_limb1_int4, neon, CPU_NEON)                     \
    X(matmul_limb3_int4, neon, CPU_NEON)                    \
    X(matmul_limb3_int4_grouped, neon, CPU_NEON)            \
    X(matmul_limb1_int8, neon, CPU_NEON)                    \
    X(matmul_limb1_int4, neon, CPU_NEON)                    \
    X(matmul_limb1_int4_grouped, neon, CPU_NEON)            \
    X(matmul_transposed_f32, neon, CPU_NEON)                \
    X(matmul_transposed_int8, neon, CPU_NEON)               \
    X(matmul_transposed_int4, neon, CPU_NEON)               \
    X(matmul_transposed_int4_grouped, neon, CPU_NEON)       \
    X(matmul_transposed_int2, neon, CPU_NEON)               \
    X(matmul_transposed_int3, neon, CPU_NEON)               \
    X(unpack_f32, neon, CPU_NEON)                           \
    X(unpack_int8, neon, CPU_NEON)                          \
    X(unpack_int4, neon, CPU_NEON)                          \
    X(unpack_int4_grouped, neon, CPU_NEON)                  \
    X(unpack_int2, neon, CPU_NEON)                          \
    X(unpack_int3, neon, CPU_NEON)                          \
    X(rmsnorm, neon, CPU_NEON)                              \
    X(layernorm, neon, CPU_NEON)                            \
    X(rope, neon, CPU_NEON)                                 \
    X(swiglu, neon, CPU_NEON)                               \
    X(sigmoid, neon, CPU_NEON)                              \
    X(add, neon, CPU_NEON)                                  \
    X(axpy, neon, CPU_NEON)                                 \
    X(softmax, neon, CPU_NEON)                              \
    X(gather_dots, neon, CPU_NEON)                          \
    X(gather_mixes, neon, CPU_NEON)                         \
    X(index_scores, neon, CPU_NEON)                         \
    X(select_top, neon, CPU_NEON)                           \
    X(peak_f32, neon, CPU_NEON)                             \
    X(peak_int8, neon, CPU_NEON)                            \
    X(peak_int8, dotprod, CPU_NEON_DOTPROD)                 \
    X(matmul_limb3_int4, dotprod, CPU_NEON_DOTPROD)         \
    X(matmul_limb3_int4_grouped, dotprod, CPU_NEON_DOTPROD) \
    X(matmul_limb1_int8, dotprod, CPU_NEON_DOTPROD)         \
    X(matmul_limb1_int4, dotprod, CPU_NEON_DOTPROD)         \
    X(matmul_limb1_int4_grouped, dotprod, CPU_NEON_DOTPROD)
#else
#define KERN_LIST_SIMD(X)
#endif

#define KERN_LIST(X) KERN_LIST_REF(X) KERN_LIST_SIMD(X)

/* matmul_f32_op, ...: the function type of each op. */
#define X(op, type) typedef type op##_op;
KERN_OPS(X)
#undef X

#define X(op, isa, need) op##_op op##_##isa;
KERN_LIST(X)
#undef X

#endif
