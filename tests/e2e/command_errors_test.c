/* Every error that a person can cause in the commands that get a model and keep it running: its exit code, and that its
 * message says what happened, where, and what to do.
 *
 * That the table is complete is checked and not hoped: at the end, each place in the sources at which one of these
 * commands makes an error must have been met here, be asked for by the words of another test, or stand in the list of
 * those that nobody can cause, with the reason. */
#include "cli/command_line.h"
#include "support/check.h"
#include "support/error_sites.h"
#include "support/plain_hub.h"
#include "support/program.h"
#include "support/temp_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN "tests/fixtures/glm52-tiny/plain/"
#define MTP "tests/fixtures/glm52-tiny/mtp"

enum { WORDS_MAX = 10, WORD_BYTES = 6000, LONG_PATH = 4200, NEARLY_LONG_PATH = 4086, VERIFY_FILES = 4097 };

static struct temp_folder folder;
static struct plain_hub hub;
static struct program weir;
static struct error_sites sites;

/* --- what is prepared --- */

static void write_text(const char *name, const char *text)
{
    put_file(temp_path(&folder, name), text, strlen(text));
}

static void write_bytes(const char *name, const char *bytes, size_t n)
{
    put_file(temp_path(&folder, name), bytes, n);
}

static void make_folder(const char *name)
{
    if (mkdir(temp_path(&folder, name), 0700) != 0) fail_msg("%s cannot be made", name);
}

static void make_model(const char *name)
{
    char path[300];
    make_folder(name);
    snprintf(path, sizeof path, "%s/config.json", name);
    write_bytes(path, (const char *)hub.config, hub.n_config);
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    write_bytes(path, (const char *)hub.weights, hub.n_weights);
}

static void set_in_folder(const char *variable, const char *name)
{
    program_set(&weir, variable, temp_path(&folder, name));
}

/* An absolute path that is longer than any may be. */
static const char *long_path(void)
{
    static char path[LONG_PATH + 1];
    for (int i = 0; i < LONG_PATH; i++) path[i] = i % 100 ? 'x' : '/';
    return path;
}

/* Other words in the list of files. */
static void relist(const char *from, const char *to)
{
    char *text = hub.server.script->listing, *at = strstr(text, from);
    if (!at) fail_msg("the list has no %s", from);
    size_t n_from = strlen(from), n_to = strlen(to), n_rest = strlen(at + n_from) + 1;
    assert_true(strlen(text) + n_to < HUB_LISTING_MAX);
    memmove(at + n_to, at + n_from, n_rest);
    memcpy(at, to, n_to);
}

static void no_home(void)
{
    program_set(&weir, "HOME", "");
}

static void long_cache(void)
{
    program_set(&weir, "HF_HUB_CACHE", long_path());
}

static void nearly_long_cache(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4085s", long_path());
    program_set(&weir, "HF_HUB_CACHE", path);
    program_set(&weir, "HF_HUB_OFFLINE", "1");
}

static void long_data_home(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4088s", long_path());
    program_set(&weir, "XDG_DATA_HOME", path);
}

static void long_state_home(void)
{
    char path[4096];
    make_model("m");
    snprintf(path, sizeof path, "%.4070s", long_path());
    program_set(&weir, "XDG_STATE_HOME", path);
}

static void token_of_two_words(void)
{
    program_set(&weir, "HF_TOKEN", "two words");
}

static void token_file_is_a_folder(void)
{
    program_set(&weir, "HF_TOKEN_PATH", folder.path);
}

static void endpoint_without_scheme(void)
{
    program_set(&weir, "HF_ENDPOINT", "hub.example");
}

static void endpoint_of_no_host(void)
{
    program_set(&weir, "HF_ENDPOINT", "http://[::1");
}

static void offline(void)
{
    program_set(&weir, "HF_HUB_OFFLINE", "1");
}

