#include "run/sampling_json.h"

#include "fmt/json_doc.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

enum { ID_DIGITS_MAX = 10 };

static struct sampling_value value_of(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null: return (struct sampling_value){.kind = SAMPLING_NULL};
    case json_type_boolean:
        return (struct sampling_value){.kind = SAMPLING_BOOL, .integer = json_object_get_boolean(value)};
    case json_type_double: return (struct sampling_value){.kind = SAMPLING_REAL, .real = json_object_get_double(value)};
    case json_type_int:
        /* Above the signed range json-c answers with the nearest value; as a real it is refused, not bent. */
        if (json_object_get_int64(value) == INT64_MAX && json_object_get_uint64(value) != (uint64_t)INT64_MAX)
            return (struct sampling_value){.kind = SAMPLING_REAL, .real = (double)json_object_get_uint64(value)};
        return (struct sampling_value){.kind = SAMPLING_INTEGER, .integer = json_object_get_int64(value)};
    default: return (struct sampling_value){.kind = SAMPLING_OTHER};
    }
}

static bool wrong_type(enum sampling_fault *fault)
{
    if (fault) *fault = SAMPLING_WRONG_TYPE;
    return false;
}

static bool wrong_value(enum sampling_fault *fault)
{
    if (fault) *fault = SAMPLING_WRONG_VALUE;
    return false;
}

/* Decimal digits only, without a zero in front, so that one id has one spelling and cannot come twice. */
static bool id_of_key(uint32_t *id, const char *key)
{
    size_t n = strlen(key);
    if (n == 0 || n > ID_DIGITS_MAX || (key[0] == '0' && n > 1)) return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (key[i] < '0' || key[i] > '9') return false;
        sum = sum * 10 + (uint64_t)(key[i] - '0');
    }
    *id = (uint32_t)sum;
    return sum <= UINT32_MAX;
}

static bool put_bias(struct sampling *sampling, struct arena *arena, const char *name, struct json_object *value,
                     enum sampling_fault *fault, struct err *err)
{
    if (!json_object_is_type(value, json_type_object)) {
        err_set(err, ERR_USER, "%s: must be an object of token id to bias", name);
        return wrong_type(fault);
    }
    size_t n = (size_t)json_object_object_length(value), i = 0;
    if (n > SAMPLING_BIAS_MAX) return sampling_put_bias(sampling, NULL, n, fault, err);
    struct logit_bias *bias = arena_get_array(arena, n, sizeof *bias, err);
    if (!bias) return false;
    json_object_object_foreach(value, key, entry)
    {
        struct sampling_value number = value_of(entry);
        if (!id_of_key(&bias[i].id, key)) {
            err_set(err, ERR_USER, "%s: \"%.20s\" is not a token id", name, key);
            return wrong_value(fault);
        }
        if (number.kind != SAMPLING_INTEGER && number.kind != SAMPLING_REAL) {
            err_set(err, ERR_USER, "%s: the bias of id %s must be a number", name, key);
            return wrong_type(fault);
        }
        bias[i++].value = (float)(number.kind == SAMPLING_INTEGER ? (double)number.integer : number.real);
    }
    return sampling_put_bias(sampling, bias, n, fault, err);
}

static bool put_stop_ids(struct sampling *sampling, struct arena *arena, const char *name, struct json_object *value,
                         enum sampling_fault *fault, struct err *err)
{
    if (!json_object_is_type(value, json_type_array)) {
        err_set(err, ERR_USER, "%s: must be an array of token ids", name);
        return wrong_type(fault);
    }
    size_t n = json_object_array_length(value);
    if (n > SAMPLING_STOP_IDS_MAX) return sampling_put_stop_ids(sampling, NULL, n, fault, err);
    uint32_t *ids = arena_get_array(arena, n, sizeof *ids, err);
    if (!ids) return false;
    for (size_t i = 0; i < n; i++) {
        struct sampling_value id = value_of(json_object_array_get_idx(value, i));
        if (id.kind != SAMPLING_INTEGER) {
            err_set(err, ERR_USER, "%s: element %zu must be an integer", name, i);
            return wrong_type(fault);
        }
        if (id.integer < 0 || id.integer > UINT32_MAX) {
            err_set(err, ERR_USER, "%s: %" PRId64 " is not a token id", name, id.integer);
            return wrong_value(fault);
        }
        ids[i] = (uint32_t)id.integer;
    }
    return sampling_put_stop_ids(sampling, ids, n, fault, err);
}

