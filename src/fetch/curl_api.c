#include "fetch/curl_api.h"

#include <dlfcn.h>
#include <string.h>

static bool find(void *library, void *function, const char *name, struct err *err)
{
    void *symbol = dlsym(library, name);
    if (!symbol) return err_set(err, ERR_FAILED, "libcurl.so.4 has no %s; install the package libcurl4", name);
    memcpy(function, &symbol, sizeof symbol); /* POSIX: an object pointer from dlsym may be a function's */
    return true;
}

bool curl_api_open(struct curl_api *api, struct err *err)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return err_set(err, ERR_FAILED, "cannot open libcurl (%s); install the package libcurl4", dlerror());
#define X(name) \
    if (!find(library, &api->name, "curl_" #name, err)) return false;
    CURL_FUNCTIONS(X)
#undef X
    return true;
}
