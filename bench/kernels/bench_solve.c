/* solve through the CPU backend next to direct LAPACK calls (gesv: factors and solution, nothing
 * else) on the same systems, in turns.
 *
 * usage: bench_solve [n count columns float64|float32]   without arguments: a table of cases */
#include "bench_support.h"

#include <cblas.h>
#include <lapacke.h>

static void run_lapack(int64_t n, int64_t count, int64_t columns, bool single, const void *a,
                       const void *b, void *work_a, void *work_b, lapack_int *pivots) {
    size_t size = single ? 4 : 8, in_a = (size_t)(n * n) * size,
           in_b = (size_t)(n * columns) * size;
    for (int64_t i = 0; i < count; i++) {
        memcpy(work_a, (const char *)a + (size_t)i * in_a, in_a);
        memcpy(work_b, (const char *)b + (size_t)i * in_b, in_b);
        /* column-major: it solves with the transposes, which costs the same */
        if (single)
            LAPACKE_sgesv_work(LAPACK_COL_MAJOR, (lapack_int)n, (lapack_int)columns, work_a,
                               (lapack_int)n, pivots, work_b, (lapack_int)n);
        else
            LAPACKE_dgesv_work(LAPACK_COL_MAJOR, (lapack_int)n, (lapack_int)columns, work_a,
                               (lapack_int)n, pivots, work_b, (lapack_int)n);
    }
}

static void run_case(struct blasd_device *device, int64_t n, int64_t count, int64_t columns,
                     bool single) {
    void *a = bench_fill(count * n * n, single), *b = bench_fill(count * n * columns, single);
    size_t size = single ? 4 : 8;
    void *work_a = bench_alloc((size_t)(n * n) * size);
    void *work_b = bench_alloc((size_t)(n * columns) * size);
    lapack_int *pivots = bench_alloc((size_t)n * sizeof *pivots);
    double ours[BENCH_MOST_TURNS], theirs[BENCH_MOST_TURNS];
    double median_ours, median_theirs;
    int turns = n >= 1000 ? 3 : 15;
    struct bench_job job;
    bench_init(&job, "solve");
    bench_input(&job, 0, single, 3, (int64_t[]){count, n, n}, a);
    bench_input(&job, 1, single, 3, (int64_t[]){count, n, columns}, b);
    bench_ready(&job);
    for (int t = 0; t < turns; t++) {
        int64_t start = blasd_clock_ns();
        bench_run(device, &job);
        ours[t] = (double)(blasd_clock_ns() - start) * 1e-6;
        theirs[t] = 0;
        if (getenv("BENCH_ONLY") != NULL) continue; /* for a profiler */
        openblas_set_num_threads(n >= 256 ? device->threads : 1);
        start = blasd_clock_ns();
        run_lapack(n, count, columns, single, a, b, work_a, work_b, pivots);
        theirs[t] = (double)(blasd_clock_ns() - start) * 1e-6;
    }
    median_ours = bench_median(ours, turns); /* sorts */
    median_theirs = bench_median(theirs, turns);
    printf("solve %s n %lld count %lld columns %lld: blasd %.3f ms (%s), LAPACK gesv %.3f ms; "
           "least %.3f, %.3f ms\n",
           single ? "float32" : "float64", (long long)n, (long long)count, (long long)columns,
           median_ours, job.task.method, median_theirs, ours[0], theirs[0]);
    fflush(stdout);
    bench_release(&job);
    free(a);
    free(b);
    free(work_a);
    free(work_b);
    free(pivots);
}

int main(int argc, char **argv) {
    struct blasd_device *device;
    struct blasd_err err;
    if (blasd_backend_cpu.device_open(0, &device, &err) != 0) bench_die(err.detail);
    if (getenv("BENCH_THREADS") != NULL) device->threads = atoi(getenv("BENCH_THREADS"));
    if (argc == 5) {
        run_case(device, atoll(argv[1]), atoll(argv[2]), atoll(argv[3]),
                 strcmp(argv[4], "float32") == 0);
    } else {
        const int64_t cases[][3] = {{4, 10000, 1},  {8, 10000, 1}, {16, 2000, 1}, {32, 1000, 1},
                                    {40, 1000, 1},  {48, 500, 1},  {64, 300, 1},  {128, 100, 1},
                                    {256, 20, 1},   {1000, 1, 1},  {2000, 1, 1},  {3000, 1, 1},
                                    {1000, 1, 100}, {32, 100, 32}};
        for (int single = 0; single < 2; single++)
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                run_case(device, cases[i][0], cases[i][1], cases[i][2], single != 0);
    }
    blasd_backend_cpu.device_close(device);
    return 0;
}
