#include "base/assert.h"
#include "base/buf.h"
#include "cli/selftest.h"
#include "fmt/chat_control.h"
#include "fmt/json_text.h"
#include "plat/file_write.h"

#define TEXT_BYTES_MAX (UINT64_C(1) << 16)

/* Ids: every byte, pairs of letters, one that ends a text, and what chats are marked with. */
enum {
    BYTES = 256,
    CONTROLS = SELFTEST_VOCAB - CHAT_CONTROL_COUNT,
    LETTERS = 26,
    PATH_BYTES_MAX = 4096,
};
static_assert(SELFTEST_END + 1 == SELFTEST_VOCAB - CHAT_CONTROL_COUNT, "the controls are the last");
static_assert(SELFTEST_END - 256 <= 26 * 26, "each pair is there once");

static const char split[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                            "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                            "|\\s+(?!\\S)|\\s+";

bool selftest_token_is_readable(uint32_t id)
{
    return id < BYTES ? id > ' ' && id <= '~' : id < SELFTEST_END;
}

void selftest_token_text(char text[SELFTEST_TOKEN_TEXT], uint32_t id)
{
    uint32_t pair = id - BYTES;
    text[0] = (char)(id < BYTES ? id : 'a' + pair / LETTERS);
    text[1] = (char)(id < BYTES ? 0 : 'a' + pair % LETTERS);
    text[2] = 0;
}

/* The alphabet of such files: a byte that can be printed stands for itself, the others for U+0100 and up, in order. */
static bool add_byte(struct buf *out, uint32_t byte, uint32_t *n_unprintable, struct err *err)
{
    bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    return buf_printf(out, err, "\"\\u%04x\": %u", (unsigned)(itself ? byte : 0x100 + (*n_unprintable)++),
                      (unsigned)byte);
}

static bool add_vocabulary(struct buf *out, struct err *err)
{
    uint32_t n_unprintable = 0;
    for (uint32_t id = 0; id < SELFTEST_END; id++) {
        char text[SELFTEST_TOKEN_TEXT];
        selftest_token_text(text, id);
        if (id > 0 && !buf_add_text(out, ", ", err)) return false;
        bool ok = id < BYTES ? add_byte(out, id, &n_unprintable, err)
                             : buf_printf(out, err, "\"%s\": %u", text, (unsigned)id);
        if (!ok) return false;
    }
    return true;
}

static bool add_control(struct buf *out, uint32_t id, const char *text, struct err *err)
{
    return buf_printf(out, err,
                      "%s{\"id\": %u, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
                      "false, \"normalized\": false, \"special\": true}",
                      id == SELFTEST_END ? "" : ", ", (unsigned)id, text);
}

static bool add_all(struct buf *out, struct err *err)
{
    if (!buf_add_text(out, "{\"version\": \"1.0\", \"added_tokens\": [", err)) return false;
    if (!add_control(out, SELFTEST_END, "<|endoftext|>", err)) return false;
    for (uint32_t i = 0; i < CHAT_CONTROL_COUNT; i++)
        if (!add_control(out, CONTROLS + i, chat_control_text((enum chat_control)i), err)) return false;
    return buf_add_text(
               out,
               "], \"normalizer\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": "
               "\"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": "
               "false, \"pattern\": {\"Regex\": ",
               err) &&
           json_text_add_string(out, split, sizeof split - 1, err) &&
           buf_add_text(
               out,
               "}}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, \"model\": "
               "{\"type\": \"BPE\", \"ignore_merges\": true, \"merges\": [], \"vocab\": {",
               err) &&
           add_vocabulary(out, err) && buf_add_text(out, "}}}\n", err);
}

bool selftest_vocabulary_write(struct alloc *alloc, const char *folder, struct err *err)
{
    struct buf text;
    char path[PATH_BYTES_MAX];
    buf_init(&text, alloc, TEXT_BYTES_MAX);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    bool ok = add_all(&text, err) && file_write_all(alloc, write_system_real(), path, text.data, text.bytes, err);
    buf_fini(&text);
    return ok;
}
