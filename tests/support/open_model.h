#ifndef SUPPORT_OPEN_MODEL_H
#define SUPPORT_OPEN_MODEL_H
/* A model folder opened as the program does: config, catalogue, inventory and, when asked for, all weights. */
#include "resid/resident.h"

struct open_model {
    struct alloc *alloc;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct resident *resident; /* NULL when not asked for */
};

/* On failure everything is closed again. */
bool open_model(struct open_model *model, struct alloc *alloc, struct file_system fs, const char *dir, bool weights,
                struct err *err) MUST_CHECK;
void close_model(struct open_model *model); /* safe on a zeroed and on a half-opened one */
#endif
