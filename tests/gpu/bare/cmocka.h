/* The little of cmocka that the tests of kernels use, so that they run on a machine that has a GPU,
 * a compiler and nothing else. */
#ifndef BLASD_TESTS_GPU_CMOCKA_H
#define BLASD_TESTS_GPU_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static jmp_buf bare_failed;

static inline void bare_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
static inline void bare_fail(const char *file, int line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    longjmp(bare_failed, 1);
}

#define fail_msg(...) bare_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail() bare_fail(__FILE__, __LINE__, "failed")
#define assert_true(x) ((x) ? (void)0 : bare_fail(__FILE__, __LINE__, "%s is false", #x))
#define assert_false(x) ((x) ? bare_fail(__FILE__, __LINE__, "%s is true", #x) : (void)0)
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_ptr_equal(x, y) assert_true((const void *)(x) == (const void *)(y))
#define assert_memory_equal(x, y, n) assert_true(memcmp(x, y, n) == 0)
#define assert_string_equal(x, y) bare_strings(__FILE__, __LINE__, x, y)
#define assert_int_equal(x, y) bare_ints(__FILE__, __LINE__, (long long)(x), (long long)(y))

static inline void bare_strings(const char *file, int line, const char *x, const char *y) {
    if (strcmp(x, y) != 0) bare_fail(file, line, "\"%s\" is not \"%s\"", x, y);
}
static inline void bare_ints(const char *file, int line, long long x, long long y) {
    if (x != y) bare_fail(file, line, "%lld is not %lld", x, y);
}

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
/* by hand: versions of clang-format differ in how they lay out braces in a macro */
/* clang-format off */
#define cmocka_unit_test(f) {#f, f}
/* clang-format on */

static inline int bare_run(const struct CMUnitTest *tests, size_t count) {
    volatile int failed = 0;
    for (volatile size_t i = 0; i < count; i++) {
        if (setjmp(bare_failed) == 0) {
            void *state = NULL;
            tests[i].run(&state);
        } else {
            fprintf(stderr, "FAILED: %s\n", tests[i].name);
            failed++;
        }
    }
    printf("%zu tests, %d failed\n", count, failed);
    return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    bare_run(tests, sizeof(tests) / sizeof *(tests))

#endif
