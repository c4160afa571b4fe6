/* weir get, scan and models as a person meets them: messages, exit codes, what ends up where. */
#include "cli/command_line.h"
#include "support/check.h"
#include "support/plain_hub.h"
#include "support/program.h"
#include "support/temp_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"

static struct temp_folder folder;
static struct plain_hub hub;
static struct program weir;

static int start(void **state)
{
    (void)state;
    plain_hub_start(&hub, 3);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    plain_hub_stop(&hub);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    plain_hub_begin(&hub, &folder, &weir);
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_fini(&weir);
    temp_folder_remove(&folder);
    return 0;
}

static void fetched_and_named(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/.cache/huggingface/hub/models--org--name/snapshots/%s\n", folder.path,
             hub_server_commit);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, path, "org/name, revision main, commit 0123456789ab: 2 files, 1.3 MiB (1 other files");
    program_expect(&weir, 0, "", "model.safetensors: done, 1.3 MiB of 1.3 MiB\n");
    assert_string_equal(weir.out, path); /* the path and nothing else */
    assert_null(strchr(weir.log, '\r')); /* a bar is for a terminal */
    PROGRAM_RUN(&weir, "pull", "org/name@main", "--json");
    program_expect(&weir, 0, "\"bytes_fetched\": 0, ", "0 B to fetch");
    PROGRAM_RUN(&weir, "models");
    program_expect(&weir, 0, "org/name@01234567\n  1.3 MiB, f32, DSA\n  ", "");
    static const char *const words[] = {"org/name", "ORG/Name", "org/name@0123", "name", "g/na", "snapshots"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        PROGRAM_RUN(&weir, "inspect", words[i]);
        program_expect(&weir, 0, "models--org--name", "");
    }
    PROGRAM_RUN(&weir, "inspect", "org/name@9999");
    program_expect(&weir, 2, "", "neither a folder nor part of a known model's name; weir models lists");
    /* the model gives its own first error, so that its folder was found */
    PROGRAM_RUN(&weir, "score", "org/name", "--ids", "1 2 3");
    program_expect(&weir, 0, "perplexity", "");
    PROGRAM_RUN(&weir, "convert", "org/na", path);
    assert_null(strstr(weir.log, "neither a folder"));
}

/* Of bench and trace the model is the second operand, if it is one. */
static void named_behind_another_word(void **state)
{
    (void)state;
    char trace[400];
    snprintf(trace, sizeof trace, "%s/trace", folder.path);
    PROGRAM_RUN(&weir, "get", "org/name");
    PROGRAM_RUN(&weir, "trace", "record", "g/na", trace, "--ids", "1,2,3");
    program_expect(&weir, 0, "1 texts, 3 tokens", "");
    PROGRAM_RUN(&weir, "trace", "compare", trace);
    program_expect(&weir, 0, "layers of passes asked for", "");
    PROGRAM_RUN(&weir, "trace", "record", "nobody", trace, "--ids", "1,2,3");
    program_expect(&weir, 2, "", "'nobody' is neither a folder nor part of a known model's name");
    PROGRAM_RUN(&weir, "trace", "compare", "nobody"); /* a file */
    program_expect(&weir, 4, "", "nobody: cannot open");
    static const char *const parts[] = {"disk", "memory", "engine", "batch", "prefill", "decode", "draft"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        PROGRAM_RUN(&weir, "bench", parts[i], "nobody");
        program_expect(&weir, 2, "", "'nobody' is neither a folder nor part of a known model's name");
    }
    PROGRAM_RUN(&weir, "bench", "kernels", "nobody"); /* part of a kernel's name */
    assert_null(strstr(weir.log, "neither a folder"));
    PROGRAM_RUN(&weir, "bench", "dis", "nobody");
    program_expect(&weir, 2, "", "bench has no part 'dis'; the nearest is 'disk'");
}

