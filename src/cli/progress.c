#include "cli/progress.h"

#include "base/units.h"
#include <inttypes.h>
#include <unistd.h>

enum { BAR_WIDTH = 24, WHAT_WIDTH = 28 };
#define PERIOD_NS INT64_C(100000000)

struct progress progress_on(FILE *out, bool is_dumb)
{
    int descriptor = fileno(out);
    return (struct progress){
        .out = out, .clock = clock_real(), .is_shown = !is_dumb && descriptor >= 0 && isatty(descriptor)};
}

static void print_time_left(FILE *out, double seconds)
{
    uint64_t minutes = (uint64_t)(seconds / 60);
    if (minutes >= 60)
        fprintf(out, ", %" PRIu64 " h %" PRIu64 " min left", minutes / 60, minutes % 60);
    else if (minutes > 0)
        fprintf(out, ", %" PRIu64 " min left", minutes);
    else
        fprintf(out, ", %.0f s left", seconds);
}

void progress_draw(struct progress *p, uint64_t done, uint64_t whole, double bytes_per_second, double seconds_left,
                   const char *what)
{
    char bar[BAR_WIDTH + 1], first[UNITS_TEXT_MAX], second[UNITS_TEXT_MAX];
    int64_t now_ns = clock_now_ns(p->clock);
    if (!p->is_shown || (p->has_bar && now_ns - p->drawn_ns < PERIOD_NS)) return;
    int filled = whole ? (int)((double)done / (double)whole * BAR_WIDTH) : 0;
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    fprintf(p->out, "\r\033[K[%s] %s of %s", bar, units_format_bytes(first, done), units_format_bytes(second, whole));
    if (bytes_per_second >= 0) fprintf(p->out, ", %s/s", units_format_bytes(first, (uint64_t)bytes_per_second));
    if (seconds_left >= 0) print_time_left(p->out, seconds_left);
    if (what) fprintf(p->out, ", %.*s", WHAT_WIDTH, what);
    fflush(p->out);
    p->drawn_ns = now_ns;
    p->has_bar = true;
}

void progress_clear(struct progress *p)
{
    if (p->has_bar) fputs("\r\033[K", p->out);
    p->has_bar = false;
}
