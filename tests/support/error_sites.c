#include "support/error_sites.h"

#include "support/check.h"
#include "support/temp_folder.h"
#include <ctype.h>
#include <glob.h>
#include <stdlib.h>

/* Words shorter than this occur in texts that mean something else. */
enum { TELLING_LETTERS = 12 };

/* --- formats --- */

static void put(struct error_site *site, size_t *used, char c)
{
    bool is_second_mark = c == ERROR_SITE_MARK && *used > 0 && site->text[*used - 1] == ERROR_SITE_MARK;
    if (is_second_mark || *used == sizeof site->text - 1) return;
    site->text[(*used)++] = c;
    site->text[*used] = 0;
}

/* From behind an opening quote to behind the closing one. */
static const char *read_literal(const char *at, struct error_site *site, size_t *used)
{
    while (*at && *at != '"') {
        if (*at == '\\' && at[1]) {
            at++;
            put(site, used, *at == 'n' ? '\n' : *at);
            at++;
        } else if (*at == '%' && at[1] == '%') {
            put(site, used, '%');
            at += 2;
        } else if (*at == '%') {
            at++;
            at += strspn(at, "-+ #0123456789.*lzhjt");
            put(site, used, ERROR_SITE_MARK);
            if (isalpha((unsigned char)*at)) at++; /* else its letter comes from a macro behind the quote */
        } else {
            put(site, used, *at++);
        }
    }
    return *at ? at + 1 : at;
}

/* Literals side by side are one text; a name among them stands for some text. */
static void read_format(const char *at, struct error_site *site)
{
    size_t used = 0;
    site->text[0] = 0;
    while (*at && *at != ',' && *at != ')') {
        if (*at == ':') used = 0; /* of two texts the second: the first is of the rarer case */
        if (*at == '"') {
            at = read_literal(at + 1, site, &used);
        } else if (isalnum((unsigned char)*at) || *at == '_') {
            put(site, &used, ERROR_SITE_MARK);
            while (isalnum((unsigned char)*at) || *at == '_') at++;
        } else {
            at++;
        }
    }
}

static unsigned line_of(const char *source, const char *at)
{
    unsigned line = 1;
    for (; source < at; source++) line += *source == '\n';
    return line;
}

void error_sites_add(struct error_sites *sites, const char *file, const char *source)
{
    static const char *const calls[] = {"err_set(", "err_context("};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (const char *at = source; (at = strstr(at, calls[i])); at++) {
            const char *quote = strchr(at, '"'), *end = strchr(at, ';');
            if (!quote || !end || quote > end) continue; /* a format that is passed on */
            assert_true(sites->n < ERROR_SITES_MAX);
            struct error_site *site = &sites->of[sites->n++];
            *site = (struct error_site){.line = line_of(source, at)};
            snprintf(site->file, sizeof site->file, "%s", file);
            read_format(quote, site);
        }
    }
}

static void each_file(const char *pattern, void (*see)(struct error_sites *, const char *file, const char *text),
                      struct error_sites *sites)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) fail_msg("no file is %s", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t bytes;
        unsigned char *text = take_file(found.gl_pathv[i], &bytes);
        see(sites, found.gl_pathv[i], (const char *)text);
        free(text);
    }
    globfree(&found);
}

void error_sites_read(struct error_sites *sites, const char *pattern)
{
    each_file(pattern, error_sites_add, sites);
}

/* --- messages --- */

/* One line against a text: the pieces between marks, in order. Where a text begins without a mark does not matter: a
 * caller may have put words in front. */
static bool fits(const char *text, const char *line, size_t n)
{
    const char *at = line, *end = line + n;
    size_t letters = 0;
    while (*text) {
        size_t piece = strcspn(text, (char[]){ERROR_SITE_MARK, 0});
        const char *found = piece ? memmem(at, (size_t)(end - at), text, piece) : at;
        if (!found) return false;
        at = found + piece;
        letters += piece;
        text += piece + (text[piece] == ERROR_SITE_MARK);
    }
    return letters >= TELLING_LETTERS;
}

void error_sites_meet(struct error_sites *sites, const char *messages)
{
    for (const char *line = messages; *line;) {
        size_t n = strcspn(line, "\n");
        for (size_t i = 0; i < sites->n; i++) sites->of[i].is_met |= fits(sites->of[i].text, line, n);
        line += n + (line[n] == '\n');
    }
}

/* --- words of other tests --- */

static bool holds_a_piece(const char *text, const char *words)
{
    while (*text) {
        char piece[ERROR_SITE_TEXT];
        size_t n = strcspn(text, (char[]){ERROR_SITE_MARK, 0});
        snprintf(piece, sizeof piece, "%.*s", (int)n, text);
        if (n >= TELLING_LETTERS && (strstr(piece, words) || strstr(words, piece))) return true;
        text += n + (text[n] == ERROR_SITE_MARK);
    }
    return false;
}

static void expect_words(struct error_sites *sites, const char *words)
{
    if (strlen(words) < TELLING_LETTERS) return;
    for (size_t i = 0; i < sites->n; i++) sites->of[i].is_expected |= holds_a_piece(sites->of[i].text, words);
}

void error_sites_expect_in(struct error_sites *sites, const char *source)
{
    char words[2048];
    for (const char *at = source; *at; at++) {
        if (*at != '"' && *at != '\'') continue;
        char quote = *at++;
        size_t used = 0;
        for (; *at && *at != quote && *at != '\n'; at++) {
            if (*at == '\\' && at[1]) at++;
            if (used < sizeof words - 1) words[used++] = *at;
        }
        words[used] = 0;
        if (!*at) return;
        expect_words(sites, words);
    }
}

/* The test that asks does not answer. */
static void expect_file(struct error_sites *sites, const char *file, const char *source)
{
    if (!strstr(source, "error_sites_expect")) error_sites_expect_in(sites, source);
    (void)file;
}

void error_sites_expect(struct error_sites *sites, const char *pattern)
{
    each_file(pattern, expect_file, sites);
}

const char *error_site_name(const struct error_site *site)
{
    static char name[2 * ERROR_SITE_TEXT];
    size_t used = (size_t)snprintf(name, sizeof name, "%s:%u: ", site->file, site->line);
    for (const char *c = site->text; *c && used < sizeof name - 4; c++)
        used += (size_t)snprintf(name + used, sizeof name - used, *c == ERROR_SITE_MARK ? "..." : "%c", *c);
    return name;
}
