#ifndef SUPPORT_MADE_CHAT_MODEL_H
#define SUPPORT_MADE_CHAT_MODEL_H
/* A container with random weights behind the tokenizer and the template of the demo model: it writes nonsense, every
 * token about as likely as any other, and it writes it fast. For tests of what must hold whatever a model says. */
#include "support/temp_folder.h"

/* Fills the folder, which is there and empty. */
void made_chat_model_write(const struct temp_folder *folder);

#endif
