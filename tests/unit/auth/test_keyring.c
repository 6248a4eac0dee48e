/* The file of keys: what is written is read again, and what is not well formed is refused. */
#include "auth/key.h"
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "$argon2id$v=19$m=1024,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$aGFzaA"

static struct blasd_auth_key full_key(void) {
    struct blasd_auth_key key = {.id = "0123456789", .hash = HASH, .created_s = 1767225600};
    blasd_identity_init(&key.caller, BLASD_ROLE_READ);
    key.expires_s = 4102444800;
    snprintf(key.caller.name, sizeof key.caller.name, "%s", "alice-1");
    snprintf(key.caller.principal.tenant, sizeof key.caller.principal.tenant, "%s", "lab.7");
    key.caller.principal.quotas = (struct blasd_quotas){10, 20, 30};
    key.caller.principal.weight = 3;
    key.caller.jobs_per_s = 40;
    key.caller.job_s = 50;
    key.caller.ceiling = BLASD_PRIORITY_LOW;
    key.caller.ops = UINT32_C(1) << blasd_op_position(blasd_op_find("solve"));
    return key;
}

static void same(const struct blasd_identity *a, const struct blasd_identity *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->principal.tenant, b->principal.tenant);
    assert_true(a->principal.weight == b->principal.weight);
    assert_true(a->principal.quotas.jobs == b->principal.quotas.jobs);
    assert_true(a->principal.quotas.bytes == b->principal.quotas.bytes);
    assert_true(a->principal.quotas.stored_bytes == b->principal.quotas.stored_bytes);
    assert_true(a->role == b->role && a->ops == b->ops && a->ceiling == b->ceiling);
    assert_true(a->job_s == b->job_s && a->jobs_per_s == b->jobs_per_s);
}

static void test_round_trip(void **state) {
    struct blasd_keyring ring = {0}, again = {0};
    struct blasd_auth_key key = full_key(), other = {.id = "abcdefabcd", .hash = HASH};
    struct blasd_err err = {0};
    struct blasd_buf text;
    (void)state;
    blasd_identity_init(&other.caller, BLASD_ROLE_ADMIN);
    snprintf(other.caller.name, sizeof other.caller.name, "bob");
    other.caller.principal.weight = 1; /* which is what a key has that says nothing */
    snprintf(other.caller.principal.tenant, sizeof other.caller.principal.tenant, "bob");
    assert_int_equal(blasd_keyring_add(&ring, &key, &err), 0);
    assert_int_equal(blasd_keyring_add(&ring, &other, &err), 0);
    blasd_buf_init(&text, 1 << 20);
    assert_int_equal(blasd_keyring_write(&ring, &text, &err), 0);
    assert_int_equal(blasd_keyring_parse(text.data, text.len, &again, &err), 0);
    assert_int_equal(again.count, 2);
    same(&again.keys[0].caller, &key.caller);
    assert_string_equal(again.keys[0].hash, HASH);
    assert_true(again.keys[0].created_s == key.created_s &&
                again.keys[0].expires_s == key.expires_s);
    same(&again.keys[1].caller, &other.caller);
    assert_true(again.keys[1].expires_s == 0);
    assert_ptr_equal(blasd_keyring_id(&again, "abcdefabcd"), &again.keys[1]);
    assert_null(blasd_keyring_id(&again, ""));
    assert_true(blasd_keyring_remove(&again, "alice-1"));
    assert_false(blasd_keyring_remove(&again, "alice-1"));
    assert_string_equal(again.keys[0].caller.name, "bob");
    assert_int_equal(blasd_keyring_add(&again, &other, &err), -(int)BLASD_E_invalid_field);
    blasd_buf_release(&text);
    blasd_keyring_release(&ring);
    blasd_keyring_release(&again);
}

