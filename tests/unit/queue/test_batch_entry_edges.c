/* Batch entries at the edges: a full queue, calls sent again, segments, records that go, lists and
 * counts, workers of a class that do not come, idle workers, and damage. */
#include "batch_entry_fixture.h"

#define NOTE "\t\tmatmul\tanonymous"
#define SEG_IN "aaaaaaaaaaaaaaaa"
#define SEG_A "bbbbbbbbbbbbbbbb"
#define SEG_B "cccccccccccccccc"

static struct blasd_worker_queue *fresh_worker(struct bed *bed, struct blasd_worker_queue *old) {
    blasd_worker_queue_free(old);
    return worker_new(bed, "w", BLASD_DEVICE_CPU); /* not idle */
}

/* Claims all that waits, and ends it; how many. */
static int work_off(struct bed *bed) {
    static struct blasd_claim claims[512];
    struct blasd_worker_queue *worker = worker_new(bed, "last", BLASD_DEVICE_CPU);
    int done = 0, count;
    while ((count = claim(worker, 512, PLENTY, claims)) > 0) {
        assert_int_equal(strspn(finish_claims(worker, claims, count), "1"), count);
        done += count;
    }
    blasd_worker_queue_free(worker);
    expire_worker(bed, "last");
    return done;
}

static void room_for_a_part_of_it(void **state) {
    struct bed bed;
    struct entry entry;
    (void)state;
    bed_open(&bed, &server, "part");
    bed.limits.queue_jobs = 5;
    bed_limits(&bed);
    batch_entry_make(&entry, BLASD_ID_SYNC, 4);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, "", NOTE), "0");
    batch_entry_make(&entry, BLASD_ID_SYNC, 3);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, "", NOTE), "011");
    audit(&bed);
    assert_int_equal(pending(&bed), 5);
    assert_string_equal(record_line(&bed, entry.id[0], LINE_STATE), "queued");
    assert_string_equal(record_line(&bed, entry.id[1], 0), "404");
    /* the same by bytes */
    bed.limits.queue_jobs = 100;
    bed.limits.queue_bytes = 700;
    bed_limits(&bed);
    batch_entry_make(&entry, BLASD_ID_SYNC, 4);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 90, "", NOTE), "0011");
    audit(&bed);
    batch_entry_make(&entry, BLASD_ID_SYNC, 2);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 90, "", NOTE), "11");
    assert_int_equal(work_off(&bed), 7);
    expect_empty(&bed);
    bed_close(&bed);
}

/* Of a batch entry that found room for a part, the reply was lost: it is the same when it is sent
 * again, though there is room now. */
static void a_part_sent_again(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "partagain");
    bed.limits.queue_jobs = 2;
    bed_limits(&bed);
    batch_entry_make(&entry, BLASD_ID_SYNC, 4);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, "", NOTE), "0011");
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, NOTE), "0011");
    audit(&bed);
    assert_int_equal(pending(&bed), 2);
    /* meanwhile one has ended, and there is room for all */
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 1, PLENTY, claims), 1);
    assert_string_equal(finish_claims(worker, claims, 1), "1");
    bed.limits.queue_jobs = 100;
    bed_limits(&bed);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, NOTE), "0011");
    audit(&bed);
    assert_int_equal(pending(&bed), 1);
    expect_record(&bed, entry.id[0]);
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    assert_string_equal(finish_claims(worker, claims, 1), "1");
    for (int i = 0; i < 2; i++) expect_record(&bed, entry.id[i]);
    for (int i = 2; i < 4; i++) assert_string_equal(record_line(&bed, entry.id[i], 0), "404");
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* The reply to submit was lost: while it waits, opened, held, and ended, whole or in parts. */
static void sent_again(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "again");
    for (int round = 0; round < 4; round++) {
        enum blasd_id_kind kind = round % 2 ? BLASD_ID_ASYNC : BLASD_ID_SYNC;
        struct blasd_worker_queue *worker = fresh_worker(&bed, NULL);
        batch_entry_make(&entry, kind, 3);
        for (int i = 0; i < 2; i++) {
            assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, i ? AGAIN : "", NOTE),
                                "0");
            audit(&bed);
            assert_int_equal(pending(&bed), 3);
        }
        if (round / 2) {
            drop(fcall(&bed, "cancel", "1", entry.id[1], NULL));
            submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, NOTE);
            audit(&bed);
            assert_int_equal(pending(&bed), 2);
        }
        int count = claim(worker, 8, PLENTY, claims);
        assert_int_equal(count, round / 2 ? 2 : 3);
        submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, NOTE);
        audit(&bed);
        finish_claims(worker, claims, count);
        drop(fcall(&bed, "tick", NULL)); /* forgets that it was opened */
        assert_int_equal(
            strspn(submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, NOTE), "0") > 0, 1);
        assert_int_equal(pending(&bed), 0);
        expect_record(&bed, entry.id[2]);
        expect_empty(&bed);
        blasd_worker_queue_free(worker);
    }
    bed_close(&bed);
}

