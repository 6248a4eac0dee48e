/* Errors, capped buffers, ids, dates and limits. */
#include "../child_fork.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void errors_carry_code_field_and_detail(void **state) {
    struct blasd_err err;
    (void)state;
    assert_int_equal(blasd_fail(&err, BLASD_E_queue_full, "inputs.a", "%d of %d", 3, 4),
                     -(int)BLASD_E_queue_full);
    assert_string_equal(err.field, "inputs.a");
    assert_string_equal(err.detail, "3 of 4");
    assert_int_equal(blasd_err_info(err.code)->http_status, 429);
    assert_true(blasd_err_info(err.code)->retry);
    assert_int_equal(blasd_fail(NULL, BLASD_E_poisoned, NULL, "x"), -(int)BLASD_E_poisoned);
}

static void every_error_is_found_by_its_name(void **state) {
    (void)state;
    for (int code = 1; code < BLASD_E_COUNT; code++) {
        const struct blasd_err_info *info = blasd_err_info((enum blasd_code)code);
        assert_int_equal(blasd_err_code(info->name), code);
        assert_in_range(info->http_status, 400, 599);
        assert_true(strlen(info->title) > 5 && strlen(info->advice) > 5);
    }
    assert_int_equal(blasd_err_code("no such name"), BLASD_E_internal_error);
    assert_ptr_equal(blasd_err_info((enum blasd_code)9999), blasd_err_info(BLASD_E_internal_error));
}

static void an_overlong_detail_is_cut_and_ended(void **state) {
    char text[1000];
    struct blasd_err err;
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    blasd_fail(&err, BLASD_E_internal_error, text, "%s", text);
    assert_int_equal(strlen(err.detail), sizeof err.detail - 1);
    assert_int_equal(strlen(err.field), sizeof err.field - 1);
}

static void a_buffer_stops_at_its_cap_and_stays_whole(void **state) {
    struct blasd_buf buf;
    (void)state;
    blasd_buf_init(&buf, 1000);
    for (int i = 0; i < 100; i++) assert_int_equal(blasd_buf_puts(&buf, "0123456789"), 0);
    assert_int_equal(blasd_buf_puts(&buf, "x"), -1);
    assert_int_equal(buf.len, 1000);
    assert_memory_equal(buf.data + 990, "0123456789", 10);
    assert_int_equal(blasd_buf_reserve(&buf, SIZE_MAX), -1);
    blasd_buf_reset(&buf);
    assert_int_equal(blasd_buf_printf(&buf, "%d-%s", 42, "answer"), 0);
    assert_memory_equal(buf.data, "42-answer", 9);
    blasd_buf_release(&buf);
    assert_null(buf.data);
    assert_int_equal(blasd_buf_add(&buf, "", 0), 0);
}

static void ids_are_valid_distinct_and_carry_their_second(void **state) {
    char ids[1000][BLASD_ID_LEN + 1];
    (void)state;
    for (int i = 0; i < 1000; i++) {
        blasd_id_new(i % 2 ? BLASD_ID_SYNC : BLASD_ID_ASYNC, 1763690000123456, ids[i]);
        assert_true(blasd_id_valid(ids[i]));
        assert_memory_equal(ids[i] + 1, "691fc610", 8); /* 1763690000 */
        for (int j = 0; j < i; j++) assert_string_not_equal(ids[i], ids[j]);
    }
    assert_int_equal(ids[1][0], 's');
    ids[1][5] = 'G';
    assert_false(blasd_id_valid(ids[1]));
    assert_false(blasd_id_valid(""));
    assert_false(blasd_id_valid("s"));
    assert_false(blasd_id_valid("../../etc/passwd"));
    ids[2][BLASD_ID_LEN - 1] = '\0';
    assert_false(blasd_id_valid(ids[2]));
}

