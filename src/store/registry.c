#include "store/registry.h"

#include "base/assert.h"
#include "plat/file_write.h"
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096, BUSY_MS = 10000 };

struct registry {
    struct alloc *alloc;
    sqlite3 *db;
    char path[PATH_BYTES_MAX];
};

/* Step i takes a database of version i to version i + 1. Steps are added, never changed. */
static const char *const steps[] = {
    "CREATE TABLE models (path TEXT PRIMARY KEY, name TEXT NOT NULL, revision TEXT NOT NULL, is_current INTEGER NOT "
    "NULL,"
    " bytes INTEGER NOT NULL, formats TEXT NOT NULL, has_dsa INTEGER NOT NULL, has_mtp INTEGER NOT NULL,"
    " identity TEXT NOT NULL) STRICT;"
    "CREATE TABLE roots (path TEXT PRIMARY KEY) STRICT;",
};
enum { VERSION = sizeof steps / sizeof *steps };

static bool failed(const struct registry *r, struct err *err)
{
    int code = r->db ? sqlite3_errcode(r->db) & 0xFF : SQLITE_NOMEM;
    const char *why = r->db ? sqlite3_errmsg(r->db) : "out of memory";
    switch (code) {
    case SQLITE_NOMEM: return err_set(err, ERR_NOMEM, "%s: %s", r->path, why);
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return err_set(err, ERR_BUSY, "%s: another process is writing it; try again", r->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return err_set(err, ERR_DATA, "%s: damaged (%s); remove it and run weir scan", r->path, why);
    default:
        return err_set(err, ERR_IO, "%s: %s; see whether its folder may be written and has room, or set XDG_DATA_HOME",
                       r->path, why);
    }
}

static bool run(const struct registry *r, const char *sql, struct err *err)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK || failed(r, err);
}

/* --- statements --- */

static sqlite3_stmt *prepare(const struct registry *r, const char *sql, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &statement, NULL) != SQLITE_OK) failed(r, err);
    return statement;
}

/* The texts outlive the statement. */
static void bind_text(sqlite3_stmt *statement, int place, const char *text)
{
    int code = sqlite3_bind_text(statement, place, text, -1, SQLITE_STATIC);
    ASSERT(code == SQLITE_OK || code == SQLITE_NOMEM); /* the step then fails too: a column must not be NULL */
}

static void bind_number(sqlite3_stmt *statement, int place, uint64_t number)
{
    int code = sqlite3_bind_int64(statement, place, (sqlite3_int64)number);
    ASSERT(code == SQLITE_OK);
}

/* A statement without rows. */
static bool finish(const struct registry *r, sqlite3_stmt *statement, struct err *err)
{
    bool ok = sqlite3_step(statement) == SQLITE_DONE || failed(r, err);
    sqlite3_finalize(statement);
    return ok;
}

static bool run_with(const struct registry *r, const char *sql, const char *text, struct err *err)
{
    sqlite3_stmt *statement = prepare(r, sql, err);
    if (!statement) return false;
    bind_text(statement, 1, text);
    return finish(r, statement, err);
}

/* --- opening --- */

static bool read_version(const struct registry *r, int *version, struct err *err)
{
    sqlite3_stmt *statement = prepare(r, "PRAGMA user_version", err);
    if (!statement) return false;
    bool ok = sqlite3_step(statement) == SQLITE_ROW || failed(r, err);
    if (ok) *version = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return ok;
}

/* Looks at the version again inside the transaction: another process may have been faster. */
static bool migrate(const struct registry *r, struct err *err)
{
    int version = 0;
    if (!read_version(r, &version, err)) return false;
    if (version > VERSION)
        return err_set(err, ERR_DATA,
                       "%s: written by a newer weir (version %d, this one knows %d); use that, or remove the file and "
                       "run weir scan",
                       r->path, version, (int)VERSION);
    if (version == VERSION) return true;
    if (!run(r, "BEGIN IMMEDIATE", err)) return false;
    bool ok = read_version(r, &version, err);
    for (; ok && version < VERSION; version++) {
        char sql[64];
        snprintf(sql, sizeof sql, "PRAGMA user_version = %d", version + 1);
        ok = run(r, steps[version], err) && run(r, sql, err);
    }
    struct err ignored = {0}; /* of the rollback: the first error is the one to tell */
    return ok ? run(r, "COMMIT", err) : run(r, "ROLLBACK", &ignored) && false;
}

static bool open_database(struct registry *r, const char *folder, bool may_create, struct err *err)
{
    int flags = SQLITE_OPEN_READWRITE | (may_create ? SQLITE_OPEN_CREATE : 0);
    if (may_create && !folder_make(r->alloc, write_system_real(), folder, err)) return false;
    if (sqlite3_open_v2(r->path, &r->db, flags, NULL) != SQLITE_OK) return failed(r, err);
    sqlite3_extended_result_codes(r->db, 1);
    sqlite3_busy_timeout(r->db, BUSY_MS);
    /* A rollback journal, which a data base has unless it is told otherwise: of two processes that make it a
     * write-ahead log at once, one fails at once, whatever the time it is ready to wait. */
    return run(r, "PRAGMA synchronous = NORMAL", err) && migrate(r, err);
}

