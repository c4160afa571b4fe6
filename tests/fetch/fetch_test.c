/* Fetching from a hub that misbehaves: whatever it does, the cache ends complete and right, or the error says why. */
#include "fetch/fetch.h"
#include "support/check.h"
#include "support/faulty_write.h"
#include "support/hub_server.h"
#include "support/small_disk.h"
#include "support/temp_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BIG_BYTES = 1500001, SMALL_SEGMENT = 100 << 10, N_FILES = 7, N_WANTED = 5 };

static unsigned char big[BIG_BYTES], config[1777], empty[1];
static struct hub_server server;
static struct temp_folder folder;

/* Two files have one content; the last two are not what weir needs. */
static const struct hub_server_file files[N_FILES] = {
    {.path = "config.json", .data = config, .bytes = sizeof config},
    {.path = "out-00000.safetensors", .data = big, .bytes = sizeof big, .is_large = true},
    {.path = "out-00001.safetensors", .data = big, .bytes = sizeof big, .is_large = true},
    {.path = "out-00002.safetensors", .data = big + 7, .bytes = 300000, .is_large = true},
    {.path = "chat_template.jinja", .data = empty, .bytes = 0},
    {.path = "original/weights of old.bin", .data = big + 9, .bytes = 1000, .is_large = true},
    {.path = "README.md", .data = config, .bytes = 100},
};

static int start(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof big; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        big[i] = (unsigned char)(seed >> 56);
    }
    memcpy(config, big + 77, sizeof config);
    hub_server_start(&server, files, N_FILES);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    hub_server_stop(&server);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    hub_server_reset(&server, N_FILES);
    return 0;
}

static int end(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

/* What the watch saw. */
struct seen {
    uint64_t bytes_missing, bytes, credit;
    uint32_t n_files, n_finished;
    uint64_t done_last;
    uint64_t cancel_at;         /* bytes of the job; 0: never */
    struct faulty_write *fills; /* its disk fills up when something has come */
};

static bool see_plan(void *context, const struct fetch_plan *plan)
{
    struct seen *seen = context;
    seen->bytes = plan->bytes;
    seen->bytes_missing = plan->bytes_missing;
    seen->n_files = plan->n_files;
    for (uint32_t i = 0; i < plan->n_files; i++) seen->credit += plan->files[i].credit;
    return true;
}

static bool see_progress(void *context, const struct fetch_progress *progress)
{
    struct seen *seen = context;
    seen->n_finished += progress->has_finished;
    assert_true(progress->bytes_done <= progress->bytes);
    seen->done_last = progress->bytes_done;
    if (seen->fills && progress->bytes_done > 0) seen->fills->free_bytes = 1;
    return !seen->cancel_at || progress->bytes_done < seen->cancel_at;
}

static struct alloc alloc;
static struct seen seen;

static struct fetch_job job_into(const char *cache)
{
    struct err err = {0};
    seen = (struct seen){0};
    alloc = (struct alloc){0};
    struct fetch_job job = {
        .cache = cache,
        .network = {.endpoint = server.endpoint, .agent = "weir/test", .connect_s_max = 5, .stall_s_max = 5},
        .tuning = fetch_tuning_default(),
        .watch = {.context = &seen, .planned = see_plan, .progress = see_progress},
        .alloc = &alloc,
        .fs = file_system_real(),
        .ws = write_system_real(),
        .clock = clock_real(),
    };
    job.tuning.segment_bytes = SMALL_SEGMENT;
    job.tuning.save_bytes = 64 << 10;
    job.tuning.pause_ns = 1000000;
    job.tuning.pause_ns_max = 4000000;
    job.tuning.reserve_bytes = 1000;
    if (!hub_parse_repo(&job.repo, "org/name", NULL, &err)) fail_msg("%s", err.text);
    return job;
}

static void assert_link_to(const char *path, const struct hub_server_file *file)
{
    char target[256];
    size_t bytes;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) fail_msg("%s: no link", path);
    target[n] = 0;
    assert_true(strncmp(target, "../../blobs/", 12) == 0 || strncmp(target, "../../../blobs/", 15) == 0);
    assert_string_equal(strrchr(target, '/') + 1, file->is_large ? file->sha256 : file->sha1);
    unsigned char *data = take_file(path, &bytes);
    assert_int_equal(bytes, file->bytes);
    if (bytes) assert_memory_equal(data, file->data, bytes);
    free(data);
}

