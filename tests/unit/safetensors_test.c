#include "fmt/safetensors.h"
#include "support/check.h"

#include <json-c/json.h>
#include <stdlib.h>

/* A header given to the parser as the end of a block of its own, so that one byte too far is seen by a sanitizer. */
struct parsed {
    struct alloc alloc;
    struct arena arena;
    struct safetensors headers;
    struct err err;
    bool ok;
};

static void parse(struct parsed *p, const char *header, size_t bytes, uint64_t data_bytes)
{
    char *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, header, bytes);
    *p = (struct parsed){0};
    arena_init(&p->arena, &p->alloc, UINT64_C(1) << 30);
    safetensors_init(&p->headers, &p->alloc, &p->arena);
    p->ok = safetensors_parse(&p->headers, "t.safetensors", 3, exact, bytes, 8 + bytes + data_bytes, &p->err);
    free(exact);
}

static void drop(struct parsed *p)
{
    safetensors_fini(&p->headers);
    arena_fini(&p->arena);
    assert_int_equal(p->alloc.live, 0);
}

#define A(begin, end) "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #begin "," #end "]}"
#define B(begin, end) "\"b\":{\"dtype\":\"U8\",\"shape\":[3,4],\"data_offsets\":[" #begin "," #end "]}"
#define STAMPS(text) "{\"__metadata__\":{\"colibri.fmt\":\"" text "\"}}"

