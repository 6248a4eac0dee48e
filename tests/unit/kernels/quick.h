/* Quick runs of unit programs: with BLASD_TEST_QUICK in the environment, as `make check` and `make
 * test` have it, a program leaves out what takes seconds of a processor. */
#ifndef BLASD_TESTS_QUICK_H
#define BLASD_TESTS_QUICK_H

#include <stdlib.h>

/* The step through cases of which a quick run tries each n-th. */
__attribute__((unused)) static int trial_step(int n) {
    return getenv("BLASD_TEST_QUICK") != NULL ? n : 1;
}

/* The first line of a test that a quick run leaves out; needs cmocka. */
#define TRIAL_FULL()                                                                               \
    do {                                                                                           \
        if (getenv("BLASD_TEST_QUICK") != NULL) skip();                                            \
    } while (0)

#endif
