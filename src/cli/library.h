#ifndef CLI_LIBRARY_H
#define CLI_LIBRARY_H
/* The command line as a user of libweir: its statuses as our errors, our options as its settings.
 *
 * Commands that run a model see nothing of it but weir/weir.h; src/LAYERS says which. */
#include "cli/commands.h"
#include "weir/weir.h"

/* Whether a call went well; if not, *err has its error. */
bool library_ok(enum weir_status status, const struct weir_error *error, struct err *err) MUST_CHECK;

/* The model of a command's first operand: a folder, or a tokenizer.json. */
bool library_open_model(struct weir_model **model, const struct command_context *context, struct err *err) MUST_CHECK;

/* Fails as the first text would, where there is no tokenizer: before anything large is opened. */
bool library_needs_text(struct weir_model *model, struct err *err) MUST_CHECK;

/* Everything is to be given back by now: what is not is a mistake of ours. */
void library_close_model(struct weir_model *model);

/* Whether the command drafts, or plans for it. */
bool library_drafts(const struct command_context *context);

/* What the options say about an engine. Texts are the settings' own. */
bool library_settings(struct weir_settings *settings, const struct command_context *context,
                      struct err *err) MUST_CHECK;

/* Where histories of what is used most are kept, made now; NULL where none is wished for. */
const char *library_usage_folder(const struct command_context *context);

/* Opens it, remembering which experts are used where that is wished for, and tells what people should know. */
bool library_open_engine(struct weir_engine **engine, struct weir_model *model, const struct command_context *context,
                         struct err *err) MUST_CHECK;
void library_close_engine(struct weir_engine *engine);
void library_close_session(struct weir_session *session);

#endif
