/* What test_c_client.py does to the C client: threads that share one, many jobs in one event loop,
 * what is refused. One word says what; the service's URL comes from BLASD_URL, a file of its
 * authority from PROBE_CA. Prints what it sees, for the test to judge; exits 0 where the client did
 * as its header says. */
#include "clients/c/blasd.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16
#define EACH 40
#define MOST 2000

static int complain(const struct blasd_problem *problem) {
    fprintf(stderr, "%s %d %s\n", problem->code, problem->status, problem->message);
    return 1;
}

static struct blasd_array scalar(const char *name, const double *value) {
    return (struct blasd_array){
        .name = name, .dtype = "float64", .rank = 2, .shape = {1, 1}, .data = value};
}

/* --- threads */

struct worker {
    struct blasd_client *client;
    pthread_t thread;
    double who;
    int right;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    for (int i = 0; i < EACH; i++) {
        double a = worker->who, b = i;
        struct blasd_array inputs[2] = {scalar("a", &a), scalar("b", &b)};
        struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
        struct blasd_problem problem;
        struct blasd_reply *reply = NULL;
        if (blasd_client_run(worker->client, &request, 60, NULL, NULL, &reply, &problem) != 0)
            complain(&problem);
        else
            worker->right += *(const double *)blasd_reply_array(reply, "c")->data == a * b;
        blasd_reply_free(reply);
    }
    return NULL;
}

/* While they run this process forks, whose child uses the client, too; not so over TLS, for
 * OpenSSL's locks may be held at that moment. */
static int threads(struct blasd_client *client, bool forks) {
    static struct worker workers[THREADS + 1];
    int right = 0, status = 0;
    pid_t child = -1;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = client, .who = i + 1};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 1;
    }
    if (forks) child = fork();
    if (child == 0) {
        struct worker own = {.client = client, .who = 1000};
        work(&own);
        _exit(own.right == EACH ? 0 : 1);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        right += workers[i].right;
    }
    if (forks) waitpid(child, &status, 0);
    printf("%d right of %d, child %d\n", right, THREADS * EACH, status);
    return 0;
}

/* A client that has connections, in this process and two children at once. */
static int forks(struct blasd_client *client) {
    struct worker own = {.client = client, .who = 1};
    int right, status[2] = {1, 1};
    pid_t children[2];
    work(&own);
    for (int i = 0; i < 2; i++)
        if ((children[i] = fork()) == 0) {
            own = (struct worker){.client = client, .who = 2 + i};
            work(&own);
            blasd_client_free(client);
            _exit(own.right == EACH ? 0 : 1);
        }
    right = own.right;
    own = (struct worker){.client = client, .who = 9};
    work(&own);
    for (int i = 0; i < 2; i++) waitpid(children[i], &status[i], 0);
    printf("%d right of %d, children %d %d\n", right + own.right, 2 * EACH, status[0], status[1]);
    return 0;
}

/* A fork while another thread's first request draws the seed of jansson's tables: a moment that
 * slow_seed.so makes long, and tells by the file `drawing`. The child is ended where it hangs. */
static int forks_early(struct blasd_client *client, const char *drawing) {
    struct worker first = {.client = client, .who = 1}, own = {.client = client, .who = 2};
    int status = 0;
    pid_t child;
    alarm(60);
    if (pthread_create(&first.thread, NULL, work, &first) != 0) return 1;
    while (access(drawing, F_OK) != 0) usleep(1000);
    child = fork();
    if (child == 0) {
        alarm(30);
        work(&own);
        _exit(own.right == EACH ? 0 : 1);
    }
    pthread_join(first.thread, NULL);
    waitpid(child, &status, 0);
    printf("%d right of %d, child %d\n", first.right, EACH, status);
    return 0;
}

/* --- jobs in flight */

struct product {
    double a, b;
    int calls;
    bool right;
    char code[48];
};
static struct product products[MOST];

static void on_done(void *arg, uint64_t job, struct blasd_reply *reply,
                    const struct blasd_problem *problem) {
    struct product *product = arg;
    (void)job;
    product->calls++;
    if (reply != NULL)
        product->right =
            *(const double *)blasd_reply_array(reply, "c")->data == product->a * product->b;
    else
        snprintf(product->code, sizeof product->code, "%s", problem->code);
    blasd_reply_free(reply);
}

