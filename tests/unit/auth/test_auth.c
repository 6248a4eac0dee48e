/* Who is let in: by a file of keys that changes, with failures and rates counted. */
#include "auth/auth.h"

#include "auth/failures.h"
#include "auth/key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The service's clock, which a test may stop: how fast this machine hashes is then no matter. */
static bool stopped;
static struct timespec stopped_at;

int clock_gettime(clockid_t clock, struct timespec *ret) {
    if (!stopped || clock != CLOCK_MONOTONIC) return (int)syscall(SYS_clock_gettime, clock, ret);
    *ret = stopped_at;
    return 0;
}

struct env {
    char folder[40], path[64];
    struct blasd_keyring ring;
    struct blasd_auth *auth;
    char alice[BLASD_KEY_TEXT], bob[BLASD_KEY_TEXT]; /* their keys */
};

static void add(struct env *env, const char *name, char text[BLASD_KEY_TEXT], int64_t expires_s,
                uint64_t rate) {
    struct blasd_auth_key key = {.expires_s = expires_s};
    struct blasd_err err = {0};
    blasd_identity_init(&key.caller, BLASD_ROLE_USER);
    snprintf(key.caller.name, sizeof key.caller.name, "%s", name);
    snprintf(key.caller.principal.tenant, sizeof key.caller.principal.tenant, "%s-lab", name);
    key.caller.jobs_per_s = rate;
    blasd_secret_new(&key, text);
    assert_int_equal(blasd_keyring_add(&env->ring, &key, &err), 0);
}

static void save(struct env *env) {
    struct blasd_err err = {0};
    assert_int_equal(blasd_keyring_save(env->path, &env->ring, &err), 0);
}

static int set_up(void **state) {
    struct env *env = calloc(1, sizeof *env);
    struct blasd_err err = {0};
    assert_non_null(env);
    *state = env;
    snprintf(env->folder, sizeof env->folder, "/tmp/blasd-auth-XXXXXX");
    assert_non_null(mkdtemp(env->folder));
    snprintf(env->path, sizeof env->path, "%s/keys.json", env->folder);
    assert_int_equal(blasd_secret_init(&err), 0);
    add(env, "alice", env->alice, 0, 3);
    add(env, "bob", env->bob, 1000000000, 0); /* long ago */
    save(env);
    assert_int_equal(blasd_auth_open(env->path, NULL, &env->auth, &err), 0);
    return 0;
}

static int tear_down(void **state) {
    struct env *env = *state;
    blasd_auth_free(env->auth);
    blasd_keyring_release(&env->ring);
    unlink(env->path);
    rmdir(env->folder);
    free(env);
    return 0;
}

/* 0, or the code of the refusal. */
static int show(struct env *env, const char *scheme, const char *text, uint64_t from,
                struct blasd_identity *caller) {
    char header[300];
    struct blasd_identity ignored;
    struct blasd_err err = {0};
    unsigned retry_s = 0;
    const struct blasd_credentials shown = {.authorization = text == NULL ? NULL : header,
                                            .from = from};
    int rc;
    if (text != NULL) snprintf(header, sizeof header, "%s%s", scheme, text);
    rc = blasd_auth_check(env->auth, &shown, caller == NULL ? &ignored : caller, &retry_s, &err);
    assert_true((retry_s > 0) == (rc == -(int)BLASD_E_too_many_failures));
    return -rc;
}

static void test_right_and_wrong(void **state) {
    struct env *env = *state;
    struct blasd_identity caller;
    char wrong[BLASD_KEY_TEXT];
    for (int i = 0; i < 3; i++) { /* slowly, then fast */
        assert_int_equal(show(env, "Bearer ", env->alice, 1, &caller), 0);
        assert_string_equal(caller.name, "alice");
        assert_string_equal(caller.principal.tenant, "alice-lab");
        assert_int_equal(caller.role, BLASD_ROLE_USER);
    }
    assert_int_equal(show(env, "bearer  ", env->alice, 1, NULL), 0);
    assert_int_equal(show(env, "Bearer ", env->bob, 1, NULL), BLASD_E_unauthorized); /* expired */
    assert_int_equal(show(env, "Bearer ", env->bob, 1, NULL), BLASD_E_unauthorized);
    assert_int_equal(show(env, "", NULL, 1, NULL), BLASD_E_unauthorized);
    assert_int_equal(show(env, "Basic ", env->alice, 1, NULL), BLASD_E_unauthorized);
    assert_int_equal(show(env, "Bearer", env->alice, 1, NULL), BLASD_E_unauthorized);
    for (size_t at = 0; at < strlen(env->alice); at += 7) { /* from addresses of their own */
        snprintf(wrong, sizeof wrong, "%s", env->alice);
        wrong[at] = wrong[at] == 'a' ? 'b' : 'a';
        assert_int_equal(show(env, "Bearer ", wrong, 100 + at, NULL), BLASD_E_unauthorized);
    }
    snprintf(wrong, sizeof wrong, "%.*s", (int)strlen(env->alice) - 1, env->alice);
    assert_int_equal(show(env, "Bearer ", wrong, 200, NULL), BLASD_E_unauthorized);
}

