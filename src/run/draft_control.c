#include "run/draft_control.h"

#include "base/assert.h"
#include <math.h>

enum {
    COUNT_MAX = 16,   /* a mean forgets what is older than about so many observations */
    ANCHOR_COUNT = 8, /* of a mean that may be an anchor */
    REFRESH = 48,     /* passes with drafts before one without tells anew what that costs */
};

/* Before it was seen: a row more costs this much of a pass's work, and wants this much of a row's experts anew. */
static const double work_slope = 0.25, wanted_slope = 0.75;

/* A value that is so many times the usual one counts as that; and so while little is known of what is usual. */
static const double outlier = 1.5, early_outlier = 2, waits_outlier = 3;
static const double share_rate = 1.0 / 16; /* of the missing share */
static const double fading = 31.0 / 32;    /* of the waits */
static const double curve_fading = 0.99;   /* of what was seen at other numbers of rows */
static const double own_fading = 0.97, all_fading = 0.99;
static const double drift = 1.06;     /* of a mean, over its anchor, that the others share */
static const double line_weight = 12; /* values at a number of rows that count as much as the line through all */
static const double own_weight = 8;   /* drafts of a sequence that count as much as what is known of all */
static const double prior_weight = 3; /* drafts at a place that count as much as what is known of the place before */
static const double benefit = 0.08;   /* of the doubt: how much faster than it seems what was never seen may be */
static const double worth = 1.01;     /* below this gain drafts are not worth the doubt */
static const double budget_share = 1.0 / 250;          /* of all time, that drafts may lose */
static const double budget_first = 2, budget_most = 6; /* in passes without drafts */

/* --- curves --- */

static uint32_t place_of(double n_rows)
{
    return n_rows < 1 ? 1 : n_rows > CURVE_ROWS ? CURVE_ROWS : (uint32_t)n_rows;
}

struct line {
    double x, y, slope; /* through (x, y) */
    double weight;
};

/* Least squares over the means, drawn to the slope that is expected before anything is known. */
static struct line line_of(const struct curve *curve, double prior_slope)
{
    struct line l = {0};
    double xx = 0, xy = 0;
    for (uint32_t n = 1; n <= curve->n_most; n++) {
        double w = curve->count[n];
        l.weight += w;
        l.x += w * n;
        l.y += w * curve->mean[n];
        xx += w * n * n;
        xy += w * n * curve->mean[n];
    }
    if (l.weight <= 0) return l;
    l.x /= l.weight;
    l.y /= l.weight;
    double expected = prior_slope * l.y / (1 + prior_slope * (l.x - 1));
    double spread = xx - l.weight * l.x * l.x, together = xy - l.weight * l.x * l.y;
    l.slope = fmax((together + expected) / (spread + 1), 0);
    return l;
}

static double value_at(const struct curve *curve, double prior_slope, double n_rows)
{
    struct line l = line_of(curve, prior_slope);
    if (l.weight <= 0) return 0;
    double on_line = fmax(l.y + l.slope * (n_rows - l.x), 0);
    uint32_t n = place_of(n_rows);
    if (n_rows != n || n == CURVE_ROWS) return on_line;
    return (curve->count[n] * curve->mean[n] + line_weight * on_line) / (curve->count[n] + line_weight);
}

/* What is far above the usual, or as long as nothing is usual above the line, tells of something else. Nothing makes a
 * pass much cheaper than it is: what is far below tells that the usual was not. */
static void see_value(struct curve *curve, double prior_slope, uint32_t n_rows, double value)
{
    uint32_t n = place_of(n_rows);
    double usual = curve->count[n] > 0 ? curve->mean[n] : value_at(curve, prior_slope, n_rows);
    double most = curve->count[n] > 2 ? outlier : early_outlier;
    if (usual > 0) value = fmin(value, usual * most);
    if (value * outlier < usual) curve->count[n] = 0;
    if (n > curve->n_most) curve->n_most = n;
    for (uint32_t i = 1; i <= curve->n_most; i++) curve->count[i] *= curve_fading;
    curve->count[n] = fmin(curve->count[n] / curve_fading + 1, COUNT_MAX);
    curve->mean[n] += (value - curve->mean[n]) / curve->count[n];
}

