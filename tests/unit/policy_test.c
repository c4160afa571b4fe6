/* Each policy on the access pattern that it exists for, in a cache that is nothing but a list of keys. */
#include "resid/policy.h"
#include "support/check.h"

enum { LAYERS = 4, EXPERTS = 64, SLOTS_MAX = 64 };

struct cache {
    struct alloc alloc;
    struct policy *policy;
    uint32_t keys[SLOTS_MAX];
    size_t n, n_slots;
    unsigned hits, misses;
};

static void cache_open(struct cache *c, const char *name, uint32_t n_slots)
{
    struct err err = {0};
    struct policy_shape shape = {LAYERS, EXPERTS, n_slots};
    *c = (struct cache){.n_slots = n_slots};
    if (!policy_new(&c->policy, &c->alloc, name, &shape, &err)) fail_msg("%s", err.text);
    assert_string_equal(policy_name(c->policy), name);
}

static void cache_close(struct cache *c)
{
    policy_free(c->policy);
    assert_int_equal(c->alloc.live, 0);
}

static bool has(const struct cache *c, uint32_t key)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->keys[i] == key) return true;
    return false;
}

static void touch(struct cache *c, uint32_t key)
{
    if (has(c, key)) {
        c->hits++;
    } else {
        c->misses++;
        size_t place = c->n;
        if (c->n == c->n_slots) {
            place = policy_choose_victim(c->policy, c->keys, c->n, key);
            policy_on_evict(c->policy, c->keys[place]);
        } else {
            c->n++;
        }
        c->keys[place] = key;
        policy_on_admit(c->policy, key);
    }
    policy_on_touch(c->policy, key);
}

static void lru_gives_up_the_oldest(void **state)
{
    (void)state;
    struct cache c;
    cache_open(&c, "lru", 4);
    for (uint32_t key = 0; key < 4; key++) touch(&c, key);
    touch(&c, 0);
    touch(&c, 10);
    assert_false(has(&c, 1));
    touch(&c, 11);
    assert_false(has(&c, 2));
    assert_true(has(&c, 0));
    cache_close(&c);
}

