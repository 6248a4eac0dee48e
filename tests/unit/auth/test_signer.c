/* Signatures of what the service sends: one that the standard's own library made, which secret is
 * whose, and files that are none. */
#include "auth/signer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#define ONE "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define TWO "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
#define ID "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define TIME "1614265330"
#define BODY "{\"test\": 2432232314}"
#define SIGNED "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

static char path[] = "/tmp/blasd-signer-XXXXXX";

static void write_file(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static struct blasd_signer *open_text(const char *text) {
    struct blasd_signer *signer;
    struct blasd_err err;
    write_file(text);
    if (blasd_signer_open(path, &signer, &err) != 0) fail_msg("%s", err.detail);
    return signer;
}

static const char *signatures(const struct blasd_signer *signer, const char *tenant) {
    static char text[BLASD_SIGNATURES];
    return blasd_signer_sign(signer, tenant, ID, TIME, BODY, strlen(BODY), text) ? text : NULL;
}

static void signs(void **state) {
    struct blasd_signer *signer = open_text("# ours\n\n" ONE "\r\n");
    (void)state;
    assert_string_equal(signatures(signer, "anonymous"), SIGNED);
    blasd_signer_free(signer);
    blasd_signer_free(NULL);
}

static void tenants(void **state) {
    struct blasd_signer *signer = open_text("ann " TWO "\n" ONE "\n" TWO "\nann\t" ONE);
    char ann[BLASD_SIGNATURES];
    (void)state;
    snprintf(ann, sizeof ann, "%s", signatures(signer, "ann"));
    assert_string_equal(strchr(ann, ' ') + 1, SIGNED); /* in the file's order */
    assert_memory_equal(signatures(signer, "ben"), SIGNED " v1,", strlen(SIGNED) + 4);
    blasd_signer_free(signer);
    signer = open_text("ann " TWO);
    assert_null(signatures(signer, "ben"));
    assert_null(signatures(signer, "an"));
    blasd_signer_free(signer);
    signer = open_text(ONE "\n" ONE "\n" ONE "\n" ONE "\n");
    assert_int_equal(strlen(signatures(signer, "ann")), 4 * strlen(SIGNED) + 3);
    blasd_signer_free(signer);
}

static void refusals(void **state) {
    static const char *const texts[] = {"",
                                        "# none\n",
                                        "whsec_",
                                        "whsec_AAAA",
                                        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                                        ONE "x",
                                        ONE " x",
                                        "a b " ONE,
                                        "a:b " ONE,
                                        "ann" ONE,
                                        "a-name-that-is-longer-than-tenants " ONE,
                                        ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE};
    struct blasd_signer *signer;
    struct blasd_err err;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(texts[i]);
        if (blasd_signer_open(path, &signer, &err) == 0) fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(err.code, BLASD_E_invalid_field);
        assert_null(strstr(err.detail, "MfKQ"));
    }
    write_file(ONE);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_not_equal(blasd_signer_open(path, &signer, &err), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_not_equal(blasd_signer_open("/nowhere/at/all", &signer, &err), 0);
}

/* A file that cannot be used leaves what there was. */
static void changes(void **state) {
    struct blasd_signer *signer = open_text(ONE);
    struct blasd_err err;
    (void)state;
    assert_int_equal(blasd_signer_refresh(signer, &err), 0);
    unlink(path);
    assert_int_not_equal(blasd_signer_refresh(signer, &err), 0);
    assert_int_equal(blasd_signer_refresh(signer, &err), 0); /* said once, not each second */
    assert_string_equal(signatures(signer, "ann"), SIGNED);
    write_file("nothing of the kind");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_not_equal(blasd_signer_refresh(signer, &err), 0);
    assert_int_equal(blasd_signer_refresh(signer, &err), 0);
    assert_string_equal(signatures(signer, "ann"), SIGNED);
    unlink(path);
    write_file(TWO);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(blasd_signer_refresh(signer, &err), 0);
    assert_string_not_equal(signatures(signer, "ann"), SIGNED);
    unlink(path);
    assert_int_not_equal(blasd_signer_refresh(signer, &err), 0); /* again after a good one */
    write_file(ONE);
    assert_int_equal(chmod(path, 0600), 0);
    blasd_signer_free(signer);
}

/* As an orchestrator mounts a secret: by a link to the folder of one version, which is replaced. */
static void by_links(void **state) {
    char folder[] = "/tmp/blasd-signer-XXXXXX", name[64], next[64];
    struct blasd_signer *signer = NULL;
    struct blasd_err err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/secrets", folder);
    snprintf(next, sizeof next, "%s/next", folder);
    write_file(ONE);
    assert_int_equal(symlink(path, name), 0);
    if (blasd_signer_open(name, &signer, &err) != 0) fail_msg("%s", err.detail);
    assert_string_equal(signatures(signer, "ann"), SIGNED);
    unlink(path);
    write_file(TWO);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(symlink(path, next), 0);
    assert_int_equal(rename(next, name), 0);
    assert_int_equal(blasd_signer_refresh(signer, &err), 0);
    assert_string_not_equal(signatures(signer, "ann"), SIGNED);
    blasd_signer_free(signer);
    unlink(name);
    rmdir(folder);
}

static int make_file(void **state) {
    int fd = mkstemp(path);
    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(signs), cmocka_unit_test(tenants),
                                       cmocka_unit_test(refusals), cmocka_unit_test(changes),
                                       cmocka_unit_test(by_links)};
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
