/* What test_client_share.py does to the C client's shared memory. One word says what; the service's
 * URL comes from BLASD_URL. Prints what it sees, for the test to judge; exits 0 where the client
 * did as its header says, 1 with "CODE MESSAGE" on standard error where it reported a problem. */
#include "clients/c/blasd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 500

static int complain(const struct blasd_problem *problem) {
    fprintf(stderr, "%s %s\n", problem->code, problem->message);
    return 1;
}

static struct blasd_array square(const char *name, const char *dtype, const void *data) {
    return (struct blasd_array){
        .name = name, .dtype = dtype, .rank = 2, .shape = {N, N}, .data = data};
}

/* A whole number in each element, so that products are exact. */
static void fill(double *a, double *b) {
    for (int i = 0; i < N * N; i++) {
        a[i] = i % N == i / N ? 3 : 0;
        b[i] = i % 1000;
    }
}

/* "mapped right" where the reply is mapped and c = 3 b. */
static void judge(const struct blasd_reply *reply, const double *b) {
    const struct blasd_array *c = blasd_reply_array(reply, "c");
    bool right = c != NULL && strcmp(c->dtype, "float64") == 0 && c->rank == 2;
    for (int i = 0; right && i < N * N; i++) right = ((const double *)c->data)[i] == 3 * b[i];
    printf("%s %s\n", blasd_reply_mapped(reply) ? "mapped" : "received", right ? "right" : "wrong");
}

static int product(struct blasd_client *client, const struct blasd_request *request,
                   const double *b) {
    struct blasd_problem problem;
    struct blasd_reply *reply;
    if (blasd_client_run(client, request, 60, NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    judge(reply, b);
    blasd_reply_free(reply);
    return 0;
}

static int make_shared(struct blasd_client *client, struct blasd_shared **shared) {
    struct blasd_array specs[2] = {square("a", "float64", NULL), square("b", "float64", NULL)};
    struct blasd_problem problem;
    if (blasd_shared_new(client, specs, 2, shared, &problem) != 0) return complain(&problem);
    fill(blasd_shared_data(*shared, "a"), blasd_shared_data(*shared, "b"));
    return 0;
}

/* Arrays in place: the same ones three times, changed in between. */
static int in_place(struct blasd_client *client) {
    struct blasd_shared *shared;
    struct blasd_request request = {.op = "matmul"};
    double *b;
    int code = make_shared(client, &shared);
    if (code != 0) return code;
    request.shared = shared;
    b = blasd_shared_data(shared, "b");
    for (int i = 0; code == 0 && i < 3; i++) {
        code = product(client, &request, b);
        for (int k = 0; k < N * N; k++) b[k] += 1;
    }
    if (blasd_shared_array(shared, "nonsense") != NULL) code = 1;
    blasd_shared_free(shared);
    return code;
}

/* The same arrays, from memory; stops between, so that a test can change the service meanwhile. */
static int copies(struct blasd_client *client, bool stop_between) {
    double *a = malloc(N * N * sizeof *a), *b = malloc(N * N * sizeof *b);
    struct blasd_array inputs[2] = {square("a", "float64", a), square("b", "float64", b)};
    struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
    int code;
    fill(a, b);
    code = product(client, &request, b);
    if (stop_between) {
        fflush(stdout);
        if (getchar() == EOF) code = 1;
        if (code == 0) code = product(client, &request, b);
    }
    free(a);
    free(b);
    return code;
}

/* A job that is not waited for, whose inputs are freed at once; its result outlives its record and
 * may be written to. */
static int later(struct blasd_client *client) {
    struct blasd_shared *shared;
    struct blasd_request request = {.op = "matmul", .priority = "low", .deadline_ms = 60000};
    struct blasd_reply *queued = NULL, *ended = NULL, *result = NULL, *gone = NULL;
    struct blasd_problem problem;
    double *b = malloc(N * N * sizeof *b);
    int code = make_shared(client, &shared);
    if (code != 0) return code;
    memcpy(b, blasd_shared_array(shared, "b")->data, N * N * sizeof *b);
    request.shared = shared;
    code = blasd_client_submit(client, &request, 0, &queued, &problem);
    blasd_shared_free(shared);
    if (code == 0)
        code = blasd_client_get(client, blasd_reply_id(queued), 30, &ended, &problem) ||
               blasd_client_result(client, blasd_reply_id(queued), &result, &problem) ||
               blasd_client_forget(client, blasd_reply_id(queued), &gone, &problem);
    if (code == 0) {
        judge(result, b);
        ((double *)blasd_reply_data(result, "c"))[0] = 1;
    } else
        complain(&problem);
    blasd_reply_free(queued);
    blasd_reply_free(ended);
    blasd_reply_free(result);
    blasd_reply_free(gone);
    free(b);
    return code != 0;
}

/* Holds a result, over what the test does meanwhile: "ID", and after a line of input it judges. */
static int keep(struct blasd_client *client) {
    struct blasd_shared *shared;
    struct blasd_request request = {.op = "matmul"};
    struct blasd_reply *reply = NULL;
    struct blasd_problem problem;
    int code = make_shared(client, &shared);
    if (code != 0) return code;
    request.shared = shared;
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    puts(blasd_reply_id(reply));
    fflush(stdout);
    if (getchar() == EOF) code = 1;
    judge(reply, blasd_shared_array(shared, "b")->data);
    blasd_reply_free(reply);
    blasd_shared_free(shared);
    return code;
}

/* Holds arrays until it is killed. */
static int hold(struct blasd_client *client) {
    struct blasd_shared *shared;
    int code = make_shared(client, &shared);
    if (code != 0) return code;
    puts("held");
    fflush(stdout);
    pause();
    return 1;
}

/* What cannot be made says so. */
static int refusals(struct blasd_client *client) {
    struct blasd_array spec = square("a", "float128", NULL);
    struct blasd_problem problem;
    struct blasd_shared *shared;
    if (blasd_shared_new(client, &spec, 1, &shared, &problem) == 0 || shared != NULL) return 1;
    puts(problem.code);
    spec = square("a", "float64", NULL);
    spec.shape[0] = INT64_C(1) << 40; /* 4 PiB */
    if (blasd_shared_new(client, &spec, 1, &shared, &problem) == 0 || shared != NULL) return 1;
    puts(problem.code);
    if (blasd_shared_new(client, NULL, 2, &shared, &problem) == 0 || shared != NULL) return 1;
    puts(problem.code);
    return 0;
}

/* `who` times each of 50 numbers, and what each process is told is its own. */
static bool own_products(struct blasd_client *client, double who) {
    bool right = true;
    for (int i = 0; right && i < 50; i++) {
        double a = who, b = i;
        struct blasd_array inputs[2] = {
            {.name = "a", .dtype = "float64", .rank = 2, .shape = {1, 1}, .data = &a},
            {.name = "b", .dtype = "float64", .rank = 2, .shape = {1, 1}, .data = &b}};
        struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
        struct blasd_problem problem;
        struct blasd_reply *reply = NULL;
        if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) != 0)
            return complain(&problem) == 0;
        right = *(const double *)blasd_reply_array(reply, "c")->data == who * i;
        blasd_reply_free(reply);
    }
    return right;
}

