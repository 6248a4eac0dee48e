/* Hundreds of jobs in flight in a program's own event loop, through the C client: one thread, one
 * poll, a line of input or any other descriptor beside them. After `make`, in the root of the
 * repository:
 *   cc -I. clients/c/examples/async_example.c -Lbuild -lblasd_client -lcurl -ljansson
 *   ./a.out http://127.0.0.1:8080 */
#include "clients/c/blasd.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define JOBS 300
#define N 8

/* One system a x = b, with a = k I. Its data stay until it is done. */
struct system {
    double a[N * N], b[N];
    bool solved;
};

static struct system systems[JOBS];
static int failures;

/* The reply is ours now. */
static void on_done(void *arg, uint64_t job, struct blasd_reply *reply,
                    const struct blasd_problem *problem) {
    struct system *system = (struct system *)arg;
    const struct blasd_array *x = reply == NULL ? NULL : blasd_reply_array(reply, "x");
    if (x == NULL) {
        fprintf(stderr, "job %llu: %s\n", (unsigned long long)job,
                problem != NULL ? problem->message : "it has no x");
        failures++;
    } else {
        const double *values = (const double *)x->data;
        system->solved = true;
        for (int i = 0; i < N; i++) system->solved = system->solved && values[i] == i;
    }
    blasd_reply_free(reply);
}

static int submit(struct blasd_async *async, int k) {
    struct system *system = &systems[k];
    struct blasd_array inputs[2] = {
        {.name = "a", .dtype = "float64", .rank = 2, .shape = {N, N}, .data = system->a},
        {.name = "b", .dtype = "float64", .rank = 1, .shape = {N}, .data = system->b}};
    struct blasd_request request = {.op = "solve", .inputs = inputs, .input_count = 2};
    struct blasd_problem problem;
    for (int i = 0; i < N; i++) {
        system->a[i * N + i] = k + 1;
        system->b[i] = (k + 1) * i;
    }
    if (blasd_async_submit(async, &request, 60, on_done, system, NULL, &problem) == 0) return 0;
    fprintf(stderr, "%s\n", problem.message);
    return -1;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(argc > 1 ? argv[1] : NULL);
    struct blasd_async *async = client == NULL ? NULL : blasd_async_new(client, 64);
    int code = async == NULL ? -1 : 0, solved = 0;
    for (int k = 0; code == 0 && k < JOBS; k++) code = submit(async, k);
    while (code == 0 && blasd_async_turn(async, 0) > 0) {
        struct pollfd waited[1] = {{.fd = blasd_async_fd(async), .events = POLLIN}};
        poll(waited, 1, -1); /* and whatever else the program waits for */
    }
    for (int k = 0; k < JOBS; k++) solved += systems[k].solved;
    printf("%d of %d systems solved\n", solved, JOBS);
    blasd_async_free(async);
    blasd_client_free(client);
    return code != 0 || failures != 0 || solved != JOBS;
}