/* A record whose outputs lie in the segment, as a worker writes it. */
static void write_record(struct blasd_buf *out, const char *id, const char *segment) {
    struct blasd_record record = {.state = BLASD_SUCCEEDED, .op = "matmul", .payload_bytes = 1000};
    struct blasd_err err;
    memcpy(record.id, id, BLASD_ID_LEN + 1);
    memcpy(record.slice.segment, segment, strlen(segment) + 1);
    blasd_buf_init(out, 4096);
    assert_int_equal(blasd_record_encode(&record, out, &err), 0);
}

/* Of jobs of one batch entry whose records go at different times each keeps its own outputs. */
static void one_is_kept_longer(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[2];
    struct blasd_completion completions[2] = {{.out_bytes = 1000}, {.out_bytes = 1000}};
    struct blasd_buf records[2];
    struct blasd_err err;
    bool lost;
    (void)state;
    bed_open(&bed, &server, "longer");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    struct blasd_worker_queue *worker = fresh_worker(&bed, NULL);
    batch_entry_make(&entry, BLASD_ID_SYNC, 2);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, "", NOTE), "0");
    assert_int_equal(claim(worker, 2, PLENTY, claims), 2);
    drop(fcall(&bed, "watch", "", entry.id[1], NULL));
    for (int i = 0; i < 2; i++) {
        write_record(&records[i], entry.id[i], SEG_A);
        completions[i].id = entry.id[i];
        completions[i].record = records[i].data;
        completions[i].record_len = records[i].len;
        memcpy(completions[i].slice.segment, SEG_A, sizeof SEG_A);
    }
    assert_true(blasd_worker_queue_finish(worker, completions, 2, &lost, &err) >= 0);
    for (int i = 0; i < 2; i++) {
        assert_true(completions[i].accepted);
        blasd_buf_release(&records[i]);
    }
    assert_int_equal(refs_of(&bed, SEG_A), 2);
    redis_forward(&server, 70000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, entry.id[0], 0), "410");
    assert_string_equal(record_line(&bed, entry.id[1], LINE_STATE), "succeeded");
    assert_int_equal(refs_of(&bed, SEG_A), 2); /* until the one that stays longer goes */
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* References of inputs and outputs: taken and given back once a job, whole, opened and refused. */
static void segments_of_batch_entries(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[64];
    const char *note = " " SEG_IN "\t\tmatmul\tanonymous";
    const char *outputs[] = {SEG_A, SEG_A, NULL, SEG_B, SEG_A};
    (void)state;
    bed_open(&bed, &server, "segments");
    bed.limits.record_sync_s = 60;
    bed_limits(&bed);
    for (int round = 0; round < 3; round++) { /* whole; opened; refused in part */
        struct blasd_worker_queue *worker = fresh_worker(&bed, NULL);
        bed.limits.queue_jobs = round == 2 ? 4 : 100;
        bed_limits(&bed);
        batch_entry_make(&entry, BLASD_ID_SYNC, 5);
        assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 100, "", note),
                            round == 2 ? "00001" : "0");
        assert_int_equal(refs_of(&bed, SEG_IN), round == 2 ? 4 : 5);
        submit_batch_entry_as(&bed, &entry, "2", 100, AGAIN, note);
        assert_int_equal(refs_of(&bed, SEG_IN), round == 2 ? 4 : 5);
        int count = claim(worker, 64, PLENTY, claims);
        const char *ids[5];
        for (int i = 0; i < count; i++) ids[i] = claims[i].id;
        if (round == 1) {
            drop(fcall(&bed, "cancel", "1", entry.id[1], NULL));
            assert_int_equal(refs_of(&bed, SEG_IN), 4);
        }
        /* outputs that lie in a segment are referred to while the job is pending */
        char out[BLASD_ID_LEN + 5], in[BLASD_ID_LEN + 4];
        snprintf(out, sizeof out, "%s.out", entry.id[0]);
        snprintf(in, sizeof in, "%s.in", entry.id[0]);
        redisReply *reply = fcall(&bed, "refs", SEG_IN ".seg", out, in, SEG_A ".seg", NULL);
        assert_string_equal(reply->str, "1110");
        drop(reply);
        const char *digits = finish_ids(worker, ids, count, outputs);
        assert_string_equal(digits, round == 0 ? "11111" : round == 1 ? "10111" : "1111");
        assert_int_equal(refs_of(&bed, SEG_IN), 0);
        if (refs_of(&bed, SEG_A) != (round == 2 ? 2 : 3)) /* opened: too many, till then */
            fail_msg("round %d: %d references", round, refs_of(&bed, SEG_A));
        assert_int_equal(refs_of(&bed, SEG_B), 1);
        /* one record is forgotten, the bytes stay until its neighbours go */
        drop(fcall(&bed, "cancel", "1", entry.id[0], NULL));
        assert_string_equal(record_line(&bed, entry.id[0], 0), "404");
        expect_record(&bed, entry.id[2]);
        redis_forward(&server, 62000);
        drop(fcall(&bed, "tick", NULL));
        assert_string_equal(record_line(&bed, entry.id[2], 0), "410");
        assert_int_equal(ask(&bed, "EXISTS", "refs"), 0);
        assert_int_equal(counted(&bed, "kept_s"), 0);
        expect_empty(&bed);
        blasd_worker_queue_free(worker);
    }
    bed_close(&bed);
}