static void test_revoked(void **state) {
    struct env *env = *state;
    struct blasd_err err = {0};
    char carol[BLASD_KEY_TEXT];
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 0);
    assert_true(blasd_keyring_remove(&env->ring, "alice"));
    add(env, "carol", carol, 0, 0);
    save(env);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0); /* nobody has looked yet */
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 0);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), BLASD_E_unauthorized);
    assert_int_equal(show(env, "Bearer ", carol, 2, NULL), 0);
    assert_int_equal(blasd_auth_keys(env->auth), 2);
}

/* A change of the file locks nobody out whose address has to wait. */
static void test_change_while_waiting(void **state) {
    struct env *env = *state;
    struct blasd_identity caller;
    struct blasd_err err = {0};
    char carol[BLASD_KEY_TEXT];
    int tries = 0;
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    while (show(env, "Bearer ", "wrong", 1, NULL) == BLASD_E_unauthorized && tries < 30) tries++;
    env->ring.keys[0].caller.role = BLASD_ROLE_READ;
    add(env, "carol", carol, 0, 0);
    save(env);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, &caller), 0);
    assert_int_equal(caller.role, BLASD_ROLE_READ);
    assert_true(blasd_keyring_remove(&env->ring, "alice"));
    add(env, "alice", carol, 0, 0); /* of the same name, and another key */
    save(env);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_not_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
}

/* A file that cannot be read changes nothing; one that is gone lets nobody in. */
static void test_damaged(void **state) {
    struct env *env = *state;
    struct blasd_err err = {0};
    FILE *file = fopen(env->path, "we");
    assert_non_null(file);
    assert_true(fputs("{", file) >= 0 && fclose(file) == 0);
    assert_true(blasd_auth_refresh(env->auth, &err) < 0);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 0); /* said once */
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    unlink(env->path);
    assert_true(blasd_auth_refresh(env->auth, &err) < 0);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), BLASD_E_unauthorized);
    save(env);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_equal(show(env, "Bearer ", env->alice, 2, NULL), 0);
}

/* None can be opened from now on. */
static void no_files(struct rlimit *before) {
    struct rlimit none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

/* What could not be read for a moment is read when it can: nobody writes to the file again. */
static void test_unread(void **state) {
    struct env *env = *state;
    struct blasd_err err = {0};
    struct rlimit files;
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    assert_true(blasd_keyring_remove(&env->ring, "alice"));
    save(env);
    no_files(&files);
    assert_true(blasd_auth_refresh(env->auth, &err) < 0);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 0); /* said once */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), BLASD_E_unauthorized);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 0);
}

static void test_guessing(void **state) {
    struct env *env = *state;
    char wrong[BLASD_KEY_TEXT];
    int tries = 0, code = BLASD_E_unauthorized;
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    /* where this machine stands still for a second it waits longer the next time */
    while (code == BLASD_E_unauthorized && tries < 30) {
        snprintf(wrong, sizeof wrong, "blasd_%010d_guess", tries++);
        code = show(env, "Bearer ", wrong, 1, NULL);
    }
    assert_int_equal(code, BLASD_E_too_many_failures);
    assert_true(tries > AUTH_FAILURES_FREE);
    /* a key that was right before is none to be looked at; other addresses have done nothing */
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
    assert_int_equal(show(env, "Bearer ", wrong, 2, NULL), BLASD_E_unauthorized);
    assert_int_equal(show(env, "", NULL, 1, NULL), BLASD_E_unauthorized);
}

