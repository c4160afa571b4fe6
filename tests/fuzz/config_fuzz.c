/* config.json. Whatever it is, it is read or refused; what is read is inside all limits that later code relies on. */
#include "fmt/config.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool ok)
{
    if (!ok) abort();
}

static void check(const struct config *c)
{
    must(c->n_layers >= 1 && c->n_layers <= CONFIG_LAYERS_MAX);
    must(c->is_full[0] && c->is_full[c->n_layers] && c->is_sparse[c->n_layers]);
    must(c->vocab >= 1 && c->hidden >= 1 && c->hidden <= 1 << 20);
    must(c->n_experts >= c->n_experts_per_token && c->n_experts_per_token >= 1);
    must(c->n_expert_groups_kept <= c->n_expert_groups && c->n_experts % c->n_expert_groups == 0);
    must(c->rope_dim % 2 == 0 && c->rope_dim <= c->index_head_dim);
    must((uint64_t)c->n_heads * (c->nope_dim + c->value_dim) <= 1 << 24);
    must(isfinite(c->rope_theta) && c->rope_theta > 0 && c->rms_eps > 0 && c->latent_eps > 0 && c->router_scale > 0);
    must(c->n_eos <= CONFIG_EOS_MAX);
    for (uint32_t i = 0; i < c->n_eos; i++) must(c->eos[i] < c->vocab && (i == 0 || c->eos[i - 1] < c->eos[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct config config;
    struct err err = {0};
    if (config_parse(&config, "input", (const char *)data, bytes, &err))
        check(&config);
    else
        must(err.kind == ERR_DATA && err.text[0]);
    return 0;
}
