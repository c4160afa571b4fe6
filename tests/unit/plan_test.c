/* The plan of the full model against figures known from its specification, and of small ones against what is used. */
#include "resid/plan.h"
#include "model/forward.h"
#include "kern/kern.h"
#include "support/check.h"
#include "support/full_headers.h"
#include "support/temp_folder.h"

#include <stdlib.h>
#include <time.h>

#define GIB (UINT64_C(1) << 30)

static struct full_headers full;

static struct plan_request usual(uint64_t budget_bytes)
{
    return (struct plan_request){
        .budget_bytes = budget_bytes,
        .context_tokens = 4096,
        .n_sequences = 1,
        .n_drafts = 3,
        .n_threads = 8,
        .spine = {.with_dsa = true, .with_mtp = true},
        .prompt_cache_bytes = PLAN_AUTO,
        .tokenizer_bytes = PLAN_AUTO,
        .requests_max = 512,
        .embedding_rows_kept = 64,
        .disk_bytes_per_s = 5000000000,
    };
}

static const struct plan_item *item(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->n_items; i++)
        if (strcmp(plan->items[i].name, name) == 0) return &plan->items[i];
    return NULL;
}

static void show(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n_items; i++)
        printf("  %-18s %14llu  %s\n", plan->items[i].name, (unsigned long long)plan->items[i].bytes,
               plan->items[i].derivation);
    printf("  %-18s %14llu of %llu (%s)\n", "together", (unsigned long long)plan->used_bytes,
           (unsigned long long)plan->budget_bytes, plan->budget_source);
    printf("  %.3f to %.3f tokens/s: %s\n", plan->rate_low, plan->rate_high, plan->rate_derivation);
}

static void check_sums(const struct plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) sum += plan->items[i].bytes;
    assert_int_equal(sum, plan->used_bytes);
    assert_true(plan->used_bytes <= plan->budget_bytes);
}

static int open_full(void **state)
{
    (void)state;
    full_headers_make(&full);
    return 0;
}

static int close_full(void **state)
{
    (void)state;
    full_headers_free(&full);
    return 0;
}

static void twenty_five_gib(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan;
    struct err err = {0};
    struct plan_request want = usual(25 * GIB);
    clock_t begin = clock();
    if (!plan_make(&plan, &alloc, &full.inventory, &want, &err)) fail_msg("%s", err.text);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    show(&plan);
    check_sums(&plan);
    printf("  made in %.3f s\n", seconds);
    assert_true(seconds < 1.0);
    assert_int_equal(full.catalogue.n_tensors, 118646);
    assert_int_equal(item(&plan, "spine")->bytes, UINT64_C(10592313856) - 951582720 - 619520); /* no embedding */
    assert_int_equal(item(&plan, "MTP layer")->bytes, 284972288);
    assert_int_equal(item(&plan, "indexers")->bytes, 197183616);
    assert_true(item(&plan, "sequence state")->bytes >= UINT64_C(4096) * (179712 + 2304 + 10752));
    assert_int_equal(plan.classes.n, 2);
    assert_int_equal(plan.classes.of[0].n_experts, 19200);
    assert_int_equal(plan.classes.of[0].weight_bytes, UINT64_C(363174297600));
    assert_int_equal(plan.classes.of[1].n_experts, 256);
    assert_int_equal(plan.classes.of[1].weight_bytes, UINT64_C(9674162176));
    assert_true(plan.classes.of[0].slot_bytes < 18915328 + 5 * 4096);
    assert_int_equal(plan.token_bytes, UINT64_C(11349196800));
    assert_true(plan.n_slots_total >= 700);
    assert_true(plan.n_slots[1] >= 1);
    assert_false(plan.is_thin);
    assert_true(plan.rate_low > 5e9 / 11349196800.0);
    assert_true(plan.rate_low < plan.rate_high);
    assert_true(plan.rate_high < 1.0);
    assert_int_equal(alloc.live, 0);
}

static unsigned long long megabytes(const struct plan *plan, const char *a, const char *b)
{
    return (item(plan, a)->bytes + (b ? item(plan, b)->bytes : 0) + 500000) / 1000000;
}

static void expect_in(const char *path, const char *words)
{
    size_t bytes;
    unsigned char *text = take_file(path, &bytes);
    bool is_there = strstr((const char *)text, words);
    free(text);
    if (!is_there) fail_msg("%s does not say: %s", path, words);
}

