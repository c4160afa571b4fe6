#include "lib/lib_int.h"

#include "fmt/detokenizer.h"
#include "fmt/template_check.h"
#include "run/sampling_json.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define IDS_MAX (UINT32_C(64) << 20)
#define TEXT_BYTES_MAX (UINT64_C(1) << 32) /* any ids that fit in memory: a token may be 64 KiB long */

static void free_model(struct weir_model *m)
{
    struct alloc own = m->own; /* which counts the model itself */
    encoder_free(m->encoder);
    if (m->has_text)
        text_model_close(&m->text);
    else
        tokenizer_free(m->tokenizer);
    alloc_put(m->alloc, m->path);
    pthread_mutex_destroy(&m->lock);
    alloc_put(m->alloc == &m->own ? &own : m->alloc, m);
}

bool lib_model_open(struct weir_model **model, struct alloc *alloc, struct file_system fs, const char *path,
                    struct err *err)
{
    struct alloc own = {0};
    struct stat st;
    if (!lib_need(model, "model", err)) return false;
    *model = NULL;
    if (!lib_need(path, "path", err)) return false;
    if (stat(path, &st) != 0)
        return err_set(err, errno == ENOENT || errno == ENOTDIR ? ERR_DATA : ERR_IO, "%s: cannot open: %s", path,
                       strerror(errno));
    struct weir_model *m = alloc_get(alloc ? alloc : &own, sizeof *m, err);
    if (!m) return false;
    m->own = own;
    m->alloc = alloc ? alloc : &m->own;
    m->fs = fs;
    m->is_folder = S_ISDIR(st.st_mode);
    pthread_mutex_init(&m->lock, NULL);
    m->path = alloc_text(m->alloc, path, err);
    if (!m->path) {
        free_model(m);
        return false;
    }
    *model = m;
    return true;
}

enum weir_status weir_model_open(struct weir_model **model, const char *path, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(lib_model_open(model, NULL, file_system_real(), path, &err), &err, error);
}

enum weir_status weir_model_close(struct weir_model *model, struct weir_error *error)
{
    struct err err = {0};
    unsigned n = model ? atomic_load(&model->n_holders) : 0;
    bool ok =
        n == 0 || err_set(&err, ERR_BUSY, "%s: %u prompts, plans and engines of it are still there", model->path, n);
    if (ok && model) free_model(model);
    return lib_end(ok, &err, error);
}

/* ---- loading, under the lock ---- */

static bool load_config(struct weir_model *m, struct err *err)
{
    if (m->has_config) return true;
    if (!m->is_folder)
        return err_set(err, ERR_USER, "%s: a tokenizer alone; this needs the folder of a model", m->path);
    m->has_config = config_read(&m->config, m->alloc, m->fs, m->path, err);
    return m->has_config;
}