static unsigned count_entries(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Exactly what a clean run leaves: these files, links and reference, and nothing half done beside them. */
static void assert_whole(const char *cache)
{
    char path[600];
    size_t bytes;
    for (unsigned i = 0; i < N_WANTED; i++) {
        snprintf(path, sizeof path, "%s/models--org--name/snapshots/%s/%s", cache, hub_server_commit,
                 server.files[i].path);
        assert_link_to(path, &server.files[i]);
    }
    snprintf(path, sizeof path, "%s/models--org--name/snapshots/%s", cache, hub_server_commit);
    assert_int_equal(count_entries(path), N_WANTED);
    snprintf(path, sizeof path, "%s/models--org--name/blobs", cache);
    assert_int_equal(count_entries(path), N_WANTED - 1);
    snprintf(path, sizeof path, "%s/models--org--name/refs", cache);
    assert_int_equal(count_entries(path), 1);
    snprintf(path, sizeof path, "%s/models--org--name/refs/main", cache);
    unsigned char *ref = take_file(path, &bytes);
    assert_string_equal((char *)ref, hub_server_commit);
    free(ref);
}

static void expect_success(const struct fetch_job *job, struct fetch_result *result)
{
    struct err err = {0};
    if (!fetch_repo(job, result, &err)) fail_msg("%s", err.text);
    assert_int_equal(alloc.live, 0);
    if (!job->only_plan) assert_whole(job->cache);
}

static void expect_failure(const struct fetch_job *job, enum err_kind kind, const char *text)
{
    struct err err = {0};
    struct fetch_result result;
    if (fetch_repo(job, &result, &err)) fail_msg("it succeeded; '%s' was expected", text);
    print_message("%s\n", err.text);
    assert_int_equal(alloc.live, 0);
    assert_non_null(strstr(err.text, text));
    assert_int_equal(err.kind, kind);
    assert_null(strstr(err.text, "hf_secret"));
    assert_null(strstr(err.text, "signature"));
}

static void a_model_is_fetched_once(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "a/b"));
    expect_success(&job, &result);
    assert_int_equal(result.n_files, N_WANTED);
    assert_int_equal(result.bytes, sizeof config + sizeof big + 300000);
    assert_int_equal(result.bytes_fetched, result.bytes);
    assert_int_equal(server.script->bytes_sent, result.bytes); /* the content that two files have came once */
    assert_true(server.script->n_ranges >= sizeof big / SMALL_SEGMENT);
    assert_int_equal(seen.n_finished, N_WANTED - 1);
    assert_int_equal(seen.done_last, result.bytes);

    job = job_into(job.cache);
    expect_success(&job, &result);
    assert_int_equal(result.bytes_fetched, 0);
    assert_int_equal(server.script->n_lists, 2);
    assert_int_equal(server.script->bytes_sent, result.bytes);
}

static void a_plan_writes_nothing(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    job.only_plan = true;
    expect_success(&job, &result);
    assert_int_equal(seen.bytes_missing, sizeof config + sizeof big + 300000);
    assert_int_equal(seen.n_files, N_WANTED);
    assert_int_equal(server.script->n_files, 0);
    assert_int_equal(count_entries(folder.path), 0);
}

static void the_token_stays_at_the_hub(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    snprintf(server.script->token, sizeof server.script->token, "hf_secret");
    server.script->redirects = true;
    expect_failure(&job, ERR_NETWORK, "answers 401; if it is private or gated, set HF_TOKEN");
    job = job_into(job.cache);
    job.network.token = "hf_wrong";
    expect_failure(&job, ERR_NETWORK, "answers 401; the token may lack access");
    job = job_into(job.cache);
    job.network.token = "hf_secret";
    expect_success(&job, &result);
    assert_true(server.script->n_tokens_at_hub > 1);
    assert_true(server.script->n_elsewhere > 1); /* the files did come from there */
    assert_int_equal(server.script->n_tokens_elsewhere, 0);
}

