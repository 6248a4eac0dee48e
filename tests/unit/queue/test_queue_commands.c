/* What one small job costs Redis: how many commands it runs from the submission to the end, and
 * how many kinds of keys a queue has in which everything is in use. A change that needs more fails
 * here; one that needs less lowers the numbers. */
#include "redis_fixture.h"

#include "wire/frame.h"

enum {
    ALONE_MOST = 20,           /* with FCALL, BLMPOP and the worker's note that it begins */
    BESIDE_DEADLINE_MOST = 20, /* while a job of anybody waits that has a deadline */
    BESIDE_ALL_MOST = 20,      /* while everything else is in use */
    KINDS_MOST = 23
};

/* How many commands Redis has run since it was last asked; their names and numbers in `text`. */
static int commands(struct bed *bed, char *text, size_t size) {
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    char *line, *rest;
    int sum = 0;
    text[0] = '\0';
    for (line = strtok_r(reply->str, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        const char *calls = strstr(line, ":calls=");
        if (calls == NULL || strstr(line, "cmdstat_info") || strstr(line, "cmdstat_config"))
            continue;
        sum += atoi(calls + 7);
        size_t len = strlen(text);
        snprintf(text + len, size - len, " %.*s:%d", (int)(calls - line) - 8, line + 8,
                 atoi(calls + 7));
    }
    drop(reply);
    drop(redisCommand(bed->raw, "CONFIG RESETSTAT"));
    return sum;
}

/* Ends the job with a record that says that it succeeded. */
static void succeed(struct blasd_worker_queue *worker, const char *id) {
    struct blasd_record record = {.state = BLASD_SUCCEEDED};
    struct blasd_buf buf;
    struct blasd_err err;
    bool lost;
    snprintf(record.id, sizeof record.id, "%s", id);
    snprintf(record.op, sizeof record.op, "matmul");
    blasd_buf_init(&buf, BLASD_MIB);
    assert_int_equal(blasd_record_encode(&record, &buf, &err), 0);
    struct blasd_completion completion = {.id = id, .record = buf.data, .record_len = buf.len};
    assert_int_equal(blasd_worker_queue_finish(worker, &completion, 1, &lost, &err), 0);
    assert_true(completion.accepted);
    blasd_buf_release(&buf);
}

/* One job: the worker is idle before and after. */
static void one_job(struct bed *bed, struct blasd_worker_queue *worker) {
    struct blasd_claim claims[8];
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1];
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(bed, id, "2", "100", "", "me"), 0);
    assert_int_equal(blasd_worker_queue_wait(worker, 1000, &err), 0);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    begin(worker, claims, 1);
    succeed(worker, id);
    assert_true(blasd_worker_queue_is_idle(worker));
}

/* The mean of some jobs, the first one of a second among them. */
static void expect_commands(struct bed *bed, struct blasd_worker_queue *worker, int most) {
    enum { JOBS = 20 };
    char text[4096];
    for (int i = 0; i < 2; i++) one_job(bed, worker);
    commands(bed, text, sizeof text);
    for (int i = 0; i < JOBS; i++) one_job(bed, worker);
    int sum = commands(bed, text, sizeof text);
    if (sum > JOBS * most) fail_msg("%d commands for %d jobs:%s", sum, JOBS, text);
    if (sum <= JOBS * (most - 1))
        print_message("%d commands for %d jobs, of at most %d:%s\n", sum, JOBS, JOBS * most, text);
}

/* A job that no worker of this test may be given. */
static void submit_idle(struct bed *bed, const char *options) {
    char id[BLASD_ID_LEN + 1];
    id_make(id, BLASD_ID_ASYNC, 0);
    assert_int_equal(submit_as(bed, id, "8", "100", options, ""), 0);
}

/* Kinds of keys: what stands between the queue's tag and the next colon. */
static int kinds_of_keys(struct bed *bed, char *text, size_t size) {
    redisReply *reply = redisCommand(bed->raw, "KEYS %s:*", bed->tag);
    int count = 0;
    snprintf(text, size, " ");
    for (size_t i = 0; i < reply->elements; i++) {
        char kind[64];
        const char *noun = reply->element[i]->str + strlen(bed->tag) + 1;
        snprintf(kind, sizeof kind, " %.*s ", (int)strcspn(noun, ":"), noun);
        if (strstr(text, kind)) continue;
        snprintf(text + strlen(text), size - strlen(text), "%s", kind + 1);
        count++;
    }
    drop(reply);
    return count;
}

static void test_commands_of_a_small_job(void **state) {
    struct bed bed;
    (void)state;
    bed_open(&bed, &server, "commands");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    struct blasd_claim claims[8];
    assert_int_equal(claim(worker, 8, PLENTY, claims), 0);
    expect_commands(&bed, worker, ALONE_MOST);
    submit_idle(&bed, "d=600000");
    expect_commands(&bed, worker, BESIDE_DEADLINE_MOST);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Tensors, keys, webhooks, segments, outputs in files, tenants, a job that came back. */
static void use_everything(struct bed *bed, struct blasd_worker_queue *worker) {
    char tensor[BLASD_ID_LEN + 1], options[256], id[BLASD_ID_LEN + 1];
    struct blasd_claim claims[8];
    struct blasd_err err;
    bool wanted;
    id_make(tensor, BLASD_ID_TENSOR, 0);
    drop(fcall(bed, "tensor", "put", "anonymous", "0", "3600", tensor, "32", "float64 0 4", NULL));
    snprintf(options, sizeof options, "d=600000 t=%s.in m=10000:10:1 k=1:mine", tensor);
    submit_idle(bed, options);
    tenant = "ann";
    submit_idle(bed, "k=1:hers");
    tenant = "anonymous";
    for (int i = 0; i < 2; i++) { /* with outputs, and one that its worker died with */
        id_make(id, BLASD_ID_ASYNC, 0);
        const char *note = "\t\tmatmul a=b\tann\t10000 1 100 100000 100000";
        drop(fcall(bed, "submit", NEXT_SEQ, id, "frame", "2", "100 r50", "", note, NULL));
        assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
        begin(worker, claims, 1);
        const char *const ids[] = {id};
        assert_int_equal(blasd_worker_queue_progress(worker, ids, 1, 0.5, -1, &wanted, &err), 0);
        if (i == 0) assert_int_equal(finish(worker, id, "record", 1000), 1);
    }
    expire_worker(bed, "w");
}

static void test_commands_beside_all(void **state) {
    struct bed bed;
    char kinds[4096];
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "all");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    use_everything(&bed, worker);
    blasd_worker_queue_free(worker);
    struct blasd_worker_queue *other = worker_new(&bed, "v", BLASD_DEVICE_CPU);
    worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(other, 8, PLENTY, claims), 1); /* which it keeps */
    assert_int_equal(claim(worker, 8, PLENTY, claims), 0);
    expect_commands(&bed, worker, BESIDE_ALL_MOST);
    drop(fcall(&bed, "tick", "key", NULL));
    int count = kinds_of_keys(&bed, kinds, sizeof kinds);
    if (count > KINDS_MOST) fail_msg("%d kinds of keys:%s", count, kinds);
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(other);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands_of_a_small_job),
        cmocka_unit_test(test_commands_beside_all),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