static void records_forgotten_one_by_one(void **state) {
    struct bed bed;
    struct entry entry;
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "forget");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 4, "");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 4);
    finish_claims(worker, claims, 4);
    static const int order[] = {1, 3, 0, 2};
    for (int k = 0; k < 4; k++) {
        redisReply *reply = fcall(&bed, "cancel", "1", entry.id[order[k]], NULL);
        assert_memory_equal(reply->element[0]->str, "record of ", 10);
        assert_memory_equal(reply->element[0]->str + 10, entry.id[order[k]], BLASD_ID_LEN);
        drop(reply);
        for (int i = 0; i < 4; i++) {
            bool gone = false;
            for (int j = 0; j <= k; j++) gone = gone || order[j] == i;
            if (gone)
                assert_string_equal(record_line(&bed, entry.id[i], 0), "404");
            else
                expect_record(&bed, entry.id[i]);
        }
    }
    assert_int_equal(counted(&bed, "kept_s"), 0);
    redisReply *reply = redisCommand(bed.raw, "KEYS %s:record:*", bed.tag);
    assert_int_equal(reply->elements, 0);
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

struct listed {
    const struct entry *entry;
    int times[BATCH_ENTRY_MOST];
    char is[BATCH_ENTRY_MOST];
};

static void on_listed(void *arg, const redisReply *record) {
    struct listed *listed = arg;
    for (int i = 0; i < listed->entry->jobs; i++) {
        if (!reply_names(record, listed->entry->id[i])) continue;
        listed->times[i]++;
        listed->is[i] = reply_is(record, BLASD_QUEUED)      ? 'q'
                        : reply_is(record, BLASD_RUNNING)   ? 'r'
                        : reply_is(record, BLASD_CANCELLED) ? 'c'
                                                            : 'd';
    }
}