static int submit(struct blasd_async *async, int i, double timeout, const char *key,
                  uint64_t *job) {
    struct product *product = &products[i];
    struct blasd_array inputs[2] = {scalar("a", &product->a), scalar("b", &product->b)};
    struct blasd_request request = {
        .op = "matmul", .inputs = inputs, .input_count = 2, .idempotency_key = key};
    struct blasd_problem problem;
    *product = (struct product){.a = i + 1, .b = 3};
    if (blasd_async_submit(async, &request, timeout, on_done, product, job, &problem) == 0)
        return 0;
    return complain(&problem);
}

static void loop(struct blasd_async *async) {
    while (blasd_async_turn(async, 0) > 0) {
        struct pollfd own = {.fd = blasd_async_fd(async), .events = POLLIN};
        poll(&own, 1, -1);
    }
}

/* "RIGHT right, CALLS calls, CODE CODE …" of `count` jobs. */
static void judge(int count) {
    int right = 0, calls = 0;
    for (int i = 0; i < count; i++) {
        right += products[i].right;
        calls += products[i].calls;
    }
    printf("%d right, %d calls", right, calls);
    for (int i = 0; i < count; i++)
        if (products[i].code[0] != '\0') printf(", %d %s", i, products[i].code);
    putchar('\n');
}

static int many(struct blasd_client *client, int count, int connections) {
    struct blasd_async *async = blasd_async_new(client, connections);
    if (async == NULL) return 2;
    for (int i = 0; i < count; i++)
        if (submit(async, i, 60, NULL, NULL) != 0) return 1;
    puts("submitted");
    fflush(stdout);
    loop(async);
    judge(count);
    blasd_async_free(async);
    return 0;
}

static int open_files(void) {
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL) count++;
    if (dir != NULL) closedir(dir);
    return count;
}

static int calls_of(int count) {
    int calls = 0;
    for (int i = 0; i < count; i++) calls += products[i].calls;
    return calls;
}

/* Prints the most jobs that one turn connected, and the most that it told of, where there was
 * always more to do than one turn does. */
static int turns(struct blasd_client *client, int count) {
    struct blasd_async *async = blasd_async_new(client, count);
    int most_files = 0, most_calls = 0, left = 1;
    if (async == NULL) return 2;
    for (int i = 0; i < count; i++)
        if (submit(async, i, 60, NULL, NULL) != 0) return 1;
    while (left > 0) {
        int files = open_files(), calls = calls_of(count);
        usleep(20000);
        left = blasd_async_turn(async, 0);
        files = open_files() - files, calls = calls_of(count) - calls;
        if (files > most_files) most_files = files;
        if (calls > most_calls) most_calls = calls;
    }
    printf("%d %d\n", most_files, most_calls);
    judge(count);
    blasd_async_free(async);
    return 0;
}

/* Jobs that nobody computes: of six the first is cancelled, the second, under a key, too, and the
 * third has little time; the others are given up. A line of input says when. */
static int ends(struct blasd_client *client) {
    struct blasd_async *async = blasd_async_new(client, 2);
    uint64_t job[6];
    if (async == NULL) return 2;
    for (int i = 0; i < 6; i++)
        if (submit(async, i, i == 2 ? 1 : 60, i == 1 ? "probe" : NULL, &job[i]) != 0) return 1;
    puts("submitted");
    fflush(stdout);
    for (struct pollfd input[2] = {{.fd = 0, .events = POLLIN},
                                   {.fd = blasd_async_fd(async), .events = POLLIN}};
         poll(input, 2, -1) >= 0 && input[0].revents == 0;)
        blasd_async_turn(async, 0);
    printf("%d %d %d\n", blasd_async_cancel(async, job[0]), blasd_async_cancel(async, job[1]),
           blasd_async_cancel(async, 77));
    while (products[0].calls + products[1].calls + products[2].calls < 3)
        blasd_async_turn(async, 1);
    judge(6);
    blasd_async_free(async);
    judge(6);
    return 0;
}

