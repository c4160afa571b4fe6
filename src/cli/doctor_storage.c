#include "cli/doctor.h"

#include "base/units.h"
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

enum { PATH_BYTES_MAX = 256 };
#define HEAD_BYTES_PER_S (UINT64_C(400) << 20) /* more than any single disk with a head reads */

/* f_type of statfs, from the manual page. `is_slow`: a network or another program stands between us and the disk. */
static const struct kind {
    uint64_t type;
    const char *name;
    bool is_slow;
} kinds[] = {
    {0x6969, "NFS", true},        {0xFE534D42, "SMB", true},      {0xFF534D42, "CIFS", true},
    {0x01021997, "9p", true},     {0x65735546, "FUSE", true},     {0x00C36400, "Ceph", true},
    {0x786F4256, "vboxsf", true}, {0xEF53, "ext4", false},        {0x58465342, "XFS", false},
    {0x9123683E, "Btrfs", false}, {0x2FC12FC1, "ZFS", false},     {0xF2F52010, "F2FS", false},
    {0x01021994, "tmpfs", false}, {0x794C7630, "overlay", false},
};

static const struct kind *kind_of(uint64_t type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].type == type) return &kinds[i];
    return NULL;
}

/* A partition has no queue of its own: its disk's is one folder up. */
static int rotates(struct file_system fs, const char *root, dev_t device)
{
    static const char *const places[] = {"queue/rotational", "../queue/rotational"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[PATH_BYTES_MAX], digit = 0;
        int n = snprintf(path, sizeof path, "%s/sys/dev/block/%u:%u/%s", root, major(device), minor(device), places[i]);
        int descriptor = n < (int)sizeof path ? fs.ops->open(fs.context, path, 0) : -1;
        if (descriptor < 0) continue;
        ssize_t got = fs.ops->pread(fs.context, descriptor, &digit, 1, 0);
        fs.ops->close(fs.context, descriptor);
        if (got == 1) return digit == '1';
    }
    return -1;
}

struct storage_facts storage_look(struct file_system fs, const char *root, const char *folder)
{
    struct storage_facts facts = {.rotates = -1};
    struct statfs file_system;
    struct stat status;
    if (statfs(folder, &file_system) == 0) facts.file_system = (uint64_t)file_system.f_type & UINT32_MAX;
    if (stat(folder, &status) == 0) facts.rotates = rotates(fs, root, status.st_dev);
    return facts;
}

void storage_judge(const struct storage_facts *facts, struct findings *findings)
{
    const struct kind *kind = kind_of(facts->file_system);
    char rate[UNITS_TEXT_MAX], name[32];
    if (kind)
        snprintf(name, sizeof name, "%s", kind->name);
    else
        snprintf(name, sizeof name, "file system 0x%llx", (unsigned long long)facts->file_system);
    if (kind && kind->is_slow) {
        struct finding *f = findings_add(findings, SEVERITY_WARNING, "storage",
                                         "%s: every expert that is not in memory comes through it", kind->name);
        finding_advise(f, "put the model on a local file system of an SSD");
    } else if (facts->rotates == 1) {
        /* Virtual disks say so of themselves whatever they are made of: the measurement decides. */
        bool is_slow = facts->bytes_per_s > 0 && facts->bytes_per_s < HEAD_BYTES_PER_S;
        struct finding *f = findings_add(findings, is_slow ? SEVERITY_WARNING : SEVERITY_NOTE, "storage",
                                         "%s on a disk that says of itself that it rotates", name);
        if (is_slow)
            finding_advise(f,
                           "put the model on an SSD: experts lie all over the files, and each seek costs milliseconds");
    } else {
        findings_add(findings, SEVERITY_OK, "storage", "%s%s", name,
                     facts->rotates == 0 ? " on a disk without a head" : "");
    }
    if (facts->bytes_per_s == 0) {
        findings_add(findings, SEVERITY_NOTE, "disk", "not measured: the files are too small for it");
        return;
    }
    findings_add(findings, SEVERITY_OK, "disk", "%s a second, measured on the model's own files%s",
                 units_format_bytes(rate, facts->bytes_per_s),
                 facts->has_direct ? "" : "; this file system has no reads around the page cache");
}