static void layer_lru_keeps_every_layer_its_share(void **state)
{
    (void)state;
    struct cache c;
    cache_open(&c, "layer-lru", 16);
    for (uint32_t i = 0; i < 400; i++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            touch(&c, layer * EXPERTS + (layer == 0 ? i * 7 % EXPERTS : i % 4));
    unsigned in_layer[LAYERS] = {0};
    for (size_t i = 0; i < c.n; i++) in_layer[c.keys[i] / EXPERTS]++;
    for (uint32_t layer = 0; layer < LAYERS; layer++) assert_int_equal(in_layer[layer], 4);
    cache_close(&c);
}

static void a_long_scan_does_not_wash_out_the_favourites(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned kept_min, kept_max;
    } cases[] = {{"lru", 0, 0}, {"lfu", 12, 12}, {"lfru", 12, 12}, {"slru", 10, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cache c;
        unsigned kept = 0;
        cache_open(&c, cases[i].name, 16);
        for (int round = 0; round < 10; round++)
            for (uint32_t key = 0; key < 12; key++) touch(&c, key);
        for (uint32_t key = 60; key < 160; key++) touch(&c, key);
        for (uint32_t key = 0; key < 12; key++) kept += has(&c, key);
        printf("%s kept %u of 12\n", cases[i].name, kept);
        assert_true(kept >= cases[i].kept_min);
        assert_true(kept <= cases[i].kept_max);
        cache_close(&c);
    }
}

static void yesterdays_favourites_leave(void **state)
{
    (void)state;
    static const char *const names[] = {"lru", "lfu", "lfru", "slru"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cache c;
        cache_open(&c, names[i], 16);
        for (int round = 0; round < 40; round++)
            for (uint32_t key = 0; key < 12; key++) touch(&c, key);
        for (int round = 0; round < 400; round++) {
            for (uint32_t key = 100; key < 112; key++) touch(&c, key);
            policy_on_turn(c.policy);
        }
        c.hits = c.misses = 0;
        for (uint32_t key = 100; key < 112; key++) touch(&c, key);
        printf("%s: %u of 12 new favourites\n", names[i], c.hits);
        assert_int_equal(c.hits, 12);
        cache_close(&c);
    }
}

static void lfru_swaps_four_at_most_and_only_for_a_clear_gain(void **state)
{
    (void)state;
    struct cache c;
    cache_open(&c, "lfru", 16); /* 12 hot, 4 guests */
    for (uint32_t key = 0; key < 12; key++)
        for (int n = 0; n < 8; n++) touch(&c, key);
    for (uint32_t key = 100; key < 104; key++)
        for (int n = 0; n < 14; n++) touch(&c, key); /* 8 + 8/4 + 4 = 14 is not more than 14 */
    policy_on_turn(c.policy);
    for (uint32_t key = 200; key < 204; key++) touch(&c, key);
    for (uint32_t key = 100; key < 104; key++) assert_false(has(&c, key));
    for (uint32_t key = 200; key < 204; key++)
        for (int n = 0; n < 15; n++) touch(&c, key);
    policy_on_turn(c.policy);
    for (uint32_t key = 120; key < 124; key++) touch(&c, key);
    unsigned kept = 0;
    for (uint32_t key = 200; key < 204; key++) kept += has(&c, key);
    assert_int_equal(kept, 4);
    cache_close(&c);
}

static void pins_stay(void **state)
{
    (void)state;
    struct cache c;
    cache_open(&c, "pins", 8);
    for (uint32_t key = 0; key < 3; key++) policy_pin(c.policy, key);
    for (uint32_t key = 0; key < 3; key++) touch(&c, key);
    for (uint32_t key = 10; key < 200; key++) touch(&c, key);
    for (uint32_t key = 0; key < 3; key++) assert_true(has(&c, key));
    cache_close(&c);
    cache_open(&c, "pins", 2); /* when everything is pinned, somebody goes all the same */
    for (uint32_t key = 0; key < 3; key++) policy_pin(c.policy, key);
    for (uint32_t key = 0; key < 3; key++) touch(&c, key);
    assert_int_equal(c.n, 2);
    cache_close(&c);
}

static void every_policy_survives_everything(void **state)
{
    (void)state;
    for (size_t i = 0; i < policy_count(); i++) {
        for (uint32_t n_slots = 1; n_slots <= SLOTS_MAX; n_slots = n_slots * 2 + 1) {
            struct cache c;
            uint64_t random = n_slots;
            cache_open(&c, policy_kind_at(i).name, n_slots);
            assert_true(policy_kind_at(i).summary[0]);
            for (int n = 0; n < 3000; n++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                uint32_t a = (uint32_t)(random >> 40) % (LAYERS * EXPERTS),
                         b = (uint32_t)(random >> 20) % (LAYERS * EXPERTS);
                touch(&c, a < b ? a : b);
                if (n % 97 == 0) policy_on_turn(c.policy);
                if (n == 1500) policy_seed(c.policy, a, UINT32_MAX);
            }
            assert_int_equal(c.hits + c.misses, 3000);
            assert_int_equal(c.n, n_slots);
            cache_close(&c);
        }
    }
    struct alloc alloc = {0};
    struct err err = {0};
    struct policy *policy;
    struct policy_shape shape = {1, 1, 1};
    assert_false(policy_new(&policy, &alloc, "mru", &shape, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_non_null(strstr(err.text, "layer-lru"));
    for (uint64_t k = 1; k <= 3; k++) {
        struct alloc failing = {.fail_at = k};
        assert_false(policy_new(&policy, &failing, "lru", &shape, &err));
        assert_int_equal(failing.live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_gives_up_the_oldest),
        cmocka_unit_test(layer_lru_keeps_every_layer_its_share),
        cmocka_unit_test(a_long_scan_does_not_wash_out_the_favourites),
        cmocka_unit_test(yesterdays_favourites_leave),
        cmocka_unit_test(lfru_swaps_four_at_most_and_only_for_a_clear_gain),
        cmocka_unit_test(pins_stay),
        cmocka_unit_test(every_policy_survives_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
