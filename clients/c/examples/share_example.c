/* Operands and results in shared memory, through the C client: nothing is sent but a name. For a
 * service on this machine, started as the same user with `build/blasd up --share`; with any other
 * the program says so and goes on over the connection. After `make`, in the root of the repository:
 *   cc -I. clients/c/examples/share_example.c -Lbuild -lblasd_client -lcurl -ljansson
 *   ./a.out http://127.0.0.1:8080 */
#include "clients/c/blasd.h"

#include <stdio.h>
#include <stdlib.h>

#define N 512

static int fail(const struct blasd_problem *problem) {
    fprintf(stderr, "%s: %s\n", problem->code, problem->message);
    return -1;
}

/* a: 1 on the diagonal, 2 to the right of it; b: its own number in each element. */
static void fill(double *a, double *b) {
    for (int i = 0; i < N * N; i++) {
        a[i] = i / N == i % N ? 1 : i / N + 1 == i % N ? 2 : 0;
        b[i] = i;
    }
}

/* Runs it, and looks at one element. Frees the reply, then lets the service have its memory. */
static int run(struct blasd_client *client, const struct blasd_request *request) {
    struct blasd_problem problem;
    struct blasd_reply *reply, *forgotten = NULL;
    const struct blasd_array *c;
    char id[64];
    int code = -1;
    if (blasd_client_run(client, request, 60, NULL, NULL, &reply, &problem) != 0)
        return fail(&problem);
    snprintf(id, sizeof id, "%s", blasd_reply_id(reply));
    c = blasd_reply_array(reply, "c");
    if (c != NULL) {
        const double *row = (const double *)c->data + N;
        printf("%s: c[1][0] = %g\n", blasd_reply_mapped(reply) ? "mapped" : "received", row[0]);
        code = row[0] == N + 2.0 * 2 * N ? 0 : -1;
    }
    blasd_reply_free(reply);
    if (blasd_client_forget(client, id, &forgotten, &problem) == 0) blasd_reply_free(forgotten);
    return code;
}

/* Arrays of one's own: copied once, into shared memory or onto the connection. */
static int any_arrays(struct blasd_client *client) {
    struct blasd_array inputs[2] = {{.name = "a", .dtype = "float64", .rank = 2, .shape = {N, N}},
                                    {.name = "b", .dtype = "float64", .rank = 2, .shape = {N, N}}};
    struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
    double *a = (double *)malloc(N * N * sizeof *a), *b = (double *)malloc(N * N * sizeof *b);
    int code = -1;
    if (a != NULL && b != NULL) {
        fill(a, b);
        inputs[0].data = a;
        inputs[1].data = b;
        code = run(client, &request);
    }
    free(a);
    free(b);
    return code;
}

/* Arrays made where they are used: not copied at all, and used twice. */
static int arrays_in_place(struct blasd_client *client) {
    static const struct blasd_array specs[2] = {
        {.name = "a", .dtype = "float64", .rank = 2, .shape = {N, N}},
        {.name = "b", .dtype = "float64", .rank = 2, .shape = {N, N}}};
    struct blasd_request request = {.op = "matmul"};
    struct blasd_problem problem;
    struct blasd_shared *shared;
    int code = 0;
    if (blasd_shared_new(client, specs, 2, &shared, &problem) != 0) return fail(&problem);
    fill((double *)blasd_shared_data(shared, "a"), (double *)blasd_shared_data(shared, "b"));
    request.shared = shared;
    for (int i = 0; code == 0 && i < 2; i++) code = run(client, &request);
    blasd_shared_free(shared);
    return code;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(argc > 1 ? argv[1] : NULL);
    struct blasd_problem problem;
    int failed;
    if (client == NULL) return 1;
    if (blasd_client_share(client, &problem) == 0)
        failed = any_arrays(client) != 0 || arrays_in_place(client) != 0;
    else {
        printf("not shared (%s): %s\n", problem.code, problem.message);
        failed = any_arrays(client) != 0;
    }
    blasd_client_free(client);
    return failed;
}
