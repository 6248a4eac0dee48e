/* NAME by its definition in long double, sharing no code with the kernels.
 * Read next: ../../tests/unit/kernels/test_NAME.c. */
#include "kernels/NAME/NAME.h"

void blasd_ref_NAME(int64_t count, const long double *x, long double scale, long double *y) {
    for (int64_t i = 0; i < count; i++) y[i] = scale * x[i];
}
