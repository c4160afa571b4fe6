/* A form's states, under the maker's lock:
 *
 *   IDLE    the matcher is the owner's; the mask is that of an earlier position
 *   ASKED   in the maker's list
 *   BUSY    the maker works on it, or the owner himself
 *   READY   mask, forced ids and err are good; the matcher is the owner's
 *
 * A form that is given up while it is BUSY is freed by the maker. */
#include "run/answer_form.h"

#include "base/assert.h"
#include "gram/mask_cache.h"
#include "gram/matcher.h"
#include "plat/clock.h"
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define MASK_CACHE_BYTES (UINT64_C(32) << 20)

enum {
    FORCED_MAX = 24,
    MOMENT_NS = 200000, /* where a single id is allowed, the mask takes a few microseconds */
};

enum form_state { FORM_IDLE, FORM_ASKED, FORM_BUSY, FORM_READY };

struct answer_form {
    struct form_maker *maker;
    struct answer_form *next; /* in the list of those that are asked for */
    struct constraint *constraint;
    struct matcher *now, *ahead; /* where the answer stands; a copy that runs in front, NULL until it is needed */
    bool starts_in_think;
    uint32_t forced[FORCED_MAX], n_forced;
    struct err err;

    enum form_state state; /* under the lock, as is the next */
    bool is_given_up;
    uint64_t mask[]; /* [a bit for each id] */
};

struct form_maker {
    struct alloc *alloc;
    const struct tokenizer *tokenizer;
    struct control_ids controls;
    uint32_t n_words;
    pthread_t thread;
    bool has_thread;
    struct token_trie *trie; /* whoever has set is_making, as is the next */
    struct mask_cache *masks;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t work, ready;
    struct answer_form *first, **end;
    bool stops, is_making;
    struct form_stats stats;
};

/* --- by whoever makes a mask: the maker's thread, or the owner that cannot wait for it --- */

static void free_form(struct answer_form *f)
{
    struct alloc *alloc = f->maker->alloc;
    matcher_free(f->ahead);
    matcher_free(f->now);
    constraint_drop(f->constraint);
    alloc_put(alloc, f);
}

static bool make_tables(struct form_maker *m, struct err *err)
{
    if (m->masks) return true;
    if (!m->trie) m->trie = token_trie_new(m->alloc, m->tokenizer, err);
    if (m->trie) m->masks = mask_cache_new(m->alloc, m->trie, MASK_CACHE_BYTES, err);
    ASSERT(!m->trie || token_trie_words(m->trie) <= m->n_words);
    return m->masks != NULL;
}

static struct matcher *make_matcher(struct form_maker *m, const struct answer_form *f, struct err *err)
{
    const struct matcher_rules rules = {
        .constraint = f->constraint, .cache = m->masks, .ids = &m->controls, .starts_in_think = f->starts_in_think};
    return matcher_new(m->alloc, &rules, err);
}

/* The only id of a mask. */
static bool is_single(const uint64_t *mask, uint32_t n_words, uint32_t *id)
{
    int n = 0;
    for (uint32_t w = 0; w < n_words && n < 2; w++) {
        n += __builtin_popcountll(mask[w]);
        if (mask[w]) *id = w * 64 + (uint32_t)__builtin_ctzll(mask[w]);
    }
    return n == 1;
}

static void find_forced(struct form_maker *m, struct answer_form *f)
{
    uint32_t id;
    struct err ignored;
    bool forced = is_single(f->mask, m->n_words, &id), taken;
    if (!forced || matcher_is_thinking(f->now)) return; /* nothing is forced while it thinks */
    if (!f->ahead) f->ahead = make_matcher(m, f, &ignored);
    if (!f->ahead || !matcher_copy(f->ahead, f->now, &ignored)) return;
    while (forced && f->n_forced < FORCED_MAX && !control_ids_ends(&m->controls, id)) {
        f->forced[f->n_forced++] = id;
        if (!matcher_advance(f->ahead, id, &taken, &ignored) || !taken || matcher_is_complete(f->ahead)) break;
        if (!matcher_forced(f->ahead, &id, &forced, &ignored)) break;
    }
}

