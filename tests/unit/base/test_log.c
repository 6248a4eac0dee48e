/* Log lines: one each, whatever is in them, and not more than the disk can bear. */
#include "base/log.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
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
    for (int i = 0; i < 300; i++) blasd_log_job(BLASD_LOG_INFO, "job number %d", i);
    wait_for_a_new_second();
    blasd_log_job_tick(); /* nothing follows */
    lines();
    for (const char *at = text; (at = strstr(at, "job number")) != NULL; at++) written++;
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
    blasd_log_job(BLASD_LOG_INFO, "job");
    assert_int_equal(lines(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_one_line),
        cmocka_unit_test(what_is_too_much_is_counted),
        cmocka_unit_test(none_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
