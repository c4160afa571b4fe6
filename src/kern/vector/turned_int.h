#ifndef KERN_TURNED_INT_H
#define KERN_TURNED_INT_H
/* Dot products of many queries with rows by pointer, in the stretches of kern.h. The queries are turned on their side,
 * so that an element of a register is a query: an element of a row meets all of them by one load, and no sum has to be
 * folded. They are turned once for PANEL_ROWS rows and stay in the first cache level while the rows come by, a run at a
 * time. Later runs are asked for one line at a time, evenly beside the arithmetic: a burst of requests would fill the
 * few buffers through which the present run passes as well. */
#include "kern/fetch_int.h"
#include "kern/list_int.h"
#include "kern/unroll_int.h"
#include "kern/vector/isa_int.h"

enum {
    PANEL_ROWS = 256,
    PANEL_QUERIES = 32,
    PANEL_DIM = 3 * KERN_STRETCH,
    GROUP_WIDES = 2,               /* registers of queries ... */
    RUN_ROWS = WIDE == 8 ? 6 : 12, /* ... by rows whose sums fill the sixteen or thirty-two registers */
    SHORT_RUN = 4,
    ROWS_AHEAD = 12, /* about as far as the memory is away */
};

struct panel {
    _Alignas(64) float queries[PANEL_DIM][PANEL_QUERIES];
    _Alignas(64) float dots[PANEL_ROWS + RUN_ROWS][PANEL_QUERIES];
};

/* Up to PANEL_QUERIES queries, q_stride floats apart, by up to PANEL_ROWS rows; scale is the factor of their dots. */
struct panel_operands {
    const float *q;
    const float *const *rows;
    size_t q_stride, n_q, n_rows, dim;
    float scale;
};

/* n_rows (a constant) rows from t on, and n columns from `column` on: one stretch. */
struct run {
    const float *row[RUN_ROWS], *ahead[RUN_ROWS];
    size_t n_ahead, t, column, n;
    bool is_last; /* of the stretches */
};

INLINE size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Columns begin .. end-1 of the queries. Those from n_q on, to a full register, are the last again. */
static void turn_queries(struct panel *panel, const struct panel_operands *o, size_t begin, size_t end)
{
    for (size_t h = 0; h < o->n_q; h += WIDE) {
        const float *rows[WIDE];
        size_t c = 0, n = end - begin;
        for (size_t k = 0; k < WIDE; k++) rows[k] = o->q + least(h + k, o->n_q - 1) * o->q_stride + begin;
        for (; c + WIDE <= n; c += WIDE) wide_turn(&panel->queries[c][h], PANEL_QUERIES, rows, c);
        for (; c < n; c++)
            for (size_t k = 0; k < WIDE; k++) panel->queries[c][h + k] = rows[k][c];
    }
}

/* Rows from the last one on are the last again. */
INLINE struct run run_at(const struct panel_operands *o, size_t t, size_t n_rows, size_t column, size_t end)
{
    size_t next = t + ROWS_AHEAD;
    struct run run = {.n_ahead = next < o->n_rows ? n_rows : 0, .t = t, .column = column};
    run.n = least(end - column, KERN_STRETCH);
    run.is_last = column + run.n == o->dim;
    for (size_t k = 0; k < n_rows; k++) {
        run.row[k] = o->rows[least(t + k, o->n_rows - 1)] + column;
        run.ahead[k] = o->rows[least(next + k, o->n_rows - 1)] + column;
    }
    return run;
}

/* A run by n_wides registers of queries from h on. n_rows and n_wides are constants. */
INLINE void add_run(struct panel *panel, const struct run *run, size_t n_rows, size_t h, size_t n_wides, float scale)
{
    const float *queries = &panel->queries[run->column % PANEL_DIM][h];
    size_t n_ahead = h == 0 ? run->n_ahead : 0;
    wide sum[RUN_ROWS][GROUP_WIDES], query[GROUP_WIDES];
    UNROLL
    for (size_t k = 0; k < RUN_ROWS; k++) sum[k][0] = sum[k][1] = wide_zero();
    for (size_t c = 0; c < run->n; c++, queries += PANEL_QUERIES) {
        if (c % FETCH_LINE < n_ahead) __builtin_prefetch(run->ahead[c % FETCH_LINE] + c, 0, 2);
        UNROLL
        for (size_t i = 0; i < n_wides; i++) query[i] = wide_load(queries + i * WIDE);
        UNROLL
        for (size_t k = 0; k < n_rows; k++) {
            wide value = wide_set1(run->row[k][c]);
            UNROLL
            for (size_t i = 0; i < n_wides; i++) sum[k][i] = wide_fma(value, query[i], sum[k][i]);
        }
    }
    UNROLL
    for (size_t k = 0; k < n_rows; k++) {
        UNROLL
        for (size_t i = 0; i < n_wides; i++) {
            float *dot = &panel->dots[run->t + k][h + i * WIDE];
            if (run->column) sum[k][i] = wide_add(wide_load(dot), sum[k][i]);
            wide_store(dot, run->is_last ? wide_mul(sum[k][i], wide_set1(scale)) : sum[k][i]);
        }
    }
}

/* Columns begin .. end-1 of n_rows rows (a constant) from t on. */
INLINE void add_rows(struct panel *panel, const struct panel_operands *o, size_t t, size_t n_rows, size_t begin,
                     size_t end)
{
    for (size_t column = begin; column < end; column += KERN_STRETCH) {
        const struct run run = run_at(o, t, n_rows, column, end);
        size_t h = 0;
        for (; h + WIDE < o->n_q; h += GROUP_WIDES * WIDE) add_run(panel, &run, n_rows, h, GROUP_WIDES, o->scale);
        if (h < o->n_q) add_run(panel, &run, n_rows, h, 1, o->scale);
    }
}

