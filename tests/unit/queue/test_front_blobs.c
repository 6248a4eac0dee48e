/* The front end's queue and the blob store, which may be Redis itself: what is sent lies there
 * whole or not at all, whatever comes between. Read next: test_front_faults.c. */
#include "front_fixture.h"

static void on_blob(void *arg, const struct blasd_err *err, struct blasd_blob *blob) {
    struct got *got = arg;
    got->answered++;
    got->code = err == NULL ? BLASD_OK : err->code;
    if (blob != NULL) got->blob = *blob;
}

static void test_other_store(void **state) {
    struct env *env = *state;
    struct blasd_front_queue *mine = env->queue;
    struct blasd_store *other;
    struct blasd_err err;
    struct seen *s;
    assert_int_equal(blasd_store_open("redis", &other, &err), 0);
    env->options.store = other;
    assert_int_equal(queue_open(env), 0);
    s = submit(env, (struct want){.watch = true});
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    assert_non_null(strstr(env->queue->standing.trouble.detail, "blob store"));
    assert_false(env->queue->view.available);
    blasd_front_queue_free(env->queue);
    blasd_store_free(other);
    env->queue = mine;
}

static void test_dir_blob(void **state) {
    struct env *env = *state;
    struct blasd_blob blob = {0};
    struct blasd_err err;
    struct got got = {0}, missing = {0};
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.out", id);
    assert_int_equal(blasd_blob_create(env->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, 100000, &err), 0);
    assert_int_equal(blasd_blob_write(&blob, 99990, "0123456789", 10, &err), 0);
    blasd_blob_close(&blob);
    blasd_front_queue_blob_get(env->queue, name, 100000, on_blob, &got);
    assert_int_equal(got.answered, 0);
    UNTIL(env, got.answered == 1);
    assert_int_equal(got.code, BLASD_OK);
    assert_memory_equal((char *)got.blob.data + 99990, "0123456789", 10);
    blasd_blob_close(&got.blob);
    blasd_front_queue_blob_remove(env->queue, name);
    blasd_front_queue_blob_get(env->queue, name, 100000, on_blob, &missing);
    UNTIL(env, missing.answered == 1);
    assert_int_equal(missing.code, BLASD_E_record_expired);
}

/* Redis' clock leaps while a blob is on its way there, and a sweep takes what has come for one that
 * was left: who sends is told so, and no job has half its inputs. */
static void test_redis_blob_swept_on_its_way(void **state) {
    struct env *env = env_new("redis");
    enum { len = 40 * 1024 * 1024 };
    struct blasd_blob blob = {0};
    struct blasd_err err;
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    struct seen *s;
    (void)state;
    env_open(env);
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_blob_create(env->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, len, &err), 0);
    s = submit(env, (struct want){.watch = true, .blob = &blob});
    UNTIL(env, ask_number(env, "EXISTS {test}:blob:%s:5", name) != 0);
    freeReplyObject(ask(env->client, "FCALL " BLASD_QUEUE_FN("blob") " 1 {test} %s drop %s",
                        env->queue->limits.text, name));
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    assert_int_equal(pending_entries(env), 0);
    UNTIL(env, ask_number(env, "HLEN %s", "{test}:blobs") == 0); /* nothing stays behind */
    assert_int_equal(ask_number(env, "EXISTS {test}:blob:%s:39", name), 0);
    blasd_blob_close(&blob);
    env_free(env);
}

