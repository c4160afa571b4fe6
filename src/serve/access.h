#ifndef SERVE_ACCESS_H
#define SERVE_ACCESS_H
/* Who may ask at all: the Host header against DNS rebinding, the Origin of browsers, the key. Decided from headers,
 * before a body is read. Rules do not change while the server runs; any thread. */
#include "serve/problem.h"

enum { ACCESS_KEYS_MAX = 64, ACCESS_DIGEST_BYTES = 32 };

struct access_rules {
    char bound_host[256];       /* as it was given to --host */
    const char *const *hosts;   /* [n_hosts] other names that clients may use */
    const char *const *origins; /* [n_origins] "https://ui.example", or "*" */
    size_t n_hosts, n_origins;
    unsigned char keys[ACCESS_KEYS_MAX][ACCESS_DIGEST_BYTES]; /* digests: comparing them tells nothing by its time */
    size_t n_keys;
};

/* Headers, NULL where there is none. */
struct access_request {
    const char *host, *origin, *fetch_site, *authorization, *x_api_key;
    bool is_1_0;
};

/* Keys, one a line; blank lines and lines that begin with # do not count. */
bool access_add_keys(struct access_rules *rules, const char *name, const char *text, struct err *err) MUST_CHECK;

/* True when only this machine can reach the address. */
bool access_is_loopback(const char *host);

/* Host, Origin and fetch metadata. *allowed_origin: what a CORS answer names, or NULL. */
bool access_check_source(const struct access_rules *rules, const struct access_request *request,
                         const char **allowed_origin, struct problem *problem) MUST_CHECK;

/* The key. Without configured keys anything goes, because client libraries insist on sending one. */
bool access_check_key(const struct access_rules *rules, const struct access_request *request,
                      struct problem *problem) MUST_CHECK;

#endif
