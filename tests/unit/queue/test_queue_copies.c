/* Workers report the tensors that their devices hold copies of; tensor_get names such a device. */
#include "batch_entry_fixture.h"

#define TENSOR "1000" /* bytes */

static void tensor_put(struct bed *bed, char id[BLASD_ID_LEN + 1]) {
    id_make(id, BLASD_ID_TENSOR, 0);
    redisReply *reply =
        fcall(bed, "tensor", "put", tenant, "0", "3600", id, TENSOR, "uint8 0 1", NULL);
    assert_int_equal(reply->element[0]->integer, 0);
    drop(reply);
}

static void tell(struct blasd_worker_queue *worker, const char *device,
                 const char id[BLASD_ID_LEN + 1]) {
    char ids[1][BLASD_ID_LEN + 1];
    struct blasd_err err;
    memcpy(ids[0], id, sizeof ids[0]);
    assert_int_equal(
        blasd_worker_queue_copies(worker, device, (const char(*)[BLASD_ID_LEN + 1]) ids, 1, &err),
        0);
}

static void each_device_tells_for_itself(void **state) {
    struct bed bed;
    char tensor[BLASD_ID_LEN + 1];
    redisReply *reply;
    (void)state;
    bed_open(&bed, &server, "copies");
    struct blasd_worker_queue *one = worker_new(&bed, "one", BLASD_DEVICE_CUDA);
    struct blasd_worker_queue *two = worker_new(&bed, "two", BLASD_DEVICE_CUDA);
    tensor_put(&bed, tensor);
    for (int i = 0; i < 3; i++) {
        tell(one, "cuda:0", tensor);
        tell(two, "cuda:1", tensor);
    }
    reply = redisCommand(bed.raw, "HGET %s:tensor_copies %s", bed.tag, tensor);
    assert_non_null(strstr(reply->str, " one cuda:0"));
    assert_non_null(strstr(reply->str, " two cuda:1"));
    assert_true(strchr(reply->str, '\t') == strrchr(reply->str, '\t'));
    drop(reply);
    reply = fcall(&bed, "tensor", "get", tenant, "0", tensor, NULL);
    assert_non_null(strstr(reply->element[0]->str, "\tcuda:0"));
    drop(reply);
    redis_forward(&server, (int64_t)bed.limits.lease_ms + 1); /* the reports have expired */
    reply = fcall(&bed, "tensor", "get", tenant, "0", tensor, NULL);
    assert_null(strchr(reply->element[0]->str, '\t'));
    drop(reply);
    blasd_worker_queue_free(one);
    blasd_worker_queue_free(two);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_device_tells_for_itself)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