static bool has_file(struct weir_model *m, bool *has, struct err *err)
{
    struct buf path;
    *has = true;
    if (!m->is_folder) return true;
    buf_init(&path, m->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s/tokenizer.json", m->path);
    *has = ok && file_present(m->fs, path.data);
    buf_fini(&path);
    return ok;
}

static bool load_text(struct weir_model *m, struct err *err)
{
    if (m->has_text) return true;
    if (!load_config(m, err)) return false;
    struct text_model text;
    if (!text_model_open(&text, m->alloc, m->fs, m->path, &m->config, err)) return false;
    /* What came first is in use, so it stays, and its twin goes. */
    if (m->has_tokens) {
        tokenizer_free(text.tokenizer);
        text.tokenizer = m->tokenizer;
    }
    m->text = text;
    m->tokenizer = text.tokenizer;
    m->has_text = m->has_tokens = true;
    return true;
}

static bool load_tokens(struct weir_model *m, struct err *err)
{
    struct buf path;
    if (m->has_tokens) return true;
    buf_init(&path, m->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s%s", m->path, m->is_folder ? "/tokenizer.json" : "");
    m->tokenizer = ok ? tokenizer_new(m->alloc, m->fs, path.data, err) : NULL;
    buf_fini(&path);
    m->has_tokens = m->tokenizer != NULL;
    return m->has_tokens;
}

static bool under_lock(struct weir_model *m, bool (*load)(struct weir_model *m, struct err *err), struct err *err)
{
    pthread_mutex_lock(&m->lock);
    bool ok = load(m, err);
    pthread_mutex_unlock(&m->lock);
    return ok;
}

const struct config *lib_config(struct weir_model *model, struct err *err)
{
    return under_lock(model, load_config, err) ? &model->config : NULL;
}
const struct text_model *lib_text(struct weir_model *model, struct err *err)
{
    return under_lock(model, load_text, err) ? &model->text : NULL;
}
const struct tokenizer *lib_tokenizer(struct weir_model *model, struct err *err)
{
    return under_lock(model, load_tokens, err) ? model->tokenizer : NULL;
}

static bool load_controls(struct weir_model *m, struct err *err)
{
    if (m->has_controls) return true;
    if (!load_tokens(m, err)) return false;
    m->has_controls = chat_ids_find(&m->controls, m->tokenizer, err) || err_context(err, "%s", m->path);
    return m->has_controls;
}

const struct chat_ids *lib_controls(struct weir_model *model, struct err *err)
{
    return under_lock(model, load_controls, err) ? &model->controls : NULL;
}

bool lib_has_tokenizer(struct weir_model *model, bool *has, struct err *err)
{
    return has_file(model, has, err);
}

bool lib_defaults(struct weir_model *model, struct sampling *sampling, struct err *err)
{
    const struct sampling built_in = sampling_built_in();
    *sampling = (struct sampling){0};
    if (!sampling_json_defaults(sampling, model->alloc, model->fs, model->path, err)) return false;
    sampling_fill(sampling, &built_in);
    return true;
}

/* ---- facts ---- */

static bool find_facts(struct weir_model *m, struct weir_model_facts *facts, struct err *err)
{
    bool has_tokenizer;
    *facts = (struct weir_model_facts){0};
    if (!lib_has_tokenizer(m, &has_tokenizer, err)) return false;
    facts->has_tokenizer = has_tokenizer;
    if (m->is_folder) {
        const struct config *config = lib_config(m, err);
        if (!config) return false;
        facts->n_logits = config->vocab;
        facts->n_layers = config->n_layers;
        facts->n_experts = config->n_experts;
        facts->n_experts_per_token = config->n_experts_per_token;
    }
    if (!has_tokenizer) return true;
    const struct tokenizer *tokenizer = lib_tokenizer(m, err);
    if (tokenizer) facts->n_tokens = tokenizer_id_end(tokenizer);
    return tokenizer != NULL;
}

enum weir_status weir_model_describe(struct weir_model *model, struct weir_model_facts *facts, struct weir_error *error)
{
    struct err err = {0};
    struct weir_model_facts own;
    bool ok = lib_need(model, "model", &err) && lib_need(facts, "facts", &err) && find_facts(model, &own, &err) &&
              lib_give(facts, &own, sizeof own, "weir_model_facts", &err);
    return lib_end(ok, &err, error);
}

enum weir_status weir_model_template_note(struct weir_model *model, char **note, struct weir_error *error)
{
    struct err err = {0};
    struct template_report report = {.kind = TEMPLATE_ABSENT};
    bool ok = lib_need(model, "model", &err) && lib_need(note, "note", &err);
    if (ok && model->is_folder) ok = template_check(&report, model->alloc, model->fs, model->path, &err);
    if (ok) {
        const char *text = report.kind == TEMPLATE_DIFFERS ? report.text : "";
        *note = lib_block(model->alloc, text, strlen(text), &err);
        ok = *note != NULL;
    }
    return lib_end(ok, &err, error);
}

/* ---- text and ids ---- */

struct encoder *lib_borrow_encoder(struct weir_model *model, struct err *err)
{
    struct weir_model *m = model;
    pthread_mutex_lock(&m->lock);
    if (load_tokens(m, err) && !m->encoder) m->encoder = encoder_new(m->alloc, m->tokenizer, NULL, err);
    if (!m->encoder) pthread_mutex_unlock(&m->lock);
    return m->encoder;
}

void lib_return_encoder(struct weir_model *model)
{
    pthread_mutex_unlock(&model->lock);
}

static bool encode(struct weir_model *m, const char *text, size_t bytes, enum encode_mode mode, struct token_list *ids,
                   struct err *err)
{
    struct encoder *encoder = lib_borrow_encoder(m, err);
    if (!encoder) return false;
    bool ok = encoder_encode(encoder, text, bytes, mode, ids, err);
    lib_return_encoder(m);
    return ok;
}

static bool tokenize(struct weir_model *m, const char *text, size_t bytes, enum weir_markers markers, uint32_t **ids,
                     size_t *n_ids, struct err *err)
{
    struct token_list list;
    if (!lib_need(m, "model", err) || !lib_need(text, "text", err)) return false;
    if (!lib_need(ids, "ids", err) || !lib_need(n_ids, "n_ids", err)) return false;
    token_list_init(&list, m->alloc, IDS_MAX);
    *ids = NULL;
    if (encode(m, text, lib_bytes(text, bytes), lib_mode(markers), &list, err))
        *ids = lib_block(m->alloc, list.ids, list.n * sizeof *list.ids, err);
    if (*ids) *n_ids = list.n;
    token_list_fini(&list);
    return *ids != NULL;
}

enum weir_status weir_tokenize(struct weir_model *model, const char *text, size_t bytes, enum weir_markers markers,
                               uint32_t **ids, size_t *n_ids, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(tokenize(model, text, bytes, markers, ids, n_ids, &err), &err, error);
}

static bool detokenize(struct weir_model *m, const uint32_t *ids, size_t n_ids, bool skip_special, char **text,
                       size_t *bytes, struct err *err)
{
    struct buf out;
    if (!lib_need(m, "model", err) || !lib_need(text, "text", err)) return false;
    if (n_ids && !lib_need(ids, "ids", err)) return false;
    *text = NULL;
    const struct tokenizer *tokenizer = lib_tokenizer(m, err);
    if (!tokenizer) return false;
    buf_init(&out, m->alloc, TEXT_BYTES_MAX);
    if (detokenizer_decode(tokenizer, ids, n_ids, skip_special, &out, err))
        *text = lib_block(m->alloc, out.data, out.bytes, err);
    if (*text && bytes) *bytes = out.bytes;
    buf_fini(&out);
    return *text != NULL;
}

enum weir_status weir_detokenize(struct weir_model *model, const uint32_t *ids, size_t n_ids, bool skip_special,
                                 char **text, size_t *bytes, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(detokenize(model, ids, n_ids, skip_special, text, bytes, &err), &err, error);
}