static void selections(void **state)
{
    (void)state;
    struct fetch_result result;
    struct err err = {0};
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    job.only_plan = true;
    job.selection = (struct hub_selection){.include = "*.bin,README*"};
    expect_success(&job, &result);
    assert_int_equal(seen.n_files, 2);
    job = job_into(job.cache);
    job.only_plan = true;
    job.selection = (struct hub_selection){.exclude = "out-*1.safetensors,*.jinja"};
    expect_success(&job, &result);
    assert_int_equal(seen.n_files, 3);
    job = job_into(job.cache);
    job.selection = (struct hub_selection){.include = "*.bin,*.gguf"};
    expect_failure(&job, ERR_USER, "no file of org/name matches '*.gguf'");
    job = job_into(job.cache);
    job.selection = (struct hub_selection){.exclude = "*"};
    expect_failure(&job, ERR_USER, "none of its 7 files is wanted");
    job = job_into(job.cache);
    job.selection = (struct hub_selection){.exclude = "*.safetensors"};
    expect_failure(&job, ERR_USER, "no *.safetensors at its top");

    job = job_into(job.cache); /* a name with blanks, in a folder */
    job.selection = (struct hub_selection){.include = "original/*"};
    if (!fetch_repo(&job, &result, &err)) fail_msg("%s", err.text);
    char path[5000];
    snprintf(path, sizeof path, "%s/original/weights of old.bin", result.path);
    assert_link_to(path, &server.files[5]);
}

static void a_server_without_ranges(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->ignores_ranges = true;
    expect_success(&job, &result);
    assert_int_equal(server.script->n_ranges, 0);

    remove_tree(job.cache);
    hub_server_reset(&server, N_FILES);
    server.script->refuses_ranges = true;
    job = job_into(job.cache);
    expect_success(&job, &result);
}

static void broken_connections(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->cut_after = 30000;
    server.script->n_cuts = 25;
    expect_success(&job, &result);
    assert_int_equal(server.script->n_cuts, 0);
    assert_int_equal(server.script->bytes_sent, result.bytes); /* not a byte came twice */

    remove_tree(job.cache); /* the same without ranges: each time from the beginning, but not for ever */
    hub_server_reset(&server, N_FILES);
    server.script->ignores_ranges = true;
    server.script->cut_after = 200000;
    server.script->n_cuts = 1000;
    job = job_into(job.cache);
    job.tuning.connections = 1;
    job.tuning.failures_max = 3;
    expect_failure(&job, ERR_NETWORK, "4 times in a row; run the same command again to go on");
    assert_true(server.script->n_cuts > 1000 - 8);
}

static void a_stalled_server(void **state)
{
    (void)state;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->stalls = true;
    job.network.stall_s_max = 1;
    job.tuning.failures_max = 0;
    expect_failure(&job, ERR_NETWORK, "1 times in a row");
}

static void refusals_that_pass(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->list_status = 503;
    server.script->n_list_status = 2;
    server.script->file_status = 500;
    server.script->n_file_status = 6;
    expect_success(&job, &result);
    assert_int_equal(server.script->n_lists, 3);

    remove_tree(job.cache);
    hub_server_reset(&server, N_FILES);
    server.script->file_status = 429;
    server.script->n_file_status = 1;
    server.script->retry_after_s = 1;
    job = job_into(job.cache);
    job.tuning.connections = 1;
    int64_t before_ns = clock_now_ns(job.clock);
    expect_success(&job, &result);
    int64_t took_ns = clock_now_ns(job.clock) - before_ns;
    print_message("an answer that asks for a second: %.3f s\n", (double)took_ns / 1e9);
    assert_true(took_ns >= 950000000);

    remove_tree(job.cache);
    hub_server_reset(&server, N_FILES);
    server.script->file_status = 429;
    server.script->n_file_status = 1;
    server.script->retry_after_s = 3600;
    job = job_into(job.cache);
    expect_failure(&job, ERR_NETWORK, "asks to wait for 3600 seconds");
    job = job_into(job.cache);
    expect_success(&job, &result);
}

static void refusals_that_do_not_pass(void **state)
{
    (void)state;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->list_status = 404;
    server.script->n_list_status = 1;
    expect_failure(&job, ERR_NETWORK, "org/name, revision main: the hub at http://127.0.0.1:");
    server.script->list_status = 503;
    server.script->n_list_status = 100;
    job = job_into(job.cache);
    job.tuning.failures_max = 3;
    expect_failure(&job, ERR_NETWORK, "answers 503; run the same command again later");
    assert_int_equal(server.script->n_list_status, 96);
    server.script->n_list_status = 0;
    server.script->file_status = 403;
    server.script->n_file_status = 1;
    job = job_into(job.cache);
    expect_failure(&job, ERR_NETWORK, "answers 403");
    server.script->file_status = 503;
    server.script->n_file_status = 1000;
    job = job_into(job.cache);
    job.tuning.failures_max = 3;
    expect_failure(&job, ERR_NETWORK, "answers 503");
    server.script->n_file_status = 0;
    server.script->redirects_in_circles = true;
    job = job_into(job.cache);
    expect_failure(&job, ERR_NETWORK, "Maximum (10) redirects followed");
    job = job_into(job.cache);
    job.network.endpoint = "http://127.0.0.1:1";
    expect_failure(&job, ERR_NETWORK, "cannot ask the hub at http://127.0.0.1:1: ");
    job = job_into(job.cache);
    job.network.endpoint = "ftp://127.0.0.1";
    expect_failure(&job, ERR_NETWORK, "cannot ask the hub at ftp://127.0.0.1: ");
    /* a secure endpoint is never left for a plain one: here the plain server cannot even be asked */
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "https://127.0.0.1:%u", server.port);
    job = job_into(job.cache);
    job.network.endpoint = endpoint;
    expect_failure(&job, ERR_NETWORK, "cannot ask the hub at https://");
}