/* What happened to the mean at a number of rows that is well known happened to all of them: others use the machine, or
 * use it no more. Were the others left as they were, then what was seen before would be held against what is seen now.
 */
static void share_drift(struct curve *curve, uint32_t n_rows)
{
    uint32_t n = place_of(n_rows);
    double strayed = curve->anchor > 0 ? curve->mean[n] / curve->anchor : 1;
    bool is_known = curve->anchored == n && curve->count[n] >= ANCHOR_COUNT;
    if (is_known && strayed < drift && strayed > 1 / drift) return;
    for (uint32_t i = 1; is_known && i <= curve->n_most; i++)
        if (i != n) curve->mean[i] *= strayed;
    curve->anchored = n;
    curve->anchor = curve->mean[n];
}

/* --- passes --- */

static double miss_ns(const struct pass_cost *cost)
{
    return cost->missed > 0 ? cost->waited_ns / cost->missed : 0;
}

double pass_cost_missed(const struct pass_cost *cost, double n_rows)
{
    return cost->missed_share * value_at(&cost->wanted, wanted_slope, n_rows);
}

double pass_cost_ns(const struct pass_cost *cost, double n_rows)
{
    return value_at(&cost->work_ns, work_slope, n_rows) + pass_cost_missed(cost, n_rows) * miss_ns(cost);
}

static void see_pass(struct pass_cost *cost, const struct pass_seen *seen)
{
    double share, waited_ns = (double)seen->waited_ns;
    ASSERT(seen->n_rows > 0);
    see_value(&cost->work_ns, work_slope, seen->n_rows, (double)(seen->ns - seen->waited_ns));
    share_drift(&cost->work_ns, seen->n_rows);
    see_value(&cost->wanted, wanted_slope, seen->n_rows, (double)seen->n_wanted);
    if (cost->missed > 0) waited_ns = fmin(waited_ns, waits_outlier * miss_ns(cost) * (double)seen->n_missed);
    cost->waited_ns = fading * cost->waited_ns + waited_ns;
    cost->missed = fading * cost->missed + (double)seen->n_missed;
    if (seen->n_wanted > 0) {
        share = (double)seen->n_missed / (double)seen->n_wanted;
        cost->missed_share = cost->has_shares ? cost->missed_share + share_rate * (share - cost->missed_share) : share;
        cost->has_shares = true;
    }
}

/* Making a draft, until that was seen, is a part of a pass. */
static double link_ns(const struct draft_control *c, double n_rows)
{
    if (c->prior.link_work <= 0 || n_rows <= 0) return 0;
    if (line_of(&c->link.work_ns, work_slope).weight > 0) return pass_cost_ns(&c->link, n_rows);
    double more = 1 + wanted_slope * (n_rows - 1);
    return c->prior.link_work * value_at(&c->pass.work_ns, work_slope, n_rows) +
           c->prior.link_wanted * more * pass_cost_missed(&c->pass, 1) * miss_ns(&c->pass);
}

static double parts_ns(const struct draft_control *c, const struct draft_forecast *f)
{
    double ns = pass_cost_ns(&c->pass, f->n_rows);
    for (uint32_t step = 0; step < DRAFT_DEPTHS; step++) ns += link_ns(c, f->step_rows[step]);
    return ns;
}

/* --- what was seen --- */

void draft_control_init(struct draft_control *control, const struct draft_prior *prior)
{
    *control = (struct draft_control){.prior = *prior};
}

void draft_control_saw_pass(struct draft_control *control, const struct pass_seen *seen, uint32_t n_drafts)
{
    see_pass(&control->pass, seen);
    control->n_busy = n_drafts > 0 ? control->n_busy + 1 : 0;
    control->idle_ns = n_drafts > 0 ? 0 : control->idle_ns + (double)seen->ns;
}

void draft_control_saw_link(struct draft_control *control, const struct pass_seen *seen)
{
    see_pass(&control->link, seen);
}

/* Reads hide behind work, and a row more has less to hide behind: what is missing from the parts shows as a ratio by
 * the number of rows. What the parts have just learned from this round is not missing any more. A round that somebody
 * else held up is not held against drafts. */
