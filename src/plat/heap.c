#include "plat/heap.h"

#include <malloc.h>

void heap_give_back(void)
{
    malloc_trim(0);
}
