#ifndef RUN_BENCH_TEXT_H
#define RUN_BENCH_TEXT_H
/* Texts for measurements: ids by the law of Zipf and Mandelbrot, which is how often words come. Pure. */
#include <stdint.h>

/* The id that a draw from [0, 1) stands for; 0 is the most frequent. Special tokens, the last 64, are left out. */
uint32_t bench_text_id(double draw, uint32_t n_vocab);

#endif