/* What the pages of a list say of the ids: each occurs once, with its state, or, ' ', not. */
static void expect_listed(struct bed *bed, const char *which, const char *limit,
                          const struct entry *entry, const char *states) {
    struct listed listed = {.entry = entry};
    list_all(bed, which, limit, on_listed, &listed);
    for (int i = 0; i < entry->jobs; i++) {
        if (listed.times[i] != (states[i] != ' '))
            fail_msg("%s lists job %d of '%s' %d times", which, i, states, listed.times[i]);
        if (states[i] != ' ') assert_int_equal(listed.is[i], states[i]);
    }
}

/* Counts in stats of class any and priority normal, and running. */
static void expect_stats(struct bed *bed, int queued, int claimed, int running) {
    char want[64];
    redisReply *reply = fcall(bed, "stats", NULL);
    const char *any = strstr(reply->str, "\"any\":");
    snprintf(want, sizeof want, "\"normal\":{\"queued\":%d,\"claimed\":%d}",
             queued + claimed - running, running); /* what is held and has not begun waits */
    assert_non_null(any);
    if (strstr(any, want) == NULL) fail_msg("no %s in %s", want, reply->str);
    snprintf(want, sizeof want, "\"running\":%d,", running);
    if (strstr(reply->str, want) == NULL) fail_msg("no %s in %s", want, reply->str);
    drop(reply);
}

static void lists_and_counts(void **state) {
    struct bed bed;
    struct entry one, two;
    struct blasd_claim claims[8];
    (void)state;
    bed_open(&bed, &server, "list");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &one, BLASD_ID_SYNC, 3, "");
    expect_stats(&bed, 3, 0, 0);
    expect_listed(&bed, "queued", "100", &one, "qqq");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 3);
    expect_stats(&bed, 0, 3, 0);
    expect_listed(&bed, "queued", "100", &one, "qqq");
    expect_listed(&bed, "running", "100", &one, "   ");
    begun(worker, claims, 3);
    expect_stats(&bed, 0, 3, 3);
    submit_batch_entry(&bed, &two, BLASD_ID_SYNC, 2, "");
    expect_listed(&bed, "running", "100", &one, "rrr");
    expect_listed(&bed, "queued", "100", &one, "   ");
    expect_listed(&bed, "queued", "100", &two, "qq");
    expect_listed(&bed, "any", "100", &one, "rrr");
    expect_listed(&bed, "any", "100", &two, "qq");
    drop(fcall(&bed, "cancel", "1", one.id[1], two.id[0], NULL));
    expect_stats(&bed, 1, 2, 2);
    expect_listed(&bed, "any", "100", &one, "rcr");
    expect_listed(&bed, "any", "100", &two, "cq");
    finish_claims(worker, claims, 3);
    expect_listed(&bed, "any", "100", &one, "dcd");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 1);
    finish_claims(worker, claims, 1);
    worker = fresh_worker(&bed, worker);
    submit_batch_entry(&bed, &two, BLASD_ID_SYNC, 5, "");
    expect_listed(&bed, "queued", "2", &two, "qqqqq"); /* in pages of no more than was asked for */
    assert_int_equal(work_off(&bed), 5);
    expect_listed(&bed, "any", "100", &two, "ddddd");
    expect_stats(&bed, 0, 0, 0);
    expect_empty(&bed);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

static long long hgets(struct bed *bed) {
    redisReply *reply = redisCommand(bed->raw, "INFO commandstats");
    const char *at = strstr(reply->str, "cmdstat_hget:calls=");
    assert_non_null(at);
    long long calls = atoll(at + strlen("cmdstat_hget:calls="));
    drop(reply);
    return calls;
}

/* What few ask for costs little however long the queue: a list reads the frames of what it shows,
 * and for many jobs of a batch entry they are read once. */