static const struct {
    const char *header;
    uint64_t data_bytes;
    const char *says; /* NULL: accepted */
} cases[] = {
    /* what a writer writes, and what it may write */
    {"{}", 0, NULL},
    {"{}      ", 0, NULL},
    {"{ \n\t\r}", 0, NULL},
    {"{" A(0, 8) "}", 8, NULL},
    {"{" A(0, 8) "," B(8, 20) "}", 20, NULL},
    {"{" B(8, 20) "," A(0, 8) "}", 20, NULL},
    {"{" A(12, 20) "," B(0, 12) "}  ", 20, NULL},
    {"{ \"a\" : { \"shape\" : [ 2 ] , \"data_offsets\" : [ 0 , 8 ] , \"dtype\" : \"F32\" } }", 8, NULL},
    {"{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, NULL},
    {"{\"s\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, NULL},
    {"{\"s\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3, NULL},
    {"{\"s\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\"}," A(0, 8) "}", 8, NULL},
    {"{\"__metadata__\":{}}", 0, NULL},
    {"{" A(0, 8) ",\"__metadata__\":{\"x\":\"\\u00e9\\ud83d\\ude00\\n\"}}", 8, NULL},
    {"{\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
    {"{\"\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
    {STAMPS("{}"), 0, NULL},
    {STAMPS("{\\\"w\\\":\\\"int8-row\\\",\\\"v\\\":\\\"fp8-e4m3-b128\\\"}"), 0, NULL},

    /* extents */
    {"{" A(0, 8) "}", 7, "1 bytes are missing at its end"},
    {"{" A(0, 8) "," B(8, 20) "}", 10, "10 bytes are missing"},
    {"{" A(0, 8) "}", 9, "1 bytes behind the last tensor"},
    {"{}", 1, "1 bytes behind the last tensor"},
    {"{" A(1, 9) "}", 9, "1 bytes before tensor 'a'"},
    {"{" A(0, 8) "," B(9, 21) "}", 21, "1 bytes before tensor 'b'"},
    {"{" A(0, 8) "," B(7, 19) "}", 19, "tensors 'a' and 'b' overlap by 1 bytes"},
    {"{" A(0, 8) "," B(0, 12) "}", 12, "overlap by 8 bytes"},
    {"{" A(8, 0) "}", 8, "end before they begin"},
    {"{" A(0, 12) "}", 12, "tensor 'a': data_offsets span 12 bytes, but shape and dtype F32 make 8"},
    {"{" A(0, 4) "}", 4, "span 4 bytes"},
    {"{" B(0, 13) "}", 13, "tensor 'b': data_offsets span 13 bytes, but shape and dtype U8 make 12"},
    {"{\"s\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "dtype F64 make 32"},
    {"{\"s\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "dtype F4 make 2"},
    {"{\"s\":{\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],\"data_offsets\":[0,8]}}", 8,
     "shape overflows"},
    {"{\"s\":{\"dtype\":\"U8\",\"shape\":[2147483648,2147483648,2,2],\"data_offsets\":[0,0]}}", 0, "shape overflows"},
    {"{\"s\":{\"dtype\":\"U8\",\"shape\":[9007199254740992],\"data_offsets\":[0,9007199254740992]}}", 8, "are missing"},

    /* names */
    {"{" A(0, 8) "," A(8, 16) "}", 16, "tensor 'a' is there twice"},
    {"{" A(0, 8) ",\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "'a' is there twice"},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "without a name"},
    {"{\"a\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "control character in a tensor's name"},
    {"{\"a\\n\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "control character in a tensor's name"},
    {"{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "NUL"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "'__metadata__' is given twice"},
    {"{\"__metadata__\":{\"x\":\"1\",\"x\":\"1\"}}", 0, "metadata key 'x' is given twice"},
    {"{\"__metadata__\":{\"x\":1}}", 0, "expected '\"'"},
    {"{\"__metadata__\":[]}", 0, "expected '{'"},
    {"{\"__metadata__\":null}", 0, "expected '{'"},

    /* fields */
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "tensor 'a': has no dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "tensor 'a': has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor 'a': has no data_offsets"},
    {"{\"a\":{}}", 0, "has no dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "given twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
     "only dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype 'F33'"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype 'f32'"},
    {"{\"a\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "expected '\"'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "expected '['"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "digits only"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2e0],\"data_offsets\":[0,8]}}", 8, "whole number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}", 8, "leading zero"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", 8, "digits only"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,8]}}", 8, "digits only"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9007199254740993],\"data_offsets\":[0,8]}}", 8, "above 2^53"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999999999],\"data_offsets\":[0,8]}}", 8, "above 2^53"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "more than 8 dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "expected ','"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,16]}}", 8, "expected ']'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}}}", 8, "expected '['"},
    {"{\"a\":[]}", 0, "expected '{'"},
    {"{\"a\":null}", 0, "expected '{'"},

    /* text */
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
    {"{}x", 0, "only spaces may follow"},
    {"{}\n", 0, "only spaces may follow"},
    {"{}{}", 0, "only spaces may follow"},
    {"{" A(0, 8) ",}", 8, "expected '\"'"},
    {"{" A(0, 8) " " B(8, 20) "}", 20, "expected ','"},
    {"{,}", 0, "expected '\"'"},
    {"{" A(0, 8), 8, "the text ends"},
    {"{\"a", 0, "the text ends inside a string"},
    {"{\"a\\", 0, "the text ends inside a string"},
    {"{\"a\\u12", 0, "the text ends inside an escape"},
    {"{\"a\\x\":{}}", 0, "unknown escape"},
    {"{\"\\ud800\":{}}", 0, "surrogate"},
    {"{\"\\ude00\":{}}", 0, "surrogate"},
    {"{\"\xff\":{}}", 0, "not UTF-8"},
    {"{\"\xc0\x80\":{}}", 0, "not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":{}}", 0, "not UTF-8"},
    {"{\"a\nb\":{}}", 0, "control character"},
    {"{'a':{}}", 0, "expected '\"'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}}", 8, "digits only"},

    /* stamps */
    {STAMPS("{"), 0, "colibri.fmt"},
    {STAMPS("[]"), 0, "colibri.fmt"},
    {STAMPS(""), 0, "colibri.fmt"},
    {STAMPS("{\\\"w\\\":1}"), 0, "colibri.fmt"},
    {STAMPS("{\\\"w\\\":\\\"int5-row\\\"}"), 0, "stamps tensor 'w' as 'int5-row'"},
    {STAMPS("{} x"), 0, "something follows"},
    {"{\"__metadata__\":{\"colibri.fmt\":{}}}", 0, "expected '\"'"},
};

enum { CASES = sizeof cases / sizeof *cases };

static void headers_are_accepted_or_refused(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (size_t i = 0; i < CASES; i++) {
        struct parsed p;
        parse(&p, cases[i].header, strlen(cases[i].header), cases[i].data_bytes);
        refused += !p.ok;
        if (p.ok != !cases[i].says) fail_msg("%s: %s", cases[i].header, p.ok ? "was accepted" : p.err.text);
        if (!p.ok &&
            (p.err.kind != ERR_DATA || !strstr(p.err.text, cases[i].says) || !strstr(p.err.text, "t.safetensors")))
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].header, cases[i].says, p.err.text);
        drop(&p);
    }
    printf("%d headers, %u of them refused\n", CASES, refused);
}

static void tensors_are_read_as_written(void **state)
{
    (void)state;
    struct parsed p;
    const char *header = "{" B(8, 20) "," A(0, 8) "}";
    parse(&p, header, strlen(header), 20);
    assert_true(p.ok);
    assert_int_equal(p.headers.n_tensors, 2);
    const struct tensor *a = &p.headers.tensors[0], *b = &p.headers.tensors[1]; /* by name */
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, DTYPE_F32);
    assert_int_equal(a->offset, 8 + strlen(header));
    assert_int_equal(a->bytes, 8);
    assert_int_equal(a->shard, 3);
    assert_string_equal(b->name, "b");
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 3);
    assert_int_equal(b->shape[1], 4);
    assert_int_equal(b->offset, 8 + strlen(header) + 8);
    drop(&p);
}

static void every_truncation_of_a_header_is_refused(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"colibri.fmt\":\"{\\\"a\\\":\\\"f32\\\"}\"}," A(0, 8) "," B(8, 20) "}";
    size_t bytes = strlen(header);
    for (size_t n = 2; n <= bytes; n++) {
        struct parsed p;
        parse(&p, header, n, 20);
        if (p.ok != (n == bytes)) fail_msg("cut at %zu: %s", n, p.ok ? "was accepted" : p.err.text);
        drop(&p);
    }
}

static void a_nul_anywhere_is_refused(void **state)
{
    (void)state;
    const char header[] = "{" A(0, 8) "}  ";
    for (size_t at = 0; at < sizeof header - 1; at++) {
        char damaged[sizeof header];
        struct parsed p;
        memcpy(damaged, header, sizeof header);
        damaged[at] = 0;
        parse(&p, damaged, sizeof header - 1, 8);
        assert_false(p.ok);
        assert_non_null(strstr(p.err.text, "NUL"));
        drop(&p);
    }
}

static void header_lengths_are_checked_without_overflow(void **state)
{
    (void)state;
    static const struct {
        uint64_t length, file_bytes;
        const char *says;
    } lengths[] = {
        {2, 10, NULL},
        {100, 108, NULL},
        {100, 107, "its header alone needs 108"},
        {0, 100, "header of 0 bytes"},
        {1, 100, "header of 1 bytes"},
        {100000000, 100000008, NULL},
        {100000001, UINT64_C(1) << 40, "more than the limit"},
        {UINT64_MAX, 100, "more than the limit"},
        {UINT64_MAX - 7, UINT64_MAX, "more than the limit"},
        {INT64_MAX, 100, "more than the limit"},
        {50, 8, "has 8 bytes, but its header alone needs 58"},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char first[8];
        uint64_t found;
        struct err err = {0};
        for (int b = 0; b < 8; b++) first[b] = (unsigned char)(lengths[i].length >> (8 * b));
        bool ok = safetensors_length("t.safetensors", first, lengths[i].file_bytes, &found, &err);
        if (ok != !lengths[i].says || (!ok && !strstr(err.text, lengths[i].says)))
            fail_msg("length %zu: %s", i, ok ? "accepted" : err.text);
        if (ok) assert_int_equal(found, lengths[i].length);
    }
}

static void limits_on_counts_hold(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    for (int stamps = 0; stamps < 2; stamps++) {
        FILE *f = open_memstream(&text, &bytes);
        fputs(stamps ? "{\"__metadata__\":{\"colibri.fmt\":\"{" : "{\"__metadata__\":{", f);
        for (int i = 0; i < 5000; i++) {
            if (stamps)
                fprintf(f, "%s\\\"t%d\\\":\\\"int8-row\\\"", i ? "," : "", i);
            else
                fprintf(f, "%s\"k%d\":\"\"", i ? "," : "", i);
        }
        fputs(stamps ? "}\"}}" : "}}", f);
        fclose(f);
        struct parsed p;
        parse(&p, text, bytes, 0);
        assert_false(p.ok);
        assert_non_null(strstr(p.err.text, stamps ? "more than 4096 format stamps" : "more than 1024 metadata"));
        drop(&p);
        free(text);
    }
    char name[1024] = "{\"";
    memset(name + 2, 'n', 600);
    strcpy(name + 602, "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    struct parsed p;
    parse(&p, name, strlen(name), 8);
    assert_false(p.ok);
    assert_non_null(strstr(p.err.text, "too long"));
    drop(&p);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"colibri.fmt\":\"{\\\"a\\\":\\\"f32\\\"}\"}," A(0, 8) "," B(8, 20) "}";
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct arena arena;
        struct safetensors headers;
        struct err err = {0};
        arena_init(&arena, &alloc, 1 << 20);
        safetensors_init(&headers, &alloc, &arena);
        bool ok = safetensors_parse(&headers, "t", 0, header, strlen(header), 8 + strlen(header) + 20, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        safetensors_fini(&headers);
        arena_fini(&arena);
        assert_int_equal(alloc.live, 0);
        if (!ok) continue;
        assert_true(k > 3);
        break;
    }
}

/* What we accept, a general parser accepts too, and it finds the same values. (The other way round it is laxer.) */
static void agrees_with_a_general_parser(struct parsed *p, const char *text, size_t bytes)
{
    struct json_tokener *tokener = json_tokener_new_ex(64);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    struct json_object *root = json_tokener_parse_ex(tokener, text, (int)bytes);
    if (json_tokener_get_error(tokener) == json_tokener_continue) /* spaces at the end */
        root = json_tokener_parse_ex(tokener, "", 1);
    assert_non_null(root);
    size_t n = 0;
    json_object_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        const struct tensor wanted = {.name = key}, *t = NULL;
        for (uint32_t i = 0; i < p->headers.n_tensors; i++)
            if (strcmp(p->headers.tensors[i].name, wanted.name) == 0) t = &p->headers.tensors[i];
        assert_non_null(t);
        struct json_object *field, *begin, *end;
        assert_true(json_object_object_get_ex(value, "dtype", &field));
        assert_string_equal(json_object_get_string(field), dtype_name(t->dtype));
        assert_true(json_object_object_get_ex(value, "shape", &field));
        assert_int_equal(json_object_array_length(field), t->rank);
        for (uint32_t d = 0; d < t->rank; d++)
            assert_int_equal(json_object_get_int64(json_object_array_get_idx(field, d)), t->shape[d]);
        assert_true(json_object_object_get_ex(value, "data_offsets", &field));
        begin = json_object_array_get_idx(field, 0);
        end = json_object_array_get_idx(field, 1);
        assert_int_equal(8 + bytes + (uint64_t)json_object_get_int64(begin), t->offset);
        assert_int_equal(json_object_get_int64(end) - json_object_get_int64(begin), t->bytes);
        n++;
    }
    assert_int_equal(n, p->headers.n_tensors);
    json_object_put(root);
    json_tokener_free(tokener);
}

static void differential_with_json_c(void **state)
{
    (void)state;
    uint64_t seed = 20261130;
    unsigned accepted = 0, rounds = 60000;
    const char alphabet[] = "{}[]\",:\\ 0123456789.-eabFU_nul\n";
    for (unsigned round = 0; round < rounds; round++) {
        char text[512];
        const char *from = cases[round % CASES].header;
        size_t bytes = strlen(from);
        assert_true(bytes < sizeof text);
        memcpy(text, from, bytes);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned edits = (unsigned)(seed >> 60) % 3;
        for (unsigned e = 0; e < edits; e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % bytes] = alphabet[(seed >> 20) % (sizeof alphabet - 1)];
        }
        struct parsed p;
        parse(&p, text, bytes, cases[round % CASES].data_bytes);
        if (p.ok) agrees_with_a_general_parser(&p, text, bytes);
        accepted += p.ok;
        drop(&p);
    }
    printf("seed 20261130: %u mutated headers, %u accepted\n", rounds, accepted);
    assert_true(accepted > rounds / 20);
    assert_true(accepted < rounds / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_accepted_or_refused),
        cmocka_unit_test(tensors_are_read_as_written),
        cmocka_unit_test(every_truncation_of_a_header_is_refused),
        cmocka_unit_test(a_nul_anywhere_is_refused),
        cmocka_unit_test(header_lengths_are_checked_without_overflow),
        cmocka_unit_test(limits_on_counts_hold),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(differential_with_json_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
