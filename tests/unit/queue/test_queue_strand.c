/* Jobs that were sent to a class of devices of which no worker is left: those that may run anywhere
 * go to the others after a while, those that asked for the class wait on. */
#include "redis_fixture.h"

/* Submits a job of stream `si` whose frame says that its user asked for `device` (0 any, 2 cuda).
 */
static void submit_asking(struct bed *bed, char id[BLASD_ID_LEN + 1], const char *si, char device) {
    char note[64], frame[16] = {'B', 'L', 'J', 'F', 1, 0, 0, 0, 16, 0, 0, 0, 1, device, 0, 0};
    const char *argv[] = {"FCALL",
                          BLASD_QUEUE_FN("submit"),
                          "1",
                          bed->tag,
                          bed->link.text,
                          NEXT_SEQ,
                          id,
                          frame,
                          si,
                          "9",
                          "",
                          note};
    size_t lens[sizeof argv / sizeof *argv];
    redisReply *reply;
    id_make(id, BLASD_ID_SYNC, 0);
    snprintf(note, sizeof note, "\t\tmatmul\tanonymous");
    for (size_t i = 0; i < sizeof argv / sizeof *argv; i++)
        lens[i] = argv[i] == frame ? sizeof frame : strlen(argv[i]);
    reply = redisCommandArgv(bed->raw, sizeof argv / sizeof *argv, argv, lens);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->element[3]->integer, 0);
    drop(reply);
}

static void tick(struct bed *bed) {
    drop(fcall(bed, "tick", NULL));
}

/* As if the class had been alone for ten seconds already. */
static void age(struct bed *bed, const char *class) {
    const char *field = strcmp(class, "cuda") == 0 ? "alone3" : "alone2";
    assert_true(state_add(bed, field, -10000000) > 0);
}

static bool claimed(const struct blasd_claim *claims, int count, const char *id) {
    for (int i = 0; i < count; i++)
        if (strcmp(claims[i].id, id) == 0) return true;
    return false;
}

