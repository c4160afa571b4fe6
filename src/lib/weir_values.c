#include "lib/lib_int.h"

#include "base/assert.h"
#include <string.h>

const char *weir_version(void)
{
    return WEIR_VERSION;
}

const char *weir_status_name(enum weir_status status)
{
    static const char *const names[] = {
        [WEIR_OK] = "ok",       [WEIR_FAILED] = "failed", [WEIR_USER] = "user",
        [WEIR_FIT] = "fit",     [WEIR_DATA] = "data",     [WEIR_IO] = "io",
        [WEIR_NOMEM] = "nomem", [WEIR_BUSY] = "busy",     [WEIR_CANCELLED] = "cancelled"};
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

static enum weir_status status_of(enum err_kind kind)
{
    switch (kind) {
    case ERR_USER: return WEIR_USER;
    case ERR_FIT: return WEIR_FIT;
    case ERR_DATA: return WEIR_DATA;
    case ERR_IO: return WEIR_IO;
    case ERR_NOMEM: return WEIR_NOMEM;
    case ERR_BUSY: return WEIR_BUSY;
    case ERR_CANCELLED: return WEIR_CANCELLED;
    case ERR_NONE:
    case ERR_FAILED:
    case ERR_NETWORK: break;
    }
    return WEIR_FAILED;
}

enum weir_status lib_end(bool ok, const struct err *err, struct weir_error *error)
{
    enum weir_status status = ok ? WEIR_OK : status_of(err->kind);
    ASSERT(ok || err->kind != ERR_NONE); /* whoever failed must have said why */
    if (!error) return status;
    error->status = status;
    error->text[0] = 0;
    static_assert(sizeof error->text == sizeof err->text, "a message is copied whole");
    if (!ok) memcpy(error->text, err->text, sizeof error->text);
    return status;
}

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static bool check_size(size_t size, const char *name, struct err *err)
{
    if (size >= sizeof size) return true;
    return err_set(err, ERR_USER, "struct %s has no size: call its init function first, or set it", name);
}

bool lib_take(void *own, size_t own_size, const void *given, const char *name, struct err *err)
{
    const unsigned char *bytes = given;
    if (!given) return true;
    size_t size = size_of(given);
    if (!check_size(size, name, err)) return false;
    for (size_t i = own_size; i < size; i++)
        if (bytes[i])
            return err_set(err, ERR_USER,
                           "struct %s says something in byte %zu, and version %s of libweir knows %zu bytes of it: the "
                           "program was built for a newer one",
                           name, i, WEIR_VERSION, own_size);
    memcpy(own, given, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return true;
}

bool lib_give(void *given, const void *own, size_t own_size, const char *name, struct err *err)
{
    if (!given) return true;
    size_t size = size_of(given);
    if (!check_size(size, name, err)) return false;
    lib_init(given, size, own, own_size);
    return true;
}

void lib_init(void *given, size_t size, const void *own, size_t own_size)
{
    memset(given, 0, size);
    memcpy(given, own, size < own_size ? size : own_size);
    if (size >= sizeof size) memcpy(given, &size, sizeof size);
}

/* In front of a block of the caller's, as far as blocks are aligned. */
struct block_header {
    _Alignas(64) struct alloc *alloc;
};

void *lib_block(struct alloc *alloc, const void *bytes, size_t n, struct err *err)
{
    struct block_header *header = alloc_get(alloc, sizeof *header + n + 1, err);
    if (!header) return NULL;
    header->alloc = alloc;
    if (bytes) memcpy(header + 1, bytes, n);
    return header + 1;
}

void weir_free(void *block)
{
    if (!block) return;
    struct block_header *header = (struct block_header *)block - 1;
    alloc_put(header->alloc, header);
}

bool lib_need(const void *pointer, const char *name, struct err *err)
{
    return pointer || err_set(err, ERR_USER, "%s is NULL", name);
}
