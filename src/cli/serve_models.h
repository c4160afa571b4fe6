#ifndef CLI_SERVE_MODELS_H
#define CLI_SERVE_MODELS_H
/* The models of weir serve: what each of them needs from the start, and their engines.
 *
 * One model has its engine in the process, or with --isolate in a child. Several have a child each, of which
 * --model-pool are there at a time; they share --ram-budget evenly. Children come from keepers, which are forked here,
 * before there is any thread: from serve_models_start on there may be several kinds of this process (plat/keeper.h). */
#include "cli/answer_settings.h"
#include "cli/commands.h"
#include "plat/keeper.h"
#include "run/service.h"
#include "serve/server.h"

struct serve_model {
    const char *dir;
    struct config config;
    struct text_model text;
    struct answer_settings answers;
    char name[256], fingerprint[40], ssd_dir[1024];
    struct keeper *keeper; /* NULL: the engine is in this process */
    struct service_settings with;
    struct service *service;
    struct serve_models *all;
};

struct serve_models {
    const struct command_context *context;
    struct serve_model *models;  /* [n] */
    struct served_model *served; /* [n] as the server sees them */
    size_t n;
    struct engine_pool *pool; /* NULL: one model */
    enum keeper_role role;    /* of this process */
    bool child_failed;

    /* Filled by the caller; any thread, with the model that it is about. */
    void *told;
    void (*changed)(void *told, const struct serve_model *model, enum service_state state, const struct err *err);
    void (*warned)(void *told, const struct serve_model *model, const struct err *warning);
};

/* Checks the models, makes keepers and starts services, for the models of the command line. In a process of another
 * role than the owner's it returns true when that role is over. */
bool serve_models_start(struct serve_models *models, struct err *err) MUST_CHECK;

void serve_models_close(struct serve_models *models); /* no request is taken from now on */
uint32_t serve_models_open_requests(struct serve_models *models);
uint32_t serve_models_stop(struct serve_models *models); /* returns how many requests were cancelled */
void serve_models_fini(struct serve_models *models);     /* after stop and the server; safe on a half-made one */

#endif