static void what_may_run_anywhere_does(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    char sent[BLASD_ID_LEN + 1], high[BLASD_ID_LEN + 1], asked[BLASD_ID_LEN + 1];
    int count;
    (void)state;
    bed_open(&bed, &server, "strand");
    struct blasd_worker_queue *cpu = worker_new(&bed, "c", BLASD_DEVICE_CPU);
    submit_asking(&bed, sent, "8", 0);
    submit_asking(&bed, asked, "8", 2);
    submit_asking(&bed, high, "7", 0);
    assert_string_equal(record_line(&bed, sent, LINE_CLASS), "cuda");
    tick(&bed); /* a class may be gone for a moment, while its worker starts again */
    assert_int_equal(claim(cpu, 16, PLENTY, claims), 0);
    age(&bed, "cuda");
    tick(&bed);
    count = claim(cpu, 16, PLENTY, claims);
    assert_int_equal(count, 2);
    assert_true(claimed(claims, count, sent) && claimed(claims, count, high));
    for (int i = 0; i < count; i++) assert_int_equal(claims[i].attempts, 0);
    assert_int_equal(finish(cpu, sent, "r", 0), 1);
    assert_int_equal(finish(cpu, high, "r", 0), 1);
    tick(&bed); /* nothing is given out twice */
    assert_int_equal(claim(cpu, 16, PLENTY, claims), 0);
    assert_int_equal(pending(&bed), 1);
    /* the class comes back */
    struct blasd_worker_queue *cuda = worker_new(&bed, "g", BLASD_DEVICE_CUDA);
    count = claim(cuda, 16, PLENTY, claims);
    assert_int_equal(count, 1);
    assert_true(claimed(claims, count, asked));
    assert_int_equal(finish(cuda, asked, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(cpu);
    blasd_worker_queue_free(cuda);
    bed_close(&bed);
}

/* A worker that dies with jobs in hand, and is the last of its class. */
static void what_a_dead_worker_had(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    char begun[BLASD_ID_LEN + 1], cancelled[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "strand2");
    struct blasd_worker_queue *cpu = worker_new(&bed, "c", BLASD_DEVICE_CPU);
    struct blasd_worker_queue *cuda = worker_new(&bed, "g", BLASD_DEVICE_CUDA);
    submit_asking(&bed, begun, "8", 0);
    submit_asking(&bed, cancelled, "8", 0);
    assert_int_equal(claim(cuda, 16, PLENTY, claims), 2);
    begin(cuda, claims, 1);
    expire_worker(&bed, "g");
    drop(fcall(&bed, "cancel", "1", cancelled, NULL));
    tick(&bed);
    assert_int_equal(claim(cpu, 16, PLENTY, claims), 0);
    age(&bed, "cuda");
    tick(&bed);
    assert_int_equal(claim(cpu, 16, PLENTY, claims), 1);
    assert_string_equal(claims[0].id, begun);
    assert_int_equal(claims[0].attempts, 1); /* so it runs alone */
    assert_int_equal(finish(cpu, begun, "r", 0), 1);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(cpu);
    blasd_worker_queue_free(cuda);
    bed_close(&bed);
}

/* A class that lives keeps what was sent to it, however long it waits. */
static void a_class_that_lives_keeps_its_jobs(void **state) {
    struct bed bed;
    struct blasd_claim claims[16];
    char id[BLASD_ID_LEN + 1];
    (void)state;
    bed_open(&bed, &server, "strand3");
    submit_asking(&bed, id, "8", 0);
    tick(&bed);
    age(&bed, "cuda");
    struct blasd_worker_queue *cuda = worker_new(&bed, "g", BLASD_DEVICE_CUDA);
    struct blasd_worker_queue *cpu = worker_new(&bed, "c", BLASD_DEVICE_CPU);
    tick(&bed);
    assert_int_equal(claim(cpu, 16, PLENTY, claims), 0);
    redisReply *reply = redisCommand(bed.raw, "EXISTS %s:alone:cuda", bed.tag);
    assert_int_equal(reply->integer, 0);
    drop(reply);
    assert_int_equal(claim(cuda, 16, PLENTY, claims), 1);
    blasd_worker_queue_free(cpu);
    blasd_worker_queue_free(cuda);
    bed_close(&bed);
}

/* More than one look moves: all come in the end, each once, in order. */
static void very_many(void **state) {
    enum { JOBS = 700 };
    static char ids[JOBS][BLASD_ID_LEN + 1];
    static struct blasd_claim claims[JOBS];
    struct bed bed;
    int at = 0;
    (void)state;
    bed_open(&bed, &server, "strand4");
    struct blasd_worker_queue *cpu = worker_new(&bed, "c", BLASD_DEVICE_CPU);
    for (int i = 0; i < JOBS; i++) submit_asking(&bed, ids[i], "8", 0);
    tick(&bed);
    age(&bed, "cuda");
    for (int look = 0; look < 8; look++) {
        int count;
        tick(&bed);
        count = claim(cpu, JOBS, PLENTY, claims);
        for (int i = 0; i < count; i++) {
            assert_true(at < JOBS);
            assert_string_equal(claims[i].id, ids[at]);
            assert_int_equal(finish(cpu, ids[at++], "r", 0), 1);
        }
    }
    assert_int_equal(at, JOBS);
    assert_int_equal(pending(&bed), 0);
    blasd_worker_queue_free(cpu);
    bed_close(&bed);
}

/* Those that stay keep their order, however often they are looked at, and those that go theirs. */
static void who_stays_keeps_his_place(void **state) {
    enum { JOBS = 600 };
    static char ids[JOBS][BLASD_ID_LEN + 1];
    static struct blasd_claim claims[JOBS];
    struct bed bed;
    int at = 0, count;
    (void)state;
    bed_open(&bed, &server, "strand5");
    struct blasd_worker_queue *cpu = worker_new(&bed, "c", BLASD_DEVICE_CPU);
    for (int i = 0; i < JOBS; i++) submit_asking(&bed, ids[i], "8", i % 3 == 0 ? 0 : 2);
    tick(&bed);
    age(&bed, "cuda");
    for (int look = 0; look < 4; look++) tick(&bed); /* stops in the middle of the second round */
    count = claim(cpu, JOBS, PLENTY, claims);
    assert_int_equal(count, JOBS / 3);
    for (int i = 0; i < count; i++) assert_string_equal(claims[i].id, ids[3 * i]);
    assert_int_equal(counted(&bed, "8"), JOBS - count);
    struct blasd_worker_queue *cuda = worker_new(&bed, "g", BLASD_DEVICE_CUDA);
    count = claim(cuda, JOBS, PLENTY, claims);
    assert_int_equal(count, JOBS - JOBS / 3);
    for (int i = 0; i < JOBS; i++)
        if (i % 3 != 0) assert_string_equal(claims[at++].id, ids[i]);
    blasd_worker_queue_free(cpu);
    blasd_worker_queue_free(cuda);
    bed_close(&bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_run_anywhere_does),
        cmocka_unit_test(what_a_dead_worker_had),
        cmocka_unit_test(a_class_that_lives_keeps_its_jobs),
        cmocka_unit_test(very_many),
        cmocka_unit_test(who_stays_keeps_his_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
