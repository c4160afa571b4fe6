#include "resid/resident.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

/* A model opened as the program does, header by header up to its weights. */
struct opened {
    struct alloc alloc;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct resident *resident;
};

static void open_fixture(struct opened *m, const char *name)
{
    char dir[256];
    struct err err = {0};
    *m = (struct opened){0};
    snprintf(dir, sizeof dir, "tests/fixtures/glm52-tiny/%s", name);
    struct file_system fs = file_system_real();
    if (!config_read(&m->config, &m->alloc, fs, dir, &err) ||
        !catalogue_open(&m->catalogue, &m->alloc, fs, dir, &err) ||
        !inventory_build(&m->inventory, &m->alloc, &m->config, &m->catalogue, &err) ||
        !resident_open(&m->resident, &m->alloc, fs, &m->inventory, &err))
        fail_msg("%s: %s", name, err.text);
}

static void close_fixture(struct opened *m)
{
    resident_close(m->resident);
    inventory_fini(&m->inventory);
    catalogue_close(&m->catalogue);
    assert_int_equal(m->alloc.live, 0);
}

static void every_fixture_opens_with_what_it_holds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum capability mtp;
        bool mtp_has_indexer;
        uint32_t n_routed_experts, n_full_indexers;
    } fixtures[] = {
        {"plain", CAPABILITY_ABSENT, false, 24, 4},        {"indexshare", CAPABILITY_ABSENT, false, 56, 4},
        {"freq-oddsize", CAPABILITY_ABSENT, false, 55, 4}, {"bias", CAPABILITY_ABSENT, false, 16, 3},
        {"groups", CAPABILITY_ABSENT, false, 32, 3},       {"mtp", CAPABILITY_PRESENT, true, 40, 3},
        {"fp8", CAPABILITY_PRESENT, true, 16, 2},
    };
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        struct opened m;
        open_fixture(&m, fixtures[i].name);
        const struct inventory *v = &m.inventory;
        printf("%s: %u tensors, %u quantised, %u experts, %u indexers, %llu bytes\n", fixtures[i].name,
               m.catalogue.n_tensors, v->n_quantised, v->n_routed_experts, v->n_full_indexers,
               (unsigned long long)v->bytes);
        assert_int_equal(v->dsa, CAPABILITY_PRESENT);
        assert_int_equal(v->mtp, fixtures[i].mtp);
        assert_int_equal(v->mtp_has_indexer, fixtures[i].mtp_has_indexer);
        assert_int_equal(v->n_full_indexers, fixtures[i].n_full_indexers);
        assert_int_equal(v->n_ignored, 0);
        assert_int_equal(m.catalogue.n_ignored_files, 1); /* the reference values lie beside the model */
        assert_string_equal(m.catalogue.ignored_file, "reference.safetensors");
        close_fixture(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_opens_with_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