/* What people decide by before they fetch 357 GiB. */
static void the_documents_say_the_same(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan;
    struct err err = {0};
    char text[400];
    struct plan_request want = usual(25 * GIB);
    if (!plan_make(&plan, &alloc, &full.inventory, &want, &err)) fail_msg("%s", err.text);
    const struct {
        const char *line, *a, *b;
    } lines[] = {
        {"spine", "spine", NULL},
        {"MTP layer, indexers", "MTP layer", "indexers"},
        {"sequence state", "sequence state", NULL},
        {"scratch of a pass", "scratch of a pass", NULL},
        {"prompt cache, safety", "prompt cache", "safety"},
        {"expert slots", "expert slots", NULL},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "| %s | %llu | ", lines[i].line, megabytes(&plan, lines[i].a, lines[i].b));
        expect_in("docs/memory.md", text);
    }
    snprintf(text, sizeof text, "what remains: %u experts |", (unsigned)plan.n_slots_total);
    expect_in("docs/memory.md", text);
    snprintf(text, sizeof text, "there is room for %u of 19 456 experts. The plan predicts that %.1f to %.1f %% of",
             (unsigned)plan.n_slots_total, 100 * plan.hits_low, 100 * plan.hits_high);
    expect_in("docs/quickstart.md", text);
    snprintf(text, sizeof text, "which is %.2f to %.2f tokens a second", plan.rate_low, plan.rate_high);
    expect_in("docs/quickstart.md", text);
    want = usual(10 * GIB);
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    snprintf(text, sizeof text, "about %.*s GiB is the least", 4, strstr(err.text, "needs at least ") + 15);
    expect_in("docs/memory.md", text);
    assert_int_equal(alloc.live, 0);
}

static void sixteen_gib_fits_and_ten_does_not(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan;
    struct err err = {0};
    struct plan_request want = usual(16 * GIB);
    if (!plan_make(&plan, &alloc, &full.inventory, &want, &err)) fail_msg("%s", err.text);
    show(&plan);
    check_sums(&plan);
    assert_true(plan.n_slots_total >= 100);

    uint32_t last = 0;
    for (uint64_t tenths = 90; tenths < 400; tenths += 7) { /* more memory is never fewer slots */
        want = usual(tenths * GIB / 10);
        if (!plan_make(&plan, &alloc, &full.inventory, &want, &err)) {
            assert_int_equal(err.kind, ERR_FIT);
            assert_int_equal(last, 0);
            assert_true(plan.n_items > 8); /* the lines are there for showing */
            continue;
        }
        check_sums(&plan);
        assert_true(plan.n_slots_total >= last);
        last = plan.n_slots_total;
    }
    want = usual(10 * GIB);
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    printf("  %s\n", err.text);
    assert_non_null(strstr(err.text, "--ram-budget"));
    assert_int_equal(alloc.live, 0);
}

/* What a refusal recommends is true: it fits, and a little less does not. */
static void a_refusal_tells_what_would_fit(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan;
    struct err err = {0};
    struct plan_request want = usual(12 * GIB);
    want.context_tokens = 65536;
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    printf("  %s\n", err.text);
    const char *budget = strstr(err.text, "--ram-budget "), *context = strstr(err.text, "--context-length ");
    assert_non_null(budget);
    assert_non_null(context);
    unsigned whole, tenth, tokens;
    assert_int_equal(sscanf(budget, "--ram-budget %u.%uGiB", &whole, &tenth), 2);
    assert_int_equal(sscanf(context, "--context-length %u", &tokens), 1);

    want.budget_bytes = (whole * UINT64_C(10) + tenth) * GIB / 10;
    assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    want.budget_bytes -= GIB / 5;
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    want.budget_bytes = 12 * GIB;
    want.context_tokens = tokens;
    assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    want.context_tokens = tokens + 2 * 64;
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
}

static void the_machine_decides_when_nobody_else_does(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan;
    struct err err = {0};
    struct memory_facts facts = {0};
    struct plan_request want = usual(PLAN_AUTO);
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    assert_int_equal(err.kind, ERR_USER);
    want.facts = &facts;
    snprintf(facts.physical.source, sizeof facts.physical.source, "/proc/meminfo cannot be read");
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    printf("  %s\n", err.text);
    assert_non_null(strstr(err.text, "meminfo"));
    facts.physical = (struct memory_fact){.state = FACT_KNOWN, .bytes = 64 * GIB, .source = "all"};
    facts.cgroup = (struct memory_fact){.state = FACT_KNOWN, .bytes = 24 * GIB, .source = "the group"};
    assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    assert_true(plan.budget_bytes < 24 * GIB);
    assert_non_null(strstr(plan.budget_source, "the group"));
    want.budget_bytes = 25 * GIB; /* more than there is */
    assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    assert_int_equal(err.kind, ERR_FIT);
    assert_non_null(strstr(err.text, "the group"));
}

