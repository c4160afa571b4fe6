#include "fetch/segments.h"

#include "base/assert.h"
#include "base/checked.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX (UINT32_C(1) << 20)

bool segments_init(struct segments *s, struct alloc *alloc, uint64_t bytes, uint64_t segment_bytes, struct err *err)
{
    ASSERT(segment_bytes > 0);
    uint64_t n = div_up(bytes, segment_bytes);
    if (n > SEGMENTS_MAX) { /* a huge file has larger segments, not more of them */
        segment_bytes = div_up(bytes, SEGMENTS_MAX);
        n = div_up(bytes, segment_bytes);
    }
    *s = (struct segments){.alloc = alloc, .bytes = bytes, .segment_bytes = segment_bytes, .n = (uint32_t)n};
    s->done = alloc_get_array(alloc, n, sizeof *s->done, err);
    s->is_taken = s->done ? alloc_get_array(alloc, n, sizeof *s->is_taken, err) : NULL;
    if (s->is_taken) return true;
    segments_fini(s);
    return false;
}

void segments_fini(struct segments *s)
{
    if (!s->alloc) return;
    alloc_put(s->alloc, s->done);
    alloc_put(s->alloc, s->is_taken);
    *s = (struct segments){0};
}

void segments_restart(struct segments *s)
{
    if (s->n == 0) return;
    s->segment_bytes = s->bytes;
    s->n = 1;
    s->done[0] = s->bytes_done = 0;
    s->is_taken[0] = 0;
}

static uint64_t size_of(const struct segments *s, uint32_t segment)
{
    uint64_t first = segment * s->segment_bytes;
    return s->bytes - first < s->segment_bytes ? s->bytes - first : s->segment_bytes;
}

void segments_credit(struct segments *s, uint64_t bytes)
{
    for (uint32_t i = 0; i < s->n && bytes > 0; i++) {
        uint64_t here = size_of(s, i) < bytes ? size_of(s, i) : bytes;
        if (here > s->done[i]) {
            s->bytes_done += here - s->done[i];
            s->done[i] = here;
        }
        bytes -= here;
    }
}

bool segments_take(struct segments *s, uint32_t *segment)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->is_taken[i] || segments_missing(s, i) == 0) continue;
        s->is_taken[i] = 1;
        *segment = i;
        return true;
    }
    return false;
}

void segments_untake(struct segments *s, uint32_t segment)
{
    ASSERT(segment < s->n);
    s->is_taken[segment] = 0;
}

uint64_t segments_offset(const struct segments *s, uint32_t segment)
{
    ASSERT(segment < s->n);
    return segment * s->segment_bytes + s->done[segment];
}

uint64_t segments_missing(const struct segments *s, uint32_t segment)
{
    ASSERT(segment < s->n);
    return size_of(s, segment) - s->done[segment];
}

void segments_advance(struct segments *s, uint32_t segment, uint64_t bytes)
{
    ASSERT(bytes <= segments_missing(s, segment));
    s->done[segment] += bytes;
    s->bytes_done += bytes;
}

uint64_t segments_prefix(const struct segments *s)
{
    uint64_t prefix = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        prefix += s->done[i];
        if (segments_missing(s, i) > 0) break;
    }
    return prefix;
}

uint64_t segments_extent(const struct segments *s)
{
    for (uint32_t i = s->n; i-- > 0;)
        if (s->done[i] > 0) return segments_offset(s, i);
    return 0;
}

#define FIRST_LINE "weir-partial 1 %" PRIu64 " %" PRIu64 "\n"
#define LAST_LINE "end\n"

bool segments_print(const struct segments *s, struct buf *text, struct err *err)
{
    if (!buf_printf(text, err, FIRST_LINE, s->bytes, s->segment_bytes)) return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->done[i] > 0 && !buf_printf(text, err, "%" PRIu32 " %" PRIu64 "\n", i, s->done[i])) return false;
    return buf_add_text(text, LAST_LINE, err);
}

static bool take_number(const char **text, char behind, uint64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    *value = strtoull(*text, &end, 10);
    if (*end != behind || *value > INT64_MAX) return false;
    *text = end + 1;
    return true;
}

static bool take_lines(struct segments *s, const char *text)
{
    uint64_t next = 0; /* ascending, each once */
    while (strcmp(text, LAST_LINE) != 0) {
        uint64_t segment, done;
        if (!take_number(&text, ' ', &segment) || !take_number(&text, '\n', &done)) return false;
        if (segment < next || segment >= s->n || done > size_of(s, (uint32_t)segment)) return false;
        segments_advance(s, (uint32_t)segment, done);
        next = segment + 1;
    }
    return true;
}

bool segments_parse(struct segments *s, struct alloc *alloc, uint64_t bytes, const char *text, struct err *err)
{
    static const char front[] = "weir-partial 1 ";
    uint64_t told, segment_bytes;
    *s = (struct segments){0};
    if (strncmp(text, front, sizeof front - 1) != 0) return false;
    text += sizeof front - 1;
    if (!take_number(&text, ' ', &told) || !take_number(&text, '\n', &segment_bytes)) return false;
    if (told != bytes || segment_bytes == 0 || div_up(bytes, segment_bytes) > SEGMENTS_MAX) return false;
    if (!segments_init(s, alloc, bytes, segment_bytes, err)) return false;
    if (take_lines(s, text)) return true;
    segments_fini(s);
    return false;
}
