#ifndef GRAM_STRING_FORMAT_H
#define GRAM_STRING_FORMAT_H
/* The values of `format` in a JSON Schema that are enforced, each as a regular expression. */

/* NULL for a format that is an annotation only. Every match is valid for the format; not every valid string matches: */
/* host names have up to four labels, addresses of mail and the web are plain ones. */
const char *string_format_regex(const char *name);

#endif
