#ifndef RUN_DRAFT_CONTROL_H
#define RUN_DRAFT_CONTROL_H
/* How many drafts each sequence gets in the next pass: as many as are expected to bring the most tokens a second.
 *
 * What a pass costs is learned from passes: the processor's time by the number of rows, the experts that so many rows
 * want, the share of these that is not in memory, and the time that each of those was waited for; and what all this
 * leaves out from rounds, by their number of rows. What drafts bring is learned from drafts: how often the j-th came
 * true when the j-1 before it had, for this sequence and for all. Nothing drafted is a legal answer, and on a slow disk
 * often the right one.
 *
 * Where nothing is drafted nothing is learned, so now and then there is a trial: one draft for one pass, whenever the
 * time since the last one is so long that what the trial may lose is a small part of it.
 *
 * Plain values: no clock, no engine, no memory of its own; the same observations give the same choices. */
#include <stdbool.h>
#include <stdint.h>

enum {
    DRAFT_DEPTHS = 8, /* places of a draft that are told apart; the last one stands for all behind it */
    CURVE_ROWS = 64,
};

/* A quantity by the number of rows of a pass: means where it was seen, and a line through them elsewhere. When the mean
 * at the number that is seen now strays far from its anchor, then the machine is another one, and the other means go
 * along. */
struct curve {
    double mean[CURVE_ROWS + 1], count[CURVE_ROWS + 1]; /* by rows; the last one for more */
    uint32_t n_most;                                    /* rows that were seen at most */
    double anchor;
    uint32_t anchored; /* the number of rows that `anchor` is of; 0: none */
};

/* One kind of pass. */
struct pass_cost {
    struct curve work_ns, wanted; /* of the processor; experts */
    double missed_share;          /* of what is wanted, lately */
    double waited_ns, missed;     /* sums that fade: their ratio is the wait for a missing expert */
    bool has_shares;
};

struct pass_seen {
    uint32_t n_rows;
    int64_t ns, waited_ns;       /* waited_ns: of ns, for experts */
    uint64_t n_wanted, n_missed; /* experts; n_missed: those that were not in memory */
};

/* How often drafts came true, by place. */
struct draft_hits {
    double tried[DRAFT_DEPTHS], came[DRAFT_DEPTHS];
};

/* What is known before anything was seen. */
struct draft_prior {
    double chance;      /* that a draft comes true */
    double link_work;   /* of making a draft, over the work of a pass with one row; 0: drafts are free */
    double link_wanted; /* experts of making one, over those of such a pass */
};

struct draft_control {
    struct draft_prior prior;
    struct pass_cost pass, link; /* verifying; making drafts, one for each row that wants another */
    struct curve round;          /* what a pass and its drafts took, over what their parts say; by rows verified */
    struct draft_hits hits;      /* of all sequences */
    double budget_ns;            /* that drafts may still lose: a share of all time, less what they lost */
    double idle_ns;              /* in passes without drafts, since one had some */
    uint64_t n_busy;             /* passes with drafts, since one had none */
};

/* A sequence in the next pass. */
struct draft_row {
    const struct draft_hits *hits; /* its own */
    uint32_t n_max;                /* drafts that it may have */
    uint32_t n_behind;             /* rows that the first step of making them has to take in besides the last pass's */
    uint32_t n_certain;            /* drafts that are known to come true and cost nothing to make; its first ones */
    uint32_t depth;                /* the answer, without the certain ones */
};

struct draft_forecast {
    double tokens, ns;              /* of the next pass and the drafts for it */
    double parts_ns;                /* of their parts, without what rounds taught */
    uint32_t n_rows;                /* to verify */
    double step_rows[DRAFT_DEPTHS]; /* of each step of making drafts */
    double plain_tokens, plain_ns;  /* of the same without drafts */
    bool is_trial;
};

void draft_control_init(struct draft_control *control, const struct draft_prior *prior);

/* What was seen: a pass that read no prompt; one step of making drafts. */
void draft_control_saw_pass(struct draft_control *control, const struct pass_seen *seen, uint32_t n_drafts);
void draft_control_saw_link(struct draft_control *control, const struct pass_seen *seen);
/* The pass of a forecast was run and brought so many tokens; with the making of its drafts, sampling and all it took
 * ns. */
void draft_control_saw_round(struct draft_control *control, const struct draft_forecast *forecast, uint64_t n_tokens,
                             int64_t ns);
/* Of n_drafts drafts of a sequence the first n_came came true. */
void draft_control_saw_drafts(struct draft_control *control, struct draft_hits *own, uint32_t n_drafts,
                              uint32_t n_came);

/* Sets each row's depth. */
struct draft_forecast draft_control_choose(const struct draft_control *control, struct draft_row *rows, uint32_t n);

/* The same for depths that were decided otherwise. */
struct draft_forecast draft_control_foresee(const struct draft_control *control, struct draft_row *rows, uint32_t n);

/* Whether a new sequence should be made ready for drafts: they would pay, or a trial is due, or nothing is known. */
bool draft_control_is_hopeful(const struct draft_control *control);

/* For the numbers: time, missing experts, and the chance of the draft at place j (from 0), as they are expected. */
double pass_cost_ns(const struct pass_cost *cost, double n_rows);
double pass_cost_missed(const struct pass_cost *cost, double n_rows);
double draft_chance(const struct draft_control *control, const struct draft_hits *own, uint32_t j);

#endif