static void wrong_bytes(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->n_wrong = 1; /* then it is fetched again */
    expect_success(&job, &result);
    assert_int_equal(server.script->n_wrong, 0);
    assert_true(server.script->bytes_sent > result.bytes);

    remove_tree(job.cache);
    hub_server_reset(&server, N_FILES);
    server.script->n_wrong = 1 << 20;
    job = job_into(job.cache);
    expect_failure(&job, ERR_DATA, "has not the digest");
    char path[600];
    snprintf(path, sizeof path, "%s/models--org--name/refs", job.cache);
    assert_int_equal(count_entries(path), 0); /* nothing pretends to be whole */
    server.script->n_wrong = 0;
    job = job_into(job.cache);
    expect_success(&job, &result);

    remove_tree(job.cache);
    hub_server_reset(&server, N_FILES);
    server.script->lies_about_size = true;
    job = job_into(job.cache);
    expect_failure(&job, ERR_DATA, "the server's file has ");
    server.script->lies_about_size = false;
    server.script->strays = true;
    job = job_into(job.cache);
    job.tuning.failures_max = 2;
    expect_failure(&job, ERR_NETWORK, "the server sent other bytes than it was asked for");
}

/* Every list that could do harm, each with the words that say why. */
static void lists_that_are_refused(void **state)
{
    (void)state;
    static const char sha40[] = "\"blobId\":\"0123456789012345678901234567890123456789\"";
    static const struct {
        const char *path, *rest, *text;
    } cases[] = {
        {"../evil", "size\":1", "'../evil', which could be written outside"},
        {"a/../../evil", "size\":1", "outside of its folder"},
        {"/etc/passwd", "size\":1", "outside of its folder"},
        {"a//b", "size\":1", "outside of its folder"},
        {"a/.", "size\":1", "outside of its folder"},
        {"..", "size\":1", "outside of its folder"},
        {"", "size\":1", "outside of its folder"},
        {"a/", "size\":1", "outside of its folder"},
        {"a\\\\b", "size\":1", "outside of its folder"},
        {"a\\u0000b", "size\":1", "outside of its folder"},
        {"a\\nb", "size\":1", "'a?b'"},
        {"x.safetensors", "size\":-1", "gives no size"},
        {"x.safetensors", "size\":1.5", "gives no size"},
        {"x.safetensors", "size\":\"1\"", "gives no size"},
        {"x.safetensors", "size\":9223372036854775807", "gives no size"},
        {"x.safetensors", "size\":1,\"lfs\":{\"size\":1}", "gives no digest"},
        {"x.safetensors", "size\":1,\"lfs\":{\"size\":1,\"sha256\":\"../../../../evil\"}", "gives no digest"},
        {"x.safetensors", "size\":1,\"lfs\":7", "gives no digest"},
    };
    struct fetch_job job;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(server.script->listing, HUB_LISTING_MAX,
                 "{\"sha\":\"%s\",\"siblings\":[{\"rfilename\":\"%s\",%s,\"%s}]}", hub_server_commit, cases[i].path,
                 sha40, cases[i].rest);
        job = job_into(temp_path(&folder, "hub"));
        expect_failure(&job, ERR_DATA, cases[i].text);
    }
    static const char *const others[] = {"",
                                         "[]",
                                         "{}",
                                         "{\"sha\":\"main\",\"siblings\":[]}",
                                         "<html>",
                                         "{\"sha\":7,\"siblings\":7}",
                                         "{\"sha\":\"0123456789abcdef0123456789abcdef01234567\",\"siblings\":[]}",
                                         "{\"sha\":\"0123456789abcdef0123456789abcdef01234567\",\"siblings\":[7]}",
                                         "{\"sha\":\"0123456789abcdef0123456789abcdef01234567\",\"siblings\":[{}]}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(server.script->listing, HUB_LISTING_MAX, "%s", others[i]);
        job = job_into(temp_path(&folder, "hub"));
        expect_failure(&job, ERR_DATA, "org/name: ");
    }
    snprintf(server.script->listing, HUB_LISTING_MAX,
             "{\"sha\":\"%s\",\"siblings\":[{\"rfilename\":\"a\",%s,\"size\":1},{\"rfilename\":\"a\",%s,\"size\":2}]}",
             hub_server_commit, sha40, sha40);
    job = job_into(temp_path(&folder, "hub"));
    expect_failure(&job, ERR_DATA, "lists 'a' twice");
    assert_int_equal(server.script->n_files, 0);
    assert_int_equal(count_entries(folder.path), 0); /* no list was acted on */
}