/* One job whose service may be slow to take it. */
static int once(struct blasd_client *client, const char *timeout) {
    double two = 2;
    struct blasd_array inputs[2] = {scalar("a", &two), scalar("b", &two)};
    struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    if (blasd_client_run(client, &request, atof(timeout), NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    printf("%g\n", *(const double *)blasd_reply_array(reply, "c")->data);
    blasd_reply_free(reply);
    return 0;
}

/* A job that is waited for longer than one request may wait. */
static int waits(struct blasd_client *client, const char *wait) {
    double two = 2;
    struct blasd_array inputs[2] = {scalar("a", &two), scalar("b", &two)};
    struct blasd_request request = {.op = "matmul", .inputs = inputs, .input_count = 2};
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    if (blasd_client_get(client, "x", atof(wait), &reply, &problem) != 0) return complain(&problem);
    printf("%s\n", blasd_reply_state(reply));
    blasd_reply_free(reply);
    if (blasd_client_submit(client, &request, atof(wait), &reply, &problem) != 0)
        return complain(&problem);
    printf("%s %g\n", blasd_reply_state(reply),
           *(const double *)blasd_reply_array(reply, "c")->data);
    blasd_reply_free(reply);
    return 0;
}

/* --- a graph */

static int graph(struct blasd_client *client) {
    const double a[4] = {2, 0, 0, 4}, b[2] = {4, 16};
    struct blasd_array inputs[2] = {
        {.name = "m", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = a},
        {.name = "r", .dtype = "float64", .rank = 1, .shape = {2}, .data = b}};
    struct blasd_request request = {
        .inputs = inputs,
        .input_count = 2,
        .results = "[\"x\"]",
        .steps =
            "{\"g\":{\"op\":\"matmul\",\"inputs\":{\"a\":{\"input\":\"m\"},\"b\":{\"input\":"
            "\"m\"}}},\"x\":{\"op\":\"solve\",\"inputs\":{\"a\":{\"step\":\"g\"},\"b\":{\"input\":"
            "\"r\"}}}}"};
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    const double *x;
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    x = blasd_reply_data(reply, "x.x");
    printf("%g %g\n", x[0], x[1]);
    blasd_reply_free(reply);
    request.op = "matmul";
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) == 0) return 1;
    printf("%s\n", problem.code);
    request.op = NULL;
    request.results = "[\"y\"]";
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) == 0) return 1;
    printf("%s %s\n", problem.code, problem.field);
    return 0;
}

/* --- tensors */

static int print_tensor(const char *what, const struct blasd_tensor_info *tensor) {
    printf("%s %s %d %lld %lld %lld %s\n", what, tensor->dtype, tensor->rank,
           (long long)tensor->shape[0], (long long)tensor->bytes, (long long)tensor->life_s,
           tensor->sha256[0] == '\0' ? "-" : tensor->sha256);
    return 0;
}

/* A job whose inputs are a tensor, an output of a job and what a rule makes, beside an array. */
static int refer(struct blasd_client *client, const char *id) {
    const double one[4] = {1, 1, 1, 1};
    struct blasd_array array = {
        .name = "c", .dtype = "float64", .rank = 2, .shape = {2, 2}, .data = one};
    struct blasd_request request = {.op = "matmul", .keep = "[\"c\"]"};
    struct blasd_tensor_info kept;
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    char references[256], output[64];
    snprintf(references, sizeof references,
             "{\"a\":{\"tensor\":\"%s\",\"slice\":[[1,3]]},\"b\":{\"eye\":2}}", id);
    request.references = references;
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    if (!blasd_reply_tensor(reply, "c", &kept) || blasd_reply_tensor(reply, "d", &kept)) return 1;
    if (blasd_reply_array_count(reply) != 0 || !blasd_reply_tensor(reply, "c", &kept)) return 1;
    print_tensor("kept", &kept);
    snprintf(output, sizeof output, "%s", blasd_reply_id(reply));
    blasd_reply_free(reply);
    snprintf(references, sizeof references,
             "{\"a\":{\"job\":\"%s\",\"output\":\"c\"},\"b\":{\"full\":[2,2],\"value\":2}}",
             output);
    request.keep = NULL;
    request.results = "[\"c\"]";
    request.inputs = &array;
    request.input_count = 1;
    if (blasd_client_run(client, &request, 60, NULL, NULL, &reply, &problem) != 0)
        return complain(&problem);
    for (int i = 0; i < 4; i++)
        printf("%g%c", ((const double *)blasd_reply_array(reply, "c")->data)[i],
               i < 3 ? ' ' : '\n');
    blasd_reply_free(reply);
    if (blasd_client_dry_run(client, &request, &reply, &problem) != 0) return complain(&problem);
    printf("%d\n", strstr(blasd_reply_document(reply), "\"predicted\"") != NULL);
    blasd_reply_free(reply);
    request.references =
        "{\"a\":{\"tensor\":\"t0000000000000000000000000000000000000000\"},\"b\":{\"eye\":2}}";
    if (blasd_client_dry_run(client, &request, &reply, &problem) == 0) return 1;
    printf("%s %s\n", problem.code, problem.field);
    return 0;
}