static void damaged_ref(void)
{
    offline();
    set_in_folder("HF_HUB_CACHE", "c");
    static const char *const names[] = {"c", "c/models--org--name", "c/models--org--name/refs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_folder(names[i]);
    write_text("c/models--org--name/refs/main", "not a commit\n");
}

static void wants_a_token(void)
{
    snprintf(hub.server.script->token, sizeof hub.server.script->token, "hf_secret");
}

static void has_a_wrong_token(void)
{
    wants_a_token();
    program_set(&weir, "HF_TOKEN", "hf_other");
}

static void lists_nothing(void)
{
    hub.server.script->list_status = 404;
    hub.server.script->n_list_status = 1;
}

static void is_overrun(void)
{
    hub.server.script->list_status = 429;
    hub.server.script->n_list_status = 1;
    hub.server.script->retry_after_s = 100000;
}

static void is_down(void)
{
    is_overrun();
    hub.server.script->list_status = 503;
}

static void files_are_overrun(void)
{
    hub.server.script->file_status = 429;
    hub.server.script->n_file_status = 9;
    hub.server.script->retry_after_s = 100000;
}

static void files_are_gone(void)
{
    hub.server.script->file_status = 410;
    hub.server.script->n_file_status = 9;
}

static void goes_in_circles(void)
{
    hub.server.script->redirects_in_circles = true;
}

/* So that ranges are asked for: part of the large file is here. */
static void leave_a_part(void)
{
    char name[300];
    set_in_folder("HF_HUB_CACHE", "c");
    static const char *const names[] = {"c", "c/models--org--name", "c/models--org--name/blobs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_folder(names[i]);
    snprintf(name, sizeof name, "c/models--org--name/blobs/%s.incomplete", hub.server.files[1].sha256);
    write_bytes(name, (const char *)hub.weights, 1000);
}

static void ranges_of_another_file(void)
{
    leave_a_part();
    hub.server.script->lies_about_size = true;
}

static void sends_something_else(void)
{
    hub.server.script->n_wrong = 9;
}

static void lists_a_giant(void)
{
    char size[64];
    snprintf(size, sizeof size, "\"size\":%zu,\"pointerSize\"", hub.n_weights);
    relist(size, "\"size\":99000000000000,\"pointerSize\"");
}

static void lists_no_digest(void)
{
    relist("\"blobId\":", "\"other\":");
}

static void lists_no_size(void)
{
    relist("\"size\":", "\"other\":");
}

static void lists_no_name(void)
{
    relist("\"rfilename\":", "\"name\":");
}

static void lists_an_escape(void)
{
    relist("config.json", "../../x");
}

static void lists_one_twice(void)
{
    relist("config.json", "model.safetensors");
}

static void lists_no_files(void)
{
    snprintf(hub.server.script->listing, HUB_LISTING_MAX, "{\"sha\":\"%s\",\"siblings\":[]}", hub_server_commit);
}

static void is_no_hub(void)
{
    snprintf(hub.server.script->listing, HUB_LISTING_MAX, "{}");
}

static void lists_no_weights(void)
{
    relist("model.safetensors", "model.gguf");
}

static void damaged_registry(void)
{
    set_in_folder("XDG_DATA_HOME", "d");
    make_folder("d");
    make_folder("d/weir");
    write_text("d/weir/registry.db", "this was a data base of models once, and is none any more; it has no header");
}

/* The version lies at byte 60 of the file. */
static void newer_registry(void)
{
    size_t bytes;
    set_in_folder("XDG_DATA_HOME", "d");
    PROGRAM_RUN(&weir, "scan");
    program_expect(&weir, 0, "0 models", "");
    unsigned char *data = take_file(temp_path(&folder, "d/weir/registry.db"), &bytes);
    assert_true(bytes > 64);
    data[62] = 9;
    put_file(temp_path(&folder, "d/weir/registry.db"), data, bytes);
    free(data);
}

static void registry_is_a_folder(void)
{
    set_in_folder("XDG_DATA_HOME", "d");
    make_folder("d");
    make_folder("d/weir");
    make_folder("d/weir/registry.db");
}

static void data_home_is_a_file(void)
{
    set_in_folder("XDG_DATA_HOME", "d");
    write_text("d", "");
}

static void two_models(void)
{
    make_folder("things");
    make_model("things/one");
    make_model("things/two");
    PROGRAM_RUN(&weir, "scan", temp_path(&folder, "things"));
    program_expect(&weir, 0, "2 models", "");
}

static void one_is_gone(void)
{
    two_models();
    remove_tree(temp_path(&folder, "things/one"));
}

static void one_model(void)
{
    make_model("m");
}

static void cut_model(void)
{
    make_model("m");
    assert_int_equal(truncate(temp_path(&folder, "m/model.safetensors"), (off_t)hub.n_weights - 1), 0);
}

static void stub_of_a_model(void)
{
    make_model("m");
    assert_int_equal(truncate(temp_path(&folder, "m/model.safetensors"), 5), 0);
}

/* One tensor of a set of them has another name. */
static void rename_a_tensor(const char *source, const char *name)
{
    char path[300];
    size_t bytes;
    make_folder("m");
    snprintf(path, sizeof path, "%s/config.json", source);
    unsigned char *data = take_file(path, &bytes);
    write_bytes("m/config.json", (const char *)data, bytes);
    free(data);
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    data = take_file(path, &bytes);
    char *at = memmem(data, bytes, name, strlen(name));
    if (!at) fail_msg("no tensor is named %s", name);
    at[strlen(name) - 1] = 'x';
    write_bytes("m/model.safetensors", (const char *)data, bytes);
    free(data);
}

static void half_an_index(void)
{
    rename_a_tensor(PLAIN, "indexer.wk.weight");
}

static void half_a_draft_layer(void)
{
    rename_a_tensor(MTP, "eh_proj.weight");
}

static void too_many_files(void)
{
    make_folder("m");
    for (int i = 0; i < VERIFY_FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "m/%d.safetensors", i);
        write_text(name, "");
    }
}

static void damaged_record(void)
{
    make_model("m");
    write_text("m/weir-conversion.json", "{");
}

static void small_container(void)
{
    PROGRAM_RUN(&weir, "convert", PLAIN, temp_path(&folder, "m"), "--group", "32");
    program_expect(&weir, 0, "", "");
}

static void config_with(const char *text)
{
    set_in_folder("XDG_CONFIG_HOME", "config");
    make_folder("config");
    make_folder("config/weir");
    write_text("config/weir/config.ini", text);
}

static void config_with_a_section(void)
{
    config_with("[server]\nio-depth = 3\n");
}

static void config_with_a_wrong_name(void)
{
    config_with("io-deep = 3\n");
}

static void config_that_names_another(void)
{
    config_with("config = x.ini\n");
}

static void config_with_one_twice(void)
{
    config_with("io-depth = 3\nio-depth = 4\n");
}

static void config_without_a_value(void)
{
    config_with("io-depth\n");
}

static void config_of_zeros(void)
{
    config_with("");
    write_bytes("config/weir/config.ini", "io-depth = 3\n\0\n", 15);
}

static void config_with_a_long_line(void)
{
    static char line[100000];
    memset(line, 'x', sizeof line - 1);
    config_with(line);
}

static void unknown_variable(void)
{
    program_set(&weir, "WEIR_IO_DEEP", "3");
}

static void long_tmpdir(void)
{
    program_set(&weir, "TMPDIR", long_path());
}

static void absent_tmpdir(void)
{
    set_in_folder("TMPDIR", "nowhere");
}

/* --- the table --- */

struct error_case {
    const char *title;
    void (*prepare)(void); /* NULL: nothing */
    const char *line;      /* words with blanks between them; see expand */
    int code;
    const char *what, *where, *advice;
};

static const struct error_case cases[] = {
    /* words that every command reads alike */
    {"a command that does not exist", NULL, "gett", 2, "there is no command", "'gett'", "the nearest is 'get'"},
    {"no operand", NULL, "verify", 2, "verify needs MODEL", "verify", "see weir help verify"},
    {"an operand too many", NULL, "models x", 2, "one operand too many", "'x'", "see weir help models"},
    {"an option that does not exist", NULL, "scan --jsn", 2, "has no option", "--jsn", "the nearest is --json"},
    {"an option of another command", NULL, "get a/b --ram-budget 1G", 2, "has no effect on get", "--ram-budget",
     "see weir help get"},
    {"an option without its value", NULL, "get a/b --include", 2, "needs a value", "--include", "=VALUE"},
    {"a short option", NULL, "scan -j", 2, "is no option", "'-j'", "two dashes"},
    {"an empty value", NULL, "get a/b --include=", 2, "the value is empty", "--include", "leave the option out"},
    {"a word for a switch", NULL, "scan --json=maybe", 2, "neither on nor off", "--json", "'maybe'"},
    {"a word for a number", NULL, "tune m --runs many", 2, "is not a whole number", "--runs", "'many'"},
    {"too small a number", NULL, "tune m --runs 0", 2, "is less than", "--runs", "least possible value, 1"},
    {"too large a number", NULL, "tune m --runs 99", 2, "is more than", "--runs", "greatest possible value, 32"},
    {"no size", NULL, "doctor --ram-budget lots", 2, "'lots' is not a size", "--ram-budget", "such as 512M"},
    {"no number", NULL, "tune m --latent-norm-eps small", 2, "is not a number", "--latent-norm-eps", "'small'"},
    {"a number out of its bounds", NULL, "tune m --latent-norm-eps 7", 2, "is not between", "--latent-norm-eps", "and"},
    {"no such choice", one_model, "tune @/m --policy best", 2, "there is no policy", "\"best\"", "known are lru, "},
    {"no percentage", NULL, "doctor --experts-resident 0%", 2, "is not a percentage", "--experts-resident",
     "above 0 and up to 100"},
    {"an unknown variable", unknown_variable, "scan", 2, "there is no such option", "WEIR_IO_DEEP",
     "the nearest is WEIR_IO_DEPTH"},
    {"a section", config_with_a_section, "scan", 2, "there are no sections", "config.ini:2", "name = value"},
    {"a wrong name", config_with_a_wrong_name, "scan", 2, "there is no option 'io-deep'", "config.ini:1",
     "the nearest is 'io-depth'"},
    {"a file that names a file", config_that_names_another, "scan", 2, "cannot name another one", "config.ini:1",
     "leave this line out"},
    {"a name twice", config_with_one_twice, "scan", 2, "was given before", "config.ini:2", "leave one of them out"},
    {"a name alone", config_without_a_value, "scan", 2, "not of the form", "config.ini:1", "name = value"},
    {"a zero byte", config_of_zeros, "scan", 2, "it has a zero byte", "config.ini:", "write it anew"},
    {"a long line", config_with_a_long_line, "scan", 2, "a line of 99999 bytes", "config.ini:1", "longest possible"},
    {"a file that is not there", NULL, "scan --config @/no.ini", 2, "cannot open", "@/no.ini", "configuration"},

    /* get: what is asked for */
    {"no repository", NULL, "get a/b/c", 2, "is not the name of a repository", "'a/b/c'", "such as org/name"},
    {"two revisions", NULL, "get a/b@x --revision y", 2, "names a revision and --revision another", "'a/b@x'",
     "give one of them"},
    {"no revision", NULL, "get a/b --revision ../x", 2, "is not a revision", "'../x'", "give a branch"},
    {"a pattern that fits nothing", NULL, "get org/name --include *.gguf", 2, "no file of org/name matches", "'*.gguf'",
     "--dry-run lists what there is"},
    {"nothing is left", NULL, "get org/name --exclude *", 2, "none of its 3 files is wanted", "org/name",
     "--include and --exclude say which"},
    {"no weights", lists_no_weights, "get org/name", 2, "no model for weir", "org/name", "--include fetches"},
    {"no home", no_home, "get org/name", 2, "neither HOME nor", "XDG_CACHE_HOME", "set one of them"},
    {"a long path to the cache", long_cache, "get org/name", 2, "the path is too long", "/xxx", "a shorter one"},
    {"a path to the cache that leaves no room", nearly_long_cache, "get org/name", 2, "the path is too long", "/xxx",
     "HF_HUB_CACHE can name a shorter one"},
    {"a token that is none", token_of_two_words, "get org/name", 2, "characters that no token has", "HF_TOKEN",
     "write it again"},
    {"a token in a folder", token_file_is_a_folder, "get org/name", 4, "not a regular file", "@",
     "HF_TOKEN_PATH can name another file"},
    {"an endpoint that is none", endpoint_without_scheme, "get org/name", 2, "is no address", "HF_ENDPOINT",
     "such as https://huggingface.co"},

    /* get: what the hub answers */
    {"an address that cannot be asked", endpoint_of_no_host, "get org/name", 6, "cannot ask the hub", "http://[::1",
     "are HF_ENDPOINT and the proxy settings right?"},
    {"offline and not here", offline, "get org/name", 6, "not in the cache", "org/name, revision main",
     "unset it once"},
    {"offline, and what is here is damaged", damaged_ref, "get org/name", 4, "does not hold a commit",
     "@/c/models--org--name/refs/main", "remove it"},
    {"a private repository", wants_a_token, "get org/name", 6, "answers 401", "org/name", "set HF_TOKEN"},
    {"a wrong token", has_a_wrong_token, "get org/name", 6, "answers 401", "org/name", "the token may lack access"},
    {"no such repository", lists_nothing, "get org/name", 6, "answers 404", "org/name", "is its name right"},
    {"too many requests", is_overrun, "get org/name", 6, "answers 429", "org/name", "again later"},
    {"the hub is down", is_down, "get org/name", 6, "answers 503", "org/name", "again later to go on"},
    {"no digest", lists_no_digest, "get org/name", 4, "gives no digest", "'config.json'", "a complete mirror?"},
    {"no size", lists_no_size, "get org/name", 4, "gives no size", "'config.json'", "a complete mirror?"},
    {"no file name", lists_no_name, "get org/name", 4, "without a file name", "org/name", "a complete mirror?"},
    {"a name that leads elsewhere", lists_an_escape, "get org/name", 4, "outside of its folder", "'../../x'",
     "do not trust this repository"},
    {"a file twice", lists_one_twice, "get org/name", 4, "twice", "'model.safetensors'", "a complete mirror?"},
    {"no files", lists_no_files, "get org/name", 4, "the hub lists 0 files", "org/name",
     "is this the repository you mean?"},
    {"another kind of server", is_no_hub, "get org/name", 4, "not a list of files", "org/name",
     "is this the endpoint of a model hub?"},

    /* get: what happens on the way */
    {"no room", lists_a_giant, "get org/name", 1, "the disk has only", "/.cache/huggingface/hub", "HF_HUB_CACHE"},
    {"files are refused for long", files_are_overrun, "get org/name --include config.json", 6,
     "asks to wait for 100000 seconds", "config.json", "run the same command again"},
    {"files are gone", files_are_gone, "get org/name --include config.json", 6, "answers 410", "config.json",
     "is its name right"},
    {"redirections without end", goes_in_circles, "get org/name --include config.json", 6, "the transfer failed",
     "config.json", "are HF_ENDPOINT and the proxy settings right?"},
    {"a range of another file", ranges_of_another_file, "get org/name", 4, "the hub's list says", "model.safetensors",
     "run the same command again"},
    {"other bytes than were promised", sends_something_else, "get org/name --include config.json", 4,
     "has not the digest", "config.json", "is something between here and the hub changing it?"},

    /* scan, models, and a MODEL's name */
    {"no such folder", NULL, "scan @/nowhere", 2, "there is no such folder", "@/nowhere", "give one that holds"},
    {"no home to remember in", no_home, "scan", 2, "neither HOME nor XDG_DATA_HOME", "XDG_DATA_HOME",
     "set one of them"},
    {"a long path to remember in", long_data_home, "scan", 2, "the path is too long", "/xxx", "XDG_DATA_HOME"},
    {"a registry that is none", damaged_registry, "models", 4, "damaged (", "@/d/weir/registry.db",
     "remove it and run weir scan"},
    {"a registry of a newer weir", newer_registry, "models", 4, "written by a newer weir", "@/d/weir/registry.db",
     "run weir scan"},
    {"a registry that cannot be opened", registry_is_a_folder, "models", 1, "unable to open", "@/d/weir/registry.db",
     "XDG_DATA_HOME"},
    {"no place for a registry", data_home_is_a_file, "scan", 1, "cannot make the folder", "@/d/weir",
     "Not a directory"},
    {"an unknown model", NULL, "verify nobody", 2, "neither a folder nor part of a known model's name", "'nobody'",
     "weir get fetches one"},
    {"an ambiguous name", two_models, "verify things", 2, "can be any of 2 models", "@/things/one",
     "write more of the name"},
    {"a model that is gone", one_is_gone, "verify one", 2, "is no longer there", "@/things/one", "run weir scan"},
    {"a long path", NULL, "verify !", 2, "the path is too long", "/xxx", "reach the model by a shorter one"},

    /* verify */
    {"no folder", NULL, "verify @/nowhere", 4, "cannot open the folder", "@/nowhere", "weir models lists"},
    {"no model in it", NULL, "verify @", 4, "damaged or not complete", "@", "the report says what"},
    {"a shard that was cut", cut_model, "verify @/m", 4, "damaged or not complete", "model.safetensors",
     "To replace only what is damaged:\n  rm '"},
    {"a shard of no size", stub_of_a_model, "verify @/m", 4, "too short for a safetensors file",
     "@/m/model.safetensors", "To replace only what is damaged:\n  rm '"},
    {"half of the index", half_an_index, "verify @/m", 4, "the sparse index is incomplete",
     "the model: ", "the report says what"},
    {"half of the MTP layer", half_a_draft_layer, "verify @/m", 4, "the MTP layer is incomplete",
     "the model: ", "the report says what"},
    {"thousands of files", too_many_files, "verify @/m", 4, "more than 4096 files", "@/m",
     "give the folder of one model"},
    {"a damaged record", damaged_record, "verify @/m", 4, "no checksum is known", "@/m/weir-conversion.json",
     "remove it"},
    {"a long path to remember in", long_state_home, "verify @/m", 2, "the path is too long", "/xxx",
     "XDG_STATE_HOME can name a shorter one"},

    {"a long path to a folder", one_model, "verify ~", 2, "the path is too long", "/m/./././",
     "reach it by a shorter one"},

    /* doctor */
    {"no model", NULL, "doctor @", 4, "cannot open", "@/config.json", "-> weir inspect tells"},
    {"a shard that was cut", cut_model, "doctor @/m", 4, "bytes", "model.safetensors", "goes on where it"},
    {"half of the MTP layer", half_a_draft_layer, "doctor @/m", 4, "MTP", "m", "-> fetch the file again"},
    {"too small a budget", NULL, "doctor models/demo --ram-budget 10M", 3, "needs at least", "plan",
     "-> weir fit shows the plan line by line"},
    {"no such instruction set", NULL, "doctor --cpu-mask avx9", 2, "there is no instruction set", "'avx9'",
     "the nearest is"},

    /* tune */
    {"an option that is not tried", one_model, "tune @/m --only io-deep", 2, "'io-deep' is not tried", "--only",
     "the nearest that is is 'io-depth'"},
    {"nothing left to try", one_model, "tune @/m --only policy --policy lru", 2, "is stated already", "tried",
     "leave some of it out"},
    {"no home for a profile", no_home, "tune tests/fixtures/glm52-tiny/plain --only policy", 2,
     "no place for a profile", "XDG_STATE_HOME", "set one of them"},
    {"no model", NULL, "tune @/nowhere --only policy", 4, "cannot open", "@/nowhere/config.json", "No such file"},
    {"too small a budget", small_container, "tune @/m --ram-budget 2M --only policy", 3, "needs at least",
     "the budget is 2.0 MiB", "use --ram-budget"},
    {"a long path to remember in", long_state_home, "tune @/m --only policy", 2, "the path is too long", "@/m",
     "XDG_STATE_HOME"},

    /* selftest */
    {"a long path for what is made", long_tmpdir, "selftest", 2, "is longer than", "TMPDIR", "name a shorter path"},
    {"no place for what is made", absent_tmpdir, "selftest", 1, "no folder can be made", "@/nowhere/weir-selftest-",
     "TMPDIR names another place"},
};

/* --- places that no person reaches --- */

#define MEMORY "only when memory runs out"
#define STORAGE "only when the system fails at something that it did a moment ago"
#define RACE "only when a folder goes between two looks at it"
#define LIBCURL "libcurl fails by itself, which no test can make it do"
#define PASSED_ON "puts words in front of, or passes on, what was made elsewhere"
#define COMPUTES "only in a build that computes wrongly, which golden/selftest_test has by damaging what it reads"
#define OURS "only by a mistake of ours, which the unit tests of its file look for"

/* The beginning of a site's text, with ... for what is filled in, and why no test asks for it. */
static const struct {
    const char *text, *reason;
} unreachable[] = {
    {"...: cannot go on with what another program left", STORAGE},
    {"...: has ... bytes after ... were written", STORAGE},
    {"a pipe cannot be ", STORAGE},
    {"a process cannot be started", STORAGE},
    {"stopped before anything was fetched", MEMORY},
    {"out of memory: libcurl", LIBCURL},
    {"libcurl ", LIBCURL},
    {"......: the path is too long; --exclude leaves the file out", OURS}, /* names in a list are shorter than that */
    {"stopped before all was looked through", OURS},                       /* weir scan ends at the signal itself */
    {"...: cannot be followed to its end", RACE},
    {"...: changed while it was converted", RACE},
    {"...: rows of ... values are longer", "a row of 16 million values would have to be there"},
    {"a run took no time that could be measured", "a clock that stands still"},
    {"...", PASSED_ON},
    {"...: ...", PASSED_ON},
    {"...:...", PASSED_ON},
    {"one thread", PASSED_ON},
    {"converting", PASSED_ON},
    {"reading it again", PASSED_ON},
    {"killed and restored", PASSED_ON},
    {"in the process that is killed", PASSED_ON},
    {"...: other bits in the logits", COMPUTES},
    {"the model answers the same all the time", COMPUTES},
    {"the saved state ", COMPUTES},
    {"the process that was to be killed ended by itself", COMPUTES},
    {"...: there were none", COMPUTES},
    {"the answer ended behind", COMPUTES},
    {"the served answer has not", COMPUTES},
    {"the server ", COMPUTES}, /* of selftest */
    {"the model did not open in", COMPUTES},
    {"a new server knew", COMPUTES},
    {"the second server ", COMPUTES},
    {"served", PASSED_ON},
};

static const char *const sources[] = {
    "src/fetch/*.c",
    "src/store/*.c",
    "src/run/verify*.c",
    "src/run/tuning.c",
    "src/convert/*.c",
    "src/cli/command_get.c",
    "src/cli/command_models.c",
    "src/cli/command_verify.c",
    "src/cli/command_doctor.c",
    "src/cli/command_scan.c",
    "src/cli/command_selftest.c",
    "src/cli/command_tune.c",
    "src/cli/command_convert.c",
    "src/cli/commands.c",
    "src/cli/command_line.c",
    "src/cli/options.c",
    "src/cli/settings.c",
    "src/cli/profile.c",
    "src/cli/environment.c",
    "src/cli/resolve_model.c",
    "src/cli/selftest*.c",
};

/* --- the test --- */

static int start(void **state)
{
    (void)state;
    plain_hub_start(&hub, 3);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) error_sites_read(&sites, sources[i]);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    plain_hub_stop(&hub);
    return 0;
}

