#ifndef SUPPORT_STREAM_BENCH_H
#define SUPPORT_STREAM_BENCH_H
/* What one row of inputs costs when the weights come from memory, as in decoding: matrix products over a set of
 * matrices larger than any cache, with one thread and with two, beside the speed at which the same threads can merely
 * read. Prints medians of interleaved runs; 0 when it could. */

int stream_bench(void);

#endif
