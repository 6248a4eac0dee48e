/* The BLAS under the CPU backend: which it is, whether it computes rightly and how fast, and which
 * of OpenBLAS' sets of kernels is worth a try where it took the processor for an older one.
 *
 * A library and its set of kernels are chosen while a process loads, so nothing here changes them:
 * src/main/blas_start.c does, by starting the process anew. Read next: blas.c, blas_trial.c. */
#ifndef BLASD_KERNELS_CPU_BLAS_H
#define BLASD_KERNELS_CPU_BLAS_H

#include "base/err.h"

#include <stddef.h>

#define BLASD_BLAS_CORE 24 /* with its zero */

/* What OpenBLAS reads, and beside it what tells a worker that it was itself that wrote it. */
#define BLASD_BLAS_CORETYPE "OPENBLAS_CORETYPE"
#define BLASD_BLAS_CHOSEN "BLASD_BLAS_CHOSEN"

struct blasd_blas {
    char library[64]; /* "OpenBLAS 0.3.21", or the name of the file where it is another */
    char config[128]; /* what the library says of itself; as above where it says nothing */
    char path[256];   /* the file that cblas_dgemm comes from */
    char core[BLASD_BLAS_CORE]; /* OpenBLAS' set of kernels, "" for another library */
    char chosen_by[16];         /* library, operator, measured, remembered */
    bool choice;                /* it has sets of kernels for more than one processor */
};

/* What this process computes with. */
void blasd_blas_describe(struct blasd_blas *ret);

/* What the processor and its system can do, as far as it matters here. */
enum {
    BLASD_X86_AVX = 1,
    BLASD_X86_AVX2 = 2,  /* and FMA */
    BLASD_X86_AVX512 = 4 /* F, CD, BW, DQ and VL */
};
unsigned blasd_blas_features(void);

/* The sets of kernels worth a try beside `core`, which the library chose: those that use more of
 * what the processor has. None where it knows the processor, or where `core` is not known here. */
#define BLASD_BLAS_CANDIDATES 4
int blasd_blas_candidates(unsigned features, const char *core,
                          const char *ret[BLASD_BLAS_CANDIDATES]);

/* One set of kernels tried. 0 GFLOP/s: it crashed, hung, computed wrongly, or is not there. */
struct blasd_blas_trial {
    const char *core;
    double gflops;
};
/* Which of `count` trials to compute with. The first is the library's own choice, which stays
 * unless another is faster by a clear margin, or it does not compute rightly itself. */
int blasd_blas_choose(const struct blasd_blas_trial *trials, int count);

/* Computes products and solves that are checked, on one thread, and tells how fast they went. A
 * negative code where one is wrong. Takes a tenth of a second. */
int blasd_blas_try(double *ret_gflops, struct blasd_err *err);

/* Whether the functions that blasd needs come from the file at `path`, which was preloaded. */
int blasd_blas_comes_from(const char *path, struct blasd_err *err);

#endif
