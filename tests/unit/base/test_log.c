/* Log lines: one each, whatever is in them, and not more than the disk can bear. */
#include "base/log.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char text[65536];
static int file = -1, real = -1;

static void catch (void) {
    file = memfd_create("log", MFD_CLOEXEC);
    real = dup(STDERR_FILENO);
    assert_true(file >= 0 && real >= 0 && dup2(file, STDERR_FILENO) >= 0);
}

static int lines(void) {
    ssize_t len = pread(file, text, sizeof text - 1, 0);
    int count = 0;
    dup2(real, STDERR_FILENO);
    close(real);
    close(file);
    assert_true(len >= 0);
    text[len] = '\0';
    for (ssize_t i = 0; i < len; i++) count += text[i] == '\n';
    return count;
}

static void wait_for_a_new_second(void) {
    int64_t began = blasd_clock_ns() / 1000000000;
    while (blasd_clock_ns() / 1000000000 == began) usleep(1000);
}

static void a_message_is_one_line(void **state) {
    (void)state;
    catch ();
    blasd_log(BLASD_LOG_WARN, "named '%s'", "a\nb\r\x1b[2J\x7f");
    assert_int_equal(lines(), 1);
    assert_non_null(strstr(text, "named 'a?b??[2J?'"));
}

static void what_is_too_much_is_counted(void **state) {
    unsigned long long left_out = 0;
    int written = 0, told = 0;
    (void)state;
    blasd_log_job_most(5);
    catch ();
    wait_for_a_new_second();
    for (int i = 0; i < 300; i++) blasd_log_job_event(BLASD_LOG_INFO, "a job", NULL, 0);
    wait_for_a_new_second();
    blasd_log_job_tick(); /* nothing follows */
    lines();
    for (const char *at = text; (at = strstr(at, "a job")) != NULL; at++) written++;
    for (const char *at = text; (at = strstr(at, "lines about jobs were left out")) != NULL; at++) {
        const char *number = at;
        unsigned long long n = 0, place = 1;
        for (number -= 2; *number >= '0' && *number <= '9'; number--, place *= 10)
            n += place * (unsigned long long)(*number - '0');
        left_out += n;
        told++;
    }
    assert_true(told >= 1);
    assert_true(written >= 5 && written % 5 == 0); /* a busy machine may take more than a second */
    assert_int_equal(written + (int)left_out, 300);
}

static void none_at_all(void **state) {
    (void)state;
    blasd_log_job_most(0);
    catch ();
    blasd_log_job_event(BLASD_LOG_INFO, "a job", NULL, 0);
    assert_int_equal(lines(), 0);
}

static const struct blasd_log_field fields[] = {{"id", "s1\n2", false},
                                                {"status", "404", true},
                                                {"trace_id", NULL, false},
                                                {"client", "a \"b\"", false}};

static void an_event_has_fields(void **state) {
    (void)state;
    catch ();
    blasd_log_event(BLASD_LOG_INFO, "job refused", fields, 4);
    blasd_log_event(BLASD_LOG_DEBUG, "not at this level", fields, 4);
    assert_int_equal(lines(), 1);
    assert_non_null(strstr(text, " info: job refused: id=s1?2 status=404 client=a \"b\"\n"));
}

/* As many as requests: in their order, and in front of what is written at once. */
static void lines_that_are_collected(void **state) {
    struct stat written;
    int sent = 0;
    (void)state;
    catch ();
    blasd_log_collect(BLASD_LOG_INFO, "first", fields, 4);
    blasd_log_collect(BLASD_LOG_DEBUG, "not at this level", fields, 4);
    assert_true(fstat(file, &written) == 0 && written.st_size == 0);
    blasd_log_event(BLASD_LOG_INFO, "second", NULL, 0);
    for (written.st_size = 0; written.st_size < 40000; sent++) { /* a page at a time */
        off_t before = written.st_size;
        blasd_log_collect(BLASD_LOG_INFO, "request", fields, 4);
        assert_int_equal(fstat(file, &written), 0);
        assert_true(written.st_size - before <= 4096);
    }
    blasd_log_flush();
    blasd_log_flush();
    assert_int_equal(lines(), sent + 2);
    assert_true(strstr(text, "first") < strstr(text, "second"));
    assert_true(strstr(text, "second") < strstr(text, "request"));
}

/* Last, for there is no way back. */
static void json_lines(void **state) {
    char longest[9000];
    (void)state;
    memset(longest, '"', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    catch ();
    blasd_log_json();
    blasd_log_event(BLASD_LOG_INFO, "job refused", fields, 4);
    blasd_log(BLASD_LOG_WARN, "a \"quote\", a \\ and \xff\xc3\xa9\x01");
    blasd_log(BLASD_LOG_WARN, "%s", longest);
    blasd_log_event(BLASD_LOG_INFO, "job failed",
                    (const struct blasd_log_field[]){{"long", longest, false}, {"id", "1", false}},
                    2);
    assert_int_equal(lines(), 4);
    assert_non_null(strstr(text, "\"level\":\"info\",\"process\":\"blasd\",\"pid\":"));
    assert_non_null(strstr(text, "\"message\":\"job refused\",\"id\":\"s1?2\",\"status\":404,"
                                 "\"client\":\"a \\\"b\\\"\"}\n"));
    assert_non_null(strstr(text, "\"message\":\"a \\\"quote\\\", a \\\\ and ?\xc3\xa9?\"}\n"));
    for (const char *at = text, *end; *at != '\0'; at = end + 1) { /* cut, but whole */
        end = strchr(at, '\n');
        assert_true(end - at <= 4096 && *at == '{');
        assert_memory_equal(end - 2, "\"}", 2);
        assert_true(end[-3] != '\\' || end[-4] == '\\' || end - at < 200);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_line),       cmocka_unit_test(an_event_has_fields),
        cmocka_unit_test(what_is_too_much_is_counted), cmocka_unit_test(none_at_all),
        cmocka_unit_test(lines_that_are_collected),    cmocka_unit_test(json_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
