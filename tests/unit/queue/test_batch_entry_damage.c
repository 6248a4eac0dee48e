/* Batch entries whose bytes are not what they should be. */
#include "batch_entry_fixture.h"

#define NOTE "\t\tmatmul\tanonymous"

/* Ids in other jobs' bytes are bytes. */
static void ids_inside_frames(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[8];
    struct blasd_buf record_frames, bait;
    (void)state;
    bed_open(&bed, &server, "bait");
    batch_entry_make(&entry, BLASD_ID_SYNC, 3);
    bait = record_frames_of(entry.id, 3, "");
    blasd_buf_init(&record_frames, BLASD_MIB);
    for (int i = 0; i < 3; i++)
        assert_int_equal(blasd_record_frame_add(&record_frames, entry.id[i], i < 2 ? bait.data : "",
                                                i < 2 ? bait.len : 0),
                         0);
    assert_string_equal(
        submit_record_frames(&bed, entry.name, 3, &record_frames, "2", 100, "", NOTE), "0");
    audit(&bed);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(claims[i].id, entry.id[i]);
        assert_int_equal(claims[i].frame_len, i < 2 ? bait.len : 0);
    }
    /* records that hold record frames of the others */
    assert_string_equal(finish_raw(&bed, worker, false, entry.name, &record_frames, "3 0"), "111");
    for (int i = 0; i < 3; i++) {
        redisReply *reply = fcall(&bed, "get", entry.id[i], NULL);
        assert_int_equal(reply->element[0]->len, i < 2 ? bait.len : 0);
        drop(reply);
    }
    drop(fcall(&bed, "cancel", "1", entry.id[1], NULL));
    assert_string_equal(record_line(&bed, entry.id[1], 0), "404");
    redisReply *reply = fcall(&bed, "get", entry.id[0], entry.id[2], NULL);
    assert_int_equal(reply->element[0]->len, bait.len);
    assert_int_equal(reply->element[1]->len, 0);
    drop(reply);
    expect_empty(&bed);
    blasd_buf_release(&record_frames);
    blasd_buf_release(&bait);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Record frames that no front end of ours writes stop neither the worker nor the jobs beside them.
 */
static void damaged_record_frames(void **state) {
    enum { CUT, LONG, FEWER, EMPTY, FOREIGN, NOT_AN_ID, TWICE, DAMAGES };
    for (int damage = 0; damage < DAMAGES; damage++) {
        struct bed bed;
        struct entry before, entry, other, behind;
        struct blasd_claim claims[64];
        struct blasd_err err;
        char name[16];
        int done = 0;
        (void)state;
        snprintf(name, sizeof name, "damage%d", damage);
        bed_open(&bed, &server, name);
        struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
        submit_batch_entry(&bed, &before, BLASD_ID_SYNC, 2, "");
        batch_entry_make(&entry, BLASD_ID_SYNC, 4);
        batch_entry_make(&other, BLASD_ID_SYNC, 1);
        struct blasd_buf record_frames = record_frames_of(entry.id, 4, "frame of ");
        size_t each = record_frames.len / 4;
        if (damage == CUT) record_frames.len -= 7;
        if (damage == LONG) record_frames.data[3 * each + 3] = 0x7f;
        if (damage == FEWER) record_frames.len -= each;
        if (damage == EMPTY) record_frames.len = 0;
        if (damage == FOREIGN) memcpy(record_frames.data + each + 4, other.id[0], BLASD_ID_LEN);
        if (damage == NOT_AN_ID) memset(record_frames.data + each + 4, 'Z', BLASD_ID_LEN);
        if (damage == TWICE) memcpy(record_frames.data + each + 4, entry.id[0], BLASD_ID_LEN);
        submit_record_frames(&bed, entry.name, 4, &record_frames, "2", 100, "", NOTE);
        submit_batch_entry(&bed, &behind, BLASD_ID_SYNC, 3, "");
        for (int i = 0; i < 20 && done < 5; i++) {
            int count;
            bool lost;
            drop(fcall(&bed, "tick", NULL));
            if (blasd_worker_queue_claim(worker, 64, PLENTY, claims, &count, &lost, &err) < 0)
                continue; /* and goes on, as a worker does */
            begin(worker, claims, count);
            finish_claims(worker, claims, count);
            done = 0;
            for (int k = 0; k < 5; k++) {
                const char *id = k < 2 ? before.id[k] : behind.id[k - 2];
                done += strncmp(record_line(&bed, id, 0), "record of ", 10) == 0;
            }
        }
        if (done != 5) fail_msg("damage %d: %d of 5 jobs beside it ended", damage, done);
        for (int i = 0; i < 4; i++) drop(fcall(&bed, "cancel", "1", entry.id[i], NULL));
        claim(worker, 64, PLENTY, claims);
        expect_empty(&bed);
        blasd_buf_release(&record_frames);
        blasd_worker_queue_free(worker);
        bed_close(&bed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_inside_frames),
        cmocka_unit_test(damaged_record_frames),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