/* A process that has made ids forks: each child makes ids of its own. */
static void children_make_ids_of_their_own(void **state) {
    char ids[3][33];
    int pipes[2];
    (void)state;
    blasd_random_hex(ids[0], 32);
    assert_int_equal(pipe(pipes), 0);
    for (int i = 0; i < 2; i++) {
        pid_t pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            blasd_random_hex(ids[0], 32);
            _exit(write(pipes[1], ids[0], sizeof ids[0]) == sizeof ids[0] ? 0 : 1);
        }
    }
    close(pipes[1]);
    blasd_random_hex(ids[0], 32);
    for (int i = 1; i < 3; i++)
        assert_int_equal(read(pipes[0], ids[i], sizeof ids[i]), sizeof ids[i]);
    close(pipes[0]);
    for (int i = 0; i < 2; i++) assert_true(wait(NULL) > 0);
    assert_string_not_equal(ids[0], ids[1]);
    assert_string_not_equal(ids[0], ids[2]);
    assert_string_not_equal(ids[1], ids[2]);
}

static void signed_ids_are_known_again(void **state) {
    const struct blasd_id_key key = {{1, UINT64_C(0x8000000000000000)}}, other = {{1, 1}};
    char ids[1000][BLASD_ID_LEN + 1], head[BLASD_ID_ENTRY];
    char made_up[BLASD_ID_LEN + 1] = "a6b09711d8ba0cfae8a6acc914121";
    (void)state;
    for (int i = 0; i < 1000; i++) {
        if (i == 0)
            blasd_id_new(BLASD_ID_ASYNC, 1763690000123456, ids[i]);
        else
            memcpy(ids[i], ids[0], sizeof ids[i]); /* all of one batch entry */
        memcpy(head, ids[i], sizeof head);
        blasd_id_sign(ids[i], &key, (uint16_t)i);
        assert_memory_equal(ids[i], head, sizeof head);
        assert_true(blasd_id_valid(ids[i]));
        assert_true(blasd_id_signed(ids[i], &key));
        assert_false(blasd_id_signed(ids[i], &other));
        for (int j = 0; j < i; j++) assert_string_not_equal(ids[i], ids[j]);
    }
    /* nor what is made up: these are always the same, so that chance has no part in it */
    for (int i = 0; i < 1 << 18; i++) {
        snprintf(made_up + BLASD_ID_ENTRY, sizeof made_up - BLASD_ID_ENTRY, "%012x", i);
        assert_false(blasd_id_signed(made_up, &key));
    }
    for (int at = 0; at < BLASD_ID_LEN; at++) { /* nor what is changed in any place */
        memcpy(made_up, ids[7], sizeof made_up);
        made_up[at] = at == 0 ? 's' : made_up[at] == '0' ? '1' : '0';
        assert_false(blasd_id_signed(made_up, &key));
    }
}

/* Keys of names: each its own, and another where the key is another. */
static void keys_follow_from_names(void **state) {
    static const char *const names[] = {"ann", "ben", "anna", "",
                                        "0123456789012345678901234567890"};
    enum { NAMES = sizeof names / sizeof *names };
    const struct blasd_id_key keys[] = {{{1, 2}}, {{1, 3}}};
    struct blasd_id_key made[2 * NAMES];
    (void)state;
    for (int i = 0; i < 2 * NAMES; i++) {
        made[i] = blasd_id_key_for(&keys[i % 2], names[i / 2]);
        struct blasd_id_key again = blasd_id_key_for(&keys[i % 2], names[i / 2]);
        assert_memory_equal(&again, &made[i], sizeof again);
        for (int j = 0; j < i; j++)
            assert_true(made[i].word[0] != made[j].word[0] && made[i].word[1] != made[j].word[1]);
    }
}