static void a_few_jobs_read_few_batch_entries(void **state) {
    enum { BATCH_ENTRIES = 60 };
    struct bed bed;
    struct entry entry;
    long long before;
    (void)state;
    bed_open(&bed, &server, "few");
    for (int i = 0; i < BATCH_ENTRIES; i++)
        submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 8, "me");
    before = hgets(&bed);
    drop(fcall(&bed, "list", "queued", "", "0", "9000000000000000", "20", "", NULL));
    assert_in_range(hgets(&bed) - before, 3,
                    3 + 20 + 3); /* three batch entries, attempts of each job, frames for traces */
    before = hgets(&bed);
    drop(fcall(&bed, "watch", "me", entry.id[0], entry.id[1], entry.id[2], entry.id[3], entry.id[4],
               entry.id[5], entry.id[6], entry.id[7], NULL));
    assert_in_range(hgets(&bed) - before, 2, 2 + 8 + 1); /* the frames once, for traces */
    assert_int_equal(work_off(&bed), 8 * BATCH_ENTRIES);
    expect_empty(&bed);
    bed_close(&bed);
}

/* Jobs with deadlines end beside batch entries, which have none. */
static void deadlines_beside_batch_entries(void **state) {
    struct bed bed;
    struct entry entry;
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "deadline");
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 3, "");
    id_make(id, BLASD_ID_SYNC, 0);
    assert_int_equal(submit_as(&bed, id, "2", "9", "d=60000", ""), 0);
    redis_forward(&server, 60000);
    drop(fcall(&bed, "tick", NULL));
    assert_string_equal(record_line(&bed, id, LINE_STATE), "expired");
    audit(&bed);
    assert_int_equal(work_off(&bed), 3);
    expect_empty(&bed);
    bed_close(&bed);
}

/* A frame as wire/frame.h begins: byte 13 says which class the user asked for. */
static struct blasd_buf framed(const struct entry *entry, char asked) {
    struct blasd_buf out;
    char frame[64] = "BLJF";
    blasd_buf_init(&out, BLASD_MIB);
    frame[13] = asked;
    for (int i = 0; i < entry->jobs; i++)
        assert_int_equal(blasd_record_frame_add(&out, entry->id[i], frame, 40), 0);
    return out;
}

static void moved_from_a_class_without_workers(void **state) {
    struct bed bed;
    struct entry any, cuda, opened;
    struct blasd_claim claims[16];
    (void)state;
    bed_open(&bed, &server, "stranded");
    batch_entry_make(&any, BLASD_ID_SYNC, 4);
    batch_entry_make(&cuda, BLASD_ID_SYNC, 3);
    batch_entry_make(&opened, BLASD_ID_SYNC, 2);
    struct blasd_buf a = framed(&any, 0), c = framed(&cuda, 2), o = framed(&opened, 0);
    assert_string_equal(submit_record_frames(&bed, any.name, 4, &a, "8", 9, "", NOTE), "0");
    assert_string_equal(submit_record_frames(&bed, cuda.name, 3, &c, "8", 9, "", NOTE), "0");
    assert_string_equal(submit_record_frames(&bed, opened.name, 2, &o, "8", 9, "", NOTE), "0");
    drop(fcall(&bed, "cancel", "1", opened.id[0], NULL));
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(worker, 16, PLENTY, claims), 0);
    drop(fcall(&bed, "tick", NULL));
    /* as if five seconds had passed */
    state_add(&bed, "alone3", -10000000);
    drop(fcall(&bed, "tick", NULL));
    audit(&bed);
    assert_int_equal(counted(&bed, "2"), 0); /* the idle worker has them */
    assert_int_equal(counted(&bed, "8"), 3);
    assert_int_equal(claim(worker, 16, PLENTY, claims), 5);
    assert_string_equal(claims[0].id, any.id[0]);
    assert_string_equal(claims[4].id, opened.id[1]);
    assert_string_equal(finish_claims(worker, claims, 5), "11111");
    struct blasd_worker_queue *gpu = worker_new(&bed, "g", BLASD_DEVICE_CUDA);
    assert_int_equal(claim(gpu, 16, PLENTY, claims), 3);
    assert_string_equal(finish_claims(gpu, claims, 3), "111");
    expect_empty(&bed);
    blasd_buf_release(&a);
    blasd_buf_release(&c);
    blasd_buf_release(&o);
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(gpu);
    bed_close(&bed);
}

