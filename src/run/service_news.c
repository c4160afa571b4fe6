/* What tickets and the engine thread tell the service that they belong to. */
#include "run/service_int.h"

#include "base/assert.h"
#include <errno.h>
#include <unistd.h>

static void forget_open(struct service *s, const struct ticket *t)
{
    for (uint32_t i = 0; i < s->n_open; i++)
        if (s->open[i] == t) {
            s->open[i] = s->open[--s->n_open];
            return;
        }
    ASSERT(!"a ticket that was not open is done");
}

void service_count_done(struct service *service, const struct ticket *ticket, const struct service_result *result)
{
    struct service *s = service;
    pthread_mutex_lock(&s->lock);
    forget_open(s, ticket);
    if (result->usage.n_generated > 0 && result->decode_ns > 0) {
        double total_s = (double)(result->prompt_ns + result->decode_ns) / 1e9;
        s->answer_s = s->answer_s > 0 ? 0.7 * s->answer_s + 0.3 * total_s : total_s;
        s->stats.decode_ns += result->decode_ns;
        s->stats.n_decoded += result->usage.n_generated - 1; /* the first came with the prompt's last pass */
        s->stats.last_tokens_per_second = (double)(result->usage.n_generated - 1) / ((double)result->decode_ns / 1e9);
    }
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

void service_wake(struct service *s)
{
    char byte = 0;
    s->is_nudged = true;
    pthread_cond_signal(&s->work);
    if (s->wake_fds[1] >= 0 && write(s->wake_fds[1], &byte, 1) < 0) ASSERT(errno == EAGAIN); /* it is full of wakes */
}

void service_nudge(struct service *service)
{
    pthread_mutex_lock(&service->lock);
    service_wake(service);
    pthread_mutex_unlock(&service->lock);
}

void service_count_pause(struct service *service)
{
    pthread_mutex_lock(&service->lock);
    service->n_pauses++;
    pthread_mutex_unlock(&service->lock);
}
