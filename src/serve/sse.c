#include "serve/sse.h"

struct jot sse_open(struct buf *out, const char *name)
{
    struct jot json = jot_to(out);
    if (name && !buf_printf(out, &json.err, "event: %s\n", name)) return json;
    if (!buf_add_text(out, "data: ", &json.err)) return json;
    return json;
}

bool sse_close(struct jot *json, struct err *err)
{
    return jot_end(json, err) && buf_add_text(json->out, "\n\n", err);
}

bool sse_comment(struct buf *out, const char *text, struct err *err)
{
    return buf_printf(out, err, ": %s\n\n", text);
}

bool sse_close_object(struct jot *json, struct err *err)
{
    jot_close(json);
    return sse_close(json, err);
}
