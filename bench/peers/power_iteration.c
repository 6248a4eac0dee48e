/* Power iteration in one process with OpenBLAS: v = a v, v = v / |v|, so many times, in a loop.
 *
 *   power_iteration N STEPS SECONDS THREADS     prints {"rate": whole iterations a second, ...}
 *
 * The matrix holds what bench/run/payloads.py makes: whole numbers from 1 to 8. */
#include <cblas.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern void openblas_set_num_threads(int threads);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The eigenvalue; `v` and `w` are room for vectors. */
static double iterate(int n, int steps, const double *a, double *v, double *w) {
    for (int i = 0; i < n; i++) v[i] = 1;
    for (int step = 0; step < steps; step++) {
        cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n, 1, a, n, v, 1, 0, w, 1);
        cblas_dscal(n, 1 / cblas_dnrm2(n, w, 1), w, 1);
        memcpy(v, w, (size_t)n * sizeof *v);
    }
    cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n, 1, a, n, v, 1, 0, w, 1);
    return cblas_ddot(n, v, 1, w, 1);
}

int main(int argc, char **argv) {
    int n, steps, threads;
    double seconds, begin, end, value;
    double *a, *v, *w;
    uint64_t seed = 1;
    long times = 0;
    if (argc < 5) {
        fprintf(stderr, "usage: %s N STEPS SECONDS THREADS\n", argv[0]);
        return 2;
    }
    n = (int)strtol(argv[1], NULL, 10);
    steps = (int)strtol(argv[2], NULL, 10);
    seconds = strtod(argv[3], NULL);
    threads = (int)strtol(argv[4], NULL, 10);
    if (n < 1 || n > 16384 || steps < 1 || threads < 1 || !(seconds > 0 && seconds <= 600))
        return 2;
    openblas_set_num_threads(threads);
    a = malloc((size_t)n * (size_t)n * sizeof *a);
    v = malloc((size_t)n * sizeof *v);
    w = malloc((size_t)n * sizeof *w);
    if (a == NULL || v == NULL || w == NULL) return 1;
    for (size_t i = 0; i < (size_t)n * (size_t)n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        a[i] = (double)(seed >> 61) + 1;
    }
    value = iterate(n, steps, a, v, w);
    begin = now();
    do {
        value = iterate(n, steps, a, v, w);
        times++;
        end = now();
    } while (end - begin < seconds);
    printf("{\"rate\":%.6g,\"calls\":%ld,\"seconds\":%.6f,\"gflops\":%.4g,\"eigenvalue\":%.15g}\n",
           (double)times / (end - begin), times, end - begin,
           2e-9 * n * (double)n * steps * (double)times / (end - begin), value);
    free(a);
    free(v);
    free(w);
    return 0;
}