static void a_dry_run(void **state)
{
    (void)state;
    PROGRAM_RUN(&weir, "get", "org/name", "--dry-run");
    program_expect(&weir, 0, "missing  model.safetensors\n", "1.3 MiB to fetch");
    PROGRAM_RUN(&weir, "get", "org/name", "--dry-run", "--json", "--include", "*.json,README*", "--exclude", "READ*");
    program_expect(&weir, 0, "\"files\": [{\"path\": \"config.json\", \"bytes\": ", "");
    assert_null(strstr(weir.out, "README"));
    char path[400];
    snprintf(path, sizeof path, "%s/.cache", folder.path);
    assert_false(file_exists(path));
    snprintf(path, sizeof path, "%s/.local", folder.path);
    assert_false(file_exists(path));
}

static void wrong_words(void **state)
{
    (void)state;
    PROGRAM_RUN(&weir, "get");
    program_expect(&weir, 2, "", "get needs REPO");
    PROGRAM_RUN(&weir, "get", "a/b/c");
    program_expect(&weir, 2, "", "'a/b/c' is not the name of a repository, such as org/name or org/name@revision");
    PROGRAM_RUN(&weir, "get", "../a");
    program_expect(&weir, 2, "", "is not the name of a repository");
    PROGRAM_RUN(&weir, "get", "a/b@x", "--revision", "y");
    program_expect(&weir, 2, "", "names a revision and --revision another");
    PROGRAM_RUN(&weir, "get", "a/b", "--revision", "../../x");
    program_expect(&weir, 2, "", "is not a revision");
    PROGRAM_RUN(&weir, "get", "org/name", "--include", "*.gguf");
    program_expect(&weir, 2, "", "no file of org/name matches '*.gguf'");
    PROGRAM_RUN(&weir, "get", "org/name", "--ram-budget", "1G");
    program_expect(&weir, 2, "", "--ram-budget has no effect on get");
    program_set(&weir, "HF_ENDPOINT", "hub.example");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 2, "", "HF_ENDPOINT: 'hub.example' is no address such as https://");
    program_set(&weir, "HOME", "");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 2, "", "neither HOME nor XDG_CACHE_HOME is set");
    PROGRAM_RUN(&weir, "scan");
    program_expect(&weir, 2, "", "neither HOME nor XDG_DATA_HOME is set");
    PROGRAM_RUN(&weir, "models");
    program_expect(&weir, 0, "", "no models are known");
    PROGRAM_RUN(&weir, "inspect", "nobody");
    program_expect(&weir, 2, "", "'nobody' is neither a folder nor part of a known model's name");
}

static void the_hub_refuses(void **state)
{
    (void)state;
    hub.server.script->list_status = 404;
    hub.server.script->n_list_status = 1;
    PROGRAM_RUN(&weir, "get", "org/name", "--revision", "v9");
    program_expect(&weir, 6, "", "org/name, revision v9: the hub at http://127.0.0.1:");
    program_expect(&weir, 6, "", "answers 404; is its name right, and the revision?");
    program_set(&weir, "HF_ENDPOINT", "http://127.0.0.1:1");
    program_set(&weir, "HF_HUB_OFFLINE", "YES");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 6, "", "org/name, revision main: not in the cache ");
    program_set(&weir, "HF_HUB_OFFLINE", "0");
    program_set(&weir, "HF_ENDPOINT", hub.server.endpoint);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/snapshots/", "");
    program_set(&weir, "HF_ENDPOINT", "http://127.0.0.1:1");
    program_set(&weir, "HF_HUB_OFFLINE", "1");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/snapshots/", "the hub was not asked");
    program_set(&weir, "HF_HUB_OFFLINE", "");
    program_set(&weir, "HF_ENDPOINT", hub.server.endpoint);
    char *sum = strstr(hub.server.script->listing, hub.server.files[1].sha256);
    sum[0] = sum[0] == '0' ? '1' : '0'; /* the list promises something else than the server has */
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 4, "", "model.safetensors: what the server sends has not the digest ");
}

