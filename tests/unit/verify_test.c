/* A full check finds every kind of damage, names file and tensor, and does not depend on blocks or interruptions. */
#include "run/verify.h"
#include "plat/digest.h"
#include "run/verify_values.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCALES "model.layers.1.mlp.experts.2.up_proj.weight.qs"
#define NORM "model.norm.weight"

static struct temp_folder folder;
static struct made_model model;
static struct alloc alloc;
static struct verify_report report;
static char dir[300], state_folder[300];
static uint64_t cancel_at; /* bytes; 0: never */

static int begin(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    snprintf(dir, sizeof dir, "%s/model", folder.path);
    snprintf(state_folder, sizeof state_folder, "%s/state/weir", folder.path);
    mkdir(dir, 0700);
    made_model_tiny(&model);
    alloc = (struct alloc){0};
    cancel_at = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    verify_report_fini(&report);
    verify_report_fini(&report);
    made_model_fini(&model);
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
    return 0;
}

static bool see_progress(void *context, const struct verify_progress *progress)
{
    (void)context;
    assert_true(progress->bytes_done <= progress->bytes);
    return !cancel_at || progress->bytes_done < cancel_at;
}

static struct verify_job job(void)
{
    return (struct verify_job){.dir = dir,
                               .state_folder = state_folder,
                               .progress = see_progress,
                               .alloc = &alloc,
                               .fs = file_system_real(),
                               .ws = write_system_real(),
                               .clock = clock_real()};
}

static void run(struct verify_job j)
{
    struct err err = {0};
    verify_report_fini(&report);
    if (!verify_folder(&j, &report, &err)) fail_msg("%s", err.text);
}

static void sha256_of(const char *path, char digest[DIGEST_TEXT], size_t *bytes)
{
    struct err err = {0};
    struct digest d;
    unsigned char *data = take_file(path, bytes);
    assert_true(digest_init(&d, &err) && digest_add(&d, data, *bytes, &err) && digest_text(&d, digest, &err));
    digest_fini(&d);
    free(data);
}

/* A conversion record as weir convert writes it, for what lies in the folder now. */
static void put_record(void)
{
    static char text[1 << 14];
    static const char *const names[] = {
        "config.json",           "out-00000.safetensors",     "out-00001.safetensors",    "out-00002.safetensors",
        "out-00003.safetensors", "out-idx-00000.safetensors", "out-mtp-00000.safetensors"};
    size_t used = (size_t)snprintf(text, sizeof text, "{\"format\": \"weir-conversion 1\",\n \"files\": [");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[600], digest[DIGEST_TEXT];
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        sha256_of(path, digest, &bytes);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s{\"name\": \"%s\", \"bytes\": %zu, \"sha256\": \"%s\"}",
                                 i == 1   ? "], \"outputs\": [\n"
                                 : i == 0 ? "\n"
                                          : ",\n",
                                 names[i], bytes, digest);
    }
    used += (size_t)snprintf(text + used, sizeof text - used, "]}\n");
    char path[600];
    snprintf(path, sizeof path, "%s/weir-conversion.json", dir);
    put_file(path, text, used);
}

static const struct verify_file *file_named(const char *name)
{
    for (uint32_t i = 0; i < report.n_files; i++)
        if (strcmp(report.files[i].name, name) == 0) return &report.files[i];
    fail_msg("%s is not in the report", name);
    return NULL;
}

static void expect_problem(const char *file, const char *tensor, const char *text)
{
    const struct verify_file *f = file_named(file);
    for (const struct verify_problem *p = f->problems; p; p = p->next) {
        print_message("%s: %s: %s\n", file, p->tensor, p->text);
        if (strcmp(p->tensor, tensor) == 0 && strstr(p->text, text)) return;
    }
    fail_msg("%s: no problem of '%s' that says '%s'", file, tensor, text);
}

static void flip(const char *name, long offset_from_end)
{
    char path[600];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unsigned char *data = take_file(path, &bytes);
    data[(long)bytes - offset_from_end] ^= 0x10;
    put_file(path, data, bytes);
    free(data);
}

