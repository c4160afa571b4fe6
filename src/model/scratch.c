/* The memory of a forward pass: one table gives each piece its place and its size, for the allocation and for the plan
 * that sets memory aside for it. */
#include "model/forward_int.h"

#include "base/assert.h"
#include "base/checked.h"
#include <stddef.h>
#include <string.h>

enum { PIECES_MAX = 64 };

struct piece {
    size_t pointer_at; /* offset of the pointer in its struct */
    uint64_t count, element_bytes;
};

struct pieces {
    struct piece piece[PIECES_MAX];
    size_t n;
};

static void add(struct pieces *pieces, size_t pointer_at, uint64_t count, uint64_t element_bytes)
{
    ASSERT(pieces->n < PIECES_MAX);
    pieces->piece[pieces->n++] =
        (struct piece){.pointer_at = pointer_at, .count = count, .element_bytes = element_bytes};
}

#define ADD(pieces, type, member, count) add(pieces, offsetof(type, member), count, sizeof *((type *)0)->member)
#define ADD_PASS(member, count) ADD(pieces, struct forward, member, count)
#define ADD_THREAD(member, count) ADD(pieces, struct thread_scratch, member, count)

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Everything with room for each row of a pass. */
static void add_rows(struct pieces *pieces, const struct config *c, const struct forward_options *o, bool has_mtp)
{
    uint64_t rows = o->rows_max, routes = rows * c->n_experts_per_token;
    ADD_PASS(kv, rows);
    ADD_PASS(tokens, rows);
    ADD_PASS(positions, rows);
    ADD_PASS(cosine, rows * c->rope_dim / 2);
    ADD_PASS(sine, rows * c->rope_dim / 2);
    ADD_PASS(stream, rows * c->hidden);
    ADD_PASS(normed, rows * c->hidden);
    ADD_PASS(update, rows * c->hidden);
    ADD_PASS(q_latent, rows * c->q_rank);
    ADD_PASS(kv_raw, rows * (c->kv_rank + c->rope_dim));
    ADD_PASS(index_q, rows * c->index_n_heads * c->index_head_dim);
    ADD_PASS(index_k, rows * c->index_head_dim);
    ADD_PASS(index_w, rows * c->index_n_heads);
    ADD_PASS(selections, rows);
    ADD_PASS(selected, rows * c->index_topk);
    ADD_PASS(router_scores, rows * c->n_experts);
    ADD_PASS(routed, routes);
    ADD_PASS(routed_weights, routes);
    ADD_PASS(routes, routes);
    ADD_PASS(shared_out, rows * c->hidden);
    ADD_PASS(final, rows * c->hidden);
    ADD_PASS(mtp_in, has_mtp ? rows * 2 * c->hidden : 0);
    ADD_PASS(logit_row, rows);
}

uint64_t scratch_split_bytes(const struct config *c, const struct forward_options *o, bool has_mtp)
{
    uint64_t widest = larger(has_mtp ? 2 * (uint64_t)c->hidden : c->hidden, c->q_rank);
    widest = larger(widest, (uint64_t)c->n_heads * c->value_dim);
    widest = larger(widest, larger(c->dense_inner, (uint64_t)c->expert_inner * c->n_shared_experts));
    return linear_scratch_bytes(o->rows_max, larger(widest, c->expert_inner));
}

/* What is used for one tile of rows after the other, and what does not depend on rows. */
static void add_tiles(struct pieces *pieces, const struct config *c, const struct forward_options *o, bool has_mtp)
{
    uint64_t attend = smaller(o->rows_max, ATTEND_ROWS), feed = smaller(o->rows_max, FEED_ROWS);
    uint64_t inner = larger(larger(c->dense_inner, (uint64_t)c->expert_inner * c->n_shared_experts), c->expert_inner);
    uint64_t routes = (uint64_t)o->rows_max * c->n_experts_per_token;
    ADD_PASS(q, attend * c->n_heads * (c->nope_dim + c->rope_dim));
    ADD_PASS(queries, attend * c->n_heads * (c->kv_rank + c->rope_dim));
    ADD_PASS(context, attend * c->n_heads * c->value_dim);
    ADD_PASS(ones, c->kv_rank);
    ADD_PASS(expert_rows, c->n_experts);
    ADD_PASS(wanted, c->n_experts);
    ADD_PASS(foreseen, c->n_experts);
    ADD_PASS(foreseen_by, c->n_experts);
    ADD_PASS(expert_in, feed * c->hidden);
    ADD_PASS(gate, feed * inner);
    ADD_PASS(up, feed * inner);
    ADD_PASS(expert_out, feed * c->hidden);
    ADD_PASS(split, scratch_split_bytes(c, o, has_mtp));
    ADD_PASS(partial, smaller(routes, PARTIAL_OUTPUTS_MAX) * c->hidden);
}

