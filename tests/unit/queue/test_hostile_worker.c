/* What a worker that somebody has taken over says to Redis by its functions: a job ends once, and
 * what is counted stays right. */
#include "batch_entry_fixture.h"

#define SEG "aaaaaaaaaaaaaaaa"
#define METERED " " SEG "\t\tmatmul\tann\t1 1 0 0 0"
enum { JOBS = 3, OTHERS = 5, COST = 100 };

/* Jobs of one metered tenant: a batch entry and a job that the worker has, and a batch entry that
 * nobody was given yet. All refer to a tensor, and their inputs to a segment. */
struct hostile {
    struct bed bed;
    struct blasd_worker_queue *worker;
    struct entry entry, other;
    char single[BLASD_ID_LEN + 1];
    struct words words;
    struct blasd_buf frames[4];
    int told;
};

static void hostile_open(struct hostile *hostile, const char *name) {
    struct bed *bed = &hostile->bed;
    struct blasd_claim claims[8];
    char options[BLASD_ID_LEN + 8];
    bed_open(bed, &server, name);
    tenant = "ann";
    put_tensor(bed, tenant, options);
    batch_entry_make(&hostile->entry, BLASD_ID_SYNC, JOBS);
    batch_entry_make(&hostile->other, BLASD_ID_ASYNC, OTHERS);
    id_make(hostile->single, BLASD_ID_ASYNC, 0);
    assert_string_equal(submit_batch_entry_as(bed, &hostile->entry, "2", COST, options, METERED),
                        "0");
    drop(fcall(bed, "submit", NEXT_SEQ, hostile->single, "frame", "2", "100", options, METERED,
               NULL));
    hostile->worker = worker_new(bed, "w", BLASD_DEVICE_CPU);
    assert_int_equal(claim(hostile->worker, 8, PLENTY, claims), JOBS + 1);
    assert_string_equal(submit_batch_entry_as(bed, &hostile->other, "2", COST, options, METERED),
                        "0");
    hostile->told = 0;
}

/* Begins a turn by hand. */
static void turn_begin(struct hostile *hostile) {
    static char seq[24];
    struct words *words = &hostile->words;
    snprintf(seq, sizeof seq, "%" PRIu64, ++hostile->worker->turns.seq);
    words_begin(words, &hostile->bed, BLASD_QUEUE_FN("turn"));
    word(words, "w");
    word(words, hostile->worker->lease.epoch);
    word(words, "0");
    word(words, seq);
    word(words, "1");
    word(words, "0");
    word(words, "0");
    word(words, "0");
}

/* That the jobs have ended, in the name of `name`; of none: that it could not be read. */
static void tell(struct hostile *hostile, const char *name, const char (*ids)[BLASD_ID_LEN + 1],
                 int count, const char *outputs) {
    struct blasd_buf *frames = &hostile->frames[hostile->told++];
    *frames = record_frames_of(ids, count, "record of ");
    word(&hostile->words, name);
    word_add(&hostile->words, count == 0 ? "" : frames->data, frames->len);
    word(&hostile->words, outputs);
}

/* The digits that the turn is answered with; "" where it is refused. */
static const char *turn_end(struct hostile *hostile) {
    static char digits[32];
    redisReply *reply = redisCommandArgv(hostile->bed.raw, hostile->words.count,
                                         hostile->words.argv, hostile->words.lens);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "turn takes") == NULL)
        fail_msg("%s", reply->str);
    snprintf(digits, sizeof digits, "%s",
             reply->type == REDIS_REPLY_ARRAY ? reply->element[1]->str : "");
    drop(reply);
    while (hostile->told > 0) blasd_buf_release(&hostile->frames[--hostile->told]);
    return digits;
}

/* Whether so many jobs are pending, by all that counts them, and none has a blob of outputs. */
static void expect_pending(struct bed *bed, int jobs) {
    char text[48];
    const char *argv[] = {"HGET", text, "bytes ann"};
    audit(bed);
    assert_int_equal(pending(bed), jobs);
    assert_int_equal(refs_of(bed, SEG), jobs);
    snprintf(text, sizeof text, "%s:used", bed->tag);
    redisReply *reply = redisCommandArgv(bed->raw, 3, argv, NULL);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_int_equal(atoi(reply->str), jobs * COST);
    drop(reply);
}

