#include "serve/drafts_json.h"

#include "serve/call.h"

enum { ROWS_TOLD = 4 };

static void put_mode(struct jot *json, const struct service_stats *stats)
{
    static const char *const modes[] = {[DRAFT_OFF] = "off", [DRAFT_NGRAM] = "ngram", [DRAFT_MTP] = "mtp"};
    const struct draft_choice *drafts = &stats->drafts;
    jot_put_words(json, "mode", modes[drafts->kind]);
    if (stats->no_drafts[0]) jot_put_words(json, "reason", stats->no_drafts);
    jot_put_words(json, "depth", drafts->kind == DRAFT_OFF ? "none" : drafts->is_weighed ? "auto" : "fixed");
    jot_put_integer(json, "max_drafts", drafts->n_max);
}

void drafts_put_mode(struct jot *json, const struct served_model *model)
{
    struct service_stats stats;
    service_stats(model->service, &stats);
    jot_put_open(json, "speculation");
    put_mode(json, &stats);
    jot_close(json);
}

/* By rows of a pass, from one on: seconds, and experts that are not in memory. */
static void put_costs(struct jot *json, const struct draft_control *control)
{
    jot_put_open_list(json, "pass_seconds");
    for (int n = 1; n <= ROWS_TOLD; n++) jot_real(json, pass_cost_ns(&control->pass, n) / 1e9);
    jot_close_list(json);
    jot_put_open_list(json, "pass_missing_experts");
    for (int n = 1; n <= ROWS_TOLD; n++) jot_real(json, pass_cost_missed(&control->pass, n));
    jot_close_list(json);
    jot_put_real(json, "draft_seconds", pass_cost_ns(&control->link, 1) / 1e9);
    jot_put_real(json, "draft_missing_experts", pass_cost_missed(&control->link, 1));
}

static void put_estimate(struct jot *json, const struct draft_control *control)
{
    static const struct draft_hits none;
    jot_put_open(json, "estimate");
    put_costs(json, control);
    jot_put_open_list(json, "acceptance"); /* of the first draft, the second behind an accepted first, ... */
    for (uint32_t j = 0; j < ROWS_TOLD; j++) jot_real(json, draft_chance(control, &none, j));
    jot_close_list(json);
    jot_close(json);
}

void drafts_put_stats(struct jot *json, const struct service_stats *stats)
{
    const struct scheduler_stats *s = &stats->scheduler;
    const struct draft_stats *d = &s->drafts;
    struct draft_totals added = draft_totals(d, stats->expert_bytes);
    jot_put_open(json, "speculation");
    put_mode(json, stats);
    jot_put_integer(json, "drafted", (int64_t)s->n_drafted);
    jot_put_integer(json, "accepted", (int64_t)s->n_accepted);
    jot_put_integer(json, "forced", (int64_t)s->n_forced);
    jot_put_integer(json, "forwards_saved", (int64_t)(s->n_accepted + s->n_forced));
    jot_put_real(json, "tokens_per_forward", s->n_passes ? (double)s->n_generated / (double)s->n_passes : 0);
    jot_put_integer(json, "passes", (int64_t)d->n_passes);
    jot_put_integer(json, "trials", (int64_t)d->n_trials);
    jot_put_open_list(json, "rows_by_drafts"); /* how often a sequence had none, one, two, ... in a pass */
    for (int n = 0; n < DRAFT_DEPTHS; n++) jot_integer(json, (int64_t)d->n_rows_with[n]);
    jot_close_list(json);
    jot_put_integer(json, "added_experts", (int64_t)added.n_experts);
    jot_put_integer(json, "added_bytes", (int64_t)added.bytes);
    jot_put_real(json, "draft_seconds_total", (double)d->steps_ns / 1e9);
    jot_put_real(json, "expected_gain_seconds", d->expected_gain_ns / 1e9);
    jot_put_real(json, "gain_seconds", d->gain_ns / 1e9);
    if (stats->drafts.kind != DRAFT_OFF) put_estimate(json, &stats->control);
    jot_close(json);
}
