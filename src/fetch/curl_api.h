#ifndef FETCH_CURL_API_H
#define FETCH_CURL_API_H
/* libcurl, loaded when it is first needed.
 *
 * Linked, it would bring some forty libraries into every start of the program, most of which never fetch anything. */
#include "base/err.h"
#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION /* old names of options: Debian 11 has a libcurl that knows only those */
#include <curl/curl.h>

#define CURL_FUNCTIONS(X)  \
    X(global_init)         \
    X(global_cleanup)      \
    X(easy_init)           \
    X(easy_cleanup)        \
    X(easy_reset)          \
    X(easy_setopt)         \
    X(easy_getinfo)        \
    X(easy_strerror)       \
    X(slist_append)        \
    X(slist_free_all)      \
    X(multi_init)          \
    X(multi_cleanup)       \
    X(multi_add_handle)    \
    X(multi_remove_handle) \
    X(multi_perform)       \
    X(multi_poll)          \
    X(multi_info_read)     \
    X(multi_strerror)

struct curl_api {
#define X(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(X)
#undef X
};

/* The library stays loaded for the rest of the process: it cannot be unloaded safely. */
bool curl_api_open(struct curl_api *api, struct err *err) MUST_CHECK;

#endif