/* Batch entries that come into an empty queue are handed to idle workers; each job goes to one. */
static void handed_over(void **state) {
    enum { WORKERS = 3, BATCH_ENTRIES = 6 };
    struct bed bed;
    struct entry entry[BATCH_ENTRIES];
    struct blasd_claim claims[WORKERS][64];
    struct blasd_worker_queue *worker[WORKERS];
    struct blasd_err err;
    char name[8];
    (void)state;
    bed_open(&bed, &server, "handed");
    for (int i = 0; i < WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        worker[i] = worker_new(&bed, name, BLASD_DEVICE_CPU);
        /* the second asks for fewer than are in a batch entry */
        assert_int_equal(claim(worker[i], i == 1 ? 3 : 64, PLENTY, claims[i]), 0);
    }
    struct words words;
    struct blasd_buf record_frames[BATCH_ENTRIES];
    words_begin(&words, &bed, BLASD_QUEUE_FN("submit"));
    word(&words, "test");
    word(&words, submit_seq(false));
    for (int i = 0; i < BATCH_ENTRIES; i++) {
        batch_entry_make(&entry[i], BLASD_ID_SYNC, 5);
        record_frames[i] = record_frames_of(entry[i].id, 5, "frame of ");
        word(&words, entry[i].name);
        word_add(&words, record_frames[i].data, record_frames[i].len);
        word(&words, "2");
        word(&words, "100 5");
        word(&words, "");
        word(&words, NOTE);
    }
    redisReply *reply = words_call(&bed, &words);
    assert_int_equal(reply->element[1]->integer, 5 * BATCH_ENTRIES);
    drop(reply);
    audit(&bed);
    int done = 0;
    for (int round = 0; round < 40 && done < 5 * BATCH_ENTRIES; round++) {
        struct blasd_worker_queue *one = worker[round % WORKERS];
        struct blasd_claim *mine = claims[round % WORKERS];
        assert_int_equal(blasd_worker_queue_wait(one, 20, &err), 0);
        int count = claim(one, round % WORKERS == 1 ? 3 : 64, PLENTY, mine);
        if (round == 0) assert_true(count >= 5 && count < 5 * BATCH_ENTRIES); /* its share */
        audit(&bed);
        assert_int_equal(strspn(finish_claims(one, mine, count), "1"), count);
        audit(&bed);
        done += count;
    }
    assert_int_equal(done, 5 * BATCH_ENTRIES);
    for (int i = 0; i < BATCH_ENTRIES; i++)
        for (int k = 0; k < 5; k++) expect_record(&bed, entry[i].id[k]);
    expect_empty(&bed);
    for (int i = 0; i < BATCH_ENTRIES; i++) blasd_buf_release(&record_frames[i]);
    for (int i = 0; i < WORKERS; i++) blasd_worker_queue_free(worker[i]);
    bed_close(&bed);
}

static long long references(struct bed *bed, const char *options) {
    redisReply *reply = redisCommand(bed->raw, "HGET %s:refs %s", bed->tag, options + 2);
    long long n = reply->type == REDIS_REPLY_NIL ? 0 : atoll(reply->str);
    drop(reply);
    return n;
}

