#ifndef RUN_TEXT_MODEL_H
#define RUN_TEXT_MODEL_H
/* What stands between text and the ids of one model: its tokenizer, the markers of its chats, the ids that end an
 * answer, and the sampling it asks for.
 *
 * Read from the small files of a model folder, so that a prompt can be encoded, counted and refused before anything
 * large is opened. Immutable once open: any number of threads may share one. Encoding needs an encoder for each. */
#include "fmt/chat_ids.h"
#include "fmt/config.h"
#include "run/sampling.h"

struct text_model {
    struct alloc *alloc;
    struct tokenizer *tokenizer;
    struct chat_ids chat;
    struct sampling defaults; /* complete: generation_config.json over what is built in */
    uint32_t n_logits;        /* rows of the head */
    uint32_t n_tokens;        /* ids from there on have no token */
    uint32_t *dead;           /* [n_dead] ids below n_tokens that have none either */
    uint32_t n_dead;
    uint32_t ends[CONFIG_EOS_MAX + 2];  /* end-of-turn ids of the model, then the role markers that end a chat answer */
    uint32_t n_ends_model, n_ends_chat; /* of any answer; of a chat answer, the former included */
};

/* DIR/tokenizer.json and DIR/generation_config.json; `config` is that of the same folder and is not kept. A tokenizer
 * that cannot be used, or that knows ids which the model lacks, is ERR_DATA. */
bool text_model_open(struct text_model *model, struct alloc *alloc, struct file_system fs, const char *dir,
                     const struct config *config, struct err *err) MUST_CHECK;
void text_model_close(struct text_model *model); /* safe twice and on a zeroed struct */

/* Appends a raw text, markers in it recognised, behind the ids that the model never saw a text without ([gMASK]<sop>);
 * a text that begins with them keeps its own. */
bool text_model_encode_raw(const struct text_model *model, struct encoder *encoder, const char *text, size_t bytes,
                           struct token_list *out, struct err *err) MUST_CHECK;

/* Appends a conversation. What its messages say is text, whatever it looks like. *starts_in_think: the answer begins
 * inside a think block. */
bool text_model_encode_chat(const struct text_model *model, struct encoder *encoder, const struct chat_request *request,
                            struct token_list *out, bool *starts_in_think, struct err *err) MUST_CHECK;

#endif
