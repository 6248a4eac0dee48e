/* What a worker holds: names of jobs and of packets, beside a plain model of them. */
#include "queue/held.h"

#include "base/clock.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PREFIX_LEN BLASD_ID_PACKET

static void id_make(char id[BLASD_ID_LEN + 1]) {
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
}

static void sibling(char id[BLASD_ID_LEN + 1], const char *of) {
    memcpy(id, of, BLASD_ID_LEN + 1);
    blasd_id_renew(id);
}

static char *text_of(const struct blasd_held *held) {
    struct blasd_buf out;
    blasd_buf_init(&out, BLASD_MIB);
    assert_int_equal(blasd_held_write(held, &out), 0);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    char *text = strdup(out.data);
    blasd_buf_release(&out);
    assert_non_null(text);
    return text;
}

static char *begun_of(const struct blasd_held *held, int64_t us) {
    struct blasd_buf out;
    blasd_buf_init(&out, BLASD_MIB);
    assert_int_equal(blasd_held_write_begun(held, us, &out), 0);
    assert_int_equal(blasd_buf_add(&out, "", 1), 0);
    char *text = strdup(out.data);
    blasd_buf_release(&out);
    assert_non_null(text);
    return text;
}

static void expect_text(char *text, const char *want) {
    assert_string_equal(text, want);
    free(text);
}

static void a_packet_is_held_until_its_last_job_ends(void **state) {
    struct blasd_held held = {0};
    char id[3][BLASD_ID_LEN + 1], other[BLASD_ID_LEN + 1], packet[PREFIX_LEN + 1];
    char line[128];
    (void)state;
    id_make(id[0]);
    sibling(id[1], id[0]);
    sibling(id[2], id[0]);
    id_make(other);
    snprintf(packet, sizeof packet, "%.*s", PREFIX_LEN, id[0]);
    assert_int_equal(blasd_held_packet(&held, id[0]), 0);
    blasd_held_remove(&held, id[0]); /* nothing is held */
    assert_int_equal(blasd_held_add(&held, id[0], PREFIX_LEN, 3), 0);
    assert_int_equal(blasd_held_add(&held, packet, PREFIX_LEN, 3), 0); /* the same */
    assert_int_equal(held.count, 1);
    assert_int_equal(held.jobs, 3);
    assert_int_equal(blasd_held_packet(&held, id[2]), 3);
    assert_int_equal(blasd_held_packet(&held, other), 0);
    expect_text(text_of(&held), packet);
    expect_text(begun_of(&held, 5), "5");
    blasd_held_begin(&held, other, 5); /* is not held */
    blasd_held_begin(&held, id[1], 5);
    snprintf(line, sizeof line, "5 %s", packet);
    expect_text(begun_of(&held, 5), line);
    snprintf(line, sizeof line, "7\n5 %s", packet);
    expect_text(begun_of(&held, 7), line);
    blasd_held_remove(&held, id[1]);
    assert_int_equal(held.jobs, 2);
    assert_int_equal(blasd_held_packet(&held, id[0]), 0); /* not as a whole */
    expect_text(text_of(&held), packet);
    blasd_held_remove(&held, other);
    blasd_held_remove(&held, id[0]);
    expect_text(text_of(&held), packet);
    blasd_held_remove(&held, id[2]);
    assert_int_equal(held.count, 0);
    assert_int_equal(held.jobs, 0);
    expect_text(text_of(&held), "");
    blasd_held_remove(&held, id[2]);
    assert_int_equal(held.jobs, 0);
    blasd_held_release(&held);
}

/* A job of a packet may come back alone while others of it are still held by its name. */
static void a_job_beside_its_packet(void **state) {
    struct blasd_held held = {0};
    char id[3][BLASD_ID_LEN + 1];
    (void)state;
    id_make(id[0]);
    sibling(id[1], id[0]);
    sibling(id[2], id[0]);
    assert_int_equal(blasd_held_add(&held, id[0], BLASD_ID_LEN, 1), 0);
    assert_int_equal(blasd_held_packet(&held, id[0]), 0);
    assert_int_equal(blasd_held_packet(&held, id[1]), 0); /* its packet is not held */
    assert_int_equal(blasd_held_add(&held, id[1], PREFIX_LEN, 2), 0);
    assert_int_equal(held.count, 2);
    assert_int_equal(held.jobs, 3);
    assert_int_equal(blasd_held_packet(&held, id[0]), 0);
    assert_int_equal(blasd_held_packet(&held, id[1]), 2);
    blasd_held_remove(&held, id[0]);
    assert_int_equal(blasd_held_packet(&held, id[1]), 2);
    blasd_held_clear(&held);
    assert_int_equal(held.count, 0);
    assert_int_equal(held.jobs, 0);
    assert_int_equal(blasd_held_packet(&held, id[1]), 0);
    blasd_held_release(&held);
}

/* Names come and go in any order; the table finds each while it is there, and only then. */
static void many_names(void **state) {
    enum { GROUPS = 300, MOST = 9, STEPS = 30000 };
    static char id[GROUPS][MOST][BLASD_ID_LEN + 1];
    static int jobs[GROUPS], ended[GROUPS];
    static bool job_ended[GROUPS][MOST];
    struct blasd_held held = {0};
    size_t names = 0, left = 0;
    unsigned random = 12345;
    (void)state;
    for (int step = 0; step < STEPS; step++) {
        random = random * 1103515245 + 12345;
        int g = (int)(random >> 16) % GROUPS;
        if (jobs[g] == 0) { /* a new packet, or job */
            jobs[g] = 1 + step % MOST;
            ended[g] = 0;
            id_make(id[g][0]);
            for (int i = 1; i < jobs[g]; i++) sibling(id[g][i], id[g][0]);
            memset(job_ended[g], 0, sizeof job_ended[g]);
            assert_int_equal(
                blasd_held_add(&held, id[g][0], jobs[g] == 1 ? BLASD_ID_LEN : PREFIX_LEN, jobs[g]),
                0);
            names++;
            left += (size_t)jobs[g];
        } else {
            int i = step % jobs[g];
            while (job_ended[g][i]) i = (i + 1) % jobs[g];
            assert_int_equal(blasd_held_packet(&held, id[g][i]),
                             jobs[g] > 1 && ended[g] == 0 ? jobs[g] : 0);
            blasd_held_remove(&held, id[g][i]);
            job_ended[g][i] = true;
            left--;
            if (++ended[g] == jobs[g]) {
                names--;
                jobs[g] = 0;
            }
        }
        assert_int_equal(held.count, names);
        assert_int_equal(held.jobs, left);
        if (step % 1000 > 0) continue;
        char *text = text_of(&held);
        assert_int_equal(strlen(text) > 0, names > 0);
        for (int k = 0; k < GROUPS; k++) {
            char name[BLASD_ID_LEN + 1];
            snprintf(name, sizeof name, "%.*s", jobs[k] == 1 ? BLASD_ID_LEN : PREFIX_LEN, id[k][0]);
            if (jobs[k] > 0) assert_non_null(strstr(text, name));
        }
        free(text);
    }
    blasd_held_release(&held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_is_held_until_its_last_job_ends),
        cmocka_unit_test(a_job_beside_its_packet),
        cmocka_unit_test(many_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
