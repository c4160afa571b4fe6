#ifndef SUPPORT_DEMO_SERVER_H
#define SUPPORT_DEMO_SERVER_H
/* The demo model behind HTTP, inside the test's own process. */
#include "run/service.h"
#include "serve/server.h"

#include <pthread.h>

struct demo_server {
    struct alloc alloc;
    struct config config;
    struct text_model model;
    struct sampling sampling;
    struct access_rules access;
    struct service_settings service_settings; /* may be changed between init and start, as may the next */
    struct served_model served;
    struct server_settings settings;
    struct service *service;
    struct server *server;
    uint16_t port;
    char *log; /* all lines, for looking at; grows */
    size_t n_log;
    pthread_mutex_t log_lock;
};

/* Settings that a test changes before it starts. Temperature 0, 64 tokens. */
void demo_server_init(struct demo_server *demo);
void demo_server_init_at(struct demo_server *demo, const char *dir); /* with another model; dir is borrowed */

/* Returns when the model is ready. Fails the test if it does not come up. */
void demo_server_start(struct demo_server *demo);

/* Stops, and checks that no memory is left. */
void demo_server_stop(struct demo_server *demo);

/* Waits until no request is open any more, and says in how many milliseconds; fails the test after `ms`. */
int demo_server_wait_idle(struct demo_server *demo, int ms);

#endif
