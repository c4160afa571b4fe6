#include "support/open_model.h"

bool open_model(struct open_model *model, struct alloc *alloc, struct file_system fs, const char *dir, bool weights,
                struct err *err)
{
    *model = (struct open_model){.alloc = alloc};
    if (!config_read(&model->config, alloc, fs, dir, err)) goto fail;
    if (!catalogue_open(&model->catalogue, alloc, fs, dir, err)) goto fail;
    if (!inventory_build(&model->inventory, alloc, &model->config, &model->catalogue, err)) goto fail;
    if (weights && !resident_open(&model->resident, alloc, fs, &model->inventory, err)) goto fail;
    return true;
fail:
    close_model(model);
    return false;
}

void close_model(struct open_model *model)
{
    resident_close(model->resident);
    inventory_fini(&model->inventory);
    catalogue_close(&model->catalogue);
    *model = (struct open_model){0};
}
