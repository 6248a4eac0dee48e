/* What all operations ask of a job that is to be rounded correctly. Read next: exact.h. */
#include "kernels/exact/exact.h"

#include <stdio.h>

int blasd_exact_check(const struct blasd_job *job, struct blasd_err *err) {
    for (int i = 0; job->op->inputs[i].name != NULL; i++) {
        enum blasd_dtype dtype = job->inputs[i].tensor.dtype;
        char field[48];
        if (!blasd_job_has(job, i)) continue;
        snprintf(field, sizeof field, "inputs.%s", job->op->inputs[i].name);
        if (blasd_dtype_parts(dtype) == 2 || dtype == BLASD_int64 || dtype == BLASD_uint64)
            return blasd_fail(err, BLASD_E_unsupported_dtype, field,
                              "rounding correct takes real numbers that float64 holds, and this "
                              "is %s",
                              blasd_dtype_name(dtype));
    }
    return 0;
}
