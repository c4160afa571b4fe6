#include "run/engine_pool.h"

#include "base/assert.h"
#include <pthread.h>

enum seat_state { SEAT_OUT, SEAT_WAITING, SEAT_IN, SEAT_LEAVING, SEAT_ENDING };

struct member {
    enum seat_state state;
    bool has_work, is_nudged;
    uint64_t since; /* it waits; orders those who do */
    uint64_t used;  /* it had work last */
    void (*nudge)(void *context);
    void *context;
};

struct engine_pool {
    struct alloc *alloc;
    uint32_t n_seats, n_members;
    pthread_mutex_t lock; /* for everything below */
    uint64_t time;        /* counts, as a clock that never stands still */
    struct member members[];
};

bool engine_pool_new(struct engine_pool **pool, struct alloc *alloc, uint32_t n_seats, uint32_t n_members,
                     struct err *err)
{
    ASSERT(n_seats > 0);
    struct engine_pool *p = alloc_get(alloc, sizeof *p + n_members * sizeof p->members[0], err);
    if (!p) return false;
    p->alloc = alloc;
    p->n_seats = n_seats;
    p->n_members = n_members;
    pthread_mutex_init(&p->lock, NULL);
    *pool = p;
    return true;
}

void engine_pool_free(struct engine_pool *pool)
{
    if (!pool) return;
    pthread_mutex_destroy(&pool->lock);
    alloc_put(pool->alloc, pool);
}

void engine_pool_join(struct engine_pool *pool, uint32_t member, void (*nudge)(void *context), void *context)
{
    ASSERT(member < pool->n_members);
    pthread_mutex_lock(&pool->lock);
    pool->members[member].nudge = nudge;
    pool->members[member].context = context;
    pthread_mutex_unlock(&pool->lock);
}

/* --- under the lock --- */

static uint32_t count(const struct engine_pool *p, enum seat_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_members; i++) n += p->members[i].state == state;
    return n;
}

static void move(struct member *m, enum seat_state state)
{
    m->state = state;
    m->is_nudged = true;
}

static struct member *longest_waiting(struct engine_pool *p)
{
    struct member *found = NULL;
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        if (m->state == SEAT_WAITING && (!found || m->since < found->since)) found = m;
    }
    return found;
}

static bool leaves_before(const struct member *a, const struct member *b)
{
    return a->has_work != b->has_work ? b->has_work : a->used < b->used;
}

/* Of those that have a seat the one to leave first, or of those that leave the one to stay. */
static struct member *choose(struct engine_pool *p, enum seat_state state, bool is_first)
{
    struct member *found = NULL;
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        if (m->state != state) continue;
        if (!found || (is_first ? leaves_before(m, found) : leaves_before(found, m))) found = m;
    }
    return found;
}

/* Free seats go to those who have waited longest; as many leave as still wait. */
static void settle(struct engine_pool *p)
{
    struct member *m;
    uint32_t n_ending = count(p, SEAT_ENDING);
    uint32_t n_taken = count(p, SEAT_IN) + count(p, SEAT_LEAVING) + n_ending;
    ASSERT(n_taken <= p->n_seats);
    for (; n_taken < p->n_seats && (m = longest_waiting(p)); n_taken++) {
        m->used = ++p->time;
        move(m, SEAT_IN);
    }
    uint32_t n_waiting = count(p, SEAT_WAITING), n_needed = n_waiting > n_ending ? n_waiting - n_ending : 0;
    while (count(p, SEAT_LEAVING) < n_needed && (m = choose(p, SEAT_IN, true))) move(m, SEAT_LEAVING);
    while (count(p, SEAT_LEAVING) > n_needed) move(choose(p, SEAT_LEAVING, false), SEAT_IN);
    /* One that has nothing to do any more leaves at once, in place of one that still has. */
    struct member *idle = choose(p, SEAT_IN, true), *busy = choose(p, SEAT_LEAVING, false);
    if (!idle || !busy || idle->has_work || !busy->has_work) return;
    move(idle, SEAT_LEAVING);
    move(busy, SEAT_IN);
}

/* --- */

/* Whoever has something new to hear is told without the lock. */
static void unlock_and_tell(struct engine_pool *p)
{
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_members; i++) {
        struct member *m = &p->members[i];
        pthread_mutex_lock(&p->lock);
        void (*nudge)(void *context) = m->is_nudged ? m->nudge : NULL;
        void *context = m->context;
        m->is_nudged = false;
        pthread_mutex_unlock(&p->lock);
        if (nudge) nudge(context);
    }
}

enum pool_word engine_pool_ask(struct engine_pool *pool, uint32_t member, bool has_work)
{
    static const enum pool_word words[] = {[SEAT_OUT] = POOL_REST,
                                           [SEAT_WAITING] = POOL_REST,
                                           [SEAT_IN] = POOL_RUN,
                                           [SEAT_LEAVING] = POOL_LEAVE,
                                           [SEAT_ENDING] = POOL_LEAVE};
    struct engine_pool *p = pool;
    ASSERT(member < p->n_members);
    struct member *m = &p->members[member];
    pthread_mutex_lock(&p->lock);
    bool is_news = m->has_work != has_work;
    m->has_work = has_work;
    if (has_work) m->used = ++p->time;
    if (m->state == SEAT_OUT && has_work) {
        m->state = SEAT_WAITING;
        m->since = p->time;
    } else if (m->state == SEAT_WAITING && !has_work) {
        m->state = SEAT_OUT;
    }
    if (is_news) settle(p);
    enum pool_word word = words[m->state];
    if (is_news)
        unlock_and_tell(p);
    else
        pthread_mutex_unlock(&p->lock);
    return word;
}

bool engine_pool_end(struct engine_pool *pool, uint32_t member)
{
    struct member *m = &pool->members[member];
    pthread_mutex_lock(&pool->lock);
    bool ends = m->state == SEAT_LEAVING;
    if (ends) m->state = SEAT_ENDING;
    pthread_mutex_unlock(&pool->lock);
    return ends;
}

void engine_pool_left(struct engine_pool *pool, uint32_t member)
{
    struct member *m = &pool->members[member];
    pthread_mutex_lock(&pool->lock);
    m->state = SEAT_OUT;
    m->has_work = false; /* it asks again */
    settle(pool);
    unlock_and_tell(pool);
}
