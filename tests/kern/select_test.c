/* Selection against a sort, for every implementation that this processor can run. */
#include "kern/kern.h"
#include "plat/cpu.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

#define SEED 77003u
enum { N_MAX = 140000 };

struct scored {
    float score;
    uint32_t position;
};

static int by_rank(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1; /* +0 equals -0 here too */
    return x->position < y->position ? -1 : 1;
}

static int by_position(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct space {
    float *scores;         /* [N_MAX] */
    struct scored *sorted; /* [N_MAX] */
    uint32_t *want, *got;  /* [N_MAX + 1], the last a sentinel */
    uint64_t random;
};

static uint32_t next(struct space *space)
{
    space->random = space->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(space->random >> 33);
}

static void compare(struct space *space, select_top_fn *select, const char *what, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++) space->sorted[i] = (struct scored){space->scores[i], (uint32_t)i};
    qsort(space->sorted, n, sizeof *space->sorted, by_rank);
    for (size_t i = 0; i < k; i++) space->want[i] = space->sorted[i].position;
    qsort(space->want, k, sizeof *space->want, by_position);
    space->got[k] = 0xdeadbeef;
    assert_true(select(space->got, space->scores, n, k));
    assert_int_equal(space->got[k], 0xdeadbeef);
    for (size_t i = 0; i < k; i++) {
        if (space->got[i] == space->want[i]) continue;
        fail_msg("%s, n %zu, k %zu, seed %u: at %zu the sort has %u, the selector %u", what, n, k, SEED, i,
                 space->want[i], space->got[i]);
    }
}

/* Each fills n scores. */
typedef void fill_fn(struct space *space, size_t n);

static void fill_random(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = (float)(int32_t)(next(space) << 1) * 0x1p-28f;
}

static void fill_any_finite_bits(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = next(space) << 1 ^ next(space);
        memcpy(&space->scores[i], &bits, sizeof bits);
        if (isnan(space->scores[i])) space->scores[i] = INFINITY;
    }
}

static void fill_tied(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = (float)(next(space) % 5) - 2;
}

static void fill_equal(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = 0.25f;
}

static void fill_zeros_of_both_signs(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = next(space) % 2 ? 0.0f : -0.0f;
}

static void fill_around_zero(struct space *space, size_t n)
{
    static const float values[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f};
    for (size_t i = 0; i < n; i++) space->scores[i] = values[next(space) % 4];
}

static void fill_negative(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = -1 - (float)(next(space) % 1000) * 0x1p-20f;
}

static void fill_neighbours(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0x3f800000u + next(space) % 64; /* differ in the last bits only: the last pass decides */
        memcpy(&space->scores[i], &bits, sizeof bits);
    }
}

static void fill_ascending(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = (float)i;
}

static void fill_descending(struct space *space, size_t n)
{
    for (size_t i = 0; i < n; i++) space->scores[i] = -(float)i;
}

static void fill_infinities(struct space *space, size_t n)
{
    static const float values[] = {INFINITY, -INFINITY, 1};
    for (size_t i = 0; i < n; i++) space->scores[i] = values[next(space) % 3];
}

static const struct {
    const char *name;
    fill_fn *fill;
} fills[] = {
    {"random", fill_random},         {"any finite bits", fill_any_finite_bits}, {"tied", fill_tied},
    {"all equal", fill_equal},       {"zeros", fill_zeros_of_both_signs},       {"around zero", fill_around_zero},
    {"negative", fill_negative},     {"neighbours", fill_neighbours},           {"ascending", fill_ascending},
    {"descending", fill_descending}, {"infinities", fill_infinities},
};

static void check_selector(select_top_fn *select)
{
    static const struct {
        size_t n, k;
    } shapes[] = {{0, 0},       {1, 0},       {1, 1},    {2, 1},       {7, 3},       {8, 8},       {9, 4},
                  {24, 4},      {31, 30},     {33, 17},  {100, 99},    {1000, 10},   {2048, 2048}, {2049, 2048},
                  {2050, 2048}, {4096, 2048}, {5000, 1}, {8191, 8190}, {N_MAX, 2048}};
    struct space space = {
        .scores = malloc(N_MAX * sizeof(float)),
        .sorted = malloc(N_MAX * sizeof(struct scored)),
        .want = malloc((N_MAX + 1) * sizeof(uint32_t)),
        .got = malloc((N_MAX + 1) * sizeof(uint32_t)),
        .random = SEED,
    };
    for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            fills[f].fill(&space, shapes[s].n);
            compare(&space, select, fills[f].name, shapes[s].n, shapes[s].k);
        }
    }
    /* NaN anywhere, of any sign and payload, is reported, whether or not it could have been selected. */
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu};
    for (size_t n = 1; n < 70; n++) {
        for (size_t at = 0; at < n; at++) {
            fill_random(&space, n);
            memcpy(&space.scores[at], &nans[(n + at) % 4], sizeof(float));
            assert_false(select(space.got, space.scores, n, at % (n + 1)));
        }
    }
    free(space.scores);
    free(space.sorted);
    free(space.want);
    free(space.got);
}

static void reference_equals_a_sort(void **state)
{
    (void)state;
    struct kern kern;
    kern_select(&kern, 0);
    check_selector(kern.select_top);
}

static void each_feature_equals_a_sort(void **state)
{
    (void)state;
    struct kern reference, before;
    uint32_t usable = cpu_mask(), mask = 0;
    unsigned n_checked = 0;
    kern_select(&reference, 0);
    before = reference;
    for (unsigned bit = 0; cpu_feature_name(bit); bit++) {
        struct kern kern;
        if (!(usable >> bit & 1)) continue;
        mask |= 1u << bit;
        kern_select(&kern, mask);
        if (kern.select_top != before.select_top) {
            printf("with %s\n", cpu_feature_name(bit));
            check_selector(kern.select_top);
            n_checked++;
        }
        before = kern;
    }
    printf("%u vector selectors checked\n", n_checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_equals_a_sort),
        cmocka_unit_test(each_feature_equals_a_sort),
    };
    printf("seed %u\n", SEED);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