/* A batch entry holds tensors as its jobs would, once; when it is opened each of them does. */
static void tensors_of_batch_entries(void **state) {
    struct bed bed;
    struct entry entry;
    char tensor[BLASD_ID_LEN + 8], other[BLASD_ID_LEN + 8], id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "tensors");
    put_tensor(&bed, "anonymous", tensor);
    put_tensor(&bed, "ann", other);
    batch_entry_make(&entry, BLASD_ID_SYNC, 4);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, other, NOTE), "9");
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, "d=9", NOTE), "4");
    assert_int_equal(pending(&bed), 0);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, tensor, NOTE), "0");
    assert_int_equal(references(&bed, tensor), 1);
    audit(&bed);
    memcpy(id, tensor + 2, BLASD_ID_LEN);
    id[BLASD_ID_LEN] = '\0';
    redisReply *reply = fcall(&bed, "tensor", "drop", "anonymous", id, NULL);
    assert_int_equal(reply->element[1]->integer, 0); /* its blob stays */
    drop(reply);
    drop(fcall(&bed, "cancel", "0", entry.id[1], NULL));
    assert_int_equal(references(&bed, tensor), 3);
    assert_int_equal(work_off(&bed), 3);
    assert_int_equal(references(&bed, tensor), 0);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, tensor, NOTE), "9");
    /* one that ends as a whole, and one of which a part has room */
    put_tensor(&bed, "anonymous", tensor);
    batch_entry_make(&entry, BLASD_ID_SYNC, 5);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, tensor, NOTE), "0");
    bed.limits.queue_jobs = 7;
    bed_limits(&bed);
    batch_entry_make(&entry, BLASD_ID_SYNC, 3);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, tensor, NOTE), "001");
    assert_int_equal(references(&bed, tensor), 3);
    assert_int_equal(work_off(&bed), 7);
    expect_empty(&bed);
    /* one whose record frames are damaged holds nothing any more, once it was opened */
    batch_entry_make(&entry, BLASD_ID_SYNC, 3);
    assert_string_equal(submit_batch_entry_as(&bed, &entry, "2", 9, tensor, NOTE), "0");
    drop(redisCommand(bed.raw, "HSET %s:pending =%s %s", bed.tag, entry.name, "x"));
    drop(fcall(&bed, "cancel", "0", entry.id[1], NULL));
    assert_int_equal(references(&bed, tensor), 0);
    assert_int_equal(ask(&bed, "EXISTS", "holds"), 0);
    bed_close(&bed);
}

/* A worker that has connected anew holds a part of a batch entry, which another thread of it is to
 * end: the others go back. */
static void held_in_part(void **state) {
    struct bed bed;
    struct entry entry, given;
    struct blasd_claim claims[8], its[8];
    struct blasd_err err;
    bool lost;
    (void)state;
    bed_open(&bed, &server, "held");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    submit_batch_entry(&bed, &entry, BLASD_ID_SYNC, 4, "");
    assert_int_equal(claim(worker, 8, PLENTY, claims), 4);
    submit_batch_entry(&bed, &given, BLASD_ID_SYNC, 2, "");
    worker->turns.left = 0; /* one it has given away, the others it has ended */
    assert_int_equal(claim(worker, 8, PLENTY, claims), 2);
    assert_int_equal(blasd_worker_queue_holds(worker, &entry.id[2], 1, &lost, &err), 0);
    assert_false(lost);
    audit(&bed);
    struct blasd_worker_queue *other = worker_new(&bed, "other", BLASD_DEVICE_CPU);
    assert_int_equal(claim(other, 8, PLENTY, its), 3);
    for (int i = 0; i < 3; i++) expect_claimed(&its[i], entry.id[i < 2 ? i : 3]);
    assert_string_equal(finish_claims(other, its, 3), "111");
    assert_string_equal(finish_claims(worker, claims, 2), "11");
    assert_string_equal(finish_ids(worker, (const char *[]){entry.id[2]}, 1, NULL), "1");
    expect_empty(&bed);
    blasd_worker_queue_free(other);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_for_a_part_of_it),
        cmocka_unit_test(a_part_sent_again),
        cmocka_unit_test(sent_again),
        cmocka_unit_test(segments_of_batch_entries),
        cmocka_unit_test(one_is_kept_longer),
        cmocka_unit_test(records_forgotten_one_by_one),
        cmocka_unit_test(lists_and_counts),
        cmocka_unit_test(a_few_jobs_read_few_batch_entries),
        cmocka_unit_test(deadlines_beside_batch_entries),
        cmocka_unit_test(moved_from_a_class_without_workers),
        cmocka_unit_test(handed_over),
        cmocka_unit_test(tensors_of_batch_entries),
        cmocka_unit_test(held_in_part),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
