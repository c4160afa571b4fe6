#include "support/plain_hub.h"

#include <stdlib.h>

#define PLAIN "tests/fixtures/glm52-tiny/plain/"

void plain_hub_start(struct plain_hub *hub, unsigned n_files)
{
    *hub = (struct plain_hub){.n_files = n_files};
    hub->config = take_file(PLAIN "config.json", &hub->n_config);
    hub->weights = take_file(PLAIN "model.safetensors", &hub->n_weights);
    const struct hub_server_file files[] = {
        {.path = "config.json", .data = hub->config, .bytes = hub->n_config},
        {.path = "model.safetensors", .data = hub->weights, .bytes = hub->n_weights, .is_large = true},
        {.path = "README.md", .data = hub->config, .bytes = 10},
    };
    hub_server_start(&hub->server, files, n_files);
}

void plain_hub_stop(struct plain_hub *hub)
{
    hub_server_stop(&hub->server);
    free(hub->config);
    free(hub->weights);
}

void plain_hub_begin(struct plain_hub *hub, struct temp_folder *folder, struct program *weir)
{
    temp_folder_make(folder);
    hub_server_reset(&hub->server, hub->n_files);
    *weir = (struct program){0};
    program_set(weir, "HOME", folder->path);
    program_set(weir, "HF_ENDPOINT", hub->server.endpoint);
}
