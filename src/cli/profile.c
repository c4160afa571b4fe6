#include "cli/profile.h"

#include "cli/folders.h"
#include "plat/digest.h"
#include "plat/file_write.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES_MAX = 64, DIGITS = 16 };

bool profile_locate(struct location *out, const struct command_context *context, const char *model_dir, struct err *err)
{
    struct digest digest = {0};
    char whole[PATH_MAX], text[DIGEST_TEXT];
    if (!context->settings->state_folder)
        return err_set(err, ERR_USER,
                       "neither XDG_STATE_HOME nor HOME is set, so there is no place for a profile; set one of them");
    if (!realpath(model_dir, whole))
        snprintf(whole, sizeof whole, "%s", model_dir); /* what it lacks, others will say */
    bool ok =
        digest_init(&digest, err) && digest_add(&digest, whole, strlen(whole), err) && digest_text(&digest, text, err);
    digest_fini(&digest);
    if (!ok) return false;
    const char *name = strrchr(whole, '/');
    int n = snprintf(out->path, sizeof out->path, "%s/profiles/%.*s-%.*s.ini", context->settings->state_folder,
                     NAME_BYTES_MAX, name ? name + 1 : whole, DIGITS, text);
    return (n > 0 && n < (int)sizeof out->path) ||
           err_set(err, ERR_USER, "%.100s...: the path is too long; XDG_STATE_HOME can name a shorter one", whole);
}

bool profile_apply(struct settings *settings, const struct command_context *context, struct err *err)
{
    struct location place;
    bool listens = options_find("profile")->commands >> context->command->id & 1;
    if (context->command->id == COMMAND_SERVE && context->n_operands > 1) return true; /* whose would it be? */
    if (!listens || settings->profile != 0 || context->n_operands == 0 || !settings->state_folder) return true;
    if (!profile_locate(&place, context, context->operands[0], err)) return false;
    if (access(place.path, F_OK) != 0) return true;
    return settings_add_profile(settings, context->alloc, context->fs, place.path, err) ||
           err_context(err, "the model's profile (weir tune makes it anew, --profile off does without)");
}

static bool remove_profile(const char *path, struct err *err)
{
    return unlink(path) == 0 || errno == ENOENT ||
           err_set(err, ERR_IO, "%s: cannot be removed: %s; remove it by hand, or choose another XDG_STATE_HOME", path,
                   strerror(errno));
}

bool profile_write(const char *path, struct alloc *alloc, const char *lines, size_t bytes, struct err *err)
{
    struct file_writer writer = {0};
    if (bytes == 0) return remove_profile(path, err);
    folders_make(path);
    if (!file_create(&writer, alloc, write_system_real(), path, err)) return false;
    if (file_write(&writer, lines, bytes, 0, err)) return file_commit(&writer, err);
    file_abandon(&writer);
    return false;
}
