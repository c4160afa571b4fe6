#ifndef MODEL_NUMERICS_H
#define MODEL_NUMERICS_H
/* How precisely products with quantised weights are computed. */

enum numerics {
    NUMERICS_EXACT, /* as f32 sums are */
    NUMERICS_INT8,  /* inputs of int8 and int4 weights are rounded to 8 bits, with a scale for every 16 of them */
};

/* What people call it: as --numerics does. */
const char *numerics_name(enum numerics numerics);

#endif
