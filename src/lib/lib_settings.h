#ifndef LIB_LIB_SETTINGS_H
#define LIB_LIB_SETTINGS_H
/* The library's settings as an engine takes them: also for the commands that open an engine by themselves. */
#include "run/engine.h"
#include "weir/weir.h"

struct lib_settings {
    struct weir_settings given; /* complete */
    struct engine_settings engine;
};

/* Checks settings (NULL: as initialised), for the model in this folder. Texts stay where they are. */
bool lib_settings_read(struct lib_settings *out, const char *model_dir, const struct weir_settings *given,
                       struct err *err) MUST_CHECK;

#endif
