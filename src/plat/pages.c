#include "plat/pages.h"

#include "base/assert.h"
#include "base/checked.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE (UINT64_C(2) << 20)

/* 4 KiB nearly everywhere; some arm64 systems have 16 or 64 KiB. */
static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

void *pages_get(struct alloc *alloc, uint64_t bytes, struct err *err)
{
    uint64_t call = atomic_fetch_add(&alloc->calls, 1) + 1, total;
    void *base = MAP_FAILED;
    errno = ENOMEM;
    if (call != alloc->fail_at && checked_add(&total, bytes, HUGE_PAGE + page_bytes()))
        base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        err_set(err, ERR_NOMEM, "out of memory: could not get %" PRIu64 " bytes of pages: %s", bytes, strerror(errno));
        return NULL;
    }
    /* What sticks out on both sides of the aligned block goes back. */
    unsigned char *begin = base, *end = begin + total;
    unsigned char *block = (unsigned char *)round_up((uintptr_t)base, HUGE_PAGE);
    unsigned char *block_end = block + round_up(bytes, page_bytes());
    if (block > begin) munmap(begin, (size_t)(block - begin));
    if (end > block_end) munmap(block_end, (size_t)(end - block_end));
    madvise(block, (size_t)(block_end - block), MADV_HUGEPAGE);
    atomic_fetch_add(&alloc->live, 1);
    atomic_fetch_add(&alloc->live_bytes, bytes);
    return block;
}

void pages_put(struct alloc *alloc, void *pages, uint64_t bytes)
{
    if (!pages) return;
    ASSERT(atomic_load(&alloc->live) > 0);
    munmap(pages, round_up(bytes, page_bytes()));
    atomic_fetch_sub(&alloc->live, 1);
    atomic_fetch_sub(&alloc->live_bytes, bytes);
}

void pages_release(void *at, uint64_t bytes)
{
    uint64_t begin = round_up((uintptr_t)at, page_bytes()), end = round_down((uintptr_t)at + bytes, page_bytes());
    if (end > begin) madvise((void *)(uintptr_t)begin, end - begin, MADV_DONTNEED);
}