static void tokens(void **state)
{
    (void)state;
    char path[400];
    snprintf(hub.server.script->token, sizeof hub.server.script->token, "hf_secret");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 6, "", "answers 401; if it is private or gated, set HF_TOKEN");
    snprintf(path, sizeof path, "%s/token file", folder.path);
    put_file(path, "hf_secret\n", 10);
    program_set(&weir, "HF_TOKEN_PATH", path);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/snapshots/", "");
    program_set(&weir, "HF_TOKEN", "hf_other"); /* stronger than the file, and wrong */
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 6, "", "the token may lack access");
    assert_null(strstr(weir.log, "hf_"));
    program_set(&weir, "HF_TOKEN", "hf_secret\r\nEvil: header");
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 2, "", "HF_TOKEN: holds characters that no token has");
    assert_null(strstr(weir.log, "hf_"));
    program_set(&weir, "HF_TOKEN", "");
    put_file(path, "hf_secret and more", 18);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 2, "", "token file: holds characters that no token has");
    program_set(&weir, "HF_TOKEN_PATH", "");
    snprintf(path, sizeof path, "%s/home", folder.path);
    assert_int_equal(mkdir(path, 0700), 0);
    program_set(&weir, "HF_HOME", "~/home");
    put_file(temp_path(&folder, "home/token"), "hf_secret", 9);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/home/hub/models--org--name/snapshots/", "");
}

static void places(void **state)
{
    (void)state;
    program_set(&weir, "XDG_CACHE_HOME", temp_path(&folder, "c"));
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/c/huggingface/hub/models--org--name/", "");
    program_set(&weir, "HF_HUB_CACHE", temp_path(&folder, "d"));
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/d/models--org--name/", "");
    program_set(&weir, "XDG_DATA_HOME", temp_path(&folder, "e"));
    PROGRAM_RUN(&weir, "scan");
    program_expect(&weir, 0, "1 models, 1 of them new", "org/name: found in ");
    assert_true(file_exists(temp_path(&folder, "e/weir/registry.db")));
    assert_int_equal(truncate(temp_path(&folder, "e/weir/registry.db"), 30), 0);
    PROGRAM_RUN(&weir, "models");
    program_expect(&weir, 4, "", "damaged (");
    PROGRAM_RUN(&weir, "inspect", "org");
    program_expect(&weir, 4, "", "remove it and run weir scan");
    PROGRAM_RUN(&weir, "get", "org/name"); /* the model is there all the same */
    program_expect(&weir, 0, "/d/models--org--name/", "not registered as a model: ");
}

static void copy_model(const char *from, const char *to)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char path[600];
    mkdir(to, 0700);
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", from, names[i]);
        unsigned char *data = take_file(path, &bytes);
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        put_file(path, data, bytes);
        free(data);
    }
}