static void test_redis_blob(void **state) {
    struct env *env = env_new("redis");
    enum { len = 40 * 1024 * 1024 + 17 };
    struct blasd_blob blob = {0};
    struct blasd_err err;
    struct got got = {0}, missing = {0}, empty = {0};
    char id[BLASD_ID_LEN + 1], name[BLASD_BLOB_NAME];
    uint32_t *words;
    struct seen *s;
    (void)state;
    env_open(env);
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_blob_create(env->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, len, &err), 0);
    assert_int_equal(blasd_blob_map(&blob, &err), 0);
    words = blob.data;
    for (uint32_t i = 0; i < len / 4; i++) words[i] = i * 2654435761u;
    memcpy((char *)blob.data + len - 5, "tail!", 5);
    s = submit(env, (struct want){.watch = true, .blob = &blob});
    /* a connection lost in the middle only repeats what was in flight */
    UNTIL(env, ask_number(env, "EXISTS {test}:blob:%s:5", name) != 0);
    blasd_async_link_drop(&env->queue->calls.commands.link, "a test");
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_OK);
    blasd_front_queue_blob_get(env->queue, name, len, on_blob, &got);
    UNTIL(env, !blasd_list_empty(&env->queue->calls.reads.flight));
    blasd_async_link_drop(&env->queue->calls.reads.link, "a test");
    UNTIL(env, got.answered == 1);
    assert_int_equal(got.code, BLASD_OK);
    assert_int_equal(got.blob.bytes, len);
    assert_int_equal(memcmp(got.blob.data, blob.data, len), 0);
    blasd_blob_close(&got.blob);
    assert_int_equal(cancel(env, s->id).code, BLASD_OK); /* which removes it */
    blasd_front_queue_blob_get(env->queue, name, len, on_blob, &missing);
    blasd_front_queue_blob_get(env->queue, name, 0, on_blob, &empty);
    UNTIL(env, missing.answered == 1 && empty.answered == 1);
    assert_int_equal(missing.code, BLASD_E_inputs_lost);
    assert_int_equal(empty.code, BLASD_OK);
    blasd_blob_close(&empty.blob);
    blasd_blob_close(&blob);
    /* no room for the record frames: the job is refused, and nothing stays behind */
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    snprintf(name, sizeof name, "%s.in", id);
    assert_int_equal(blasd_blob_create(env->store, name, &blob, &err), 0);
    assert_int_equal(blasd_blob_grow(&blob, len, &err), 0);
    s = submit(env, (struct want){.watch = true, .blob = &blob});
    UNTIL(env, ask_number(env, "EXISTS {test}:blob:%s:5", name) != 0);
    freeReplyObject(ask(env->client, "CONFIG SET maxmemory 1"));
    UNTIL(env, s->answered == 1);
    assert_int_equal(s->code, BLASD_E_queue_unavailable);
    UNTIL(env, ask_number(env, "HLEN %s", "{test}:blobs") == 0);
    assert_int_equal(ask_number(env, "EXISTS {test}:blob:%s:0", name), 0);
    blasd_blob_close(&blob);
    env_free(env);
}

static void on_put(void *arg, const struct blasd_err *err,
                   const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    (void)tensors, (void)count, (void)cursor;
    on_record(arg, err, NULL, 0);
}

/* Puts two tensors at once, of so many bytes each; the code. */
static enum blasd_code put_two(struct env *env, int64_t bytes) {
    struct blasd_tensor_put puts[2] = {{.sha256 = ""}};
    struct blasd_blob blobs[2] = {{.fd = -1}, {.fd = -1}};
    struct got got = {0};
    struct blasd_err err;
    for (int i = 0; i < 2; i++) {
        char name[BLASD_BLOB_NAME];
        blasd_front_queue_id(env->queue, &who, BLASD_ID_TENSOR, puts[i].id);
        snprintf(name, sizeof name, "%.41s.in", puts[i].id);
        assert_int_equal(blasd_blob_create(env->store, name, &blobs[i], &err), 0);
        assert_int_equal(blasd_blob_grow(&blobs[i], (uint64_t)bytes, &err), 0);
        puts[i].tensor = (struct blasd_tensor){.dtype = BLASD_uint8, .rank = 1, .shape = {bytes}};
        puts[i].blob = &blobs[i];
    }
    blasd_front_queue_tensor_put(env->queue, &who, 3600, puts, 2, on_put, &got);
    assert_int_equal(got.answered, 0);
    UNTIL(env, got.answered == 1);
    for (int i = 0; i < 2; i++) blasd_blob_close(&blobs[i]);
    return got.code;
}

/* Tensors of one request are kept all, or none, also where each has a blob of its own in Redis: the
 * second does not take the first one's room. */
static void test_tensors_put_together(void **state) {
    static const char *const stores[] = {NULL, "redis"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct env *env = env_new(stores[i]);
        env->limits.tensor_bytes = 3 * BLASD_MIB;
        env_open(env);
        assert_int_equal(put_two(env, 2 * BLASD_MIB), BLASD_E_tensor_too_large);
        assert_int_equal(ask_number(env, "HLEN %s", "{test}:tensors"), 0);
        assert_int_equal(put_two(env, BLASD_MIB), BLASD_OK);
        assert_int_equal(ask_number(env, "HLEN %s", "{test}:tensors"), 2);
        env_free(env);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_other_store),
        TEST(test_dir_blob),
        cmocka_unit_test(test_redis_blob),
        cmocka_unit_test(test_tensors_put_together),
        cmocka_unit_test(test_redis_blob_swept_on_its_way),
    };
    signal(SIGPIPE, SIG_IGN); /* hiredis writes to connections that may have gone */
    return cmocka_run_group_tests_name("front_blobs", tests, NULL, NULL);
}