static void make(struct form_maker *m, struct answer_form *f)
{
    f->n_forced = 0;
    if (!make_tables(m, &f->err)) return;
    if (!f->now) f->now = make_matcher(m, f, &f->err);
    if (f->now && matcher_allowed(f->now, f->mask, &f->err)) find_forced(m, f);
}

static void count(struct form_stats *stats, int64_t ns)
{
    stats->n_masks++;
    stats->made_ns += (uint64_t)ns;
    if ((uint64_t)ns > stats->made_ns_max) stats->made_ns_max = (uint64_t)ns;
}

/* Takes a form that is asked for out of the list. Under the lock. */
static void unlist(struct answer_form *f)
{
    struct form_maker *m = f->maker;
    struct answer_form **at = &m->first;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    if (!f->next) m->end = at;
}

/* Under the lock, which is left while the mask is made; nobody else is making one. */
static void make_asked(struct form_maker *m, struct answer_form *f)
{
    ASSERT(f->state == FORM_ASKED && !m->is_making);
    unlist(f);
    f->state = FORM_BUSY;
    m->is_making = true;
    pthread_mutex_unlock(&m->lock);
    int64_t start = clock_now_ns(clock_real());
    make(m, f);
    int64_t ns = clock_now_ns(clock_real()) - start;
    pthread_mutex_lock(&m->lock);
    m->is_making = false;
    count(&m->stats, ns);
    f->state = FORM_READY;
}

