#include "cli/environment.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *environment_get(char *const *environment, const char *name)
{
    size_t n = strlen(name);
    for (; *environment; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=' && (*environment)[n + 1])
            return *environment + n + 1;
    return NULL;
}

bool environment_says_yes(char *const *environment, const char *name)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = environment_get(environment, name);
    for (size_t i = 0; value && i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

static bool join(struct location *out, const char *root, const char *rest, struct err *err)
{
    int n = snprintf(out->path, sizeof out->path, "%s%s", root, rest);
    if (n >= 0 && n < (int)sizeof out->path) return true;
    return err_set(err, ERR_USER, "%.100s...: the path is too long; choose a shorter one", root);
}

static bool in_home(struct location *out, char *const *environment, const char *wanted, const char *rest,
                    struct err *err)
{
    const char *home = environment_get(environment, "HOME");
    if (home) return join(out, home, rest, err);
    return err_set(err, ERR_USER, "neither HOME nor %s is set, so there is no place for this; set one of them", wanted);
}

/* ROOT + under, where ROOT is the variable's value or, in the home folder, its default. A ~ of other programs'
 * variables is the home folder, as for those programs. */
static bool under(struct location *out, char *const *environment, const char *variable, const char *home_default,
                  const char *rest, struct err *err)
{
    char tail[256];
    const char *value = environment_get(environment, variable);
    if (value && value[0] == '~' && (value[1] == '/' || !value[1])) {
        struct location inside;
        return join(&inside, value + 1, rest, err) && in_home(out, environment, variable, inside.path, err);
    }
    if (value) return join(out, value, rest, err);
    snprintf(tail, sizeof tail, "%s%s", home_default, rest);
    return in_home(out, environment, variable, tail, err);
}

/* In the folder that holds the hub clients' things. */
static bool in_hub_home(struct location *out, char *const *environment, const char *rest, struct err *err)
{
    char tail[64];
    if (environment_get(environment, "HF_HOME")) return under(out, environment, "HF_HOME", "", rest, err);
    snprintf(tail, sizeof tail, "/huggingface%s", rest);
    return under(out, environment, "XDG_CACHE_HOME", "/.cache", tail, err);
}

bool location_hub_cache(struct location *out, char *const *environment, struct err *err)
{
    if (environment_get(environment, "HF_HUB_CACHE")) return under(out, environment, "HF_HUB_CACHE", "", "", err);
    return in_hub_home(out, environment, "/hub", err);
}

bool location_hub_token(struct location *out, char *const *environment, struct err *err)
{
    if (environment_get(environment, "HF_TOKEN_PATH")) return under(out, environment, "HF_TOKEN_PATH", "", "", err);
    return in_hub_home(out, environment, "/token", err);
}

bool location_data(struct location *out, char *const *environment, struct err *err)
{
    return under(out, environment, "XDG_DATA_HOME", "/.local/share", "/weir", err);
}

bool location_state(struct location *out, char *const *environment, struct err *err)
{
    return under(out, environment, "XDG_STATE_HOME", "/.local/state", "/weir", err);
}
