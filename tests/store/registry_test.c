/* The registry keeps what it was told, grows with new versions, and says what is wrong with a file that is not it. */
#include "store/scan.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct temp_folder folder;
static struct alloc alloc;
static struct err err;

static int begin(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    err = (struct err){0};
    return 0;
}

static int end(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    assert_int_equal(alloc.live, 0);
    return 0;
}

static struct registry *open_it(void)
{
    struct registry *registry;
    if (!registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), true, &err)) fail_msg("%s", err.text);
    return registry;
}

static struct registry_model model_at(const char *path)
{
    return (struct registry_model){.path = path,
                                   .name = "org/na'me",
                                   .revision = "abc",
                                   .is_current = true,
                                   .bytes = UINT64_C(383700000000),
                                   .formats = "int4-row, f32",
                                   .has_mtp = true,
                                   .identity = "00ff"};
}

static bool see_one(void *context, const struct registry_model *m)
{
    ++*(int *)context;
    assert_string_equal(m->name, "org/na'me");
    assert_string_equal(m->revision, "abc");
    assert_string_equal(m->formats, "int4-row, f32");
    assert_string_equal(m->identity, "00ff");
    assert_true(m->is_current && m->has_mtp && !m->has_dsa);
    assert_true(m->bytes == UINT64_C(383700000000));
    return true;
}

static int count(struct registry *registry)
{
    int n = 0;
    if (!registry_each(registry, see_one, &n, &err)) fail_msg("%s", err.text);
    return n;
}

static void models_come_and_go(void **state)
{
    (void)state;
    struct registry *registry = open_it();
    struct registry_model m = model_at("/a");
    bool is_new, was_there;
    assert_true(registry_put(registry, &m, &is_new, &err) && is_new);
    assert_true(registry_put(registry, &m, &is_new, &err) && !is_new);
    m = model_at("/b");
    assert_true(registry_put(registry, &m, &is_new, &err) && is_new);
    assert_int_equal(count(registry), 2);
    registry_close(registry);
    registry = open_it(); /* it lasts */
    assert_int_equal(count(registry), 2);
    assert_true(registry_remove(registry, "/a", &was_there, &err) && was_there);
    assert_true(registry_remove(registry, "/a", &was_there, &err) && !was_there);
    assert_int_equal(count(registry), 1);
    registry_close(registry);
    registry_close(NULL);
}

static bool see_root(void *context, const char *path)
{
    snprintf(context, 32, "%s", path);
    return true;
}

static void roots_are_kept_once(void **state)
{
    (void)state;
    char seen[32] = "";
    struct registry *registry = open_it();
    for (int i = 0; i < 2; i++) assert_true(registry_add_root(registry, "/r", &err));
    assert_true(registry_each_root(registry, see_root, seen, &err));
    assert_string_equal(seen, "/r");
    assert_true(registry_remove_root(registry, "/r", &err));
    seen[0] = 0;
    assert_true(registry_each_root(registry, see_root, seen, &err));
    assert_string_equal(seen, "");
    registry_close(registry);
}

/* Somebody who asks for the whole disk is told, before hours have gone by. */
static void a_scan_has_an_end(void **state)
{
    (void)state;
    char inner[400], text[700];
    struct scan_result result;
    struct registry *registry = open_it();
    snprintf(inner, sizeof inner, "%s", temp_path(&folder, "data/b"));
    assert_int_equal(mkdir(inner, 0700), 0);
    const char *roots[] = {temp_path(&folder, "data")};
    struct scan_job job = {.registry = registry,
                           .roots = roots,
                           .n_roots = 1,
                           .n_folders_max = 2,
                           .alloc = &alloc,
                           .fs = file_system_real()};
    assert_false(scan_all(&job, &result, &err));
    assert_int_equal(err.kind, ERR_USER);
    snprintf(text, sizeof text, "%s/weir: more than 2 folders to look through; scan smaller ones", roots[0]);
    assert_string_equal(err.text, text);
    job.n_folders_max = 3;
    if (!scan_all(&job, &result, &err)) fail_msg("%s", err.text);
    registry_close(registry);
}