static void add_logits(struct pieces *pieces, const struct config *c, const struct forward_options *o)
{
    ADD_PASS(logit_in, (uint64_t)o->logit_rows_max * c->hidden);
    ADD_PASS(logits, (uint64_t)o->logit_rows_max * c->vocab);
}

static void add_thread(struct pieces *pieces, const struct config *c, const struct forward_options *o)
{
    uint64_t width = larger((uint64_t)c->kv_rank + c->rope_dim, c->index_head_dim);
    uint64_t absorbed = smaller(o->rows_max, ATTEND_ROWS);
    ADD_THREAD(scores, scratch_scores(c, o));
    ADD_THREAD(rows, BLOCK_ROWS);
    ADD_THREAD(unpacked, o->kv_storage == KV_STORAGE_F32 ? 0 : BLOCK_ROWS * width);
    ADD_THREAD(rope, c->rope_dim);
    ADD_THREAD(choice, (uint64_t)c->n_experts + c->n_expert_groups);
    ADD_THREAD(integers, (uint64_t)c->nope_dim * c->kv_rank);
    ADD_THREAD(weight_rows, c->nope_dim);
    ADD_THREAD(coefficients, absorbed * c->nope_dim);
}

uint64_t scratch_scores(const struct config *c, const struct forward_options *o)
{
    return larger(o->positions_max, smaller((uint64_t)c->n_heads * o->positions_max, SCORES_AIM));
}

/* Vector loads that cross a cache line cost twice: so every piece begins on one. */
enum { PIECE_ALIGNMENT = 64 };

static uint64_t bytes_of(const struct pieces *pieces)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < pieces->n; i++)
        bytes += pieces->piece[i].count * pieces->piece[i].element_bytes + PIECE_ALIGNMENT;
    return bytes;
}

struct forward_scratch forward_scratch_of(const struct config *config, const struct forward_options *options,
                                          bool has_mtp)
{
    struct pieces rows = {0}, logits = {0}, thread = {0};
    add_rows(&rows, config, options, has_mtp);
    add_tiles(&rows, config, options, has_mtp);
    add_logits(&logits, config, options);
    add_thread(&thread, config, options);
    return (struct forward_scratch){.pass_bytes = bytes_of(&rows),
                                    .logits_bytes = bytes_of(&logits),
                                    .thread_bytes = bytes_of(&thread) + sizeof(struct thread_scratch)};
}

static bool get_pieces(void *owner, struct arena *arena, const struct pieces *pieces, struct err *err)
{
    for (size_t i = 0; i < pieces->n; i++) {
        const struct piece *piece = &pieces->piece[i];
        uint64_t bytes;
        if (!checked_mul(&bytes, piece->count, piece->element_bytes) || !checked_add(&bytes, bytes, PIECE_ALIGNMENT))
            bytes = UINT64_MAX;
        char *memory = arena_get(arena, bytes, err);
        if (!memory) return err_context(err, "scratch of the forward pass");
        memory += -(uintptr_t)memory % PIECE_ALIGNMENT;
        memcpy((char *)owner + piece->pointer_at, &memory, sizeof memory);
    }
    return true;
}

bool scratch_get(struct forward *f, struct err *err)
{
    const struct config *c = &f->config;
    struct pieces pass = {0}, thread = {0};
    add_rows(&pass, c, &f->options, f->spine->has_mtp);
    add_tiles(&pass, c, &f->options, f->spine->has_mtp);
    add_logits(&pass, c, &f->options);
    add(&pass, offsetof(struct forward, threads), team_threads(f->team), sizeof *f->threads);
    if (!get_pieces(f, &f->arena, &pass, err)) return false;

    add_thread(&thread, c, &f->options);
    for (unsigned i = 0; i < team_threads(f->team); i++)
        if (!get_pieces(&f->threads[i], &f->arena, &thread, err)) return false;

    for (uint32_t r = 0; r < f->options.rows_max; r++)
        f->selections[r].positions = f->selected + (size_t)r * c->index_topk;
    for (uint32_t i = 0; i < c->kv_rank; i++) f->ones[i] = 1.0f;
    return true;
}