/* Sums that wrap are smaller than the budget. */
static void a_prompt_cache_is_inside_the_budget(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX - 1, UINT64_MAX - 12 * GIB, UINT64_MAX / 2, 25 * GIB + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct alloc alloc = {0};
        struct plan plan;
        struct err err = {0};
        struct plan_request want = usual(25 * GIB);
        want.prompt_cache_bytes = sizes[i];
        print_message("%llu\n", (unsigned long long)sizes[i]);
        assert_false(plan_make(&plan, &alloc, &full.inventory, &want, &err));
        assert_int_equal(err.kind, ERR_FIT);
        assert_non_null(strstr(err.text, "use a smaller --prompt-cache"));
        assert_int_equal(alloc.live, 0);
    }
}

static void options_change_their_lines(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct plan plan, other;
    struct err err = {0};
    struct plan_request want = usual(25 * GIB);
    assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    want.spine.with_mtp = false;
    assert_true(plan_make(&other, &alloc, &full.inventory, &want, &err));
    assert_null(item(&other, "MTP layer"));
    assert_int_equal(other.classes.n, 1);
    assert_true(other.n_slots_total > plan.n_slots_total);
    want = usual(25 * GIB);
    want.slots_max = 50;
    assert_true(plan_make(&other, &alloc, &full.inventory, &want, &err));
    assert_true(other.n_slots_total <= 51);
    assert_true(other.n_slots_total >= 49);
    want.slots_max = 5;
    assert_true(plan_make(&other, &alloc, &full.inventory, &want, &err));
    assert_true(other.is_thin);
    want = usual(25 * GIB);
    want.prefill_chunk = 2048;
    assert_true(plan_make(&other, &alloc, &full.inventory, &want, &err));
    assert_int_equal(other.prefill_chunk, 2048);
    want.n_sequences = 8;
    assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
    assert_true(item(&plan, "sequence state")->bytes == 8 * item(&other, "sequence state")->bytes);
}

/* The line for scratch is no less than what a forward pass really takes, and not much more. */
static void scratch_is_what_is_used(void **state)
{
    (void)state;
    static const uint32_t rows[KV_STORAGES] = {1, 16, 300}; /* one for each storage of state */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct alloc alloc = {0};
        struct plan plan;
        struct err err = {0};
        struct team *team;
        struct kern kern;
        struct forward *forward;
        struct spine spine = {.has_dsa = true, .has_mtp = true};
        struct weights weights = {.spine = &spine};
        struct plan_request want = usual(25 * GIB);
        want.prefill_chunk = rows[i];
        want.n_threads = 2;
        want.kv_storage = (enum kv_storage)i;
        assert_true(plan_make(&plan, &alloc, &full.inventory, &want, &err));
        kern_select(&kern, 0);
        assert_true(team_new(&team, &alloc, 2, &err));
        struct forward_options options = {.kv_storage = want.kv_storage,
                                          .rows_max = plan.pass_rows,
                                          .logit_rows_max = plan.logit_rows,
                                          .positions_max = want.context_tokens};
        assert_true(forward_new(&forward, &alloc, &full.config, &weights, &kern, team, &options, &err));
        uint64_t used = alloc.live_bytes;
        uint64_t planned =
            item(&plan, "scratch of a pass")->bytes + item(&plan, "logits")->bytes + item(&plan, "threads")->bytes;
        printf("  %u rows: %llu planned, %llu used\n", rows[i], (unsigned long long)planned, (unsigned long long)used);
        assert_true(used <= planned);
        assert_true(planned < used + used / 10 + 4 * 1024 * 1024);
        forward_free(forward);
        team_free(team);
        assert_int_equal(alloc.live, 0);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct plan plan;
        struct err err = {0};
        struct plan_request want = usual(25 * GIB);
        bool ok = plan_make(&plan, &alloc, &full.inventory, &want, &err);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_five_gib),
        cmocka_unit_test(the_documents_say_the_same),
        cmocka_unit_test(sixteen_gib_fits_and_ten_does_not),
        cmocka_unit_test(a_refusal_tells_what_would_fit),
        cmocka_unit_test(the_machine_decides_when_nobody_else_does),
        cmocka_unit_test(a_prompt_cache_is_inside_the_budget),
        cmocka_unit_test(options_change_their_lines),
        cmocka_unit_test(scratch_is_what_is_used),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, open_full, close_full);
}
