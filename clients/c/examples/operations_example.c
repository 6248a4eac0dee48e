/* Operations by their structs: a proven solution, nearest neighbours, a ridge fit.
 * After `make`, in the root of the repository:
 *   cc -I. clients/c/examples/operations_example.c -Lbuild -lblasd_client -lcurl -ljansson
 *   ./a.out http://127.0.0.1:8080 */
#include "clients/c/blasd_operations.h"

#include <stdio.h>

static struct blasd_array matrix(int64_t m, int64_t n, const double *data) {
    struct blasd_array array = {.dtype = "float64", .rank = 2, .shape = {m, n}, .data = data};
    return array;
}

/* Prints the elements of `name`. */
static int show(struct blasd_client *client, const struct blasd_request *request,
                const char *name) {
    struct blasd_problem problem;
    struct blasd_reply *reply;
    const struct blasd_array *array;
    if (blasd_client_run(client, request, 30, NULL, NULL, &reply, &problem) != 0) {
        fprintf(stderr, "%s: %s\n", request->op, problem.message);
        return -1;
    }
    array = blasd_reply_array(reply, name);
    printf("%s:", name);
    for (int64_t i = 0; array != NULL && i < array->shape[0]; i++)
        printf(" %g", array->dtype[0] == 'i' ? (double)((const int64_t *)array->data)[i]
                                             : ((const double *)array->data)[i]);
    puts("");
    blasd_reply_free(reply);
    return array == NULL ? -1 : 0;
}

static int solutions(struct blasd_client *client) {
    static const double a[4] = {4, 1, 1, 3}, b[2] = {1, 2};
    const bool yes = true;
    struct blasd_array left = matrix(2, 2, a);
    struct blasd_array right = {.dtype = "float64", .rank = 1, .shape = {2}, .data = b};
    struct blasd_solve solve = {.a = &left, .b = &right, .assume_a = "symmetric", .certify = &yes};
    struct blasd_call call;
    struct blasd_request request = blasd_solve_request(&solve, &call);
    return show(client, &request, "x") | show(client, &request, "error_bound");
}

static int neighbours(struct blasd_client *client) {
    static const double x[4] = {0, 0, 5, 5}, y[6] = {1, 0, 4, 4, 9, 9};
    struct blasd_array points = matrix(2, 2, x), others = matrix(3, 2, y);
    struct blasd_distance distance = {
        .x = &points, .y = &others, .metric = "cityblock", .output = "argmin"};
    struct blasd_call call;
    struct blasd_request request = blasd_distance_request(&distance, &call);
    return show(client, &request, "index");
}

static int fit(struct blasd_client *client) {
    static const double x[4] = {0, 1, 2, 3}, y[4] = {1, 3, 5, 7};
    const double alpha = 0.5;
    struct blasd_array design = matrix(4, 1, x);
    struct blasd_array target = {.dtype = "float64", .rank = 1, .shape = {4}, .data = y};
    struct blasd_regression ridge = {
        .x = &design, .y = &target, .method = "ridge", .alpha = &alpha};
    struct blasd_call call;
    struct blasd_request request = blasd_regression_request(&ridge, &call);
    request.priority = "high";
    return show(client, &request, "coef");
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(argc > 1 ? argv[1] : "http://127.0.0.1:8080");
    int failed = 1;
    if (client != NULL)
        failed = solutions(client) != 0 || neighbours(client) != 0 || fit(client) != 0;
    blasd_client_free(client);
    return failed;
}