/* All dots of the panel, by row. */
static void panel_dots(struct panel *panel, const struct panel_operands *o)
{
    for (size_t begin = 0, end; begin < o->dim; begin = end) {
        size_t t = 0;
        end = begin + least(o->dim - begin, PANEL_DIM);
        fetch_rows(o->rows, o->n_rows, 0, ROWS_AHEAD, begin, end);
        turn_queries(panel, o, begin, end);
        for (; t + SHORT_RUN < o->n_rows; t += RUN_ROWS) add_rows(panel, o, t, RUN_ROWS, begin, end);
        if (t < o->n_rows) add_rows(panel, o, t, SHORT_RUN, begin, end);
    }
}

/* y[h][t] = dots[t][h] */
static void store_turned(float *y, size_t y_stride, const struct panel *panel, const struct panel_operands *o)
{
    size_t t = 0;
    for (; t + WIDE <= o->n_rows; t += WIDE) {
        const float *rows[WIDE];
        size_t h = 0;
        for (size_t k = 0; k < WIDE; k++) rows[k] = panel->dots[t + k];
        for (; h + WIDE <= o->n_q; h += WIDE) wide_turn(y + h * y_stride + t, y_stride, rows, h);
        for (; h < o->n_q; h++)
            for (size_t k = 0; k < WIDE; k++) y[h * y_stride + t + k] = rows[k][h];
    }
    for (; t < o->n_rows; t++)
        for (size_t h = 0; h < o->n_q; h++) y[h * y_stride + t] = panel->dots[t][h];
}

INLINE void turned_gather_dots(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q,
                               const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    struct panel panel;
    for (size_t t = 0; t < n_rows; t += PANEL_ROWS) {
        for (size_t h = 0; h < n_q; h += PANEL_QUERIES) {
            struct panel_operands o = {.q = q + h * q_stride, .rows = rows + t, .q_stride = q_stride, .dim = dim};
            o.n_q = least(n_q - h, PANEL_QUERIES);
            o.n_rows = least(n_rows - t, PANEL_ROWS);
            o.scale = scale;
            panel_dots(&panel, &o);
            store_turned(y + h * y_stride + t, y_stride, &panel, &o);
        }
    }
}

struct index_panel {
    struct panel panel;
    _Alignas(64) float scores[PANEL_ROWS + DOTS][KERN_LANES]; /* their lanes, from one panel of heads to the next */
};

/* Adds the panel's heads; those beyond the last one are 0 times -0, which changes no sum. */
static void add_heads(struct index_panel *p, const struct panel_operands *o, const float *w)
{
    float weights[PANEL_QUERIES];
    size_t n = (o->n_q + KERN_LANES - 1) / KERN_LANES * KERN_LANES;
    for (size_t g = 0; g < n; g++) weights[g] = g < o->n_q ? w[g] : -0.0f;
    for (size_t t = 0; t < o->n_rows; t++) {
        struct lanes score = lanes_load(p->scores[t]);
        float *head = p->panel.dots[t];
        for (size_t g = o->n_q; g < n; g++) head[g] = 0;
        for (size_t g = 0; g < n; g += KERN_LANES)
            score = lanes_fma(lanes_load(weights + g), lanes_not_below_zero(lanes_load(head + g)), score);
        lanes_store(p->scores[t], score);
    }
}

static void fold_scores(float *y, const struct index_panel *p, size_t n)
{
    for (size_t t = 0; t < n; t += DOTS) {
        struct lanes lanes[DOTS];
        float values[DOTS];
        for (size_t k = 0; k < DOTS; k++) lanes[k] = lanes_load(p->scores[t + k]);
        dots_store(values, lanes_fold_dots(lanes));
        memcpy(y + t, values, least(n - t, DOTS) * sizeof *y);
    }
}

INLINE void turned_index_scores(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                                size_t n_heads, size_t dim, float dot_scale)
{
    struct index_panel p;
    for (size_t t = 0; t < n_keys; t += PANEL_ROWS) {
        size_t n = least(n_keys - t, PANEL_ROWS);
        memset(p.scores, 0, (n + DOTS) * sizeof *p.scores);
        for (size_t g = 0; g < n_heads; g += PANEL_QUERIES) {
            struct panel_operands o = {.q = q + g * dim, .rows = keys + t, .q_stride = dim, .dim = dim};
            o.n_q = least(n_heads - g, PANEL_QUERIES);
            o.n_rows = n;
            o.scale = dot_scale;
            panel_dots(&p.panel, &o);
            add_heads(&p, &o, w + g);
        }
        fold_scores(y + t, &p, n);
    }
}

/* gather_dots and index_scores of kern.h. */
#define DEFINE_TURNED(isa)                                                                                     \
    void gather_dots_##isa(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q,             \
                           const float *const *rows, size_t n_rows, size_t dim, float scale)                   \
    {                                                                                                          \
        turned_gather_dots(y, y_stride, q, q_stride, n_q, rows, n_rows, dim, scale);                           \
    }                                                                                                          \
    void index_scores_##isa(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys, \
                            size_t n_heads, size_t dim, float dot_scale)                                       \
    {                                                                                                          \
        turned_index_scores(y, q, w, keys, n_keys, n_heads, dim, dot_scale);                                   \
    }

#endif