/* A single string is a list of one. */
static bool put_stop(struct sampling *sampling, struct arena *arena, const char *name, struct json_object *value,
                     enum sampling_fault *fault, struct err *err)
{
    bool is_list = json_object_is_type(value, json_type_array);
    size_t n = is_list ? json_object_array_length(value) : 1;
    if (n > SAMPLING_STOP_STRINGS_MAX) return sampling_put_stop(sampling, NULL, n, fault, err);
    struct stop_string *stop = arena_get_array(arena, n, sizeof *stop, err);
    if (!stop) return false;
    for (size_t i = 0; i < n; i++) {
        struct json_object *text = is_list ? json_object_array_get_idx(value, i) : value;
        if (!json_object_is_type(text, json_type_string)) {
            err_set(err, ERR_USER, "%s: must be a string or an array of strings", name);
            return wrong_type(fault);
        }
        stop[i] = (struct stop_string){json_object_get_string(text), (size_t)json_object_get_string_len(text)};
    }
    return sampling_put_stop(sampling, stop, n, fault, err);
}

bool sampling_json_member(struct sampling *sampling, struct arena *arena, const char *name, struct json_object *value,
                          bool *is_ours, enum sampling_fault *fault, struct err *err)
{
    enum sampling_field field = sampling_field_of(name);
    if (field == SAMPLING_FIELDS) return sampling_check_foreign(name, value_of(value), is_ours, fault, err);
    *is_ours = true;
    if (!value) return true; /* a null means absent */
    if (field == SAMPLING_LOGIT_BIAS) return put_bias(sampling, arena, name, value, fault, err);
    if (field == SAMPLING_STOP_TOKEN_IDS) return put_stop_ids(sampling, arena, name, value, fault, err);
    if (field == SAMPLING_STOP) return put_stop(sampling, arena, name, value, fault, err);
    return sampling_put(sampling, field, name, value_of(value), fault, err);
}

static bool read_defaults(struct sampling *sampling, const char *path, struct json_object *root, struct err *err)
{
    static const enum sampling_field fields[] = {SAMPLING_TEMPERATURE, SAMPLING_TOP_P, SAMPLING_TOP_K, SAMPLING_MIN_P,
                                                 SAMPLING_REPETITION_PENALTY};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *name = sampling_field_name(fields[i]);
        struct json_object *value;
        if (!json_object_object_get_ex(root, name, &value)) continue;
        if (sampling_put(sampling, fields[i], name, value_of(value), NULL, err)) continue;
        if (err) err->kind = ERR_DATA; /* the fault is in a file, not in a request */
        return err_context(err, "%s", path);
    }
    return true;
}

bool sampling_json_parse(struct sampling *sampling, struct alloc *alloc, const char *path, const char *json,
                         size_t bytes, struct err *err)
{
    *sampling = (struct sampling){0};
    struct json_object *root = NULL;
    if (!json_doc_parse(&root, alloc, &json_rules_file, path, json, bytes, err)) return false;
    bool ok = json_object_is_type(root, json_type_object) ? read_defaults(sampling, path, root, err)
                                                          : err_set(err, ERR_DATA, "%s: must hold a JSON object", path);
    json_object_put(root);
    return ok;
}

/* Only a file that is not there is no error. */
static bool is_absent(struct file_system fs, const char *path)
{
    int descriptor = fs.ops->open(fs.context, path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return errno == ENOENT;
    fs.ops->close(fs.context, descriptor);
    return false;
}

bool sampling_json_defaults(struct sampling *sampling, struct alloc *alloc, struct file_system fs, const char *dir,
                            struct err *err)
{
    *sampling = (struct sampling){0};
    static const char name[] = "/generation_config.json";
    size_t n_dir = strlen(dir), bytes = 0;
    char *text = NULL, *path = alloc_get(alloc, n_dir + sizeof name, err);
    if (!path) return false;
    memcpy(path, dir, n_dir);
    memcpy(path + n_dir, name, sizeof name);

    bool ok = is_absent(fs, path);
    if (!ok) {
        text = file_read_all(alloc, fs, path, json_rules_file.bytes_max, &bytes, err);
        ok = text && sampling_json_parse(sampling, alloc, path, text, bytes, err);
    }
    alloc_put(alloc, text);
    alloc_put(alloc, path);
    return ok;
}