/* A limit that is misread would be none, and a role that is misread another. */
static void test_refused(void **state) {
    static const char *const members[] = {
        "\"nmae\":\"x\"",
        "\"tenant\":\"anonymous\"",
        "\"tenant\":\"a b\"",
        "\"tenant\":\"a:b\"",
        "\"tenant\":\"a\\tb\"",
        "\"tenant\":\"\"",
        "\"tenant\":7",
        "\"tenant\":\"0123456789012345678901234567890123456789\"",
        "\"role\":\"root\"",
        "\"role\":null",
        "\"ops\":\"matmul\"",
        "\"ops\":[1]",
        "\"limits\":[]",
        "\"limits\":{\"jobs\":0}",
        "\"limits\":{\"jobs\":-1}",
        "\"limits\":{\"jobs\":1.5}",
        "\"limits\":{\"jobs\":\"1\"}",
        "\"limits\":{\"jobs\":1e3}",
        "\"limits\":{\"jobs_per_s\":1000000000000}",
        "\"limits\":{\"weight\":1001}",
        "\"limits\":{\"job\":1}",
        "\"limits\":{\"priority\":\"urgent\"}",
        "\"expires\":\"tomorrow\"",
        "\"expires\":\"2027-01-31T12:00:00\"",
        "\"expires\":1800000000",
        "\"certificate\":7",
        "\"hash\":\"$argon2id$x\",\"name\":\"twice\"",
    };
    char text[1000];
    (void)state;
    for (size_t i = 0; i <= sizeof members / sizeof *members; i++) {
        struct blasd_keyring ring = {0};
        struct blasd_err err = {0};
        bool whole = i == sizeof members / sizeof *members; /* without any it is well formed */
        snprintf(
            text, sizeof text,
            "{\"blasd_keys\":1,\"keys\":[{\"name\":\"k\",\"id\":\"0123456789\",\"hash\":\"" HASH
            "\"%s%s}]}",
            whole ? "" : ",", whole ? "" : members[i]);
        if (whole) {
            assert_int_equal(blasd_keyring_parse(text, strlen(text), &ring, &err), 0);
            assert_string_equal(ring.keys[0].caller.principal.tenant, "k");
            assert_int_equal(ring.keys[0].caller.role, BLASD_ROLE_USER);
        } else if (blasd_keyring_parse(text, strlen(text), &ring, &err) == 0) {
            fail_msg("taken: %s", members[i]);
        } else {
            assert_true(err.detail[0] != '\0' && ring.count == 0);
        }
        blasd_keyring_release(&ring);
    }
}

static void test_no_file_of_keys(void **state) {
    static const char *const texts[] = {"",
                                        "[]",
                                        "null",
                                        "{\"blasd_keys\":2,\"keys\":[]}",
                                        "{\"keys\":[]}",
                                        "{\"blasd_keys\":1}",
                                        "{\"blasd_keys\":1,\"keys\":{}}",
                                        "{\"blasd_keys\":1,\"keys\":[7]}",
                                        "{\"blasd_keys\":1,\"keys\":[{\"name\":\"a/b\"}]}",
                                        "{\"blasd_keys\":1,\"keys\":[{\"name\":\"ab\"}]}",
                                        "{\"blasd_keys\":1,\"keys\":[]} x"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct blasd_keyring ring = {0};
        struct blasd_err err = {0};
        assert_true(blasd_keyring_parse(texts[i], strlen(texts[i]), &ring, &err) < 0);
        assert_true(err.detail[0] != '\0' && ring.keys == NULL);
    }
}

/* What this build does not have is covered by nothing, and narrows nothing else. */
static void test_unknown_op(void **state) {
    static const char text[] = "{\"blasd_keys\":1,\"keys\":[{\"name\":\"k\",\"certificate\":\"c\","
                               "\"ops\":[\"nonesuch\"]}]}";
    struct blasd_keyring ring = {0};
    struct blasd_err err = {0};
    (void)state;
    assert_int_equal(blasd_keyring_parse(text, strlen(text), &ring, &err), 0);
    assert_true(ring.keys[0].caller.ops == 0);
    assert_int_equal(blasd_identity_check_job(&ring.keys[0].caller, blasd_op_find("matmul"),
                                              BLASD_PRIORITY_LOW, &err),
                     -(int)BLASD_E_forbidden);
    blasd_keyring_release(&ring);
}

