/* A system call, and OpenBLAS' product of 1024 x 1024 float32 matrices on one core and on all.
 *
 * Each product runs in a process of its own: threads that OpenBLAS leaves spinning after a call end
 * with it and are in nobody's way. */
#include "machine.h"

#include <cblas.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 100000
#define SIDE 1024
#define PRODUCTS 2

extern void openblas_set_num_threads(int threads);

const char *machine_system_call(struct machine *m, double *values) {
    machine_bind(m->first);
    double begin = machine_now();
    for (int i = 0; i < CALLS; i++) syscall(SYS_getppid);
    values[0] = (machine_now() - begin) * 1e9 / CALLS;
    machine_unbind(m);
    return NULL;
}

/* GFLOP/s, or 0 without memory. */
static double products(int threads) {
    size_t count = (size_t)SIDE * SIDE;
    float *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b),
          *c = malloc(count * sizeof *c);
    double begin = 0, rate = 0;
    if (a != NULL && b != NULL && c != NULL) {
        for (size_t i = 0; i < count; i++) {
            a[i] = (float)(i % 8 + 1);
            b[i] = (float)(i % 7 + 1);
        }
        openblas_set_num_threads(threads);
        for (int i = -1; i < PRODUCTS; i++) { /* the first is not timed: pages, threads */
            if (i == 0) begin = machine_now();
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b,
                        SIDE, 0, c, SIDE);
        }
        rate = 2e-9 * SIDE * SIDE * SIDE * PRODUCTS / (machine_now() - begin);
    }
    free(a);
    free(b);
    free(c);
    return rate;
}

static const char *sgemm(int core, int threads, double *values) {
    int way[2];
    double rate = 0;
    if (pipe(way) < 0) return "no pipe could be made";
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        machine_bind(core);
        rate = products(threads);
        _exit(machine_send(way[1], &rate, sizeof rate) ? 0 : 1);
    }
    close(way[1]);
    bool told = pid > 0 && machine_receive(way[0], &rate, sizeof rate) && rate > 0;
    close(way[0]);
    if (pid > 0) waitpid(pid, NULL, 0);
    if (!told) return "no process could be started, or it had no memory";
    values[0] = rate;
    return NULL;
}

const char *machine_sgemm_one_core(struct machine *m, double *values) {
    return sgemm(m->first, 1, values);
}

const char *machine_sgemm_all_cores(struct machine *m, double *values) {
    if (m->cores == 1) return "there is one core only";
    return sgemm(-1, m->cores, values);
}