/* What is left is given to others, and ends. */
static void hostile_close(struct hostile *hostile, int jobs) {
    struct bed *bed = &hostile->bed;
    struct blasd_claim claims[16];
    expect_pending(bed, jobs);
    bed_limits(bed);
    expire_worker(bed, "w");
    expect_pending(bed, jobs);
    struct blasd_worker_queue *worker = worker_new(bed, "v", BLASD_DEVICE_CPU);
    for (int count; jobs > 0; jobs -= count) {
        count = claim(worker, 16, PLENTY, claims);
        assert_in_range(count, 1, jobs);
        assert_int_equal(strspn(finish_claims(worker, claims, count), "1"), count);
    }
    blasd_worker_queue_free(worker);
    blasd_worker_queue_free(hostile->worker);
    tenant = "anonymous";
    expect_empty(bed);
    bed_close(bed);
}

/* An end that is told twice in one turn is one. */
static void ends_count_once(void **state) {
    enum { KINDS = 9 };
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        struct hostile hostile;
        const struct entry *entry = &hostile.entry;
        char name[32];
        const char *expected = "";
        int ended = 0;
        snprintf(name, sizeof name, "once%d", i);
        hostile_open(&hostile, name);
        turn_begin(&hostile);
        switch (i) {
        case 0:
            tell(&hostile, hostile.single, &hostile.single, 1, "1 0");
            tell(&hostile, hostile.single, &hostile.single, 1, "1 0");
            expected = "10";
            ended = 1;
            break;
        case 1:
            tell(&hostile, entry->name, entry->id, JOBS, "3 0");
            tell(&hostile, entry->name, entry->id, JOBS, "3 0");
            expected = "111000";
            ended = JOBS;
            break;
        case 2:
            tell(&hostile, entry->name, entry->id, JOBS, "3 0");
            tell(&hostile, entry->id[1], &entry->id[1], 1, "1 0");
            expected = "1110";
            ended = JOBS;
            break;
        case 3:
            tell(&hostile, entry->id[1], &entry->id[1], 1, "1 0");
            tell(&hostile, entry->name, entry->id, JOBS, "3 0");
            expected = "1101";
            ended = JOBS;
            break;
        case 4:
            tell(&hostile, entry->name, entry->id, 2, "2 0");
            tell(&hostile, entry->name, entry->id + 1, 2, "2 0");
            expected = "1101";
            ended = JOBS;
            break;
        case 5: /* what could not be read goes back, once */
            tell(&hostile, hostile.single, NULL, 0, "1 0");
            tell(&hostile, entry->name, NULL, 0, "1 0");
            tell(&hostile, hostile.single, NULL, 0, "1 0");
            tell(&hostile, entry->name, NULL, 0, "1 0");
            break;
        case 6:
            tell(&hostile, entry->id[0], &entry->id[0], 1, "1 0");
            tell(&hostile, entry->name, NULL, 0, "1 0");
            expected = "1";
            ended = 1;
            break;
        case 7:
            tell(&hostile, entry->name, NULL, 0, "1 0");
            tell(&hostile, entry->name, entry->id, JOBS, "3 0");
            expected = "111";
            ended = JOBS;
            break;
        case 8:
            tell(&hostile, entry->name, entry->id, 1, "1 0");
            tell(&hostile, entry->id[0], &entry->id[0], 1, "1 0");
            expected = "10";
            ended = 1;
            break;
        }
        assert_string_equal(turn_end(&hostile), expected);
        hostile_close(&hostile, OTHERS + JOBS + 1 - ended);
    }
}

