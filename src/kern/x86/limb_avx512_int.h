#ifndef KERN_LIMB_AVX512_INT_H
#define KERN_LIMB_AVX512_INT_H
/* Products of split inputs with registers of 64 bytes, which hold all lanes: the weights of four outputs are unpacked
 * into sixteen registers and meet all rows of the tile, whose limbs come from the first cache level. Limbs of different
 * weight are summed apart, so that no chain of additions is long. */
#include "kern/unroll_int.h"
#include "kern/vector/limb_operands_int.h"

enum { QUAD = 4 };

INLINE __m512i load(const unsigned char *at)
{
    return _mm512_loadu_si512((const void *)at);
}

/* The weights of a block, plus their bias, as registers that meet those of the limbs. */
INLINE void unpack_weights(struct limbs l, __m512i w[LIMB_REGISTERS], const unsigned char *at)
{
    if (l.layout == LAYOUT_INT8) {
        const __m512i bias = _mm512_set1_epi8((char)0x80);
        UNROLL
        for (size_t part = 0; part < LIMB_REGISTERS; part++) w[part] = _mm512_xor_si512(load(at + 64 * part), bias);
        return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i first = _mm512_shuffle_i32x4(load(at), load(at + 64), 0x88); /* the first 16 bytes of each stretch */
    __m512i second = _mm512_shuffle_i32x4(load(at), load(at + 64), 0xdd);
    w[0] = _mm512_and_si512(first, nibble);
    w[1] = _mm512_and_si512(_mm512_srli_epi16(first, 4), nibble);
    w[2] = _mm512_and_si512(second, nibble);
    w[3] = _mm512_and_si512(_mm512_srli_epi16(second, 4), nibble);
}

/* The products of one limb with the weights of four outputs, on top of what is in sums. */
INLINE void add_limb(__m512i sums[QUAD], const __m512i w[QUAD][LIMB_REGISTERS], const unsigned char *limb)
{
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        __m512i inputs = load(limb + LIMB_REGISTER * part);
        UNROLL
        for (size_t k = 0; k < QUAD; k++) sums[k] = _mm512_dpbusd_epi32(sums[k], w[k][part], inputs);
    }
}

/* The exact sums of a block for four outputs. A sum of 16 products of a nibble and the middle limb is at most 15 * 128
 * * 16, which fits 16 bits, so that the instruction which multiplies those shifts and adds it at once. */
INLINE void sums_of_block(struct limbs l, __m512i sums[QUAD], const __m512i w[QUAD][LIMB_REGISTERS],
                          const unsigned char *block)
{
    UNROLL
    for (size_t k = 0; k < QUAD; k++) sums[k] = load(block + limbs_offsets_at(l));
    add_limb(sums, w, block + (l.n - 1) * KERN_SPLIT_COLUMNS);
    if (l.n == 1) return;
    __m512i high[QUAD], middle[QUAD];
    UNROLL
    for (size_t k = 0; k < QUAD; k++) high[k] = middle[k] = _mm512_setzero_si512();
    add_limb(high, w, block);
    add_limb(middle, w, block + KERN_SPLIT_COLUMNS);
    UNROLL
    for (size_t k = 0; k < QUAD; k++) {
        sums[k] = _mm512_dpwssd_epi32(sums[k], middle[k], _mm512_set1_epi32(256));
        sums[k] = _mm512_add_epi32(sums[k], _mm512_slli_epi32(high[k], 16));
    }
}

/* Where the scales of a block of grouped weights are: up to four from `first` on, and which of them is a lane's. */
struct block_scales {
    size_t first;
    __mmask8 which_exist;
    __m512i which;
};

INLINE struct block_scales find_scales(const struct limb_operands *m, size_t column)
{
    size_t at[4];
    for (size_t i = 0; i < 4; i++) at[i] = limbs_scale_of(column + i * LIMB_STRETCH, m->group, m->row_scales);
    const __m512i stretch = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m128i distances = _mm_setr_epi32(0, (int)(at[1] - at[0]), (int)(at[2] - at[0]), (int)(at[3] - at[0]));
    return (struct block_scales){.first = at[0],
                                 .which_exist = (__mmask8)((2u << (at[3] - at[0])) - 1),
                                 .which = _mm512_permutexvar_epi32(stretch, _mm512_castsi128_si512(distances))};
}

INLINE __m512 weight_scales(const struct block_scales *s, const float *scales)
{
    __m128 four = _mm_maskz_loadu_ps(s->which_exist, scales + s->first);
    return _mm512_permutevar_ps(_mm512_broadcast_f32x4(four), s->which);
}

/* Adds a block of inputs from column `first` on to the sums of n_x rows and four outputs from k on. */
INLINE void add_quad(struct limbs l, const struct limb_operands *m, struct tile *t, size_t k,
                     const unsigned char *block, size_t n_x, const struct block_scales *where)
{
    __m512i weights[QUAD][LIMB_REGISTERS], sums[QUAD];
    __m512 of_weights[QUAD];
    UNROLL
    for (size_t i = 0; i < QUAD; i++) {
        const unsigned char *w = t->w[k + i] + t->at;
        prefetch_block(l.layout, w, t->distance);
        unpack_weights(l, weights[i], w);
        if (m->is_grouped) of_weights[i] = weight_scales(where, t->scales[k + i]);
    }
    for (size_t r = 0; r < n_x; r++, block += m->split_stride) {
        sums_of_block(l, sums, weights, block);
        __m512 of_inputs = _mm512_loadu_ps(block + limbs_scales_at(l));
        UNROLL
        for (size_t i = 0; i < QUAD; i++) {
            __m512 factor = m->is_grouped ? _mm512_mul_ps(of_inputs, of_weights[i]) : of_inputs;
            __m512 *sum = &t->sums[r][k + i].all;
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i]), factor, *sum);
        }
    }
}

INLINE void add_block(struct limbs l, const struct limb_operands *m, struct tile *t, const unsigned char *block,
                      size_t n_x, size_t first)
{
    struct block_scales where = {0};
    if (m->is_grouped) where = find_scales(m, first);
    add_quad(l, m, t, 0, block, n_x, &where);
    add_quad(l, m, t, QUAD, block, n_x, &where);
}

#endif
