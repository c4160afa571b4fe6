#ifndef SUPPORT_ERROR_SITES_H
#define SUPPORT_ERROR_SITES_H
/* The places in the sources at which an error message is made, and which of them a test has met.
 *
 * A site is a call of err_set or err_context. Its text is the call's format with a mark in place of whatever is filled
 * in; a message fits when it holds what is between the marks, in that order. Sites of one text are met together.
 * Needs the source tree as the working directory. Stops the test on failure. */
#include <stdbool.h>
#include <stddef.h>

enum { ERROR_SITES_MAX = 512, ERROR_SITE_TEXT = 320 };

struct error_site {
    char file[64];
    unsigned line;
    char text[ERROR_SITE_TEXT]; /* ERROR_SITE_MARK where something is filled in */
    bool is_met;                /* by a message */
    bool is_expected;           /* by the words of another test */
};

#define ERROR_SITE_MARK '\1'

struct error_sites {
    struct error_site of[ERROR_SITES_MAX];
    size_t n;
};

/* Adds those of a text in C. */
void error_sites_add(struct error_sites *sites, const char *file, const char *source);

/* Adds those of all files that a shell pattern names. At least one must be there. */
void error_sites_read(struct error_sites *sites, const char *pattern);

/* Meets the sites that a message, which may be one of several lines, fits. */
void error_sites_meet(struct error_sites *sites, const char *messages);

/* Marks as expected what a quoted text in one of these files (C or shell) holds enough letters of to mean it. */
void error_sites_expect(struct error_sites *sites, const char *pattern);
void error_sites_expect_in(struct error_sites *sites, const char *source);

/* "src/x.c:12: text", with ... for the marks; good until the next call. */
const char *error_site_name(const struct error_site *site);
#endif