void draft_control_saw_round(struct draft_control *control, const struct draft_forecast *forecast, uint64_t n_tokens,
                             int64_t ns)
{
    if (forecast->parts_ns <= 0 || forecast->plain_ns <= 0) return;
    bool is_first = line_of(&control->round, 0).weight <= 0;
    see_value(&control->round, 0, forecast->n_rows, (double)ns / parts_ns(control, forecast));
    if (is_first) control->budget_ns = budget_first * forecast->plain_ns;
    double booked_ns = fmin((double)ns, outlier * forecast->ns);
    control->budget_ns += budget_share * booked_ns;
    if (forecast->tokens > forecast->plain_tokens)
        control->budget_ns += (double)n_tokens * forecast->plain_ns / forecast->plain_tokens - booked_ns;
    control->budget_ns = fmin(control->budget_ns, budget_most * forecast->plain_ns);
}

static uint32_t bucket(uint32_t j)
{
    return j < DRAFT_DEPTHS ? j : DRAFT_DEPTHS - 1;
}

static void see_drafts(struct draft_hits *hits, uint32_t n_drafts, uint32_t n_came, double keep)
{
    for (uint32_t j = 0; j < DRAFT_DEPTHS; j++) {
        hits->tried[j] *= keep;
        hits->came[j] *= keep;
    }
    for (uint32_t j = 0; j < n_drafts && j <= n_came; j++) { /* behind the first that failed none had a chance */
        hits->tried[bucket(j)]++;
        hits->came[bucket(j)] += j < n_came;
    }
}

void draft_control_saw_drafts(struct draft_control *control, struct draft_hits *own, uint32_t n_drafts, uint32_t n_came)
{
    ASSERT(n_came <= n_drafts);
    if (n_drafts == 0) return;
    see_drafts(own, n_drafts, n_came, own_fading);
    see_drafts(&control->hits, n_drafts, n_came, all_fading);
}

/* A place at which few drafts were tried is thought to be like the one before it, and a sequence of which little was
 * seen like the others. */
double draft_chance(const struct draft_control *control, const struct draft_hits *own, uint32_t j)
{
    const struct draft_hits *all = &control->hits;
    uint32_t b = bucket(j);
    double usual = control->prior.chance;
    for (uint32_t i = 0; i <= b; i++) usual = (all->came[i] + prior_weight * usual) / (all->tried[i] + prior_weight);
    return (own->came[b] + own_weight * usual) / (own->tried[b] + own_weight);
}

/* --- the choice --- */

struct choice {
    const struct draft_control *control;
    struct draft_row *rows;
    uint32_t n;
};

/* With the depths that the rows have now. A sequence that is to get drafts has the draft layer take in what the pass
 * before made certain, in the first step; each further step has a row for every sequence that gets another draft. */
static struct draft_forecast forecast(const struct choice *c)
{
    struct draft_forecast f = {0};
    double verified = 0, first = 0;
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct draft_row *row = &c->rows[i];
        double alive = 1, brought = 1;
        for (uint32_t j = 0; j < row->depth; j++) brought += alive *= draft_chance(c->control, row->hits, j);
        f.tokens += brought + row->n_certain;
        verified += 1 + row->n_certain + row->depth;
        if (row->depth > 0) first += brought + row->n_behind;
        if (row->depth > deepest) deepest = row->depth;
    }
    f.step_rows[0] = first;
    for (uint32_t step = 1; step < deepest && step < DRAFT_DEPTHS; step++)
        for (uint32_t i = 0; i < c->n; i++) f.step_rows[step] += c->rows[i].depth > step;
    double ratio = value_at(&c->control->round, 0, verified);
    f.n_rows = (uint32_t)verified;
    f.parts_ns = parts_ns(c->control, &f);
    f.ns = f.parts_ns * (ratio > 0 ? ratio : 1);
    return f;
}

static double rate_of(const struct draft_forecast *f)
{
    return f->ns > 0 ? f->tokens / f->ns : 0;
}

/* What was seldom seen may be better than it seems, and only trying tells. */
static double hoped_rate(const struct choice *c, const struct draft_forecast *f)
{
    double seen = c->control->pass.work_ns.count[place_of(f->n_rows)];
    return rate_of(f) / (1 - benefit / sqrt(seen + 1));
}

