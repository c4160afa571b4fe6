#ifndef SUPPORT_PLAIN_HUB_H
#define SUPPORT_PLAIN_HUB_H
/* A hub that has the plain tiny model, and a weir that asks it from a home of its own. */
#include "support/hub_server.h"
#include "support/program.h"
#include "support/temp_folder.h"

struct plain_hub {
    struct hub_server server;
    unsigned char *config, *weights; /* the files config.json and model.safetensors */
    size_t n_config, n_weights;
    unsigned n_files;
};

/* n_files: 2, or 3 with a README.md of ten bytes. */
void plain_hub_start(struct plain_hub *hub, unsigned n_files);
void plain_hub_stop(struct plain_hub *hub);

/* Good behaviour again, an empty folder, and a weir whose home it is. */
void plain_hub_begin(struct plain_hub *hub, struct temp_folder *folder, struct program *weir);

#endif
