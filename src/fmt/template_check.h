#ifndef FMT_TEMPLATE_CHECK_H
#define FMT_TEMPLATE_CHECK_H
/* Whether the chat template that comes with a model is the one that weir renders.
 *
 * weir never runs a model's template: it carries GLM-5.2's. This looks at what is in the folder, recognises templates
 * that are known by their hash, tells the family of others by the marks in which the families differ, and says in a
 * sentence what that means for the prompts. A finding is never an error: only a file that cannot be read is. */
#include "base/alloc.h"
#include "plat/file.h"

enum template_kind {
    TEMPLATE_ABSENT,  /* the folder has none; containers usually do not */
    TEMPLATE_KNOWN,   /* byte for byte, but for white space at its ends, one whose prompts are tested to be weir's */
    TEMPLATE_ALIKE,   /* has every mark of GLM-5.2's, but is not known */
    TEMPLATE_DIFFERS, /* lacks marks, or has those of another family: prompts will differ */
};

struct template_report {
    enum template_kind kind;
    char text[512]; /* a sentence for people, without its full stop */
};

/* Looks at DIR/chat_template.jinja, else at chat_template in DIR/tokenizer_config.json. */
bool template_check(struct template_report *report, struct alloc *alloc, struct file_system fs, const char *dir,
                    struct err *err) MUST_CHECK;

/* The same for the text of a template; `name` says where it was found. */
void template_check_text(struct template_report *report, const char *name, const char *text, size_t bytes);

#endif
