/* What every part of a layer does with a pass: it shares its rows out, and asks whether to go on. */
#include "model/forward_int.h"
#include <inttypes.h>

/* Rows that are worth a thread's while. */
enum { ROWS_GRAIN = 8 };

struct each_row {
    struct forward *f;
    row_fn *fn;
    const void *context;
};

static void run_rows(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct each_row *each = context;
    for (size_t row = begin; row < end; row++) each->fn(each->f, each->context, row, &each->f->threads[thread]);
}

void forward_each_row(struct forward *f, size_t n_rows, row_fn *fn, const void *context)
{
    struct each_row each = {.f = f, .fn = fn, .context = context};
    team_run(f->team, n_rows, ROWS_GRAIN, run_rows, &each);
}

bool forward_goes_on(struct forward *f, uint32_t layer, struct err *err)
{
    if (!f->poll || f->poll(f->poll_context, layer)) return true;
    return err_set(err, ERR_CANCELLED, "called off in layer %" PRIu32, layer);
}