static const char *shard_of(const char *tensor)
{
    return model.shards[made_find(&model, tensor)->shard];
}

static void a_good_model(void **state)
{
    (void)state;
    made_write(&model, dir);
    run(job());
    assert_true(verify_is_clean(&report));
    assert_int_equal(report.n_files, 6);
    assert_int_equal(report.n_sums_right, 0); /* nothing is known, and that is told */
    assert_int_equal(report.files[0].sum, VERIFY_SUM_UNKNOWN);
    assert_int_equal(report.bytes_read, report.bytes);
    put_record();
    run(job());
    assert_true(verify_is_clean(&report));
    assert_int_equal(report.n_files, 7);
    assert_int_equal(report.n_sums_right, 7);
    char path[600];
    snprintf(path, sizeof path, "%s/weir", temp_path(&folder, "state"));
    assert_true(rmdir(path) == 0 || errno == ENOENT); /* nothing is remembered of a clean run */
}

static void one_flipped_bit(void **state)
{
    (void)state;
    made_write(&model, dir);
    put_record();
    flip("out-00001.safetensors", 1000);
    flip("config.json", 1); /* its closing brace */
    run(job());
    assert_int_equal(report.n_bad_files, 2); /* one does not hide the other */
    expect_problem("out-00001.safetensors", "", "its checksum is ");
    expect_problem("config.json", "", "(says weir-conversion.json)");
    assert_int_equal(file_named("out-00001.safetensors")->sum, VERIFY_SUM_WRONG);
    assert_int_equal(report.n_sums_right, 5);
    assert_true(report.model_problem[0] != 0);
}

static void scales_and_values(void **state)
{
    (void)state;
    static const struct {
        const char *tensor;
        float value;
        const char *text;
    } cases[] = {
        {SCALES, 0, "1 of 32 scales are not finite and positive, the first is number 5: 0"},
        {SCALES, -0.0f, "number 5: -0"},
        {SCALES, -1, "number 5: -1"},
        {SCALES, NAN, "number 5: nan"},
        {SCALES, INFINITY, "number 5: inf"},
        {NORM, NAN, "1 of 64 values are not finite, the first is number 5: nan"},
        {NORM, -INFINITY, "number 5: -inf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const uint64_t blocks[] = {0, 1, 3, 7, 64, 4096};
        made_model_fini(&model);
        made_model_tiny(&model);
        made_set_float(made_find(&model, cases[i].tensor), 5, cases[i].value);
        made_write(&model, dir);
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            struct verify_job j = job();
            j.block_bytes = blocks[b];
            run(j);
            assert_int_equal(report.n_bad_files, 1);
            expect_problem(shard_of(cases[i].tensor), cases[i].tensor, cases[i].text);
            assert_int_equal(file_named(shard_of(cases[i].tensor))->n_problems, 1);
        }
    }
    made_set_float(made_find(&model, NORM), 5, -1); /* a value that is no scale may be negative */
    made_write(&model, dir);
    run(job());
    assert_true(verify_is_clean(&report));
}

