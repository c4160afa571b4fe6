#ifndef SUPPORT_CHECK_H
#define SUPPORT_CHECK_H
/* What every test includes: cmocka with the headers it needs in front. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#endif
