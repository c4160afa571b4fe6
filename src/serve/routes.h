#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H
/* Paths and methods: one table is the only place where a route exists. Read-only; any thread. */
#include "serve/server_int.h"

enum { METHOD_GET = 1, METHOD_POST = 2, METHOD_DELETE = 4, METHOD_ANY = 7 };

struct route {
    const char *path; /* without /v1, which is optional; * is one segment */
    unsigned method;
    bool is_open;    /* needs no key */
    bool is_quick;   /* answered on the net thread */
    bool is_refused; /* by its head: other servers have it, this model does not do it */
    bool is_anthropic;
    void (*serve)(struct server *server, struct worker *worker,
                  struct httpd_exchange *exchange); /* worker: NULL if quick */
};

/* NULL: there is none. *methods: all that the path has, 0 for an unknown path. *target: what stood for the *. */
const struct route *routes_find(const char *path, unsigned method, unsigned *methods, char target[160]);

/* "GET, HEAD" for the Allow header. */
const char *routes_allow(unsigned methods, char text[64]);

/* METHOD_...; HEAD is GET; 0: none of ours. */
unsigned routes_method(const char *method);

#endif
