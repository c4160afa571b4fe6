#include "fetch/refusal.h"

#include <inttypes.h>

bool refusal_passes(unsigned status)
{
    return status == 408 || status == 429 || (status >= 500 && status <= 599);
}

bool refusal_explain(struct err *err, const struct fetch_network *network, const char *what, unsigned status)
{
    const char *advice = "";
    if (status == 401 || status == 403)
        advice = network->token ? "; the token may lack access, or the model's terms are not accepted yet"
                                : "; if it is private or gated, set HF_TOKEN to a token that has access";
    else if (status == 404 || status == 410)
        advice = "; is its name right, and the revision?";
    else if (status == 429)
        advice = "; too many requests: run the same command again later";
    else if (status >= 500)
        advice = "; run the same command again later to go on";
    return err_set(err, ERR_NETWORK, "%s: the hub at %s answers %u%s", what, network->endpoint, status, advice);
}

bool refusal_pause(const struct fetch_tuning *tuning, unsigned n, const struct http_answer *answer, int64_t *pause_ns)
{
    int64_t pause = tuning->pause_ns;
    for (unsigned i = 1; i < n && pause < tuning->pause_ns_max; i++) pause *= 2;
    if (pause > tuning->pause_ns_max) pause = tuning->pause_ns_max;
    uint64_t told_s = answer->retry_after_s;
    if (told_s > (uint64_t)tuning->told_pause_ns_max / 1000000000) return false;
    int64_t told_ns = (int64_t)told_s * 1000000000;
    *pause_ns = told_ns > pause ? told_ns : pause;
    return true;
}
