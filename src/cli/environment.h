#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H
/* What the environment says, and the places that follow from it. An environment is an array of NAME=VALUE up to a NULL;
 * a variable that is empty counts as not set. Nothing here touches the disk. */
#include "base/err.h"

const char *environment_get(char *const *environment, const char *name); /* NULL: not set */

/* 1, on, yes or true, in any case. */
bool environment_says_yes(char *const *environment, const char *name);

enum { LOCATION_MAX = 4096 };
struct location {
    char path[LOCATION_MAX];
};

/* The cache that hub clients share: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
 * ~/.cache/huggingface/hub, the first that is set. All four fail with ERR_USER when HOME is needed and not set. */
bool location_hub_cache(struct location *out, char *const *environment, struct err *err) MUST_CHECK;
bool location_hub_token(struct location *out, char *const *environment, struct err *err) MUST_CHECK;

/* weir's own folders: what is worth keeping, and what only saves work. */
bool location_data(struct location *out, char *const *environment, struct err *err) MUST_CHECK;
bool location_state(struct location *out, char *const *environment, struct err *err) MUST_CHECK;

#endif
