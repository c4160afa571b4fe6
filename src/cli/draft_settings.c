#include "cli/draft_settings.h"

#include <inttypes.h>

enum { MTP_DRAFTS_MAX = 7 }; /* more, libweir refuses, but not in the options' words */

/* The places of the words in the option table. */
enum mtp_word { MTP_AUTO, MTP_ON, MTP_OFF };
enum draft_word { DRAFT_WORD_AUTO, DRAFT_WORD_MTP, DRAFT_WORD_NGRAM, DRAFT_WORD_OFF };

static bool check_words(const struct settings *s, struct err *err)
{
    static const char *const words[] = {"auto", "mtp", "ngram", "off"};
    bool clash = (s->mtp == MTP_ON && (s->draft == DRAFT_WORD_NGRAM || s->draft == DRAFT_WORD_OFF)) ||
                 (s->mtp == MTP_OFF && s->draft == DRAFT_WORD_MTP);
    if (!clash) return true;
    return err_set(err, ERR_USER, "--mtp %s and --draft %s contradict each other: leave one of them out",
                   s->mtp == MTP_ON ? "on" : "off", words[s->draft]);
}

static void tell_unused(const struct command_context *context, const char *option, const char *when)
{
    if (settings_origin(context->settings, option) == ORIGIN_COMMAND_LINE)
        fprintf(context->log, "weir: --%s has no effect %s\n", option, when);
}

static bool choose_ngram(struct weir_settings *out, const struct settings *s, struct err *err)
{
    if (s->ngram_min > s->ngram_max)
        return err_set(err, ERR_USER, "--ngram-min %" PRIu64 " is more than --ngram-max, which is %" PRIu64,
                       s->ngram_min, s->ngram_max);
    out->draft = WEIR_DRAFT_NGRAM;
    out->ngram_min = (uint32_t)s->ngram_min;
    out->ngram_max = (uint32_t)s->ngram_max;
    return true;
}

bool draft_settings(struct weir_settings *settings, const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    bool is_auto = s->num_draft_tokens == SETTING_WORD;
    if (!check_words(s, err)) return false;
    if (s->draft == DRAFT_WORD_NGRAM) {
        if (!choose_ngram(settings, s, err)) return false;
    } else {
        tell_unused(context, "ngram-min", "without --draft ngram");
        tell_unused(context, "ngram-max", "without --draft ngram");
        if (s->draft == DRAFT_WORD_OFF || s->mtp == MTP_OFF) {
            tell_unused(context, "num-draft-tokens", "without drafts");
            settings->draft = WEIR_DRAFT_OFF;
            return true;
        }
        bool is_wish = s->mtp != MTP_ON && s->draft != DRAFT_WORD_MTP;
        settings->draft = is_wish ? WEIR_DRAFT_AUTO : WEIR_DRAFT_MTP;
        if (!is_auto && s->num_draft_tokens > MTP_DRAFTS_MAX)
            return err_set(err, ERR_USER, "--num-draft-tokens %" PRIu64 ": the MTP layer drafts 1 to %d",
                           s->num_draft_tokens, MTP_DRAFTS_MAX);
    }
    if (!is_auto) settings->n_drafts = (uint32_t)s->num_draft_tokens;
    return true;
}
