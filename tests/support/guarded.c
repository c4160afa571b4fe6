#include "support/guarded.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t rng_below(struct rng *rng, size_t n)
{
    return (size_t)(rng_next(rng) % n);
}
float rng_float(struct rng *rng)
{
    return (float)(int32_t)(rng_next(rng) >> 32) * 0x1p-31f;
}

float rng_number(struct rng *rng, enum kind kind)
{
    static const float specials[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-127f, 1e-30f};
    static const float extremes[] = {0x1.fffffep127f, -0x1.fffffep127f, 1e30f, -1e30f, 0x1p-149f, -0x1p-140f, -0.0f};
    float plain = rng_float(rng);
    switch (kind) {
    case PLAIN: return plain;
    case MIXED: return rng_below(rng, 3) ? plain : specials[rng_below(rng, COUNT(specials))];
    case TINY: return plain * 0x1p-140f;
    case EXTREME: return rng_below(rng, 3) ? plain * 100 : extremes[rng_below(rng, COUNT(extremes))];
    case KINDS: break;
    }
    return 0;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void check_init(struct check *check, uint64_t seed)
{
    *check = (struct check){.rng.state = seed};
    for (size_t i = 0; i < AREAS; i++) {
        size_t page = page_bytes();
        unsigned char *all = mmap(NULL, AREA_BYTES + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(all, MAP_FAILED);
        check->areas[i].base = all + page;
        assert_int_equal(mprotect(all + page, AREA_BYTES, PROT_READ | PROT_WRITE), 0);
        check->areas[i].copy = malloc(AREA_BYTES);
        assert_non_null(check->areas[i].copy);
    }
}

void check_fini(struct check *check)
{
    for (size_t i = 0; i < AREAS; i++) {
        munmap(check->areas[i].base - page_bytes(), AREA_BYTES + 2 * page_bytes());
        free(check->areas[i].copy);
    }
}

void check_begin(struct check *check)
{
    check->n_areas = 0;
}

void *check_area(struct check *check, size_t bytes)
{
    assert_true(check->n_areas < AREAS);
    assert_true(bytes <= AREA_BYTES);
    struct area *area = &check->areas[check->n_areas++];
    area->bytes = bytes;
    area->data = check->against_end ? area->base + AREA_BYTES - bytes : area->base;
    return memset(area->data, POISON, bytes);
}

float *check_floats(struct check *check, size_t n)
{
    float *data = check_area(check, n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = rng_number(&check->rng, check->kind);
    return data;
}

float *check_scales(struct check *check, size_t n)
{
    float *data = check_area(check, n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (0.5f + fabsf(rng_float(&check->rng))) * 0.03f;
    return data;
}

void *check_weights(struct check *check, enum layout layout, size_t n_out, size_t n_in)
{
    if (layout == LAYOUT_F32) return check_floats(check, n_out * n_in);
    size_t bytes = n_out * layout_row_bytes(layout, n_in);
    unsigned char *data = check_area(check, bytes);
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)rng_next(&check->rng);
    return data;
}

const float **check_pointers(struct check *check, const float *rows, size_t n_rows, size_t stride)
{
    const float **data = check_area(check, n_rows * sizeof *data);
    for (size_t i = 0; i < n_rows; i++) data[i] = rows + (n_rows - 1 - i) * stride; /* not in order of address */
    return data;
}

float *check_twin(struct check *check, const float *data, size_t n)
{
    return memcpy(check_area(check, n * sizeof *data), data, n * sizeof *data);
}

void check_seal(struct check *check)
{
    for (size_t i = 0; i < check->n_areas; i++)
        memcpy(check->areas[i].copy, check->areas[i].data, check->areas[i].bytes);
}

bool check_is_sealed(struct check *check, size_t n_operands)
{
    for (size_t i = 0; i < n_operands; i++) {
        if (memcmp(check->areas[i].copy, check->areas[i].data, check->areas[i].bytes) == 0) continue;
        if (!check->is_quiet) print_error("%s %s: operand %zu was changed\n", check->name, check->shape, i);
        return false;
    }
    return true;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

bool check_same(struct check *check, const float *want, const float *got, size_t n)
{
    check->comparisons += n;
    for (size_t i = 0; i < n; i++) {
        if (bits_of(want[i]) == bits_of(got[i]) || (isnan(want[i]) && isnan(got[i]))) continue;
        if (!check->is_quiet)
            print_error("%s %s: at %zu the reference has %a, the kernel %a\n", check->name, check->shape, i,
                        (double)want[i], (double)got[i]);
        return false;
    }
    return true;
}

bool check_near(struct check *check, double exact, float got, double terms, double magnitude)
{
    double bound = terms * (double)0x1p-24f * magnitude + (terms + 2) * 0x1p-148;
    if (fabs(exact - (double)got) <= bound) return true;
    if (!check->is_quiet)
        print_error("%s %s: float64 has %.17g, the reference %.9g, allowed %.3g\n", check->name, check->shape, exact,
                    (double)got, bound);
    return false;
}

bool check_all_kinds(struct check *check, body_fn *body, const void *argument)
{
    for (int kind = 0; kind < KINDS; kind++) {
        check->kind = (enum kind)kind;
        check->against_end = true;
        check_begin(check);
        if (!body(check, argument)) return false;
    }
    check->kind = MIXED;
    check->against_end = false;
    check_begin(check);
    return body(check, argument);
}
