#include "cli/resolve_model.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { SHOWN_MAX = 5 };

/* How well a model fits a word; only the best kind that occurs counts. */
enum fit { FIT_NOT, FIT_PART, FIT_NAME };

struct search {
    const char *word;
    enum fit best;
    uint32_t n, n_current; /* of the best fit; current: not an older snapshot of a repository */
    struct location first, first_current;
    char shown[640]; /* the first few, for the message */
    uint32_t n_shown;
};

/* "name" or "name@commit", where the commit may be cut. */
static bool is_its_name(const struct registry_model *m, const char *word)
{
    size_t n = strlen(m->name);
    if (strncasecmp(word, m->name, n) != 0) return false;
    if (!word[n]) return true;
    const char *commit = word + n + 1;
    return word[n] == '@' && m->revision[0] && strncmp(m->revision, commit, strlen(commit)) == 0;
}

static enum fit fit_of(const struct registry_model *m, const char *word)
{
    if (is_its_name(m, word)) return FIT_NAME;
    return strcasestr(m->name, word) || strcasestr(m->path, word) ? FIT_PART : FIT_NOT;
}

static bool offer(void *context, const struct registry_model *m)
{
    struct search *s = context;
    enum fit fit = fit_of(m, s->word);
    if (fit == FIT_NOT || fit < s->best) return true;
    if (fit > s->best) *s = (struct search){.word = s->word, .best = fit};
    if (s->n++ == 0) snprintf(s->first.path, sizeof s->first.path, "%s", m->path);
    if (m->is_current && s->n_current++ == 0)
        snprintf(s->first_current.path, sizeof s->first_current.path, "%s", m->path);
    size_t used = strlen(s->shown);
    int n = snprintf(s->shown + used, sizeof s->shown - used, "%s%s%s%.8s (%s)", s->n_shown ? ", " : "", m->name,
                     m->revision[0] ? "@" : "", m->revision, m->path);
    if (s->n_shown == SHOWN_MAX || n >= (int)(sizeof s->shown - used))
        s->shown[used] = 0; /* not half a name */
    else
        s->n_shown++;
    return true;
}

static bool choose(const struct search *s, struct location *out, struct err *err)
{
    if (s->n == 0)
        return err_set(err, ERR_USER,
                       "'%.200s' is neither a folder nor part of a known model's name; weir models lists the known "
                       "ones, weir scan finds more, weir get fetches one",
                       s->word);
    if (s->n > 1 && s->n_current != 1)
        return err_set(err, ERR_USER, "'%.100s' can be any of %u models: %s%s; write more of the name, or the path",
                       s->word, (unsigned)s->n, s->shown, s->n_shown < s->n ? ", ..." : "");
    *out = s->n == 1 ? s->first : s->first_current;
    if (access(out->path, F_OK) == 0) return true;
    return err_set(err, ERR_USER, "'%.100s' was %s, which is no longer there; run weir scan", s->word, out->path);
}

bool open_registry(struct registry **registry, const struct command_context *context, bool may_create, struct err *err)
{
    struct location folder;
    struct err no_home = {0};
    *registry = NULL;
    if (location_data(&folder, context->environment, may_create ? err : &no_home))
        return registry_open(registry, context->alloc, folder.path, may_create, err);
    return !may_create; /* without a home there is no registry to look into */
}

bool resolve_model(const struct command_context *context, const char *word, struct location *out, struct err *err)
{
    struct search search = {.word = word};
    struct registry *registry;
    bool is_path = !word[0] || strchr("/.~", word[0]) || access(word, F_OK) == 0;
    if (is_path) {
        if (snprintf(out->path, sizeof out->path, "%s", word) < (int)sizeof out->path) return true;
        return err_set(err, ERR_USER, "%.100s...: the path is too long; reach the model by a shorter one", word);
    }
    if (!open_registry(&registry, context, false, err)) return false;
    bool ok = registry_each(registry, offer, &search, err) && choose(&search, out, err);
    registry_close(registry);
    return ok;
}

/* Whether `words`, parted by | and up to a blank, have this one. */
static bool is_among(const char *word, const char *words)
{
    for (size_t n = strcspn(words, "| ");; words += n + 1, n = strcspn(words, "| ")) {
        if (n == strlen(word) && strncmp(words, word, n) == 0) return true;
        if (words[n] != '|') return false;
    }
}

/* Of a usage line such as "record MODEL FILE | replay FILE": whether `word` stands in front of MODEL. */
static bool stands_in_front(const char *word, const char *usage)
{
    static const char parting[] = " | ", model[] = " MODEL";
    for (const char *form = usage; form; form = strstr(form, parting) ? strstr(form, parting) + strlen(parting) : NULL)
        if (is_among(word, form)) return strncmp(form + strcspn(form, " "), model, strlen(model)) == 0;
    return false;
}

bool resolve_model_is_at(const struct command *command, const char *const *operands, size_t i)
{
    const char *usage = command->operands;
    if (*usage == '[') usage++;
    if (strcmp(usage, "MODEL...") == 0) return true;
    if (i == 0) return strncmp(usage, "MODEL", 5) == 0 || strncmp(usage, "SOURCE", 6) == 0;
    return i == 1 && stands_in_front(operands[0], usage);
}