static void too_little_room(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    uint64_t need = sizeof config + sizeof big + 300000;
    struct faulty_write faulty = {.free_bytes = need + job.tuning.reserve_bytes - 1};
    job.ws = faulty_write_system(&faulty);
    expect_failure(&job, ERR_FAILED, "make room, or put the cache elsewhere with HF_HUB_CACHE");
    assert_int_equal(server.script->n_files, 0);
    assert_int_equal(count_entries(folder.path), 0);

    job = job_into(job.cache); /* exactly enough at first; then others fill the disk: it stops, and keeps what it has */
    faulty.free_bytes++;
    job.ws = faulty_write_system(&faulty);
    job.tuning.connections = 1;
    seen.fills = &faulty;
    expect_failure(&job, ERR_FAILED, "the disk has filled up");
    assert_true(server.script->bytes_sent > 0);

    job = job_into(job.cache); /* room was made */
    expect_success(&job, &result);
    assert_int_equal(server.script->bytes_sent, need);
    job = job_into(job.cache); /* what is here already needs none */
    job.ws = faulty_write_system(&faulty);
    expect_success(&job, &result);
}

static void a_full_disk_stops_and_goes_on(void **state)
{
    (void)state;
    unsigned n_failed = 0;
    for (uint64_t k = 5; k < 60; k += 6) {
        struct fetch_result result;
        struct err err = {0};
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        struct faulty_write faulty = {.fail_at = k, .error = ENOSPC, .tears = true};
        job.ws = faulty_write_system(&faulty);
        if (!fetch_repo(&job, &result, &err)) {
            n_failed++;
            assert_non_null(strstr(err.text, "No space left on device"));
            assert_non_null(strstr(err.text, "run the same command again"));
        }
        assert_int_equal(alloc.live, 0);
        job = job_into(job.cache);
        expect_success(&job, &result);
        remove_tree(job.cache);
    }
    print_message("%u runs met a full disk\n", n_failed);
    assert_true(n_failed > 5);
}

enum { CHILD_PASSED, CHILD_FAILED, CHILD_SKIPPED };

/* Too small, and it is told so; then told to be large enough, so that it fills up under way. */
static void fill_a_small_disk(const char *cache)
{
    struct fetch_result result;
    struct fetch_job job = job_into(cache);
    struct faulty_write boasts = {.free_bytes = UINT64_C(1) << 40};
    if (!small_disk_mount(cache, 1 << 20)) _exit(CHILD_SKIPPED);
    expect_failure(&job, ERR_FAILED, "make room, or put the cache elsewhere with HF_HUB_CACHE");
    assert_int_equal(count_entries(cache), 0);
    job = job_into(cache);
    job.ws = faulty_write_system(&boasts);
    expect_failure(&job, ERR_IO, "No space left on device; make room on this disk and run the same command again");
    small_disk_resize(cache, 8 << 20);
    job = job_into(cache);
    expect_success(&job, &result);
    assert_true(seen.credit > 0 && seen.bytes_missing < seen.bytes); /* it went on from what had found room */
}

/* The file system itself refuses, where the tests beside this one only say that it does. */
static void a_small_disk_fills_up(void **state)
{
    (void)state;
    int status;
    char cache[300];
    snprintf(cache, sizeof cache, "%s", temp_path(&folder, "small"));
    assert_int_equal(mkdir(cache, 0700), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fill_a_small_disk(cache);
        fflush(NULL);
        _exit(CHILD_PASSED);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_SKIPPED) skip();
    assert_int_equal(WEXITSTATUS(status), CHILD_PASSED);
}

