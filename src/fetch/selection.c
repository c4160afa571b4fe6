#include "fetch/hub.h"

#include <fnmatch.h>
#include <string.h>

enum { PATTERN_BYTES_MAX = 512 };

/* What weir reads of a model folder; * does not reach into sub-folders here. */
static const char *const needed[] = {
    "config.json",         "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja", "weir-conversion.json",   "*.safetensors",  "*.safetensors.index.json",
};

static bool is_needed(const char *path)
{
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (fnmatch(needed[i], path, FNM_PATHNAME) == 0) return true;
    return false;
}

/* Takes the next pattern off *list. A longer one than anybody writes is cut, and then matches nothing. */
static bool next_pattern(const char **list, char pattern[PATTERN_BYTES_MAX])
{
    *list += strspn(*list, ",");
    size_t n = strcspn(*list, ","), kept = n < PATTERN_BYTES_MAX ? n : PATTERN_BYTES_MAX - 1;
    memcpy(pattern, *list, kept);
    pattern[kept] = 0;
    *list += n;
    return n > 0;
}

static bool matches(const char *list, const char *path)
{
    char pattern[PATTERN_BYTES_MAX];
    while (next_pattern(&list, pattern))
        if (fnmatch(pattern, path, 0) == 0) return true;
    return false;
}

bool hub_selects(const struct hub_selection *selection, const char *path)
{
    if (selection->exclude && matches(selection->exclude, path)) return false;
    return selection->include ? matches(selection->include, path) : is_needed(path);
}

bool hub_idle_pattern(const struct hub_selection *selection, const struct hub_listing *listing, char *text, size_t room)
{
    char pattern[PATTERN_BYTES_MAX];
    const char *list = selection->include ? selection->include : "";
    while (next_pattern(&list, pattern)) {
        bool is_idle = true;
        for (uint32_t i = 0; i < listing->n_files && is_idle; i++)
            is_idle = fnmatch(pattern, listing->files[i].path, 0) != 0;
        if (!is_idle) continue;
        size_t n = strlen(pattern);
        if (n >= room) n = room - 1;
        memcpy(text, pattern, n);
        text[n] = 0;
        return true;
    }
    return false;
}