static void scanning(void **state)
{
    (void)state;
    char models[300];
    snprintf(models, sizeof models, "%s/my models", folder.path);
    mkdir(models, 0700);
    copy_model(FIXTURES "plain", temp_path(&folder, "my models/glm plain"));
    copy_model(FIXTURES "mtp", temp_path(&folder, "my models/glm mtp"));
    copy_model(FIXTURES "mtp", temp_path(&folder, "my models/.hidden"));
    copy_model(FIXTURES "plain", temp_path(&folder, "my models/cut"));
    assert_int_equal(truncate(temp_path(&folder, "my models/cut/model.safetensors"), 1000000), 0);
    mkdir(temp_path(&folder, "my models/other"), 0700);
    put_file(temp_path(&folder, "my models/other/config.json"), "{\"model_type\": \"llama\"}", 23);
    put_file(temp_path(&folder, "my models/other/model.safetensors"), "x", 1);
    assert_int_equal(symlink(models, temp_path(&folder, "my models/loop")), 0);
    PROGRAM_RUN(&weir, "scan", models);
    program_expect(&weir, 0, "2 models, 2 of them new; 0 gone, 2 passed over\n", "my models/cut: passed over: ");
    program_expect(&weir, 0, "", "my models/other: passed over: ");
    PROGRAM_RUN(&weir, "models", "--json");
    program_expect(&weir, 0, "{\"models\": [\n{\"name\": \"glm mtp\", \"path\": \"", "");
    program_expect(&weir, 0, "\"formats\": \"bf16, f32\", \"dsa\": true, \"mtp\": true, ", "");
    PROGRAM_RUN(&weir, "inspect", "glm");
    program_expect(&weir, 2, "", "'glm' can be any of 2 models: glm mtp (");
    program_expect(&weir, 2, "", "write more of the name, or the path");
    PROGRAM_RUN(&weir, "inspect", "GLM P");
    program_expect(&weir, 0, "my models/glm plain", "");

    remove_tree(temp_path(&folder, "my models/glm plain"));
    PROGRAM_RUN(&weir, "inspect", "glm p");
    program_expect(&weir, 2, "", "which is no longer there; run weir scan");
    PROGRAM_RUN(&weir, "models");
    program_expect(&weir, 0, "glm plain (no longer there: run weir scan)", "");
    assert_int_equal(truncate(temp_path(&folder, "my models/glm mtp/model.safetensors"), 7), 0); /* one gets damaged */
    PROGRAM_RUN(&weir, "scan", "--json"); /* the folder of before is remembered */
    program_expect(&weir, 0, "{\"models\": 0, \"new\": 0, \"gone\": 1, \"passed_over\": 3}",
                   "glm plain: no longer there");
    remove_tree(models);
    PROGRAM_RUN(&weir, "scan");
    program_expect(&weir, 0, "0 models", "my models: no longer there");
    PROGRAM_RUN(&weir, "scan");
    assert_string_equal(weir.log, "");
    PROGRAM_RUN(&weir, "scan", temp_path(&folder, "nowhere"));
    program_expect(&weir, 2, "", "nowhere: there is no such folder");
}

static void the_newest_snapshot_is_meant(void **state)
{
    (void)state;
    static const char second[] = "ffffffffffffffffffffffffffffffffffffffff";
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, hub_server_commit, "");
    memcpy(strstr(hub.server.script->listing, hub_server_commit), second, 40);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, second, "0 B to fetch");
    PROGRAM_RUN(&weir, "scan");
    program_expect(&weir, 0, "2 models, 0 of them new", "");
    PROGRAM_RUN(&weir, "inspect", "org/name");
    program_expect(&weir, 0, second, "");
    PROGRAM_RUN(&weir, "inspect", "org/name@0123");
    program_expect(&weir, 0, hub_server_commit, "");
    PROGRAM_RUN(&weir, "models");
    program_expect(&weir, 0, "org/name@01234567 (an older one)\n", "");
}

/* Ctrl-C: it says how to go on, keeps what it has, and ends with the code of that signal. */
static void an_interrupted_get(void **state)
{
    (void)state;
    hub.server.script->pause_us = 20000;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        PROGRAM_RUN(&weir, "get", "org/name");
        program_expect(&weir, 130, "", "stopped; the same command goes on");
        _exit(weir.code);
    }
    while (hub.server.script->bytes_sent == 0) usleep(1000); /* the alarm of the test run is the deadline */
    kill(child, SIGINT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    PROGRAM_RUN(&weir, "get", "org/name");
    program_expect(&weir, 0, "/snapshots/", "");
}