static void begin(void)
{
    plain_hub_begin(&hub, &folder, &weir);
}

static void end(void)
{
    program_fini(&weir);
    temp_folder_remove(&folder);
}

/* At the beginning of a word, @ is the test's folder. ! is a path that is too long, ~ a model's that nearly is. */
static const char *expand(char out[WORD_BYTES], const char *word)
{
    if (word[0] == '~') {
        size_t n = (size_t)snprintf(out, WORD_BYTES, "%s/m", folder.path);
        for (; n < NEARLY_LONG_PATH; n += 2) memcpy(out + n, "/.", 3);
    } else if (word[0] == '@')
        snprintf(out, WORD_BYTES, "%s%s", folder.path, word + 1);
    else
        snprintf(out, WORD_BYTES, "%s", word[0] == '!' ? long_path() : word);
    return out;
}

/* Whether a person finds all three in what is told. */
static bool tells(const char *told, const struct error_case *c)
{
    char where[WORD_BYTES];
    return strstr(told, c->what) && strstr(told, expand(where, c->where)) && strstr(told, c->advice);
}

/* Into argv[WORDS_MAX + 1]; good until the next call. */
static void split(const char *argv[], const char *line)
{
    static char words[WORDS_MAX][WORD_BYTES];
    char word[WORD_BYTES];
    int n = 0;
    for (const char *at = line; *at; at += *at == ' ') {
        size_t bytes = strcspn(at, " ");
        assert_true(n < WORDS_MAX && bytes < sizeof word);
        snprintf(word, sizeof word, "%.*s", (int)bytes, at);
        argv[n] = expand(words[n], word);
        n++;
        at += bytes;
    }
    argv[n] = NULL;
}

