/* A matrix that is sent once and used by several jobs, an output that stays in place of coming, and
 * an input that the service makes by itself, through the C client.
 * After `make`, in the root of the repository:
 *   cc -I. clients/c/examples/tensor_example.c -Lbuild -lblasd_client -lcurl -ljansson
 *   ./a.out http://127.0.0.1:8080 */
#include "clients/c/blasd.h"

#include <stdio.h>
#include <string.h>

static double a[6] = {1, 2, 3, 4, 5, 6}, y[3] = {1, 2, 2};

/* A job whose inputs are all at the service; prints the output, where it is sent. */
static int run(struct blasd_client *client, const struct blasd_request *request, const char *output,
               struct blasd_reply **ret) {
    struct blasd_problem problem;
    const struct blasd_array *array;
    if (blasd_client_run(client, request, 30, NULL, NULL, ret, &problem) != 0) {
        fprintf(stderr, "%s: %s (%s)\n", request->op, problem.message, problem.field);
        return -1;
    }
    array = blasd_reply_array(*ret, output);
    for (int64_t i = 0; array != NULL && i < array->shape[0]; i++)
        printf("%s[%d] = %g\n", output, (int)i, ((const double *)array->data)[i]);
    return 0;
}

/* The least squares solution of a x = y by its normal equations: a is sent once, and the product of
 * a with itself never. */
static int least_squares(struct blasd_client *client, const char *id) {
    struct blasd_array right = {
        .name = "b", .dtype = "float64", .rank = 1, .shape = {3}, .data = y};
    struct blasd_request gram = {.op = "matmul", .params = "{\"transpose_a\":true}"};
    struct blasd_request product = {
        .op = "matmul", .inputs = &right, .input_count = 1, .params = "{\"transpose_a\":true}"};
    struct blasd_request solve = {.op = "solve", .results = "[\"x\"]"};
    struct blasd_reply *replies[3] = {NULL, NULL, NULL};
    struct blasd_tensor_info left, sum;
    char twice[256], once[256], both[256];
    int code = -1;
    snprintf(twice, sizeof twice, "{\"a\":{\"tensor\":\"%s\"},\"b\":{\"tensor\":\"%s\"}}", id, id);
    snprintf(once, sizeof once, "{\"a\":{\"tensor\":\"%s\"}}", id);
    gram.references = twice;
    product.references = once;
    gram.keep = product.keep = "[\"c\"]";
    if (run(client, &gram, "c", &replies[0]) == 0 && run(client, &product, "c", &replies[1]) == 0 &&
        blasd_reply_tensor(replies[0], "c", &left) && blasd_reply_tensor(replies[1], "c", &sum)) {
        snprintf(both, sizeof both, "{\"a\":{\"tensor\":\"%s\"},\"b\":{\"tensor\":\"%s\"}}",
                 left.id, sum.id);
        solve.references = both;
        code = run(client, &solve, "x", &replies[2]);
    }
    for (int i = 0; i < 3; i++) blasd_reply_free(replies[i]);
    return code;
}

/* What a job would do, without doing it: numbers that nobody has to send. */
static int would_do(struct blasd_client *client) {
    struct blasd_request request = {
        .op = "matmul",
        .references = "{\"a\":{\"random\":\"normal\",\"seed\":7,\"shape\":[500,500]},"
                      "\"b\":{\"eye\":500}}"};
    struct blasd_problem problem;
    struct blasd_reply *reply;
    if (blasd_client_dry_run(client, &request, &reply, &problem) != 0) {
        fprintf(stderr, "dry run: %s\n", problem.message);
        return -1;
    }
    printf("%s\n", blasd_reply_document(reply));
    blasd_reply_free(reply);
    return 0;
}

/* The bytes come back as they went. */
static int come_back(struct blasd_client *client, const char *id) {
    struct blasd_problem problem;
    struct blasd_reply *reply;
    const struct blasd_array *array;
    int code = -1;
    if (blasd_tensor_get(client, id, &reply, &problem) != 0) {
        fprintf(stderr, "get: %s\n", problem.message);
        return -1;
    }
    array = blasd_reply_array_at(reply, 0);
    if (array != NULL && array->rank == 2 && memcmp(array->data, a, sizeof a) == 0) code = 0;
    blasd_reply_free(reply);
    return code;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(argc > 1 ? argv[1] : "http://127.0.0.1:8080");
    struct blasd_array array = {.dtype = "float64", .rank = 2, .shape = {3, 2}, .data = a};
    struct blasd_put put = {.array = &array, .life_s = 600, .sha256 = true};
    struct blasd_tensor_info tensor;
    struct blasd_problem problem;
    int failed = 1;
    if (client == NULL) return 1;
    if (blasd_tensor_put(client, &put, &tensor, &problem) != 0)
        fprintf(stderr, "put: %s\n", problem.message);
    else {
        printf("%s until %s, sha256 %s\n", tensor.id, tensor.expires_at, tensor.sha256);
        failed = least_squares(client, tensor.id) != 0 || would_do(client) != 0 ||
                 come_back(client, tensor.id) != 0 ||
                 blasd_tensor_delete(client, tensor.id, &problem) != 0;
    }
    blasd_client_free(client);
    return failed;
}