/* The row whose next draft is likeliest to come true behind all before it; n: none may have another. */
static uint32_t best_next(const struct choice *c, const double *alive)
{
    uint32_t best = c->n;
    double most = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct draft_row *row = &c->rows[i];
        if (row->depth >= row->n_max) continue;
        double chance = alive[i] * draft_chance(c->control, row->hits, row->depth);
        if (chance <= most) continue;
        most = chance;
        best = i;
    }
    return best;
}

/* Drafts are added one by one, the likeliest first; the best of all these ways counts. */
static struct draft_forecast search(const struct choice *c, const struct draft_forecast *plain)
{
    double alive[CURVE_ROWS];
    uint32_t n_best = 0, n_added = 0, order[CURVE_ROWS * DRAFT_DEPTHS];
    struct draft_forecast best = *plain;
    for (uint32_t i = 0; i < c->n; i++) alive[i] = 1;
    while (n_added < CURVE_ROWS * DRAFT_DEPTHS) {
        uint32_t i = best_next(c, alive);
        if (i == c->n) break;
        alive[i] *= draft_chance(c->control, c->rows[i].hits, c->rows[i].depth);
        c->rows[i].depth++;
        order[n_added++] = i;
        struct draft_forecast f = forecast(c);
        if (hoped_rate(c, &f) <= hoped_rate(c, &best)) continue;
        best = f;
        n_best = n_added;
    }
    while (n_added > n_best) c->rows[order[--n_added]].depth--;
    return best;
}

static void clear(struct choice *c)
{
    for (uint32_t i = 0; i < c->n; i++) c->rows[i].depth = 0;
}

/* One draft for the first row that may have one. */
static struct draft_forecast one_draft(struct choice *c)
{
    clear(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->rows[i].n_max == 0) continue;
        c->rows[i].depth = 1;
        break;
    }
    return forecast(c);
}

/* Whether what a trial is expected to lose is little beside the time since the last. */
static bool is_due(const struct draft_control *control, const struct draft_forecast *trial,
                   const struct draft_forecast *plain)
{
    double lost = trial->ns - trial->tokens / rate_of(plain);
    return control->idle_ns * budget_share > fmax(lost, plain->ns / 16);
}

struct draft_forecast draft_control_foresee(const struct draft_control *control, struct draft_row *rows, uint32_t n)
{
    uint32_t depths[CURVE_ROWS];
    struct choice c = {control, rows, n};
    ASSERT(n <= CURVE_ROWS);
    for (uint32_t i = 0; i < n; i++) depths[i] = rows[i].depth;
    clear(&c);
    struct draft_forecast plain = forecast(&c);
    for (uint32_t i = 0; i < n; i++) rows[i].depth = depths[i];
    struct draft_forecast f = forecast(&c);
    f.plain_tokens = plain.tokens;
    f.plain_ns = plain.ns;
    return f;
}

/* After some passes with drafts, one without: sooner, the less often its cost was seen. */
static bool must_refresh(const struct draft_control *control, uint32_t n_rows)
{
    double seen = control->pass.work_ns.count[place_of(n_rows)];
    return (double)control->n_busy >= fmin(REFRESH, 16 * exp2(seen));
}

struct draft_forecast draft_control_choose(const struct draft_control *control, struct draft_row *rows, uint32_t n)
{
    struct choice c = {control, rows, n};
    ASSERT(n <= CURVE_ROWS);
    clear(&c);
    struct draft_forecast plain = forecast(&c), best = plain;
    bool knows = plain.ns > 0, refreshes = must_refresh(control, n);
    if (knows && !refreshes) best = search(&c, &plain);
    bool may = control->budget_ns > 0;
    if (knows && (!may || rate_of(&best) <= worth * rate_of(&plain))) {
        best = one_draft(&c);
        best.is_trial = best.tokens > plain.tokens && is_due(control, &best, &plain);
        if (!best.is_trial) {
            clear(&c);
            best = plain;
        }
    }
    best.plain_tokens = plain.tokens;
    best.plain_ns = plain.ns;
    return best;
}

bool draft_control_is_hopeful(const struct draft_control *control)
{
    static const struct draft_hits none;
    struct draft_row row = {.hits = &none, .n_max = DRAFT_DEPTHS - 1};
    struct draft_forecast f = draft_control_choose(control, &row, 1);
    return f.plain_ns <= 0 || row.depth > 0 || must_refresh(control, 1);
}