static bool run_case(const struct error_case *c)
{
    static char told[1 << 18];
    const char *argv[WORDS_MAX + 1];
    begin();
    if (c->prepare) c->prepare();
    split(argv, c->line);
    program_run(&weir, argv);
    snprintf(told, sizeof told, "%s%s", weir.out, weir.log);
    bool ok = weir.code == c->code && tells(told, c);
    if (!ok)
        print_message("%s (weir %s): exit code %d, not %d, or not all of: %s | %s | %s\n%s", c->title, c->line,
                      weir.code, c->code, c->what, c->where, c->advice, told);
    error_sites_meet(&sites, told);
    end();
    return ok;
}

static void each_error(void **state)
{
    (void)state;
    size_t n_wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(*cases[i].what && *cases[i].where && *cases[i].advice);
        n_wrong += !run_case(&cases[i]);
    }
    print_message("%zu errors, each with its exit code, what, where and what to do\n", sizeof cases / sizeof *cases);
    assert_int_equal(n_wrong, 0);
}

/* --- Ctrl-C --- */

/* A command in a process of its own gets the signal when it has said `cue`. */
static void interrupt_at(const char *line, const char *cue, const char *says)
{
    const char *argv[WORDS_MAX + 2] = {"weir"};
    static char told[1 << 16];
    int ends[2], status;
    size_t used = 0;
    bool is_sent = false;
    split(argv + 1, line);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *pipe_end = fdopen(ends[1], "w");
        setvbuf(pipe_end, NULL, _IOLBF, 0);
        _exit(command_line_run((char *const *)argv, weir.environment, pipe_end, pipe_end));
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], told + used, sizeof told - 1 - used)) > 0;) {
        used += (size_t)n;
        told[used] = 0;
        if (!is_sent && strstr(told, cue)) is_sent = kill(child, SIGINT) == 0;
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!is_sent || !WIFEXITED(status) || WEXITSTATUS(status) != 130 || !strstr(told, says))
        fail_msg("weir %s, interrupted: status 0x%x, not exit code 130 and '%s':\n%s", line, status, says, told);
    error_sites_meet(&sites, told);
}

