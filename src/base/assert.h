#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H
/* ASSERT is for our own mistakes and stays on in release builds. Data from a file, a socket or a person is never
 * asserted: it is checked and reported through struct err. One condition per assert, so the line number tells which.
 * ASSERT_SLOW is for whole-structure checks; it is on when WEIR_SLOW_ASSERTS is defined (debug and sanitizer builds).
 */

#ifndef static_assert
#define static_assert _Static_assert
#endif

_Noreturn void assert_failed(const char *file, int line, const char *condition);

#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(__FILE__, __LINE__, #condition))

#ifdef WEIR_SLOW_ASSERTS
#define ASSERT_SLOW(condition) ASSERT(condition)
#else
#define ASSERT_SLOW(condition) ((void)sizeof(condition))
#endif

#endif