bool registry_open(struct registry **registry, struct alloc *alloc, const char *folder, bool may_create,
                   struct err *err)
{
    *registry = NULL;
    struct registry *r = alloc_get(alloc, sizeof *r, err);
    if (!r) return false;
    r->alloc = alloc;
    bool fits = snprintf(r->path, sizeof r->path, "%s/registry.db", folder) < (int)sizeof r->path;
    bool is_absent = fits && !may_create && access(r->path, F_OK) != 0;
    bool ok =
        fits || err_set(err, ERR_USER, "%.100s...: the path is too long; XDG_DATA_HOME can name a shorter one", folder);
    ok = ok && (is_absent || open_database(r, folder, may_create, err));
    if (ok && !is_absent)
        *registry = r;
    else
        registry_close(r);
    return ok;
}

void registry_close(struct registry *registry)
{
    if (!registry) return;
    sqlite3_close(registry->db);
    alloc_put(registry->alloc, registry);
}

/* --- models --- */

bool registry_put(struct registry *r, const struct registry_model *m, bool *is_new, struct err *err)
{
    /* An upsert, so that the count of changes tells nothing; the row's absence does. */
    sqlite3_stmt *statement = prepare(r, "SELECT 1 FROM models WHERE path = ?1", err);
    if (!statement) return false;
    bind_text(statement, 1, m->path);
    int code = sqlite3_step(statement);
    *is_new = code == SQLITE_DONE;
    bool ok = code == SQLITE_DONE || code == SQLITE_ROW || failed(r, err);
    sqlite3_finalize(statement);
    if (!ok) return false;
    statement = prepare(r, "INSERT OR REPLACE INTO models VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", err);
    if (!statement) return false;
    bind_text(statement, 1, m->path);
    bind_text(statement, 2, m->name);
    bind_text(statement, 3, m->revision);
    bind_number(statement, 4, m->is_current);
    bind_number(statement, 5, m->bytes);
    bind_text(statement, 6, m->formats);
    bind_number(statement, 7, m->has_dsa);
    bind_number(statement, 8, m->has_mtp);
    bind_text(statement, 9, m->identity);
    return finish(r, statement, err);
}

bool registry_remove(struct registry *r, const char *path, bool *was_there, struct err *err)
{
    if (!run_with(r, "DELETE FROM models WHERE path = ?1", path, err)) return false;
    *was_there = sqlite3_changes(r->db) > 0;
    return true;
}

static const char *column_text(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : ""; /* only when memory ran out */
}

bool registry_each(struct registry *r, registry_see *see, void *context, struct err *err)
{
    if (!r) return true;
    sqlite3_stmt *s = prepare(r,
                              "SELECT path, name, revision, is_current, bytes, formats, has_dsa, has_mtp, identity"
                              " FROM models ORDER BY name, path",
                              err);
    if (!s) return false;
    int code;
    bool goes_on = true;
    while (goes_on && (code = sqlite3_step(s)) == SQLITE_ROW) {
        const struct registry_model model = {
            .path = column_text(s, 0),
            .name = column_text(s, 1),
            .revision = column_text(s, 2),
            .is_current = sqlite3_column_int(s, 3) != 0,
            .bytes = (uint64_t)sqlite3_column_int64(s, 4),
            .formats = column_text(s, 5),
            .has_dsa = sqlite3_column_int(s, 6) != 0,
            .has_mtp = sqlite3_column_int(s, 7) != 0,
            .identity = column_text(s, 8),
        };
        goes_on = see(context, &model);
    }
    bool ok = !goes_on || code == SQLITE_DONE || failed(r, err);
    sqlite3_finalize(s);
    return ok;
}

/* --- roots --- */

bool registry_add_root(struct registry *r, const char *path, struct err *err)
{
    return run_with(r, "INSERT OR IGNORE INTO roots VALUES (?1)", path, err);
}

bool registry_remove_root(struct registry *r, const char *path, struct err *err)
{
    return run_with(r, "DELETE FROM roots WHERE path = ?1", path, err);
}

bool registry_each_root(struct registry *r, registry_see_root *see, void *context, struct err *err)
{
    if (!r) return true;
    sqlite3_stmt *s = prepare(r, "SELECT path FROM roots ORDER BY path", err);
    if (!s) return false;
    int code;
    bool goes_on = true;
    while (goes_on && (code = sqlite3_step(s)) == SQLITE_ROW) goes_on = see(context, column_text(s, 0));
    bool ok = !goes_on || code == SQLITE_DONE || failed(r, err);
    sqlite3_finalize(s);
    return ok;
}
