/* Sees to it that this process computes with the library that the operator names, and of OpenBLAS'
 * sets of kernels with the one that suits the processor. Both are settled while a process loads, so
 * this may start the process anew (exec), with LD_PRELOAD or OPENBLAS_CORETYPE set; what may crash
 * or hang is tried in processes of its own before. Read next: ../../kernels/cpu/blas.h. */
#ifndef BLASD_MAIN_BLAS_START_H
#define BLASD_MAIN_BLAS_START_H

#include <stdbool.h>

#define BLASD_BLAS_PATH "BLASD_BLAS" /* the environment's word for --blas */

struct blas_start {
    const char *path;    /* --blas, or what the environment says; NULL: what blasd is linked with */
    const char *kept_in; /* directory that keeps the choice; NULL: none */
    bool measure;        /* false: the library's own choice stands */
};

/* Call it before there are threads or open descriptors, with the command's own argv as main gave
 * it. 0, or an exit status after a message. */
int blas_start(const struct blas_start *start, char **argv);

#endif
