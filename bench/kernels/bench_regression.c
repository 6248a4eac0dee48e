/* regression through the CPU backend.
 *
 * usage: bench_regression [method n p problems]   without arguments: a table of cases
 * NumPy, and scikit-learn where it is there, beside it in one run: bench_regression_peers.py. */
#include "bench_support.h"

#define TURNS 7

struct shape {
    const char *method;
    int64_t n, p, problems;
};

static void run_case(struct blasd_device *device, const struct shape *s) {
    int64_t all = s->n * s->problems;
    double *x = bench_fill(all * s->p, false), *y = bench_fill(all, false);
    double times[TURNS], middle;
    struct bench_job job;
    int i;
    for (int64_t r = 0; r < all; r++)
        for (int64_t j = 0; j < s->p; j++) y[r] += x[r * s->p + j] * (double)(j % 5);
    bench_init(&job, "regression");
    bench_input(&job, 0, false, 3, (int64_t[]){s->problems, s->n, s->p}, x);
    bench_input(&job, 1, false, 2, (int64_t[]){s->problems, s->n}, y);
    i = blasd_op_param(job.job.op, "method");
    for (int c = 0; job.job.op->params[i].choices[c] != NULL; c++)
        if (strcmp(job.job.op->params[i].choices[c], s->method) == 0) job.job.params[i].choice = c;
    if (strcmp(s->method, "lasso") == 0 || strcmp(s->method, "elastic_net") == 0) {
        i = blasd_op_param(job.job.op, "alpha");
        job.job.params[i].f = 0.01;
        job.job.params[i].given = true;
    }
    if (strcmp(s->method, "gd") == 0) {
        i = blasd_op_param(job.job.op, "iterations");
        job.job.params[i].i = 10000;
        job.job.params[i].given = true;
    }
    bench_ready(&job);
    for (int t = 0; t < TURNS; t++) {
        int64_t start = blasd_clock_ns();
        bench_run(device, &job);
        times[t] = (double)(blasd_clock_ns() - start) * 1e-6;
    }
    middle = bench_median(times, TURNS); /* sorts */
    printf("regression %s float64 %lld of %lld x %lld: blasd %.3f ms (%s), least %.3f\n", s->method,
           (long long)s->problems, (long long)s->n, (long long)s->p, middle, job.task.method,
           times[0]);
    fflush(stdout);
    bench_release(&job);
    free(x);
    free(y);
}

int main(int argc, char **argv) {
    static const struct shape cases[] = {{"ols", 100000, 50, 1},  {"ols", 1000000, 2, 1},
                                         {"ols", 20000, 200, 1},  {"ols", 20, 3, 10000},
                                         {"ols", 200, 8, 1000},   {"ridge", 100000, 50, 1},
                                         {"lasso", 10000, 50, 1}, {"gd", 100000, 50, 1}};
    struct blasd_device *device;
    struct blasd_err err;
    if (blasd_backend_cpu.device_open(0, &device, &err) != 0) bench_die(err.detail);
    if (argc == 5) {
        struct shape s = {argv[1], atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
        run_case(device, &s);
    } else {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(device, &cases[i]);
    }
    blasd_backend_cpu.device_close(device);
    return 0;
}
