#include "serve/access.h"

#include "base/assert.h"
#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static_assert(ACCESS_DIGEST_BYTES == SHA256_DIGEST_LENGTH, "keys are kept as SHA-256");

enum { KEY_BYTES_MAX = 4096 };

bool access_add_keys(struct access_rules *rules, const char *name, const char *text, struct err *err)
{
    for (unsigned line = 1; *text; line++) {
        size_t whole = strcspn(text, "\n"), n = whole;
        const char *key = text;
        text += whole + (text[whole] == '\n');
        while (n > 0 && strchr(" \t\r", key[n - 1])) n--;
        while (n > 0 && strchr(" \t", *key)) key++, n--;
        if (n == 0 || *key == '#') continue;
        if (n > KEY_BYTES_MAX)
            return err_set(err, ERR_USER, "%s:%u: a key of %zu bytes; at most %d are possible", name, line, n,
                           KEY_BYTES_MAX);
        if (rules->n_keys == ACCESS_KEYS_MAX)
            return err_set(err, ERR_USER, "%s:%u: more than %d keys", name, line, ACCESS_KEYS_MAX);
        SHA256((const unsigned char *)key, n, rules->keys[rules->n_keys++]);
    }
    return rules->n_keys > 0 || err_set(err, ERR_USER, "%s: there is no key in it", name);
}

bool access_is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* The host of "host:port" or "[v6]:port", without brackets. False: it is not of that form. */
static bool host_part(char out[256], const char *text)
{
    bool is_bracketed = *text == '[';
    const char *start = text + is_bracketed, *end = start + strcspn(start, is_bracketed ? "]" : ":");
    const char *rest = end + (is_bracketed && *end == ']');
    if ((is_bracketed && *end != ']') || end == start || end - start >= 256) return false;
    if (*rest && (*rest != ':' || rest[1] == 0 || strspn(rest + 1, "0123456789") != strlen(rest + 1))) return false;
    snprintf(out, 256, "%.*s", (int)(end - start), start);
    return true;
}

/* Behind a wildcard this machine answers by any of its addresses. A name can be made to point here by whoever owns it;
 * an address cannot. */
static bool is_address_of_any(const struct access_rules *rules, const char *host)
{
    unsigned char bytes[16];
    bool is_any = strcmp(rules->bound_host, "0.0.0.0") == 0 || strcmp(rules->bound_host, "::") == 0;
    return is_any && (inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1);
}

static bool is_our_name(const struct access_rules *rules, const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "::1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(host, names[i]) == 0) return true;
    return strcasecmp(host, rules->bound_host) == 0;
}

static bool host_is_known(const struct access_rules *rules, const char *header)
{
    char host[256];
    if (!host_part(host, header)) return false;
    if (is_our_name(rules, host) || is_address_of_any(rules, host)) return true;
    for (size_t i = 0; i < rules->n_hosts; i++)
        if (strcasecmp(host, rules->hosts[i]) == 0) return true;
    return false;
}

/* An origin is scheme, colon, two slashes and what the Host header would be. */
static bool is_same_origin(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");
    bool is_web = strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0;
    return is_web && rest && host && strcasecmp(rest + 3, host) == 0;
}

static bool origin_is_known(const struct access_rules *rules, const struct access_request *request)
{
    if (is_same_origin(request->origin, request->host)) return true;
    for (size_t i = 0; i < rules->n_origins; i++)
        if (strcmp(rules->origins[i], "*") == 0 || strcasecmp(rules->origins[i], request->origin) == 0) return true;
    return false;
}

bool access_check_source(const struct access_rules *rules, const struct access_request *request,
                         const char **allowed_origin, struct problem *problem)
{
    *allowed_origin = NULL;
    if (request->host && !host_is_known(rules, request->host))
        return problem_set(problem, PROBLEM_FORBIDDEN, NULL,
                           "the Host header names '%.100s', which is not a name of this server; allow it with "
                           "--allow-host",
                           request->host);
    if (request->origin && !origin_is_known(rules, request))
        return problem_set(problem, PROBLEM_FORBIDDEN, NULL,
                           "requests from the origin '%.100s' are not allowed; allow it with --cors-origin",
                           request->origin);
    if (!request->origin && request->fetch_site && strcmp(request->fetch_site, "cross-site") == 0)
        return problem_set(problem, PROBLEM_FORBIDDEN, NULL, "requests from other sites need an allowed origin");
    *allowed_origin = request->origin;
    return true;
}

bool access_check_key(const struct access_rules *rules, const struct access_request *request, struct problem *problem)
{
    const char *key = request->x_api_key;
    if (request->authorization && strncasecmp(request->authorization, "bearer ", 7) == 0)
        key = request->authorization + 7;
    if (rules->n_keys == 0) return true;
    if (!key)
        return problem_set(problem, PROBLEM_KEY, NULL,
                           "this server wants an API key: send Authorization: Bearer KEY, or x-api-key: KEY");
    unsigned char digest[ACCESS_DIGEST_BYTES];
    unsigned different = 1;
    SHA256((const unsigned char *)key, strlen(key), digest);
    for (size_t i = 0; i < rules->n_keys; i++) different &= CRYPTO_memcmp(digest, rules->keys[i], sizeof digest) != 0;
    return !different || problem_set(problem, PROBLEM_KEY, NULL, "the API key is not one of this server's");
}
