#include "base/pace.h"

#define SAMPLE_NS INT64_C(250000000)

void pace_add(struct pace *pace, int64_t now_ns, uint64_t bytes_done)
{
    if (pace->n > 0 && now_ns - pace->at_ns[pace->newest] < SAMPLE_NS) return;
    if (pace->n > 0) pace->newest = (pace->newest + 1) % PACE_SAMPLES;
    pace->at_ns[pace->newest] = now_ns;
    pace->bytes[pace->newest] = bytes_done;
    if (pace->n < PACE_SAMPLES) pace->n++;
}

double pace_per_second(const struct pace *pace)
{
    if (pace->n < 4) return -1;
    unsigned oldest = (pace->newest + PACE_SAMPLES + 1 - pace->n) % PACE_SAMPLES;
    double seconds = (double)(pace->at_ns[pace->newest] - pace->at_ns[oldest]) / 1e9;
    /* A file that starts over makes it go backwards for a moment: that is no rate. */
    if (seconds <= 0 || pace->bytes[pace->newest] < pace->bytes[oldest]) return -1;
    return (double)(pace->bytes[pace->newest] - pace->bytes[oldest]) / seconds;
}

double pace_seconds_left(const struct pace *pace, uint64_t bytes_missing)
{
    double rate = pace_per_second(pace);
    return rate > 0 ? (double)bytes_missing / rate : -1;
}