static void every_write_that_fails(void **state)
{
    (void)state;
    unsigned n_failed = 0;
    for (uint64_t k = 1; k < 400; k += k < 30 ? 1 : 17) {
        struct fetch_result result;
        struct err err = {0};
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        struct faulty_write faulty = {.fail_at = k, .stops = k % 2, .loses = k % 4 == 1, .interrupts = k % 3 == 0};
        job.ws = faulty_write_system(&faulty);
        job.tuning.save_bytes = 300 << 10;
        bool ok = fetch_repo(&job, &result, &err);
        if (ok && faulty.calls < k) break;
        n_failed += !ok;
        assert_int_equal(alloc.live, 0);
        hub_server_reset(&server, N_FILES);
        job = job_into(job.cache);
        expect_success(&job, &result);
        /* What was saved is durable, also when the power went: not a byte that was credited came again. */
        assert_int_equal(server.script->bytes_sent, seen.bytes_missing);
        remove_tree(job.cache);
    }
    print_message("%u writes failed\n", n_failed);
    assert_true(n_failed > 30);
}

static void every_allocation_that_fails(void **state)
{
    (void)state;
    uint64_t k = 1;
    for (;; k++) {
        struct fetch_result result;
        struct err err = {0};
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        job.tuning.segment_bytes = 1 << 20;
        job.tuning.save_bytes = 1 << 30;
        job.selection.exclude = "out-0000[01]*";
        alloc.fail_at = k;
        bool ok = fetch_repo(&job, &result, &err);
        assert_int_equal(alloc.live, 0);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok && alloc.calls < k) break;
        remove_tree(job.cache);
    }
    print_message("%" PRIu64 " allocations\n", k - 1);
    assert_true(k > 30);
}

static void cancelled_and_gone_on_with(void **state)
{
    (void)state;
    struct fetch_result result;
    uint64_t here = 0;
    for (uint64_t at = 1000; at < 1700000; at += 150000) {
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        struct err err = {0};
        seen.cancel_at = at;
        if (fetch_repo(&job, &result, &err)) break; /* the last bytes came before anybody was asked again */
        assert_int_equal(err.kind, ERR_CANCELLED);
        assert_true(seen.bytes - seen.bytes_missing >= here); /* what was here when it was stopped is here still */
        here = seen.done_last;
    }
    hub_server_reset(&server, N_FILES);
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    expect_success(&job, &result);
    assert_true(seen.bytes - seen.bytes_missing >= here);
    assert_int_equal(server.script->bytes_sent, seen.bytes_missing);
}

/* The child is killed when the server has sent a chosen number of bytes; the next run goes on. */
static void killed_anywhere(void **state)
{
    (void)state;
    uint64_t seed = 20260101, total = sizeof config + sizeof big + 300000;
    unsigned n_killed = 0, n_credited = 0;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < 12; round++) {
        const char *cache = temp_path(&folder, "hub");
        for (int again = 0; again < 3; again++) {
            hub_server_reset(&server, N_FILES);
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            server.script->kill_at = 1 + (seed >> 33) % total;
            server.script->pause_us = 100;
            struct fetch_job job = job_into(cache);
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                struct fetch_result result;
                struct err err = {0};
                server.script->victim = getpid();
                job.watch = (struct fetch_watch){0};
                _exit(fetch_repo(&job, &result, &err) ? 0 : 1);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
            n_killed += WIFSIGNALED(status);
        }
        hub_server_reset(&server, N_FILES);
        struct fetch_result result;
        struct fetch_job job = job_into(cache);
        expect_success(&job, &result);
        n_credited += seen.credit > sizeof config;
        assert_int_equal(server.script->bytes_sent, seen.bytes_missing); /* what was credited did not come again */
        remove_tree(cache);
    }
    print_message("%u runs were killed; %u of 12 last runs went on with something\n", n_killed, n_credited);
    assert_true(n_killed >= 20);
    assert_true(n_credited >= 6);
}

static void two_at_once(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    pid_t children[3];
    server.script->pause_us = 300;
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            struct err err = {0};
            job.watch = (struct fetch_watch){0};
            bool ok = fetch_repo(&job, &result, &err);
            if (!ok) fprintf(stderr, "%s\n", err.text);
            _exit(!ok);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_whole(job.cache);
    assert_int_equal(server.script->bytes_sent, sizeof config + sizeof big + 300000); /* each byte once, for all */
}