/* Wrong keys of one who shares an address keep nobody else there waiting whose key is right. */
static void test_neighbours(void **state) {
    struct env *env = *state;
    struct blasd_identity caller;
    char wrong[BLASD_KEY_TEXT], carol[BLASD_KEY_TEXT];
    struct blasd_err err = {0};
    int code = BLASD_E_unauthorized;
    for (int i = 0; code == BLASD_E_unauthorized && i < 30; i++) {
        snprintf(wrong, sizeof wrong, "blasd_%010d_guess", i);
        code = show(env, "Bearer ", wrong, 1, NULL);
    }
    assert_int_equal(code, BLASD_E_too_many_failures);
    add(env, "carol", carol, 0, 0);
    save(env);
    assert_int_equal(blasd_auth_refresh(env->auth, &err), 1);
    assert_int_equal(show(env, "Bearer ", carol, 1, &caller), 0);
    assert_string_equal(caller.name, "carol");
    /* nor those with the name of another's key */
    snprintf(wrong, sizeof wrong, "%.*sguess", BLASD_KEY_ID + 7, carol);
    code = BLASD_E_unauthorized;
    for (int i = 0; code == BLASD_E_unauthorized && i < 30; i++)
        code = show(env, "Bearer ", wrong, 1, NULL);
    assert_int_equal(code, BLASD_E_too_many_failures);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, &caller), 0);
}

/* A key that was never shown before is let in while its id is being guessed. */
static void test_guessing_a_key(void **state) {
    struct env *env = *state;
    char wrong[BLASD_KEY_TEXT];
    int code = BLASD_E_unauthorized;
    snprintf(wrong, sizeof wrong, "%.*sguess", BLASD_KEY_ID + 7, env->alice);
    for (int i = 0; code == BLASD_E_unauthorized && i < 30; i++)
        code = show(env, "Bearer ", wrong, 1, NULL);
    assert_int_equal(code, BLASD_E_too_many_failures);
    assert_int_equal(show(env, "Bearer ", env->alice, 1, NULL), 0);
}

static void test_waits(void **state) {
    static struct auth_failures failures;
    const int64_t second = 1000000000;
    int64_t now = 77 * second;
    unsigned last = 0;
    (void)state;
    memset(&failures, 0, sizeof failures);
    for (int i = 1; i < AUTH_FAILURES_FREE; i++) {
        auth_failures_note(&failures, 5, now);
        assert_int_equal(auth_failures_wait(&failures, 5, now, AUTH_FAILURE_WAIT_MOST), 0);
    }
    for (int i = 0; i < 20; i++) { /* longer each time, and not for ever */
        unsigned wait;
        auth_failures_note(&failures, 5, now);
        wait = auth_failures_wait(&failures, 5, now, AUTH_FAILURE_WAIT_MOST);
        assert_true(wait > last || wait == AUTH_FAILURE_WAIT_MOST);
        assert_int_equal(auth_failures_wait(&failures, 6, now, AUTH_FAILURE_WAIT_MOST), 0);
        now += wait * second;
        assert_int_equal(auth_failures_wait(&failures, 5, now, AUTH_FAILURE_WAIT_MOST), 0);
        last = wait;
    }
    assert_int_equal(last, AUTH_FAILURE_WAIT_MOST);
    now += (AUTH_FAILURE_KEPT + 1) * second;
    auth_failures_note(&failures, 5, now);
    assert_int_equal(auth_failures_wait(&failures, 5, now, AUTH_FAILURE_WAIT_MOST), 0);
    for (int i = 0; i < 20; i++) auth_failures_note(&failures, 0, now); /* a unix socket's */
    assert_int_equal(auth_failures_wait(&failures, 0, now, AUTH_FAILURE_WAIT_MOST), 0);
}

/* Who comes with a thousand addresses does not make the table forget one that insists. */
static void test_crowd(void **state) {
    static struct auth_failures failures;
    (void)state;
    memset(&failures, 0, sizeof failures);
    for (int i = 0; i < 20; i++) auth_failures_note(&failures, 1, 1);
    for (uint64_t from = 2; from < 100000; from++) auth_failures_note(&failures, from, 2);
    assert_true(auth_failures_wait(&failures, 1, 2, AUTH_FAILURE_WAIT_MOST) > 0);
}

/* Of places in one set the oldest makes room, however much it had: not one that waits. */
static void test_stale(void **state) {
    static struct auth_failures failures;
    const int64_t later = (AUTH_FAILURE_KEPT + 1) * INT64_C(1000000000);
    uint64_t places[AUTH_FAILURE_WAYS + 1];
    int count = 0;
    (void)state;
    memset(&failures, 0, sizeof failures);
    for (uint64_t from = 1; count <= AUTH_FAILURE_WAYS; from++) { /* all of one set */
        struct auth_failure *set = failures.sets[0];
        auth_failures_note(&failures, from, 1);
        if (set->count > 0) places[count++] = from;
        memset(&failures, 0, sizeof failures);
    }
    for (int i = 0; i < 50; i++) auth_failures_note(&failures, places[0], 1);
    for (int i = 1; i < AUTH_FAILURE_WAYS; i++) auth_failures_note(&failures, places[i], 1);
    for (int i = 1; i < AUTH_FAILURE_WAYS; i++)
        for (int n = 0; n < 10; n++) auth_failures_note(&failures, places[i], later);
    auth_failures_note(&failures, places[AUTH_FAILURE_WAYS], later);
    for (int i = 1; i < AUTH_FAILURE_WAYS; i++)
        assert_true(auth_failures_wait(&failures, places[i], later, AUTH_FAILURE_WAIT_MOST) > 0);
}