/* What it says of itself stands among what others say: it is an object, and nothing beside. */
static void what_it_says_of_itself_is_an_object(void **state) {
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {{"{}\0,x", 5}, {"[]", 2}, {"{},\"v\":{}", 10}, {"", 0}, {"\n{}", 3}};
    struct bed bed;
    redisReply *reply;
    (void)state;
    bed_open(&bed, &server, "itself");
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CPU);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        reply =
            redisCommand(bed.raw, "FCALL %s 1 %s %s v 1 %b %s", BLASD_QUEUE_FN("register"), bed.tag,
                         bed.link.text, bad[i].text, bad[i].len, blasd_store_identity(bed.store));
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        drop(reply);
        reply = redisCommand(bed.raw, "FCALL %s 1 %s %s w %s renew %b", BLASD_QUEUE_FN("lease"),
                             bed.tag, bed.link.text, worker->lease.epoch, bad[i].text, bad[i].len);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        drop(reply);
        drop(redisCommand(bed.raw, "SET %s:figures:w %b", bed.tag, bad[i].text, bad[i].len));
        reply = fcall(&bed, "stats", "figures", NULL);
        assert_non_null(strstr(reply->str, "\"workers\":{\"w\":" INFO_CPU "},\"figures\":{},"));
        drop(reply);
    }
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

/* Nor does the name of its device say that another has copies of a tensor. */
static void copies_are_its_own(void **state) {
    struct bed bed;
    char options[BLASD_ID_LEN + 8], id[BLASD_ID_LEN + 1];
    redisReply *reply;
    (void)state;
    bed_open(&bed, &server, "its");
    put_tensor(&bed, "anonymous", options);
    snprintf(id, sizeof id, "%.41s", options + 2);
    struct blasd_worker_queue *worker = worker_new(&bed, "w", BLASD_DEVICE_CUDA);
    const char *epoch = worker->lease.epoch;
    reply = redisCommand(bed.raw, "FCALL %s 1 %s %s w %s copies %s %s", BLASD_QUEUE_FN("note"),
                         bed.tag, bed.link.text, epoch, "cuda:0\t9999999999999999 v cuda:1", id);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    drop(reply);
    drop(fcall(&bed, "note", "w", epoch, "copies", "cuda:0", id, NULL));
    reply = redisCommand(bed.raw, "HGET %s:tensor_copies %s", bed.tag, id);
    assert_non_null(strstr(reply->str, " w cuda:0"));
    assert_null(strchr(reply->str, '\t'));
    drop(reply);
    blasd_worker_queue_free(worker);
    bed_close(&bed);
}

#define TENSOR "t0123456789abcdef0123456789abcdef01234567"
#define NINES "99999999999999999999999999999999999999999999"

/* More than any job can have made is not taken from it: sums of it would stop all ends. */
static void claims_are_bounded(void **state) {
    static const char *const refused[] = {
        "1 1099511627777",
        "1 9007199254740992",
        "1 " NINES,
        "1 5 " SEG " 2",
        "1 5 " SEG " " NINES,
        "1 5 " SEG " 1 aaaa 1",
        "1 5 " SEG " 1 " SEG,
        "1 5\t" TENSOR " 1099511627777 float64 0 4",
        "1 5\t" TENSOR " " NINES " float64 0 4",
        "1 5\ts" TENSOR " 5 float64 0 4",
        "1 5\t" TENSOR " float64 0 4",
        "1 5\tt1 5 float64 0 4",
    };
    struct hostile hostile;
    (void)state;
    hostile_open(&hostile, "bounds");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        turn_begin(&hostile);
        tell(&hostile, hostile.single, &hostile.single, 1, refused[i]);
        if (strcmp(turn_end(&hostile), "") != 0) fail_msg("taken: %s", refused[i]);
    }
    turn_begin(&hostile);
    tell(&hostile, hostile.single, &hostile.single, 1, "1 1099511627776");
    assert_string_equal(turn_end(&hostile), "1");
    assert_true(counted(&hostile.bed, "kept_a") > 1099511627776);
    drop(fcall(&hostile.bed, "cancel", "1", hostile.single, NULL));
    assert_int_equal(counted(&hostile.bed, "kept_a"), 0);
    hostile_close(&hostile, OTHERS + JOBS);
}

/* Record frames of some jobs of the batch entry, whose outputs are, as they say, in a segment, and
 * of so many bytes. */
