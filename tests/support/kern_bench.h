#ifndef SUPPORT_KERN_BENCH_H
#define SUPPORT_KERN_BENCH_H
/* Times every kernel whose name contains `only` against its reference and prints a line for each; 0 when it could. */
int kern_bench(const char *only);

#endif
