#ifndef FETCH_REFUSAL_H
#define FETCH_REFUSAL_H
/* What a hub's answer other than the one that was hoped for means, and how long to pause before asking again. */
#include "fetch/fetch.h"
#include "fetch/http.h"

/* Whether the same question may get another answer later: timeouts, too many requests, trouble at the server. */
bool refusal_passes(unsigned status);

/* ERR_NETWORK, with what a person can do. `what` was asked for. */
bool refusal_explain(struct err *err, const struct fetch_network *network, const char *what, unsigned status);

/* Pause behind the n-th failure in a row, n from 1. False: the server asks for a longer one than is waited for. */
bool refusal_pause(const struct fetch_tuning *tuning, unsigned n, const struct http_answer *answer, int64_t *pause_ns);

#endif
