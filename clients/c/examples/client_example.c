/* A product, an error, and a job that is not waited for, through the C client.
 * After `make`, in the root of the repository:
 *   cc -I. clients/c/examples/client_example.c -Lbuild -lblasd_client -lcurl -ljansson
 *   ./a.out http://127.0.0.1:8080 */
#include "clients/c/blasd.h"

#include <stdio.h>

static double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, zeros[4];

/* c = a b, printed. */
static int product(struct blasd_client *client) {
    struct blasd_array inputs[2] = {
        {.name = "a", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = a},
        {.name = "b", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = b}};
    struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
    struct blasd_problem problem;
    struct blasd_reply *reply;
    const struct blasd_array *array;
    if (blasd_client_run(client, &request, 30, NULL, NULL, &reply, &problem) != 0) {
        fprintf(stderr, "matmul: %s\n", problem.message);
        return -1;
    }
    array = blasd_reply_array(reply, "c");
    if (array != NULL) {
        const double *c = (const double *)array->data; /* C++ wants the cast */
        printf("%g %g\n%g %g\n", c[0], c[1], c[2], c[3]);
    }
    blasd_reply_free(reply);
    return array == NULL ? -1 : 0;
}

/* A system without a solution: the problem says so. */
static int singular(struct blasd_client *client) {
    struct blasd_array inputs[2] = {
        {.name = "a", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = zeros},
        {.name = "b", .dtype = "float64", .rank = 1, .shape = {2}, .data = b}};
    struct blasd_request request = {.op = "solve", .inputs = inputs, .input_count = 2};
    struct blasd_problem problem;
    struct blasd_reply *reply;
    if (blasd_client_run(client, &request, 30, NULL, NULL, &reply, &problem) == 0) {
        blasd_reply_free(reply);
        return -1;
    }
    printf("%s: %s\n", problem.code, problem.message);
    return 0;
}

/* Submit now, look later. */
static int later(struct blasd_client *client) {
    struct blasd_array inputs[1] = {
        {.name = "x", .dtype = "float64", .rank = 2, .shape = {4, 1}, .data = a}};
    struct blasd_request request = {.op = "distance",
                                    .inputs = inputs,
                                    .input_count = 1,
                                    .params = "{\"metric\":\"cityblock\"}"};
    struct blasd_problem problem;
    struct blasd_reply *queued = NULL, *ended = NULL;
    int code = -1;
    if (blasd_client_submit(client, &request, 0, &queued, &problem) != 0 ||
        blasd_client_get(client, blasd_reply_id(queued), 30, &ended, &problem) != 0)
        fprintf(stderr, "distance: %s\n", problem.message);
    else {
        printf("%s\n", blasd_reply_document(ended));
        code = 0;
    }
    blasd_reply_free(queued);
    blasd_reply_free(ended);
    return code;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(argc > 1 ? argv[1] : "http://127.0.0.1:8080");
    int failed = 1;
    if (client != NULL)
        failed = product(client) != 0 || singular(client) != 0 || later(client) != 0;
    blasd_client_free(client);
    return failed;
}