/* Somebody makes room by removing shards: the config.json that is left is no model. */
static void a_model_without_its_shards_is_gone(void **state)
{
    (void)state;
    struct scan_result result;
    struct registry *registry = open_it();
    const char *root = temp_path(&folder, "data"), *shard = temp_path(&folder, "data/m/model.safetensors");
    assert_int_equal(mkdir(temp_path(&folder, "data/m"), 0700), 0);
    size_t bytes;
    unsigned char *data = take_file("tests/fixtures/glm52-tiny/mtp/config.json", &bytes);
    put_file(temp_path(&folder, "data/m/config.json"), data, bytes);
    free(data);
    data = take_file("tests/fixtures/glm52-tiny/mtp/model.safetensors", &bytes);
    put_file(shard, data, bytes);
    free(data);
    const struct scan_job job = {
        .registry = registry, .roots = &root, .n_roots = 1, .alloc = &alloc, .fs = file_system_real()};
    for (int i = 0; i < 2; i++) { /* what is there stays */
        if (!scan_all(&job, &result, &err)) fail_msg("%s", err.text);
        assert_int_equal(result.n_models, 1);
        assert_int_equal(result.n_gone, 0);
    }
    assert_int_equal(unlink(shard), 0);
    if (!scan_all(&job, &result, &err)) fail_msg("%s", err.text);
    assert_int_equal(result.n_gone, 1);
    assert_int_equal(result.n_models, 0);
    registry_close(registry);
}

static void none_is_an_empty_one(void **state)
{
    (void)state;
    struct registry *registry;
    assert_true(registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), false, &err));
    assert_null(registry);
    assert_int_equal(count(NULL), 0);
    assert_true(registry_each_root(NULL, see_root, NULL, &err));
    assert_false(file_exists(temp_path(&folder, "data"))); /* looking makes nothing */
}

static void run_sql(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(temp_path(&folder, "data/weir/registry.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void versions(void **state)
{
    (void)state;
    struct registry *registry = open_it();
    registry_close(registry);
    run_sql("PRAGMA user_version = 77");
    assert_false(registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), true, &err));
    print_message("%s\n", err.text);
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "written by a newer weir (version 77"));
    assert_null(registry);
    /* a database that was made and never filled is taken through all steps */
    run_sql("DROP TABLE models; DROP TABLE roots; PRAGMA user_version = 0");
    registry = open_it();
    assert_int_equal(count(registry), 0);
    registry_close(registry);
}

static void what_is_no_database(void **state)
{
    (void)state;
    struct registry *registry = open_it();
    struct registry_model m = model_at("/a");
    bool is_new;
    assert_true(registry_put(registry, &m, &is_new, &err));
    registry_close(registry);
    const char *path = temp_path(&folder, "data/weir/registry.db");
    put_file(path, "this is a text and no database at all, and long enough to be sure of it", 70);
    assert_false(registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), true, &err));
    print_message("%s\n", err.text);
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "remove it and run weir scan"));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), true, &err));
    assert_int_equal(err.kind, ERR_IO);
    put_file(temp_path(&folder, "plain"), "", 0);
    assert_false(registry_open(&registry, &alloc, temp_path(&folder, "plain/weir"), true, &err));
    assert_int_equal(err.kind, ERR_IO);
}

static void several_processes(void **state)
{
    (void)state;
    enum { WRITERS = 4, EACH = 25 };
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        struct registry *registry;
        bool ok = registry_open(&registry, &alloc, temp_path(&folder, "data/weir"), true, &err);
        for (int k = 0; ok && k < EACH; k++) {
            char path[32];
            bool is_new;
            snprintf(path, sizeof path, "/%d/%d", i, k);
            struct registry_model m = model_at(path);
            ok = registry_put(registry, &m, &is_new, &err) && is_new;
        }
        if (!ok) fprintf(stderr, "%s\n", err.text);
        _exit(!ok);
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    struct registry *registry = open_it();
    assert_int_equal(count(registry), WRITERS * EACH);
    registry_close(registry);
}

static void memory_runs_out(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc poor = {.fail_at = k};
        struct registry *registry;
        bool ok = registry_open(&registry, &poor, temp_path(&folder, "data/weir"), true, &err);
        if (ok) registry_close(registry);
        assert_int_equal(poor.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_NOMEM);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(models_come_and_go),   TEST(roots_are_kept_once),
        TEST(a_scan_has_an_end),    TEST(a_model_without_its_shards_is_gone),
        TEST(none_is_an_empty_one), TEST(versions),
        TEST(what_is_no_database),  TEST(several_processes),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
