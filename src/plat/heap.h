#ifndef PLAT_HEAP_H
#define PLAT_HEAP_H
/* The general allocator of the C library, which libraries such as json-c use behind our back. */

/* Gives free memory back to the system, also what lies between blocks in use. For after a large structure was freed:
 * memory that the allocator only keeps is memory that the plan cannot use. Takes milliseconds. Any thread. */
void heap_give_back(void);

#endif