static void a_lock_that_never_ends(void **state)
{
    (void)state;
    struct fetch_result result;
    struct err err = {0};
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    char path[600];
    job.selection.exclude = "out-0000[012]*,chat*";
    job.selection.include = "config.json";
    if (!fetch_repo(&job, &result, &err)) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/.locks/models--org--name/%s.lock", job.cache, server.files[1].sha256);
    int lock = open(path, O_RDWR | O_CREAT, 0666);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    job = job_into(job.cache);
    job.tuning.lock_ns_max = 300000000;
    expect_failure(&job, ERR_BUSY, "another process holds this lock");
    close(lock);
    job = job_into(job.cache);
    expect_success(&job, &result);
}

static void what_another_client_left(void **state)
{
    (void)state;
    struct fetch_result result;
    char path[600];
    for (int is_wrong = 0; is_wrong < 2; is_wrong++) {
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        hub_server_reset(&server, N_FILES);
        snprintf(path, sizeof path, "%s/models--org--name/blobs", job.cache);
        struct err err = {0};
        if (!folder_make(&alloc, job.ws, path, &err)) fail_msg("%s", err.text);
        snprintf(path, sizeof path, "%s/models--org--name/blobs/%s.incomplete", job.cache, server.files[1].sha256);
        put_file(path, big + is_wrong, 700000);
        expect_success(&job, &result);
        assert_int_equal(seen.credit, 2 * 700000); /* the content of two files */
        if (!is_wrong) assert_int_equal(server.script->bytes_sent, result.bytes - 700000);
        remove_tree(job.cache);
    }
}

/* Whatever lies beside a partial file, it is either right or not believed. */
static void damaged_state(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "x",
                                        "weir-partial 1 1500001 102400\n",
                                        "weir-partial 1 1500001 0\nend\n",
                                        "weir-partial 1 1500001 102400\n0 102401\nend\n",
                                        "weir-partial 1 1500001 102400\n0 102400\n0 1\nend\n",
                                        "weir-partial 1 1500001 102400\n99 1\nend\n",
                                        "weir-partial 1 1500000 102400\n0 1\nend\n",
                                        "weir-partial 1 1500001 102400\n-1 1\nend\n",
                                        "weir-partial 1 1500001 1\n0 1\nend\n",
                                        "weir-partial 1 1500001 102400\n14 10\nend\n",
                                        "weir-partial 1 1500001 102400\n0 102400\nend\nmore"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct fetch_result result;
        struct err err = {0};
        char path[600];
        struct fetch_job job = job_into(temp_path(&folder, "hub"));
        snprintf(path, sizeof path, "%s/models--org--name/blobs", job.cache);
        if (!folder_make(&alloc, job.ws, path, &err)) fail_msg("%s", err.text);
        snprintf(path, sizeof path, "%s/models--org--name/blobs/%s.weir.incomplete", job.cache, server.files[1].sha256);
        put_file(path, big + 1, 200000); /* wrong bytes: believed, they would cost a second transfer */
        snprintf(path, sizeof path, "%s/models--org--name/blobs/%s.weir.segments", job.cache, server.files[1].sha256);
        put_file(path, texts[i], strlen(texts[i]));
        expect_success(&job, &result);
        assert_int_equal(seen.credit, 0);
        remove_tree(job.cache);
    }
}

static void a_damaged_blob_is_replaced(void **state)
{
    (void)state;
    struct fetch_result result;
    char path[600];
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    expect_success(&job, &result);
    snprintf(path, sizeof path, "%s/models--org--name/blobs/%s", job.cache, server.files[3].sha256);
    assert_int_equal(truncate(path, 299999), 0);
    job = job_into(job.cache);
    expect_success(&job, &result);
    assert_int_equal(result.bytes_fetched, 300000);
}