static void verified_and_repaired(void **state)
{
    (void)state;
    char blob[400], text[500];
    snprintf(blob, sizeof blob, "%s/.cache/huggingface/hub/models--org--name/blobs/%s", folder.path,
             hub.server.files[1].sha256);
    PROGRAM_RUN(&weir, "get", "org/name");
    PROGRAM_RUN(&weir, "verify", "org/name");
    program_expect(&weir, 0, "2 files, 1.3 MiB (1.3 MiB read now): 2 checksums are right, 0 files are damaged\n", "");
    PROGRAM_RUN(&weir, "verify", "org/name", "--json");
    program_expect(&weir, 0, "{\"ok\": true, \"path\": ", "");
    program_expect(&weir, 0, "\"checksum\": \"right\", \"n_problems\": 0, \"problems\": []}], \"commands\": []}\n", "");

    size_t bytes;
    unsigned char *data = take_file(blob, &bytes);
    data[bytes - 1] = 0x7F; /* the last value is no longer finite, and the checksum is another */
    data[bytes - 2] = 0x80;
    put_file(blob, data, bytes);
    free(data);
    PROGRAM_RUN(&weir, "verify", "org/name");
    program_expect(&weir, 4, "model.safetensors: its checksum is ", "damaged or not complete (1 files)");
    program_expect(&weir, 4, "values are not finite, the first is number", "");
    snprintf(text, sizeof text, "To replace only what is damaged:\n  rm '%s'\n  weir get org/name --revision %s\n",
             blob, hub_server_commit);
    program_expect(&weir, 4, text, "");
    PROGRAM_RUN(&weir, "verify", "org/name", "--json");
    program_expect(&weir, 4, "{\"ok\": false, ", "");
    snprintf(text, sizeof text, "\"commands\": [\"rm '%s'\", \"weir get org/name --revision %s\"]}\n", blob,
             hub_server_commit);
    program_expect(&weir, 4, text, "");
    assert_int_equal(unlink(blob), 0); /* as it says */
    PROGRAM_RUN(&weir, "get", "org/name", "--revision", hub_server_commit);
    program_expect(&weir, 0, "/snapshots/", "1.3 MiB to fetch");
    PROGRAM_RUN(&weir, "verify", "org/name");
    program_expect(&weir, 0, "2 checksums are right, 0 files", "");

    PROGRAM_RUN(&weir, "verify", "./nowhere");
    program_expect(&weir, 4, "", "./nowhere: cannot open the folder");
    PROGRAM_RUN(&weir, "verify", "nowhere");
    program_expect(&weir, 2, "", "'nowhere' is neither a folder nor part of a known model's name");
    PROGRAM_RUN(&weir, "verify");
    program_expect(&weir, 2, "", "verify needs MODEL");
    PROGRAM_RUN(&weir, "verify", folder.path);
    program_expect(&weir, 4, "the model: ", "damaged or not complete (0 files, and the model as a whole)");
}

/* On a terminal there is a bar, and none of it is left when the command ends. */
static void a_terminal(void **state)
{
    (void)state;
    static char text[1 << 16];
    const char *argv[] = {"weir", "get", "org/name", NULL};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    FILE *log = fopen(ptsname(master), "w"), *out = fopen("/dev/null", "w");
    assert_non_null(log);
    hub.server.script->pause_us = 5000;
    program_set(&weir, "TERM", "xterm");
    assert_int_equal(command_line_run((char *const *)argv, weir.environment, out, log), 0);
    fflush(log);
    size_t used = 0;
    fcntl(master, F_SETFL, O_NONBLOCK); /* all that there is, in several reads; nothing more will come */
    for (ssize_t n; (n = read(master, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
    assert_true(used > 0);
    text[used] = 0;
    fclose(log);
    fclose(out);
    close(master);
    assert_non_null(strstr(text, "\r\033[K["));
    assert_non_null(strstr(text, " of 1.3 MiB"));
    assert_null(strstr(text, ": done, "));
    const char *last = text;
    for (const char *at = text; (at = strstr(at, "\r\033[K")); at++) last = at;
    assert_true(last[4] != '['); /* what was written over last has no bar */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fetched_and_named),
        TEST(named_behind_another_word),
        TEST(a_dry_run),
        TEST(wrong_words),
        TEST(the_hub_refuses),
        TEST(tokens),
        TEST(places),
        TEST(scanning),
        TEST(the_newest_snapshot_is_meant),
        TEST(verified_and_repaired),
        TEST(an_interrupted_get),
        TEST(a_terminal),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