/* Every dtype whose values can be wrong, against the rule written out. */
static void values_of_every_dtype(void **state)
{
    (void)state;
    static const struct {
        enum dtype dtype;
        const char *name;
        unsigned char bytes[4];
        unsigned n;
        bool is_bad;
    } cases[] = {
        {DTYPE_F16, "x", {0xFF, 0x7B}, 2, false},
        {DTYPE_F16, "x", {0x00, 0x7C}, 2, true},
        {DTYPE_F16, "x", {0x01, 0xFC}, 2, true},
        {DTYPE_BF16, "x", {0x7F, 0x7F}, 2, false},
        {DTYPE_BF16, "x", {0x80, 0x7F}, 2, true},
        {DTYPE_BF16, "x", {0xC0, 0xFF}, 2, true},
        {DTYPE_F8_E4M3, "x", {0x7E}, 1, false},
        {DTYPE_F8_E4M3, "x", {0x7F}, 1, true},
        {DTYPE_F8_E4M3, "x", {0xFF}, 1, true},
        {DTYPE_U8, "x.qs", {0, 0, 0, 0}, 4, false},
        {DTYPE_F16, "x.qs", {0x00, 0x00}, 2, true},
        {DTYPE_F16, "x.qs", {0x01, 0x00}, 2, false},
        {DTYPE_BF16, "x.qs", {0x00, 0x80}, 2, true},
        {DTYPE_F32, "x.weight_scale_inv", {1, 0, 0, 0}, 4, false},
        {DTYPE_F32, "x.weight_scale_inv", {1, 0, 0, 0x80}, 4, true},
        {DTYPE_F32, ".qs", {0, 0, 0, 0}, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tensor tensor = {.name = cases[i].name, .dtype = cases[i].dtype};
        struct verify_values whole, pieces;
        verify_values_begin(&whole, &tensor);
        verify_values_begin(&pieces, &tensor);
        verify_values_add(&whole, cases[i].bytes, cases[i].n);
        for (unsigned k = 0; k < cases[i].n; k++) verify_values_add(&pieces, cases[i].bytes + k, 1);
        print_message("case %zu\n", i);
        assert_int_equal(whole.n_bad, cases[i].is_bad);
        assert_int_equal(pieces.n_bad, cases[i].is_bad);
        assert_int_equal(pieces.n_seen, whole.n_seen);
    }
}

static void damaged_files(void **state)
{
    (void)state;
    char path[600];
    made_write(&model, dir);
    snprintf(path, sizeof path, "%s/out-00002.safetensors", dir);
    assert_int_equal(truncate(path, 2000), 0);
    snprintf(path, sizeof path, "%s/out-mtp-00000.safetensors", dir);
    put_file(path, "x", 1);
    made_set_float(made_find(&model, NORM), 0, 1);
    run(job());
    assert_int_equal(report.n_bad_files, 2);
    expect_problem("out-00002.safetensors", "", "out-00002.safetensors: ");
    expect_problem("out-mtp-00000.safetensors", "", "only 1 bytes, too short");
    assert_true(report.model_problem[0] != 0);

    made_write(&model, dir);
    snprintf(path, sizeof path, "%s/out-00001.safetensors", dir);
    unlink(path);
    run(job());
    assert_int_equal(report.n_bad_files, 0);
    print_message("%s\n", report.model_problem);
    assert_non_null(strstr(report.model_problem, "out-00001")); /* the shard that lacks, not only a tensor */

    made_write(&model, dir);
    put_record();
    unlink(path);
    run(job());
    assert_int_equal(report.n_bad_files, 1);
    expect_problem("out-00001.safetensors", "", "cannot open: No such file");

    made_write(&model, dir);
    snprintf(path, sizeof path, "%s/out-idx-00000.safetensors", dir);
    made_drop(&model, "model.layers.2.self_attn.indexer.wk.weight");
    made_write(&model, dir);
    unlink(temp_path(&folder, "model/weir-conversion.json"));
    run(job());
    assert_int_equal(report.n_bad_files, 0);
    print_message("%s\n", report.model_problem);
    assert_non_null(strstr(report.model_problem, "indexer"));
}

static void folders_that_are_none(void **state)
{
    (void)state;
    struct err err = {0};
    struct verify_job j = job();
    run(j); /* an empty one is no model */
    assert_non_null(strstr(report.model_problem, "config.json"));
    verify_report_fini(&report);
    j.dir = temp_path(&folder, "nowhere");
    assert_false(verify_folder(&j, &report, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "nowhere: "));
    made_write(&model, dir);
    put_file(temp_path(&folder, "model/weir-conversion.json"), "{", 1);
    j = job();
    assert_false(verify_folder(&j, &report, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "weir-conversion.json: byte 1"));
}

/* The k-th call to the system fails: either a file is told to be damaged, or the run says why it could not be done. */
static void reads_that_fail(void **state)
{
    (void)state;
    unsigned n_told = 0;
    made_write(&model, dir);
    for (uint64_t k = 1;; k++) {
        struct faulty_files faulty = {.fail_at = k, .ends_early = k % 2};
        struct verify_job j = job();
        struct err err = {0};
        j.fs = faulty_files_system(&faulty);
        j.state_folder = NULL;
        j.block_bytes = 4096;
        verify_report_fini(&report);
        bool ok = verify_folder(&j, &report, &err);
        assert_int_equal(faulty.n_open, 0);
        if (faulty.calls < k) break;
        if (ok && report.n_bad_files > 0) n_told++;
        if (ok) assert_int_equal(report.n_files, 6); /* the others were looked at all the same */
    }
    print_message("%u failures were told of a file\n", n_told);
    assert_true(n_told > 20);
    struct faulty_files faulty = {.interrupts = true, .read_most = 1000};
    struct verify_job j = job();
    j.fs = faulty_files_system(&faulty);
    run(j);
    assert_true(verify_is_clean(&report));
}

static void a_read_error_names_the_tensor(void **state)
{
    (void)state;
    made_write(&model, dir);
    bool seen = false;
    for (uint64_t k = 1; k < 400 && !seen; k++) {
        struct faulty_files faulty = {.fail_at = k};
        struct verify_job j = job();
        j.fs = faulty_files_system(&faulty);
        j.state_folder = NULL;
        j.block_bytes = 512;
        struct err err = {0};
        verify_report_fini(&report);
        if (!verify_folder(&j, &report, &err)) continue; /* the failure met what the run itself needs */
        for (uint32_t i = 0; i < report.n_files && !seen; i++) {
            const struct verify_problem *p = report.files[i].problems;
            seen = p && strstr(p->tensor, ".mlp.experts.") && strstr(p->text, "Input/output error");
            if (seen) print_message("%s: %s: %s\n", report.files[i].name, p->tensor, p->text);
        }
    }
    assert_true(seen);
}

/* What a report says, as one text. */
static char *text_of_report(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (uint32_t i = 0; i < report.n_files; i++) {
        const struct verify_file *f = &report.files[i];
        fprintf(out, "%s %" PRIu64 " %d %u\n", f->name, f->bytes, (int)f->sum, f->n_problems);
        for (const struct verify_problem *p = f->problems; p; p = p->next) fprintf(out, " %s %s\n", p->tensor, p->text);
    }
    fprintf(out, "%u %u %s\n", report.n_bad_files, report.n_sums_right, report.model_problem);
    fclose(out);
    return text;
}

static void stopped_and_gone_on_with(void **state)
{
    (void)state;
    unsigned n_stopped = 0;
    made_set_float(made_find(&model, SCALES), 3, 0);
    made_write(&model, dir);
    put_record();
    flip("out-00000.safetensors", 1);
    run(job());
    char *want = text_of_report();
    uint64_t bytes = report.bytes, bad_bytes = 0;
    for (uint32_t i = 0; i < report.n_files; i++) bad_bytes += report.files[i].n_problems ? report.files[i].bytes : 0;
    assert_int_equal(report.n_bad_files, 2);
    run(job()); /* behind a run with problems only they are read again */
    char *again = text_of_report();
    assert_string_equal(again, want);
    free(again);
    assert_int_equal(report.bytes_read, bad_bytes);

    for (uint64_t at = 1; at < bytes; at += bytes / 13) {
        remove_tree(state_folder);
        struct verify_job j = job();
        struct err err = {0};
        j.block_bytes = 1024;
        cancel_at = at;
        verify_report_fini(&report);
        bool ok = verify_folder(&j, &report, &err);
        cancel_at = 0;
        if (!ok) {
            n_stopped++;
            assert_int_equal(err.kind, ERR_CANCELLED);
        }
        run(job());
        again = text_of_report();
        assert_string_equal(again, want);
        free(again);
        assert_true(at < bytes / 2 || report.bytes_read < bytes); /* something was not read twice */
    }
    assert_true(n_stopped > 10);
    free(want);

    made_write(&model, dir); /* repaired: the same names and sizes, other files */
    made_set_float(made_find(&model, SCALES), 3, 1);
    made_write(&model, dir);
    put_record();
    run(job());
    assert_true(verify_is_clean(&report));
    assert_int_equal(report.bytes_read, report.bytes); /* all of them are new ones */
}

static void killed_anywhere(void **state)
{
    (void)state;
    unsigned n_killed = 0;
    uint64_t seed = 3;
    made_set_float(made_find(&model, SCALES), 3, 0);
    made_write(&model, dir);
    put_record();
    run(job());
    char *want = text_of_report();
    remove_tree(state_folder);
    print_message("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 20; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct err err = {0};
            struct verify_job j = job();
            j.block_bytes = 256;
            _exit(!verify_folder(&j, &report, &err));
        }
        usleep((unsigned)((seed >> 33) % 6000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        n_killed += WIFSIGNALED(status);
    }
    run(job());
    char *now = text_of_report();
    assert_string_equal(now, want);
    free(now);
    free(want);
    print_message("%u of 20 were killed\n", n_killed);
    assert_true(n_killed > 0);
}

static void a_state_that_is_damaged(void **state)
{
    (void)state;
    char path[700];
    size_t bytes;
    made_write(&model, dir);
    made_set_float(made_find(&model, SCALES), 3, 0);
    made_write(&model, dir);
    run(job());
    char *want = text_of_report();
    struct verify_job j = job();
    path[0] = 0; /* the state's name is the state's affair: it is the only file there */
    DIR *list = opendir(state_folder);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.') snprintf(path, sizeof path, "%s/%s", state_folder, entry->d_name);
    closedir(list);
    unsigned char *data = take_file(path, &bytes);
    for (size_t cut = 0; cut < bytes; cut += 29) {
        put_file(path, data, cut);
        run(j);
        char *now = text_of_report();
        assert_string_equal(now, want);
        free(now);
    }
    free(data);
    free(want);
}

static void blobs_of_a_hub_cache(void **state)
{
    (void)state;
    char digest[DIGEST_TEXT], from[600], to[600], target[200];
    size_t bytes;
    made_write(&model, dir);
    mkdir(temp_path(&folder, "blobs"), 0700);
    snprintf(from, sizeof from, "%s/out-00000.safetensors", dir);
    sha256_of(from, digest, &bytes);
    snprintf(to, sizeof to, "%s/blobs/%s", folder.path, digest);
    assert_int_equal(rename(from, to), 0);
    snprintf(target, sizeof target, "../blobs/%s", digest);
    assert_int_equal(symlink(target, from), 0);
    put_file(temp_path(&folder, "blobs/ce013625030ba8dba906f756967f9e9ca394464a"), "hello\n", 6);
    assert_int_equal(symlink("../blobs/ce013625030ba8dba906f756967f9e9ca394464a", temp_path(&folder, "model/hello")),
                     0);
    run(job());
    assert_true(verify_is_clean(&report));
    assert_int_equal(report.n_sums_right, 2);
    put_file(temp_path(&folder, "blobs/ce013625030ba8dba906f756967f9e9ca394464a"), "hellO\n", 6);
    run(job());
    expect_problem("hello", "", "(says its name in the hub cache)");
}

static void memory_runs_out(void **state)
{
    (void)state;
    uint64_t k = 1;
    made_set_float(made_find(&model, SCALES), 3, 0);
    made_write(&model, dir);
    put_record();
    for (;; k += k < 60 ? 1 : 1 + k / 20) {
        struct verify_job j = job();
        struct err err = {0};
        remove_tree(state_folder);
        verify_report_fini(&report);
        alloc = (struct alloc){.fail_at = k};
        bool ok = verify_folder(&j, &report, &err);
        if (!ok) {
            assert_int_equal(err.kind, ERR_NOMEM);
            assert_int_equal(alloc.live, 0);
        }
        if (ok && alloc.calls < k) break;
    }
    print_message("%" PRIu64 " allocations\n", k);
    assert_true(k > 60);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_good_model),
        TEST(one_flipped_bit),
        TEST(scales_and_values),
        TEST(values_of_every_dtype),
        TEST(damaged_files),
        TEST(folders_that_are_none),
        TEST(reads_that_fail),
        TEST(a_read_error_names_the_tensor),
        TEST(stopped_and_gone_on_with),
        TEST(killed_anywhere),
        TEST(a_state_that_is_damaged),
        TEST(blobs_of_a_hub_cache),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
