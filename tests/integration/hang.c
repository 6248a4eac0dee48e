/* In the place of cblas_dgemm, by LD_PRELOAD: a library call that hangs, or takes long, and hears
 * nobody meanwhile. Which it does is told by the first element of its first matrix: 777.125, for
 * ever; 777.25, until the file that BLASD_TEST_GATE names is there. In the place of fdatasync, too,
 * of blasd alone: where BLASD_TEST_SYNC_GATE names a file it lasts until that is there. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                   const double *a, int lda, const double *b, int ldb, double beta, double *c,
                   int ldc);

dgemm cblas_dgemm;

void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                 const double *a, int lda, const double *b, int ldb, double beta, double *c,
                 int ldc) {
    static dgemm *next;
    const char *gate = getenv("BLASD_TEST_GATE");
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "cblas_dgemm");
    while (a[0] == 777.125) pause();
    while (a[0] == 777.25 && gate != NULL && access(gate, F_OK) != 0) usleep(10000);
    next(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

int fdatasync(int fd) {
    static int (*next)(int fd);
    const char *gate = getenv("BLASD_TEST_SYNC_GATE");
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "fdatasync");
    if (strcmp(program_invocation_short_name, "blasd") == 0)
        while (gate != NULL && access(gate, F_OK) != 0) usleep(10000);
    return next(fd);
}