static void what_is_interrupted_says_so(void **state)
{
    (void)state;
    begin();
    small_container();
    interrupt_at("tune @/m --runs 32", "weir: a run takes", "weir: stopped before a decision\n");
    interrupt_at("selftest", "ok  a model was made", "weir: stopped before all was compared\n");
    hub.server.script->stalls = true; /* halfway, so that it cannot end before it is asked to */
    interrupt_at("get org/name", " to fetch, ", "weir: stopped; the same command goes on\n");
    end();
}

/* Of a message that lacks one of the three, the table would say so. */
static void what_is_not_told_is_seen(void **state)
{
    (void)state;
    const struct error_case c = {.what = "is not a revision", .where = "'../x'", .advice = "give a branch"};
    assert_true(tells("'../x' is not a revision; give a branch, a tag or a commit", &c));
    assert_false(tells("'../x' is not a revision", &c));
    assert_false(tells("this is not a revision; give a branch", &c));
    assert_false(tells("'../x' is wrong; give a branch", &c));
}

/* What finds the places in the sources finds them, and takes no message for another. */
static void sites_are_found(void **state)
{
    (void)state;
    static struct error_sites made;
    error_sites_add(
        &made, "a.c",
        "x;\nreturn err_set(err, ERR_IO, \"%s: only %\" PRIu64 \" bytes, \"\n  \"100%% \\\"gone\\\"\", p, n);\n"
        "err_set(err, kind, text);\n err_context(err, \"in the place of %s\", p);");
    assert_int_equal(made.n, 2);
    assert_int_equal(made.of[0].line, 2);
    assert_string_equal(made.of[0].text, "\1: only \1 bytes, 100% \"gone\"");
    assert_string_equal(made.of[1].text, "in the place of \1");
    error_sites_meet(&made, "weir: f: only 7 bytes, 50% gone\nin the place where\n");
    assert_false(made.of[0].is_met || made.of[1].is_met);
    error_sites_meet(&made, "weir: f: only 7 bytes, 100% \"gone\"\n");
    assert_true(made.of[0].is_met && !made.of[1].is_met);
    error_sites_expect_in(&made, "grep 'the place' || fail; expect(\"in the\");");
    assert_false(made.of[1].is_expected);
    error_sites_expect_in(&made, "grep -q 'in the place of x' \"$log\"");
    assert_true(made.of[1].is_expected);
}

