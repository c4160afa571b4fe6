#include "support/tiny_model.h"

#include "support/check.h"

static void must(bool ok, const struct err *err)
{
    if (!ok) fail_msg("%s", err->text);
}

void tiny_model_open(struct tiny_model *model, const char *dir)
{
    struct err err = {0};
    *model = (struct tiny_model){0};
    must(config_read(&model->config, &model->alloc, file_system_real(), dir, &err), &err);
    must(catalogue_open(&model->catalogue, &model->alloc, file_system_real(), dir, &err), &err);
    must(inventory_build(&model->inventory, &model->alloc, &model->config, &model->catalogue, &err), &err);
    must(resident_open(&model->resident, &model->alloc, file_system_real(), &model->inventory, &err), &err);
    model->weights = resident_weights(model->resident);
}

void tiny_model_close(struct tiny_model *model)
{
    resident_close(model->resident);
    inventory_fini(&model->inventory);
    catalogue_close(&model->catalogue);
    assert_int_equal(model->alloc.live, 0);
}

void tiny_run_with_kernels(struct tiny_run *run, struct tiny_model *model, const struct config *config,
                           unsigned n_threads, const struct kern *kern, const struct forward_options *options)
{
    struct err err = {0};
    run->model = model;
    must(team_new(&run->team, &model->alloc, n_threads, &err), &err);
    must(forward_new(&run->forward, &model->alloc, config ? config : &model->config, model->weights, kern, run->team,
                     options, &err),
         &err);
}

void tiny_run_init(struct tiny_run *run, struct tiny_model *model, const struct config *config, unsigned n_threads,
                   uint32_t cpu, const struct forward_options *options)
{
    struct kern kern;
    kern_select(&kern, cpu);
    tiny_run_with_kernels(run, model, config, n_threads, &kern, options);
}

void tiny_run_fini(struct tiny_run *run)
{
    forward_free(run->forward);
    team_free(run->team);
}

void tiny_run_feed(struct tiny_run *run, struct kv *kv, const uint32_t *tokens, size_t n, size_t chunk, float *out)
{
    uint32_t vocab = run->model->config.vocab;
    struct forward_row rows[TINY_ROWS_MAX];
    assert_in_range(chunk, 1, TINY_ROWS_MAX);
    for (size_t done = 0; done < n;) {
        size_t n_rows = n - done < chunk ? n - done : chunk;
        struct err err = {0};
        for (size_t r = 0; r < n_rows; r++)
            rows[r] = (struct forward_row){
                .kv = kv, .token = tokens[done + r], .position = kv->n_rows + (uint32_t)r, .wants_logits = true};
        must(forward_pass(run->forward, rows, n_rows, &err), &err);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(out + (done + r) * vocab, forward_logits(run->forward, r), vocab * sizeof(float));
        done += n_rows;
    }
}
