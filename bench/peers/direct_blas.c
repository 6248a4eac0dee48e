/* The computation alone: cblas_sgemm or cblas_dgemm in one process, in a loop, with nothing around
 * it.
 *
 *   direct_blas N SECONDS THREADS [float32|float64]     prints {"rate": calls a second, ...}
 *
 * Operands are small whole numbers, as the service gets them, and stay in place. */
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

static void *fill(size_t count, int wide, uint64_t seed) {
    void *memory = aligned_alloc(64, (count * (wide ? 8 : 4) + 63) / 64 * 64);
    if (memory == NULL) exit(1);
    for (size_t i = 0; i < count; i++) {
        double value;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        value = (double)(int)(seed >> 60) - 8;
        if (wide)
            ((double *)memory)[i] = value;
        else
            ((float *)memory)[i] = (float)value;
    }
    return memory;
}

static void multiply(int n, int wide, const void *a, const void *b, void *c) {
    if (wide)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
}

int main(int argc, char **argv) {
    int n, threads, wide, inner;
    double seconds, begin, end;
    long calls = 0;
    void *a, *b, *c;
    if (argc < 4) {
        fprintf(stderr, "usage: %s N SECONDS THREADS [float32|float64]\n", argv[0]);
        return 2;
    }
    n = (int)strtol(argv[1], NULL, 10);
    seconds = strtod(argv[2], NULL);
    threads = (int)strtol(argv[3], NULL, 10);
    wide = argc > 4 && strcmp(argv[4], "float64") == 0;
    if (n < 1 || n > 16384 || threads < 1 || !(seconds > 0 && seconds <= 600)) return 2;
    openblas_set_num_threads(threads);
    a = fill((size_t)n * (size_t)n, wide, 1);
    b = fill((size_t)n * (size_t)n, wide, 2);
    c = fill((size_t)n * (size_t)n, wide, 3);
    multiply(n, wide, a, b, c);
    inner = n >= 512 ? 1 : n >= 64 ? 100 : 10000;
    begin = now();
    do {
        for (int i = 0; i < inner; i++) multiply(n, wide, a, b, c);
        calls += inner;
        end = now();
    } while (end - begin < seconds);
    printf("{\"rate\":%.6g,\"calls\":%ld,\"seconds\":%.6f,\"gflops\":%.4g}\n",
           (double)calls / (end - begin), calls, end - begin,
           2e-9 * n * (double)n * n * (double)calls / (end - begin));
    free(a);
    free(b);
    free(c);
    return 0;
}
