#include "model/numerics.h"

const char *numerics_name(enum numerics numerics)
{
    return numerics == NUMERICS_INT8 ? "int8" : "exact";
}
