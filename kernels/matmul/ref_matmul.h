/* matmul by its definition, for tests: long double sums over elements read one by one from the
 * tensors as they were sent. */
#ifndef BLASD_KERNELS_REF_MATMUL_H
#define BLASD_KERNELS_REF_MATMUL_H

#include "core/job.h"

/* `inputs` are a, b, c as sent, with data (c without: not given). `at` is an index into the result,
 * whose number of dimensions is `rank`. *value: the exact element as near as long double gives it;
 * *size: |alpha| |a| |b| + |beta| |c| at the same place, against which errors are measured. */
void blasd_ref_matmul(const struct blasd_job *job, const struct blasd_tensor *inputs,
                      const int64_t *at, int rank, long double *value, long double *size);

#endif