/* `path`: where a .npy file may be written. */
static int tensors(struct blasd_client *client, const char *path) {
    const double a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct blasd_array array = {.dtype = "float64", .rank = 2, .shape = {4, 2}, .data = a};
    struct blasd_put put = {.array = &array, .sha256 = true};
    struct blasd_tensor_info tensor, other;
    struct blasd_problem problem;
    struct blasd_reply *reply = NULL;
    if (blasd_tensor_put(client, &put, &tensor, &problem) != 0) return complain(&problem);
    print_tensor("put", &tensor);
    if (refer(client, tensor.id) != 0) return 1;
    if (blasd_tensor_prolong(client, tensor.id, 77, &other, &problem) != 0 ||
        blasd_tensor_look(client, tensor.id, &other, &problem) != 0 ||
        blasd_tensor_save(client, tensor.id, path, &problem) != 0 ||
        blasd_tensor_get(client, tensor.id, &reply, &problem) != 0)
        return complain(&problem);
    print_tensor("look", &other);
    other = tensor; /* its own id may be what is asked for */
    if (blasd_tensor_look(client, other.id, &other, &problem) != 0 ||
        blasd_tensor_prolong(client, other.id, 78, &other, &problem) != 0)
        return complain(&problem);
    print_tensor("again", &other);
    printf("%d %d\n", blasd_reply_array_count(reply),
           memcmp(blasd_reply_array_at(reply, 0)->data, a, sizeof a));
    blasd_reply_free(reply);
    put = (struct blasd_put){.path = path, .life_s = 5};
    if (blasd_tensor_put(client, &put, &other, &problem) != 0) return complain(&problem);
    print_tensor("file", &other);
    if (blasd_client_tensors(client, "limit=100", &reply, &problem) != 0) return complain(&problem);
    printf("%d\n", strstr(blasd_reply_document(reply), other.id) != NULL);
    blasd_reply_free(reply);
    if (blasd_tensor_delete(client, tensor.id, &problem) != 0) return complain(&problem);
    if (blasd_tensor_get(client, tensor.id, &reply, &problem) == 0) return 1;
    printf("%s %d\n", problem.code, problem.status);
    return 0;
}

int main(int argc, char **argv) {
    struct blasd_client *client = blasd_client_new(NULL);
    const char *what = argc > 1 ? argv[1] : "";
    int code = 2;
    struct blasd_problem problem;
    const char *ca = getenv("PROBE_CA"), *retries = getenv("PROBE_RETRIES");
    if (client == NULL) return code;
    if (ca != NULL && blasd_client_set_tls(client, ca, NULL, NULL, true, &problem) != 0)
        return complain(&problem);
    if (retries != NULL && blasd_client_set_retries(client, atoi(retries), &problem) != 0)
        return complain(&problem);
    if (getenv("PROBE_SHARE") != NULL && blasd_client_share(client, &problem) != 0)
        return complain(&problem);
    if (strcmp(what, "threads") == 0)
        code = threads(client, ca == NULL);
    else if (strcmp(what, "forks") == 0)
        code = forks(client);
    else if (strcmp(what, "forks-early") == 0 && argc > 2)
        code = forks_early(client, argv[2]);
    else if (strcmp(what, "many") == 0 && argc > 3)
        code = many(client, atoi(argv[2]), atoi(argv[3]));
    else if (strcmp(what, "turns") == 0 && argc > 2)
        code = turns(client, atoi(argv[2]));
    else if (strcmp(what, "graph") == 0)
        code = graph(client);
    else if (strcmp(what, "tensors") == 0 && argc > 2)
        code = tensors(client, argv[2]);
    else if (strcmp(what, "ends") == 0)
        code = ends(client);
    else if (strcmp(what, "waits") == 0 && argc > 2)
        code = waits(client, argv[2]);
    else if (strcmp(what, "once") == 0 && argc > 2)
        code = once(client, argv[2]);
    blasd_client_free(client);
    return code;
}