static void test_scopes(void **state) {
    struct blasd_auth_key key = full_key();
    struct blasd_err err = {0};
    (void)state;
    key.caller.ceiling = BLASD_PRIORITY_NORMAL;
    assert_int_equal(
        blasd_identity_check_job(&key.caller, blasd_op_find("solve"), BLASD_PRIORITY_NORMAL, &err),
        0);
    assert_int_equal(
        blasd_identity_check_job(&key.caller, blasd_op_find("solve"), BLASD_PRIORITY_LOW, &err), 0);
    assert_int_equal(
        blasd_identity_check_job(&key.caller, blasd_op_find("solve"), BLASD_PRIORITY_HIGH, &err),
        -(int)BLASD_E_forbidden);
    assert_int_equal(
        blasd_identity_check_job(&key.caller, blasd_op_find("matmul"), BLASD_PRIORITY_LOW, &err),
        -(int)BLASD_E_forbidden);
    assert_int_equal(blasd_identity_check_job(&blasd_identity_anyone, blasd_op_find("matmul"),
                                              BLASD_PRIORITY_HIGH, &err),
                     0);
}

static void test_file(void **state) {
    char folder[] = "/tmp/blasd-keyring-XXXXXX", path[64];
    struct blasd_keyring ring = {0}, again = {0};
    struct blasd_auth_key key = full_key();
    struct blasd_err err = {0};
    struct stat facts;
    bool missing = false;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/keys.json", folder);
    assert_true(blasd_keyring_load(path, &again, &missing, &err) < 0 && missing);
    assert_int_equal(blasd_keyring_add(&ring, &key, &err), 0);
    assert_int_equal(blasd_keyring_save(path, &ring, &err), 0);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(blasd_keyring_load(path, &again, &missing, &err), 0);
    assert_int_equal(again.count, 1);
    blasd_keyring_release(&again);
    /* who was let read it may read the next one: a service that could not would keep what is
     * revoked */
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(blasd_keyring_save(path, &ring, &err), 0);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0640);
    /* others could add a key of their own */
    assert_int_equal(chmod(path, 0620), 0);
    assert_true(blasd_keyring_load(path, &again, &missing, &err) < 0 && !missing);
    assert_non_null(strstr(err.detail, "chmod 600"));
    blasd_keyring_release(&ring);
    unlink(path);
    rmdir(folder);
}

static void test_times(void **state) {
    int64_t seconds;
    (void)state;
    assert_true(blasd_key_time("2027-01-31", &seconds) && seconds == 1801353600);
    assert_true(blasd_key_time("2027-01-31T12:00:00Z", &seconds) && seconds == 1801396800);
    assert_false(blasd_key_time("2027-01-31T12:00:00", &seconds));
    assert_false(blasd_key_time("2027-01-31Z", &seconds));
    assert_false(blasd_key_time("2027-13-31", &seconds));
    assert_false(blasd_key_time("2027-02-29", &seconds));
    assert_true(blasd_key_time("2028-02-29T23:59:59Z", &seconds) && seconds == 1835481599);
    assert_false(blasd_key_time("1901-01-01", &seconds));
    assert_false(blasd_key_time("", &seconds));
}

/* However many there are each is found by what it is called, also when others have gone. */
static void test_many(void **state) {
    struct blasd_keyring ring = {0};
    struct blasd_auth_key key = full_key();
    struct blasd_err err = {0};
    char text[32];
    (void)state;
    for (int i = 0; i < 3000; i++) {
        snprintf(key.caller.name, sizeof key.caller.name, "key-%d", i);
        snprintf(key.id, sizeof key.id, "%010x", (unsigned)i);
        snprintf(key.certificate, sizeof key.certificate, "cert-%d", i);
        assert_int_equal(blasd_keyring_add(&ring, &key, &err), 0);
    }
    for (int i = 0; i < 3000; i += 3) {
        snprintf(text, sizeof text, "key-%d", i);
        assert_true(blasd_keyring_remove(&ring, text));
        assert_false(blasd_keyring_remove(&ring, text));
    }
    assert_int_equal(ring.count, 2000);
    for (int i = 0; i < 3000; i++) {
        const struct blasd_auth_key *found;
        snprintf(text, sizeof text, "key-%d", i);
        found = blasd_keyring_named(&ring, text);
        assert_true((found == NULL) == (i % 3 == 0));
        snprintf(text, sizeof text, "cert-%d", i);
        assert_ptr_equal(blasd_keyring_certificate(&ring, text), found);
        snprintf(text, sizeof text, "%010x", (unsigned)i);
        assert_ptr_equal(blasd_keyring_id(&ring, text), found);
        assert_null(blasd_keyring_id(&ring, "key-1"));
    }
    blasd_keyring_release(&ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),       cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_no_file_of_keys),
        cmocka_unit_test(test_unknown_op), cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_file),       cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