static const char *reason_of(const struct error_site *site)
{
    const char *name = strstr(error_site_name(site), ": ") + 2;
    for (size_t i = 0; i < sizeof unreachable / sizeof *unreachable; i++) {
        bool is_whole = strcmp(unreachable[i].reason, PASSED_ON) == 0;
        size_t n = strlen(unreachable[i].text) + is_whole;
        if (strncmp(name, unreachable[i].text, n) == 0) return unreachable[i].reason;
    }
    return NULL;
}

static void no_place_is_left_out(void **state)
{
    (void)state;
    static const char *const others[] = {"tests/*/*_test.c", "tests/*/*.sh"};
    size_t n_met = 0, n_expected = 0, n_unreachable = 0, n_left = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) error_sites_expect(&sites, others[i]);
    for (size_t i = 0; i < sites.n; i++) {
        const struct error_site *site = &sites.of[i];
        if (site->is_met) {
            n_met++;
        } else if (site->is_expected) {
            n_expected++;
        } else if (reason_of(site)) {
            n_unreachable++;
        } else {
            n_left++;
            print_message("no test asks for %s\n", error_site_name(site));
        }
    }
    print_message("%zu places make an error: %zu met here, %zu expected by other tests, %zu that nobody can cause\n",
                  sites.n, n_met, n_expected, n_unreachable);
    assert_true(n_met > 60);
    assert_int_equal(n_left, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_told_is_seen),
        cmocka_unit_test(sites_are_found),
        cmocka_unit_test(each_error),
        cmocka_unit_test(what_is_interrupted_says_so),
        cmocka_unit_test(no_place_is_left_out), /* the last: it looks at what the others have met */
    };
    return cmocka_run_group_tests(tests, start, stop);
}