static void write_signers(const char *path, const char *more) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"keys\":[%s{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"old\","
            "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}",
            more);
    fclose(file);
}

/* A set of keys with one of a kind that nobody here knows is as good as without it. */
static void test_kinds_of_signers(void **state) {
    struct env *env = *state;
    char path[80];
    const struct blasd_token_options options = {.keys = path, .issuer = "i", .audience = "a"};
    struct blasd_auth *auth = NULL;
    struct blasd_err err = {0};
    snprintf(path, sizeof path, "%s/signers.json", env->folder);
    write_signers(path,
                  "{\"kty\":\"AKP\",\"alg\":\"ML-DSA-44\",\"kid\":\"new\",\"pub\":\"AAAA\"},");
    if (blasd_auth_open(NULL, &options, &auth, &err) != 0) print_error("%s\n", err.detail);
    assert_non_null(auth);
    blasd_auth_free(auth);
    unlink(path);
}

static void test_unread_signers(void **state) {
    struct env *env = *state;
    char path[80];
    const struct blasd_token_options options = {.keys = path, .issuer = "i", .audience = "a"};
    struct blasd_auth *auth = NULL;
    struct blasd_err err = {0};
    struct rlimit files;
    snprintf(path, sizeof path, "%s/signers.json", env->folder);
    write_signers(path, "");
    assert_int_equal(blasd_auth_open(NULL, &options, &auth, &err), 0);
    assert_int_equal(blasd_auth_refresh(auth, &err), 0);
    write_signers(path, "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"new\","
                        "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"},");
    no_files(&files);
    assert_true(blasd_auth_refresh(auth, &err) < 0);
    assert_int_equal(blasd_auth_refresh(auth, &err), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(blasd_auth_refresh(auth, &err), 1);
    assert_int_equal(blasd_auth_refresh(auth, &err), 0);
    blasd_auth_free(auth);
    unlink(path);
}

/* However long the URL is, what to do in its place is not cut off. */
static void test_no_signers(void **state) {
    const struct blasd_token_options options = {
        .keys = "https://127.0.0.1:1/0123456789/0123456789/0123456789/0123456789/0123456789/"
                "0123456789/0123456789/0123456789",
        .issuer = "i",
        .audience = "a"};
    struct blasd_auth *auth = NULL;
    struct blasd_err err = {0};
    (void)state;
    assert_true(blasd_auth_open(NULL, &options, &auth, &err) < 0);
    assert_null(auth);
    assert_non_null(strstr(err.detail, "save the key set to a file"));
}

static void test_rate(void **state) {
    struct env *env = *state;
    struct blasd_identity caller, free_one = {.name = "free"};
    struct blasd_rate_view view = {0};
    struct blasd_err err = {0};
    int taken = 0;
    assert_int_equal(show(env, "Bearer ", env->alice, 1, &caller), 0);
    assert_int_equal(caller.jobs_per_s, 3);
    assert_int_equal(blasd_auth_take_job(env->auth, &caller, &view, &err), 0);
    assert_true(view.limit == 3 && view.remaining <= 2);
    /* however slow this machine is, so many cannot all be in time */
    for (int i = 0; i < 1000; i++)
        taken += blasd_auth_take_job(env->auth, &caller, &view, &err) == 0;
    assert_true(taken >= 2 && taken < 1000);
    assert_int_equal(err.code, BLASD_E_rate_limited);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(blasd_auth_take_job(env->auth, &free_one, &view, &err), 0);
    /* one of that name in another tenant is another */
    snprintf(caller.principal.tenant, sizeof caller.principal.tenant, "other");
    assert_int_equal(blasd_auth_take_job(env->auth, &caller, &view, &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_right_and_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_revoked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_change_while_waiting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_guessing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_neighbours, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_guessing_a_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_kinds_of_signers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unread_signers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rate, set_up, tear_down),
        cmocka_unit_test(test_no_signers),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