static void another_revision(void **state)
{
    (void)state;
    struct fetch_result result;
    struct err err = {0};
    static const char second[] = "ffffffffffffffffffffffffffffffffffffffff";
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    server.script->pause_us = 300;
    seen.cancel_at = 500000; /* the first revision stays unfinished */
    if (fetch_repo(&job, &result, &err)) fail_msg("it was to be interrupted");
    hub_server_reset(&server, N_FILES);
    memcpy(strstr(server.script->listing, hub_server_commit), second, 40);
    char *changed = strstr(server.script->listing, server.files[3].sha256); /* this file has other bytes now */
    memcpy(changed, server.files[5].sha256, 64);
    memcpy(strstr(changed, "300000"), "1000  ", 6);
    job = job_into(job.cache);
    job.selection.include = "config.json,out-0000[01]*";
    if (!fetch_repo(&job, &result, &err)) fail_msg("%s", err.text);
    assert_string_equal(result.commit, second);
    assert_true(strstr(result.path, second) != NULL);

    hub_server_reset(&server, N_FILES); /* and back, which costs only what is missing */
    job = job_into(job.cache);
    if (!fetch_repo(&job, &result, &err)) fail_msg("%s", err.text);
    assert_string_equal(result.commit, hub_server_commit);
    assert_true(result.bytes_fetched <= 300000);

    hub_server_reset(&server, N_FILES); /* a commit by its own name has no reference */
    job = job_into(job.cache);
    if (!hub_parse_repo(&job.repo, "org/name", hub_server_commit, &err)) fail_msg("%s", err.text);
    if (!fetch_repo(&job, &result, &err)) fail_msg("%s", err.text);
    char path[600];
    snprintf(path, sizeof path, "%s/models--org--name/refs", job.cache);
    assert_int_equal(count_entries(path), 1);
}

static void offline(void **state)
{
    (void)state;
    struct fetch_result result;
    struct fetch_job job = job_into(temp_path(&folder, "hub"));
    job.network.is_offline = true;
    expect_failure(&job, ERR_NETWORK, "not in the cache");
    job = job_into(job.cache);
    expect_success(&job, &result);
    hub_server_reset(&server, N_FILES);
    job = job_into(job.cache);
    job.network.is_offline = true;
    expect_success(&job, &result);
    assert_true(result.was_offline);
    assert_string_equal(result.commit, hub_server_commit);
    assert_int_equal(server.script->n_lists, 0);
    job.repo.revision[0] = 'x';
    expect_failure(&job, ERR_NETWORK, "HF_HUB_OFFLINE");
}

static void names(void **state)
{
    (void)state;
    struct hub_repo repo;
    struct err err = {0};
    static const char *const good[] = {"org/name", "name", "a.b/c_d-e", "org/name@v1.0", "org/name@refs/pr/1"};
    static const char *const bad[] = {"",       "/",        "a/",      "/a",        "a/b/c",    "..",
                                      "a/..",   "../a",     "a--b/c",  "-a/b",      ".a/b",     "a b/c",
                                      "a/b@",   "a/b@../x", "a/b@/x",  "a/b@x/",    "a/b@x//y", "a/b@.x",
                                      "a/b@-x", "a/b@x/.y", "a/b@x y", "https://x", "a/b@x\ny"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hub_parse_repo(&repo, good[i], NULL, &err)) fail_msg("%s", err.text);
    assert_string_equal(repo.revision, "refs/pr/1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        print_message("'%s'\n", bad[i]);
        assert_false(hub_parse_repo(&repo, bad[i], NULL, &err));
        assert_int_equal(err.kind, ERR_USER);
    }
    assert_false(hub_parse_repo(&repo, "a/b@x", "y", &err));
    struct alloc memory = {0};
    struct buf url;
    buf_init(&url, &memory, 1000);
    assert_true(hub_parse_repo(&repo, "org/name@refs/pr/1", NULL, &err));
    assert_true(hub_listing_url(&url, "https://hub/", &repo, &err));
    assert_string_equal(url.data, "https://hub/api/models/org/name/revision/refs%2Fpr%2F1?blobs=true");
    assert_true(hub_file_url(&url, "https://hub", "org/name", hub_server_commit, "a b/c?d#e%.x", &err));
    assert_non_null(strstr(url.data, "/a%20b/c%3Fd%23e%25.x"));
    buf_fini(&url);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names),
        TEST(a_model_is_fetched_once),
        TEST(a_plan_writes_nothing),
        TEST(the_token_stays_at_the_hub),
        TEST(selections),
        TEST(a_server_without_ranges),
        TEST(broken_connections),
        TEST(a_stalled_server),
        TEST(refusals_that_pass),
        TEST(refusals_that_do_not_pass),
        TEST(wrong_bytes),
        TEST(lists_that_are_refused),
        TEST(too_little_room),
        TEST(a_full_disk_stops_and_goes_on),
        TEST(a_small_disk_fills_up),
        TEST(every_write_that_fails),
        TEST(every_allocation_that_fails),
        TEST(cancelled_and_gone_on_with),
        TEST(killed_anywhere),
        TEST(two_at_once),
        TEST(a_lock_that_never_ends),
        TEST(what_another_client_left),
        TEST(damaged_state),
        TEST(a_damaged_blob_is_replaced),
        TEST(another_revision),
        TEST(offline),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