static void dates_are_rfc3339(void **state) {
    char text[BLASD_TIME_TEXT];
    (void)state;
    blasd_clock_text(INT64_C(1709210096000042), text); /* a leap day */
    assert_string_equal(text, "2024-02-29T12:34:56.000042Z");
    blasd_clock_text(INT64_C(1709210096999999), text); /* of the same second, and of others */
    assert_string_equal(text, "2024-02-29T12:34:56.999999Z");
    blasd_clock_text(INT64_C(1709210097000000), text);
    assert_string_equal(text, "2024-02-29T12:34:57.000000Z");
    blasd_clock_text(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000000Z");
    blasd_clock_text(INT64_C(1709210096000042), text);
    assert_string_equal(text, "2024-02-29T12:34:56.000042Z");
    blasd_clock_text(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999999Z");
}

static void limits_have_sane_defaults_and_take_units(void **state) {
    struct blasd_limits limits;
    struct blasd_err err;
    (void)state;
    blasd_limits_init(&limits);
    for (int i = 0; blasd_limits_info(i) != NULL; i++) {
        const struct blasd_limit_info *info = blasd_limits_info(i);
        assert_int_equal(blasd_limits_get(&limits, i), info->preset);
        assert_true(info->preset == 0 ||
                    (info->preset >= info->least && info->preset <= info->most));
    }
    assert_int_equal(blasd_limits_set(&limits, "body_bytes=3M", &err), 0);
    assert_int_equal(limits.body_bytes, 3 * BLASD_MIB);
    assert_int_equal(blasd_limits_set(&limits, "attempts=7", &err), 0);
    assert_int_equal(limits.attempts, 7);
}

static void bad_limits_are_refused_and_change_nothing(void **state) {
    static const char *const bad[] = {
        "body_bytes",       "body_bytes=",      "body_bytes=-1",
        "body_bytes=1X",    "body_bytes=1KK",   "nothing=1",
        "attempts=0",       "attempts=101",     "=3",
        "body_bytes= 4096", "body_bytes=1e9",   "attempts=99999999999T",
        "queue_bytes=1",    "body_bytes=4096 ", ""};
    struct blasd_limits limits, before;
    (void)state;
    blasd_limits_init(&limits);
    before = limits;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct blasd_err err = {0};
        assert_true(blasd_limits_set(&limits, bad[i], &err) < 0);
        assert_int_equal(err.code, BLASD_E_invalid_parameter);
    }
    assert_memory_equal(&limits, &before, sizeof limits);
}

static void limits_come_from_the_environment(void **state) {
    struct blasd_limits limits;
    struct blasd_err err;
    (void)state;
    blasd_limits_init(&limits);
    setenv("BLASD_QUEUE_JOBS", "12", 1);
    assert_int_equal(blasd_limits_from_env(&limits, &err), 0);
    assert_int_equal(limits.queue_jobs, 12);
    setenv("BLASD_QUEUE_JOBS", "", 1); /* as a compose file makes of what is not set */
    assert_int_equal(blasd_limits_from_env(&limits, &err), 0);
    assert_int_equal(limits.queue_jobs, 12);
    setenv("BLASD_QUEUE_JOBS", "many", 1);
    assert_true(blasd_limits_from_env(&limits, &err) < 0);
    assert_string_equal(err.field, "queue_jobs");
    unsetenv("BLASD_QUEUE_JOBS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_carry_code_field_and_detail),
        cmocka_unit_test(every_error_is_found_by_its_name),
        cmocka_unit_test(an_overlong_detail_is_cut_and_ended),
        cmocka_unit_test(a_buffer_stops_at_its_cap_and_stays_whole),
        cmocka_unit_test(ids_are_valid_distinct_and_carry_their_second),
        cmocka_unit_test(children_make_ids_of_their_own),
        cmocka_unit_test(signed_ids_are_known_again),
        cmocka_unit_test(keys_follow_from_names),
        cmocka_unit_test(dates_are_rfc3339),
        cmocka_unit_test(limits_have_sane_defaults_and_take_units),
        cmocka_unit_test(bad_limits_are_refused_and_change_nothing),
        cmocka_unit_test(limits_come_from_the_environment),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