/* One client, used before fork, in the parent and in its children at once; the children free it and
 * the arrays, which stay the parent's. */
static int forks(struct blasd_client *client) {
    struct blasd_shared *shared;
    struct blasd_request request = {.op = "matmul"};
    pid_t children[3];
    int code = make_shared(client, &shared), status;
    bool right = code == 0 && own_products(client, 1);
    for (int i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) {
            right = own_products(client, 3 + i);
            blasd_shared_free(shared);
            blasd_client_free(client);
            _exit(right ? 0 : 1);
        }
    right = own_products(client, 2) && right;
    for (int i = 0; i < 3; i++)
        right = waitpid(children[i], &status, 0) == children[i] && status == 0 && right;
    puts(right ? "each its own" : "mixed up");
    request.shared = shared;
    code = product(client, &request, blasd_shared_array(shared, "b")->data);
    blasd_shared_free(shared);
    return code;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(NULL);
    const char *what = argc > 1 ? argv[1] : "";
    struct blasd_problem problem;
    int code = 2;
    if (client == NULL) return code;
    if (strcmp(what, "unshared") == 0)
        code = in_place(client); /* no blasd_client_share before it */
    else if (blasd_client_share(client, &problem) != 0)
        code = complain(&problem);
    else if (strcmp(what, "in-place") == 0)
        code = in_place(client);
    else if (strcmp(what, "copies") == 0)
        code = copies(client, false);
    else if (strcmp(what, "between") == 0)
        code = copies(client, true);
    else if (strcmp(what, "later") == 0)
        code = later(client);
    else if (strcmp(what, "keep") == 0)
        code = keep(client);
    else if (strcmp(what, "hold") == 0)
        code = hold(client);
    else if (strcmp(what, "refusals") == 0)
        code = refusals(client);
    else if (strcmp(what, "forks") == 0)
        code = forks(client);
    blasd_client_free(client);
    return code;
}
