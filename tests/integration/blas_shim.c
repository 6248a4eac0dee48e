/* Preloaded by test_blas.py, for a processor that OpenBLAS mistakes:
 *   BLAS_SHIM_DEFAULT=NAME       OpenBLAS takes the processor for this where OPENBLAS_CORETYPE is
 * not set; only it is told so, blasd sees the environment as it is BLAS_SHIM_FAULTS=NAME=FAULT,…
 * what a process does that computes with these kernels: `crash`, `hang`, `wrong` (a product),
 * `unsolved` (a system), `silent` (it ends) BLAS_SHIM_LOG=FILE           gets a line for each
 * process that has OPENBLAS_CORETYPE set */
#include <cblas.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <lapacke.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *real_getenv(const char *name) {
    size_t len = strlen(name);
    for (char **at = environ; *at != NULL; at++)
        if (strncmp(*at, name, len) == 0 && (*at)[len] == '=') return *at + len + 1;
    return NULL;
}

char *getenv(const char *name) {
    char *value = real_getenv(name);
    Dl_info caller;
    if (value != NULL || strcmp(name, "OPENBLAS_CORETYPE") != 0) return value;
    if (dladdr(__builtin_return_address(0), &caller) == 0 ||
        strstr(caller.dli_fname, "openblas") == NULL)
        return NULL;
    return real_getenv("BLAS_SHIM_DEFAULT");
}

/* Whether this process computes with kernels that are to have this fault. */
static int has_fault(const char *fault) {
    const char *faults = real_getenv("BLAS_SHIM_FAULTS");
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s=%s", openblas_get_corename(), fault);
    return faults != NULL && strstr(faults, wanted) != NULL;
}

__attribute__((constructor)) static void begin(void) {
    const char *log = real_getenv("BLAS_SHIM_LOG"), *core = real_getenv("OPENBLAS_CORETYPE");
    char line[128];
    int fd;
    if (log == NULL || core == NULL) return;
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    snprintf(line, sizeof line, "%d %s\n", (int)getpid(), core);
    if (write(fd, line, strlen(line)) < 0) raise(SIGABRT);
    close(fd);
}

void cblas_sgemm(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE how_a, CBLAS_TRANSPOSE how_b, blasint m,
                 blasint n, blasint k, float alpha, const float *a, blasint lda, const float *b,
                 blasint ldb, float beta, float *c, blasint ldc) {
    void (*real)(CBLAS_LAYOUT, CBLAS_TRANSPOSE, CBLAS_TRANSPOSE, blasint, blasint, blasint, float,
                 const float *, blasint, const float *, blasint, float, float *, blasint);
    *(void **)&real = dlsym(RTLD_NEXT, "cblas_sgemm");
    if (has_fault("crash")) raise(SIGILL);
    while (has_fault("hang")) pause();
    if (has_fault("silent")) _exit(0);
    real(layout, how_a, how_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (has_fault("wrong")) c[0] += 1;
}

lapack_int LAPACKE_sgetrs_work(int layout, char how, lapack_int n, lapack_int columns,
                               const float *a, lapack_int lda, const lapack_int *pivots, float *b,
                               lapack_int ldb) {
    lapack_int (*real)(int, char, lapack_int, lapack_int, const float *, lapack_int,
                       const lapack_int *, float *, lapack_int);
    *(void **)&real = dlsym(RTLD_NEXT, "LAPACKE_sgetrs_work");
    return has_fault("unsolved") ? 0 : real(layout, how, n, columns, a, lda, pivots, b, ldb);
}