static void *run(void *context)
{
    struct form_maker *m = context;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while ((!m->first || m->is_making) && !m->stops) pthread_cond_wait(&m->work, &m->lock);
        struct answer_form *f = m->first;
        if (!f) break;
        make_asked(m, f);
        if (f->is_given_up) free_form(f);
        pthread_cond_broadcast(&m->ready);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* --- the tables --- */

void form_tables_init(struct form_tables *tables, struct alloc *alloc, const struct text_model *model)
{
    *tables = (struct form_tables){.alloc = alloc, .model = model};
}

void form_tables_fini(struct form_tables *tables)
{
    struct form_maker *m = tables->maker;
    tables->maker = NULL;
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    m->stops = true;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    if (m->has_thread) pthread_join(m->thread, NULL);
    mask_cache_free(m->masks);
    token_trie_free(m->trie);
    pthread_cond_destroy(&m->ready);
    pthread_cond_destroy(&m->work);
    pthread_mutex_destroy(&m->lock);
    alloc_put(m->alloc, m);
}

static bool start_maker(struct form_tables *tables, struct err *err)
{
    const struct text_model *model = tables->model;
    if (tables->maker) return true;
    struct form_maker *m = tables->maker = alloc_get(tables->alloc, sizeof *m, err);
    if (!m) return false;
    m->alloc = tables->alloc;
    m->tokenizer = model->tokenizer;
    m->controls = control_ids_of(&model->chat, model->ends, model->n_ends_chat);
    m->n_words = (model->n_tokens + 63) / 64;
    m->end = &m->first;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = pthread_create(&m->thread, NULL, run, m);
    m->has_thread = !failed;
    if (!failed) return true;
    form_tables_fini(tables);
    return err_set(err, ERR_FAILED, "cannot start the thread that makes masks: %s", strerror(failed));
}

struct form_stats form_tables_stats(const struct form_tables *tables)
{
    struct form_maker *m = tables->maker;
    if (!m) return (struct form_stats){0};
    pthread_mutex_lock(&m->lock);
    struct form_stats stats = m->stats;
    pthread_mutex_unlock(&m->lock);
    return stats;
}

/* --- forms, on the owner's thread --- */

/* Under the lock. */
static void ask(struct answer_form *f)
{
    struct form_maker *m = f->maker;
    f->state = FORM_ASKED;
    f->next = NULL;
    *m->end = f;
    m->end = &f->next;
    pthread_cond_signal(&m->work);
}

/* Until the matcher is the owner's. What the thread has not begun is made here: most masks take a tenth of the time in
 * which a thread wakes up, and behind a draft that came true the next one is wanted at once. Under the lock. */
static void wait_ready(struct answer_form *f)
{
    struct form_maker *m = f->maker;
    if (f->state == FORM_READY || f->state == FORM_IDLE) return;
    int64_t start = clock_now_ns(clock_real());
    while (f->state != FORM_READY)
        if (f->state == FORM_ASKED && !m->is_making)
            make_asked(m, f);
        else
            pthread_cond_wait(&m->ready, &m->lock);
    if (m->first) pthread_cond_signal(&m->work); /* the thread may have looked while a mask was made here */
    m->stats.n_waits++;
    m->stats.waited_ns += (uint64_t)(clock_now_ns(clock_real()) - start);
}

bool answer_form_new(struct answer_form **form, struct form_tables *tables, struct constraint *constraint,
                     bool starts_in_think, struct err *err)
{
    if (!start_maker(tables, err)) return false;
    struct form_maker *m = tables->maker;
    struct answer_form *f = alloc_get(m->alloc, sizeof *f + m->n_words * sizeof *f->mask, err);
    if (!f) return false;
    f->maker = m;
    f->constraint = constraint_hold(constraint);
    f->starts_in_think = starts_in_think;
    pthread_mutex_lock(&m->lock);
    ask(f);
    pthread_mutex_unlock(&m->lock);
    *form = f;
    return true;
}

void answer_form_free(struct answer_form *form)
{
    if (!form) return;
    struct form_maker *m = form->maker;
    pthread_mutex_lock(&m->lock);
    bool is_busy = form->state == FORM_BUSY;
    form->is_given_up = true;
    if (form->state == FORM_ASKED) unlist(form);
    pthread_mutex_unlock(&m->lock);
    if (!is_busy) free_form(form);
}

const uint64_t *answer_form_allowed(struct answer_form *form, struct err *failure)
{
    struct form_maker *m = form->maker;
    pthread_mutex_lock(&m->lock);
    if (form->state == FORM_IDLE) ask(form);
    wait_ready(form);
    pthread_mutex_unlock(&m->lock);
    if (form->err.kind != ERR_NONE) {
        *failure = form->err;
        memset(form->mask, 0, m->n_words * sizeof *form->mask);
    }
    return form->mask;
}

enum stop_reason answer_form_advance(struct answer_form *form, uint32_t id, struct err *failure)
{
    struct form_maker *m = form->maker;
    bool taken = false;
    pthread_mutex_lock(&m->lock);
    wait_ready(form);
    form->state = FORM_IDLE;
    pthread_mutex_unlock(&m->lock);
    if (form->err.kind != ERR_NONE) {
        *failure = form->err;
        return STOP_ERROR;
    }
    if (!matcher_advance(form->now, id, &taken, failure)) return STOP_ERROR;
    if (!taken) {
        err_set(failure, ERR_FAILED, "grammar_dead_end: token %" PRIu32 " came although it was not allowed", id);
        return STOP_ERROR;
    }
    if (matcher_is_complete(form->now)) return STOP_GRAMMAR;
    pthread_mutex_lock(&m->lock);
    ask(form);
    pthread_mutex_unlock(&m->lock);
    return STOP_NONE;
}

/* Under the lock. */
static bool is_ready_soon(struct answer_form *f)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += MOMENT_NS;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    while (f->state == FORM_ASKED || f->state == FORM_BUSY)
        if (pthread_cond_timedwait(&f->maker->ready, &f->maker->lock, &until) != 0) break;
    return f->state == FORM_READY;
}

uint32_t answer_form_forced(struct answer_form *form, uint32_t *ids, uint32_t n_max)
{
    pthread_mutex_lock(&form->maker->lock);
    bool is_ready = is_ready_soon(form);
    pthread_mutex_unlock(&form->maker->lock);
    uint32_t n = is_ready ? form->n_forced : 0;
    if (n > n_max) n = n_max;
    memcpy(ids, form->forced, n * sizeof *ids);
    return n;
}
