#include "gram/string_format.h"

#include <stddef.h>
#include <string.h>

#define YEAR "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                     \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-" \
    "(0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME CLOCK ":[0-5][0-9](\\.[0-9]{1,9})?(Z|[+\\-]" CLOCK ")"

#define HOURS "([0-9]{1,6}H([0-9]{1,6}M([0-9]{1,6}S)?)?|[0-9]{1,6}M([0-9]{1,6}S)?|[0-9]{1,6}S)"
#define DAYS "([0-9]{1,6}Y([0-9]{1,6}M([0-9]{1,6}D)?)?|[0-9]{1,6}M([0-9]{1,6}D)?|[0-9]{1,6}D)"

#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define H "[0-9a-fA-F]{1,4}"
#define TAIL "(:" H ")"
#define IPV6                                                                                                        \
    H "(:" H "){7}|" H "::(" H "(:" H "){0,5})?|" H TAIL "{1}::(" H TAIL "{0,4})?|" H TAIL "{2}::(" H TAIL          \
      "{0,3})?|" H TAIL "{3}::(" H TAIL "{0,2})?|" H TAIL "{4}::(" H TAIL "{0,1})?|" H TAIL "{5}::(" H ")?|" H TAIL \
      "{6}::|::(" H TAIL "{0,6})?|((" H ":){6}|::(ffff:)?)" IPV4

#define LABEL "[A-Za-z0-9]([A-Za-z0-9\\-]{0,59}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,3}"
#define MAIL_WORD "[A-Za-z0-9!#$%&'*+/=?_{|}~\\-]{1,20}"
#define PATH_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@\\-]|%[0-9A-Fa-f]{2})"

const char *string_format_regex(const char *name)
{
    static const struct {
        const char *name, *regex;
    } formats[] = {
        {"date", DATE},
        {"time", TIME},
        {"date-time", DATE "T" TIME},
        {"duration", "P([0-9]{1,6}W|" DAYS "(T" HOURS ")?|T" HOURS ")"},
        {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
        {"ipv4", IPV4},
        {"ipv6", IPV6},
        {"email", MAIL_WORD "(\\." MAIL_WORD "){0,2}@" LABEL "(\\." LABEL "){1,3}"},
        {"hostname", HOST},
        {"uri", "[A-Za-z][A-Za-z0-9+.\\-]{0,30}://" HOST "(:[0-9]{1,4})?(/" PATH_CHAR "*)*(\\?(" PATH_CHAR
                "|[/?])*)?(#(" PATH_CHAR "|[/?])*)?"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].regex;
    return NULL;
}
