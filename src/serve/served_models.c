/* Which of the server's models is meant, and what workers and server have for it. */
#include "serve/server_int.h"

#include "base/assert.h"
#include <stdio.h>
#include <string.h>

const struct served_model *server_find_model(const struct server *server, const char *name)
{
    for (size_t i = 0; i < server->settings.n_models; i++)
        if (strcmp(server->settings.models[i].name, name) == 0) return &server->settings.models[i];
    return NULL;
}

void server_list_models(const struct server *server, char *text, size_t room)
{
    size_t used = 0;
    *text = 0;
    for (size_t i = 0; i < server->settings.n_models && used < room; i++)
        used +=
            (size_t)snprintf(text + used, room - used, "%s'%.100s'", i ? ", " : "", server->settings.models[i].name);
}

static size_t place_of(const struct server *server, const struct served_model *model)
{
    size_t place = (size_t)(model - server->settings.models);
    ASSERT(place < server->settings.n_models);
    return place;
}

struct encoder *server_encoder(const struct worker *worker, const struct served_model *model)
{
    return worker->encoders[place_of(worker->server, model)];
}

struct own_turns *server_own_turns(const struct server *server, const struct served_model *model)
{
    return server->own_turns[place_of(server, model)];
}
