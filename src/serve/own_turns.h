#ifndef SERVE_OWN_TURNS_H
#define SERVE_OWN_TURNS_H
/* Turns of the assistant that called tools, as the model itself wrote them.
 *
 * A client sends such a turn back with the results. Encoded from its text it may come out in other ids than the model
 * chose (another split of a word, other blanks in arguments), and everything behind the first difference would have to
 * be computed again. So the ids are kept, by the id of the first call, and a prompt that repeats the turn takes them
 * instead: when text, reasoning and calls are what they were. A client that changed anything gets its own version, and
 * reasoning that the template leaves out stays out.
 *
 * In memory only and up to a size; the least recently used turn goes first. Any thread; locks inside. */
#include "base/arena.h"
#include "fmt/chat_ids.h"

struct call;
struct json_object;
struct own_turns;
struct service_result;

enum { OWN_TURNS_BYTES_MAX = 16 << 20 };

bool own_turns_new(struct own_turns **turns, struct alloc *alloc, uint64_t bytes_max, struct err *err) MUST_CHECK;
void own_turns_free(struct own_turns *turns); /* NULL is fine */

/* A turn as it is told to the client. All borrowed. */
struct own_turn {
    const char *reasoning, *content;
    size_t reasoning_bytes, content_bytes;
    struct json_object *calls;      /* the form of a message's tool_calls, with ids */
    const uint32_t *thought, *rest; /* the ids of the reasoning; those behind </think> */
    size_t n_thought, n_rest;
};

/* What cannot be kept is not kept. */
void own_turns_keep(struct own_turns *turns, const struct own_turn *turn);

/* Which messages (in the form that the template takes) repeat a turn that is known. The list, in the order of messages,
 * and what it points to are in the arena. */
bool own_turns_find(struct own_turns *turns, struct arena *arena, struct json_object *messages,
                    const struct chat_own_turn **list, size_t *n, struct err *err) MUST_CHECK;

struct own_turns_stats {
    uint64_t n, bytes, n_reused;
};
struct own_turns_stats own_turns_stats(struct own_turns *turns);

/* Keeps the answer of a call, if it is a turn with calls that the template would write in the same order. */
void own_turns_keep_answer(struct own_turns *turns, const struct call *call, const struct service_result *result);

#endif
