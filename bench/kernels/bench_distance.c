/* distance through the CPU backend.
 *
 * usage: bench_distance [metric m n k float64|float32 output]   without arguments: a table of cases
 * SciPy beside it, in one run: bench_distance_scipy.py. */
#include "bench_support.h"

#define TURNS 7

struct shape {
    const char *metric;
    int64_t m, n, k;
    const char *output;
};

static void choose(struct bench_job *job, const char *param, const char *choice) {
    int i = blasd_op_param(job->job.op, param);
    const char *const *choices = job->job.op->params[i].choices;
    for (int c = 0; choices[c] != NULL; c++) {
        if (strcmp(choices[c], choice) != 0) continue;
        job->job.params[i].choice = c;
        job->job.params[i].given = true;
        return;
    }
    bench_die("no such metric or output");
}

/* n = 0: x alone. */
static void run_case(struct blasd_device *device, const struct shape *s, bool single) {
    void *x = bench_fill(s->m * s->k, single), *y = bench_fill(s->n * s->k, single);
    double times[TURNS], middle;
    int64_t others = s->n > 0 ? s->n : s->m;
    struct bench_job job;
    bench_init(&job, "distance");
    bench_input(&job, 0, single, 2, (int64_t[]){s->m, s->k}, x);
    if (s->n > 0) bench_input(&job, 1, single, 2, (int64_t[]){s->n, s->k}, y);
    choose(&job, "metric", s->metric);
    choose(&job, "output", s->output);
    if (strcmp(s->output, "topk") == 0) {
        int i = blasd_op_param(job.job.op, "k");
        job.job.params[i].i = 10;
        job.job.params[i].given = true;
    }
    if (strcmp(s->output, "within") == 0) {
        int i = blasd_op_param(job.job.op, "radius");
        job.job.params[i].f = 0.05;
        job.job.params[i].given = true;
    }
    bench_ready(&job);
    for (int t = 0; t < TURNS; t++) {
        int64_t start = blasd_clock_ns();
        bench_run(device, &job);
        times[t] = (double)(blasd_clock_ns() - start) * 1e-6;
    }
    middle = bench_median(times, TURNS); /* sorts */
    printf("distance %s %s %lld x %lld, k %lld, %s: blasd %.3f ms, least %.3f; %.2f ns an entry\n",
           s->metric, single ? "float32" : "float64", (long long)s->m, (long long)others,
           (long long)s->k, s->output, middle, times[0],
           middle * 1e6 / (double)s->m / (double)others);
    fflush(stdout);
    bench_release(&job);
    free(x);
    free(y);
}

int main(int argc, char **argv) {
    static const struct shape cases[] = {
        {"euclidean", 4096, 4096, 3, "full"},   {"euclidean", 4096, 0, 3, "full"},
        {"euclidean", 4096, 4096, 128, "full"}, {"euclidean", 4096, 0, 3, "condensed"},
        {"euclidean", 4096, 4096, 3, "argmin"}, {"euclidean", 4096, 4096, 3, "topk"},
        {"euclidean", 4096, 4096, 3, "within"}, {"cityblock", 4096, 4096, 32, "full"},
        {"chebyshev", 4096, 4096, 32, "full"},  {"cosine", 4096, 4096, 128, "full"},
        {"canberra", 2048, 2048, 32, "full"},   {"jaccard", 2048, 2048, 64, "full"},
        {"dice", 2048, 2048, 64, "full"},       {"jensenshannon", 1024, 1024, 16, "full"}};
    struct blasd_device *device;
    struct blasd_err err;
    if (blasd_backend_cpu.device_open(0, &device, &err) != 0) bench_die(err.detail);
    if (argc == 7) {
        struct shape s = {argv[1], atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), argv[6]};
        run_case(device, &s, strcmp(argv[5], "float32") == 0);
    } else {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int single = 0; single < 2; single++) run_case(device, &cases[i], single != 0);
    }
    blasd_backend_cpu.device_close(device);
    return 0;
}
