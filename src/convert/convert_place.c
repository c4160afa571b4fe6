#include "convert/convert_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

bool convert_place_set(struct convert_place *place, const char *folder, const char *name, struct err *err)
{
    int n = snprintf(place->path, sizeof place->path, "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof place->path) return true;
    return err_set(err, ERR_USER, "%s: the path is too long", folder);
}

bool convert_place_look(const struct convert_place *place, struct file_system fs, bool *exists, struct err *err)
{
    int descriptor;
    do { /* O_NONBLOCK: opening a fifo must not wait for its other end */
        descriptor = fs.ops->open(fs.context, place->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (descriptor < 0 && errno == EINTR);
    *exists = descriptor >= 0;
    if (descriptor >= 0)
        fs.ops->close(fs.context, descriptor);
    else if (errno != ENOENT)
        return err_set(err, ERR_IO, "%s: cannot open: %s", place->path, strerror(errno));
    return true;
}

bool convert_place_find(char name[256], const char *folder, const char *suffix, struct err *err)
{
    DIR *dir = opendir(folder);
    name[0] = 0;
    if (!dir) return err_set(err, ERR_IO, "%s: cannot open the folder: %s", folder, strerror(errno));
    for (struct dirent *entry; !name[0] && (entry = readdir(dir));) {
        size_t n = strlen(entry->d_name), n_suffix = strlen(suffix);
        if (n >= n_suffix && strcmp(entry->d_name + n - n_suffix, suffix) == 0)
            snprintf(name, 256, "%s", entry->d_name);
    }
    closedir(dir);
    return true;
}