static void tell_slices(struct hostile *hostile, const char (*ids)[BLASD_ID_LEN + 1], int count,
                        const char *name) {
    static const char *const outputs[] = {"", "1 0", "2 0"};
    char record[320] = "BLRF\2";
    struct blasd_buf *frames = &hostile->frames[hostile->told++];
    blasd_buf_init(frames, BLASD_MIB);
    record[8] = 64; /* 320 bytes, as it says */
    record[9] = 1;
    record[12] = BLASD_SUCCEEDED;
    record[15] = 2;                /* in a segment */
    memset(record + 16, 0xff, 48); /* times, and progress */
    memset(record + 136, 0xff, 8); /* bytes of outputs */
    memset(record + 160, 'b', 16);
    for (int i = 0; i < count; i++)
        assert_int_equal(blasd_record_frame_add(frames, ids[i], record, sizeof record), 0);
    word(&hostile->words, name);
    word_add(&hostile->words, frames->data, frames->len);
    word(&hostile->words, outputs[count]);
}

/* Nor does a record that says so stop anything: neither the ends of others in its turn nor lists.
 */
static void records_are_bounded(void **state) {
    struct hostile hostile;
    struct bed *bed = &hostile.bed;
    (void)state;
    hostile_open(&hostile, "much");
    const struct entry *entry = &hostile.entry;
    turn_begin(&hostile);
    tell_slices(&hostile, entry->id, 1, entry->name);
    tell_slices(&hostile, entry->id + 1, JOBS - 1, entry->name);
    tell(&hostile, hostile.single, &hostile.single, 1, "1 0");
    assert_string_equal(turn_end(&hostile), "1111");
    assert_int_equal(list_all(bed, "any", "1", NULL, NULL), OTHERS + JOBS + 1);
    drop(fcall(bed, "cancel", "1", entry->id[0], entry->id[1], entry->id[2], NULL));
    assert_int_equal(refs_of(bed, "bbbbbbbbbbbbbbbb"), 0);
    assert_int_equal(counted(bed, "kept_s"), 0);
    assert_true(counted(bed, "kept_a") < 2000);
    hostile_close(&hostile, OTHERS);
}

/* Under a lease that has gone to another process of its name it does nothing to what that one has.
 */
static void nothing_without_a_lease(void **state) {
    struct hostile hostile;
    struct bed *bed = &hostile.bed;
    char old[24];
    (void)state;
    hostile_open(&hostile, "lease");
    const char *id = hostile.single;
    const struct {
        const char *function, *words[8];
    } calls[] = {
        {BLASD_QUEUE_FN("lease"), {"holds", "0"}},
        {BLASD_QUEUE_FN("note"), {"begin", "0", "1\n1"}},
        {BLASD_QUEUE_FN("note"), {"progress", "0.5", id}},
        {BLASD_QUEUE_FN("lease"), {"renew", "{}"}},
        {BLASD_QUEUE_FN("lease"), {"release"}},
        {BLASD_QUEUE_FN("turn"), {"0", "1", "1", "16", "100000", "0"}},
        {BLASD_QUEUE_FN("blob_write"), {"x.out", "1", "0", "b"}},
    };
    snprintf(old, sizeof old, "%s", hostile.worker->lease.epoch);
    blasd_worker_queue_free(hostile.worker);
    bed_limits(bed);
    hostile.worker = worker_new(bed, "w", BLASD_DEVICE_CPU);
    struct blasd_claim claims[16];
    assert_int_equal(claim(hostile.worker, 16, PLENTY, claims), OTHERS + JOBS + 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct words *words = &hostile.words;
        words_begin(words, bed, calls[i].function);
        word(words, "w");
        word(words, old);
        for (int k = 0; calls[i].words[k] != NULL; k++) word(words, calls[i].words[k]);
        redisReply *reply = redisCommandArgv(bed->raw, words->count, words->argv, words->lens);
        if (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOST ", 5) != 0)
            fail_msg("%s was heard", calls[i].function);
        drop(reply);
        reply = redisCommand(bed->raw, "HLEN %s:claims:w", bed->tag);
        assert_int_equal(reply->integer, 4); /* two batch entries, a job, and its lease */
        drop(reply);
    }
    hostile_close(&hostile, OTHERS + JOBS + 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_count_once),    cmocka_unit_test(what_it_says_of_itself_is_an_object),
        cmocka_unit_test(copies_are_its_own), cmocka_unit_test(nothing_without_a_lease),
        cmocka_unit_test(claims_are_bounded), cmocka_unit_test(records_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
