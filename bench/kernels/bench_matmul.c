/* matmul through the CPU backend next to direct OpenBLAS calls on the same data, in turns.
 *
 * usage: bench_matmul [m k n count float64|float32]   without arguments: a table of cases */
#include "bench_support.h"

#include <cblas.h>
#include <stdlib.h>
#include <unistd.h>

struct shape {
    int64_t m, k, n, count;
};

static void run_openblas(const struct shape *s, bool single, const void *a, const void *b,
                         void *c) {
    int m = (int)s->m, k = (int)s->k, n = (int)s->n;
    for (int64_t i = 0; i < s->count; i++) {
        if (single)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1,
                        (const float *)a + i * m * k, k, (const float *)b + i * k * n, n, 0,
                        (float *)c + i * m * n, n);
        else
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1,
                        (const double *)a + i * m * k, k, (const double *)b + i * k * n, n, 0,
                        (double *)c + i * m * n, n);
    }
}

static void run_case(struct blasd_device *device, const struct shape *s, bool single) {
    void *a = bench_fill(s->count * s->m * s->k, single);
    void *b = bench_fill(s->count * s->k * s->n, single);
    void *c = bench_fill(s->count * s->m * s->n, single);
    double flops = 2.0 * (double)s->m * (double)s->k * (double)s->n;
    double ours[BENCH_MOST_TURNS], theirs[BENCH_MOST_TURNS], mine, direct;
    int turns = flops * (double)s->count > 1e10 ? 5 : 21;
    struct bench_job job;
    bench_init(&job, "matmul");
    bench_input(&job, 0, single, 3, (int64_t[]){s->count, s->m, s->k}, a);
    bench_input(&job, 1, single, 3, (int64_t[]){s->count, s->k, s->n}, b);
    bench_ready(&job);
    for (int t = 0; t < turns; t++) {
        int64_t start = blasd_clock_ns();
        bench_run(device, &job);
        ours[t] = (double)(blasd_clock_ns() - start) * 1e-6;
        openblas_set_num_threads(flops >= BLASD_CPU_THREADS_FLOPS ? device->threads : 1);
        start = blasd_clock_ns();
        run_openblas(s, single, a, b, c);
        theirs[t] = (double)(blasd_clock_ns() - start) * 1e-6;
    }
    mine = bench_median(ours, turns); /* sorts */
    direct = bench_median(theirs, turns);
    printf("matmul %s %lld of %lldx%lldx%lld: blasd %.3f ms (%s), OpenBLAS %.3f ms, %.1f and %.1f "
           "GFLOP/s; least %.3f, %.3f ms\n",
           single ? "float32" : "float64", (long long)s->count, (long long)s->m, (long long)s->k,
           (long long)s->n, mine, job.task.method, direct, flops * (double)s->count / mine * 1e-6,
           flops * (double)s->count / direct * 1e-6, ours[0], theirs[0]);
    fflush(stdout);
    bench_release(&job);
    free(a);
    free(b);
    free(c);
}

/* OpenBLAS' idle thread spins for some 30 ms and would take a core from whoever comes next; a
 * worker has it sleep at once, and so do both sides here. It reads that when it is loaded. */
static void calm_openblas(char **argv) {
    if (getenv("OPENBLAS_THREAD_TIMEOUT") != NULL) return;
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    calm_openblas(argv);
    static const struct shape cases[] = {
        {4, 4, 4, 50000},      {8, 8, 8, 20000},     {16, 16, 16, 5000},    {32, 32, 32, 2000},
        {64, 64, 64, 1000},    {128, 128, 128, 100}, {256, 256, 256, 20},   {512, 512, 512, 1},
        {1024, 1024, 1024, 1}, {1024, 2048, 512, 1}, {2048, 2048, 2048, 1}, {4096, 64, 4096, 1},
    };
    struct blasd_device *device;
    struct blasd_err err;
    if (blasd_backend_cpu.device_open(0, &device, &err) != 0) bench_die(err.detail);
    if (argc == 6) {
        struct shape s = {atoll(argv[1]), atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
        run_case(device, &s, strcmp(argv[5], "float32") == 0);
    } else {
        for (int single = 0; single < 2; single++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                run_case(device, &cases[i], single != 0);
    }
    blasd_backend_cpu.device_close(device);
    return 0;
}
