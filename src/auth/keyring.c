/* The file of keys: {"blasd_keys":1,"keys":[{"name":…,"id":…,"hash":…,"created":…,…}]}. */
#include "auth/key.h"

#include "auth/claims.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_MOST (16 * BLASD_MIB)
#define FORMAT 1

void blasd_keyring_release(struct blasd_keyring *ring) {
    free(ring->keys);
    free(ring->index);
    *ring = (struct blasd_keyring){0};
}

bool blasd_key_time(const char *text, int64_t *seconds) {
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%d", &tm);
    int day;
    if (rest != NULL && *rest != '\0') {
        rest = strptime(rest, "T%H:%M:%S", &tm);
        rest = rest != NULL && *rest == 'Z' ? rest + 1 : NULL;
    }
    if (rest == NULL || *rest != '\0') return false;
    day = tm.tm_mday;
    *seconds = (int64_t)timegm(&tm); /* which takes 31 February for 3 March */
    return *seconds > 0 && tm.tm_mday == day;
}

void blasd_identity_init(struct blasd_identity *caller, enum blasd_role role) {
    *caller = blasd_identity_anyone;
    caller->principal.tenant[0] = '\0';
    caller->role = role;
}

/* --- what keys are found by --------------------------------------------------------------------
 *
 * A file of ten thousand keys is read in every process, and each key once looked for, while others
 * wait. A place of the index holds the number of a key, from 1, times KINDS, plus which of its
 * texts led there; 0: it is free. */

enum kind { NAME, ID, CERTIFICATE, KINDS };
#define ROOM_LEAST 16 /* a power of two */

static const char *text_of(const struct blasd_auth_key *key, enum kind kind) {
    return kind == NAME ? key->caller.name : kind == ID ? key->id : key->certificate;
}

/* Where the text stands, or would. */
static uint32_t *place_of(const struct blasd_keyring *ring, enum kind kind, const char *text) {
    size_t at = blasd_hash_bytes(kind, text, strlen(text)) & (ring->places - 1);
    for (;; at = (at + 1) & (ring->places - 1)) {
        uint32_t value = ring->index[at];
        if (value == 0 || (value % KINDS == kind &&
                           strcmp(text_of(&ring->keys[value / KINDS - 1], kind), text) == 0))
            return &ring->index[at];
    }
}

/* The first of those that share a text is the one that is found. */
static void index_key(struct blasd_keyring *ring, size_t i) {
    for (enum kind kind = NAME; kind < KINDS; kind++) {
        const char *text = text_of(&ring->keys[i], kind);
        uint32_t *place = text[0] == '\0' ? NULL : place_of(ring, kind, text);
        if (place != NULL && *place == 0) *place = (uint32_t)(i + 1) * KINDS + kind;
    }
}

static void index_all(struct blasd_keyring *ring) {
    memset(ring->index, 0, ring->places * sizeof *ring->index);
    for (size_t i = 0; i < ring->count; i++) index_key(ring, i);
}

static const struct blasd_auth_key *find(const struct blasd_keyring *ring, enum kind kind,
                                         const char *text) {
    uint32_t value = ring->places == 0 || text[0] == '\0' ? 0 : *place_of(ring, kind, text);
    return value == 0 ? NULL : &ring->keys[value / KINDS - 1];
}

const struct blasd_auth_key *blasd_keyring_named(const struct blasd_keyring *ring,
                                                 const char *text) {
    return find(ring, NAME, text);
}

const struct blasd_auth_key *blasd_keyring_id(const struct blasd_keyring *ring, const char *text) {
    return find(ring, ID, text);
}

const struct blasd_auth_key *blasd_keyring_certificate(const struct blasd_keyring *ring,
                                                       const char *text) {
    return find(ring, CERTIFICATE, text);
}

/* Makes room for one more; at most half of the index is ever taken. */
static bool grow(struct blasd_keyring *ring) {
    size_t room = ring->room == 0 ? ROOM_LEAST : 2 * ring->room, places = 8 * room;
    struct blasd_auth_key *keys;
    uint32_t *index;
    if (ring->count < ring->room) return true;
    keys = realloc(ring->keys, room * sizeof *keys);
    if (keys == NULL) return false;
    ring->keys = keys;
    index = realloc(ring->index, places * sizeof *index);
    if (index == NULL) return false;
    ring->index = index;
    ring->places = places;
    ring->room = room;
    index_all(ring);
    return true;
}

int blasd_keyring_add(struct blasd_keyring *ring, const struct blasd_auth_key *key,
                      struct blasd_err *err) {
    if (blasd_keyring_named(ring, key->caller.name) != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "name", "there is a key '%s' already",
                          key->caller.name);
    if (key->certificate[0] != '\0' && blasd_keyring_certificate(ring, key->certificate) != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "certificate",
                          "there is a key for the certificate '%s' already", key->certificate);
    if (ring->count >= BLASD_KEYS_MOST)
        return blasd_fail(err, BLASD_E_invalid_field, "", "a file holds at most %d keys",
                          BLASD_KEYS_MOST);
    if (!grow(ring)) return blasd_no_memory(err);
    ring->keys[ring->count] = *key;
    index_key(ring, ring->count++);
    return 0;
}

bool blasd_keyring_remove(struct blasd_keyring *ring, const char *name) {
    const struct blasd_auth_key *key = blasd_keyring_named(ring, name);
    size_t at;
    if (key == NULL) return false;
    at = (size_t)(key - ring->keys);
    memmove(&ring->keys[at], &ring->keys[at + 1], (--ring->count - at) * sizeof *ring->keys);
    index_all(ring);
    return true;
}

static int bad_key(struct blasd_err *err, const char *name, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_field, "keys", "the key '%.40s' %s", name, what);
}

/* A text member that fits; "" where it may be missing and is. */
static bool read_text(const json_t *object, const char *member, char *out, size_t size) {
    const json_t *value = json_object_get(object, member);
    const char *text = value == NULL ? "" : json_string_value(value);
    return text != NULL && (size_t)snprintf(out, size, "%s", text) < size;
}

static bool read_time(const json_t *object, const char *member, int64_t *seconds) {
    char text[BLASD_TIME_TEXT];
    *seconds = 0;
    return read_text(object, member, text, sizeof text) &&
           (text[0] == '\0' || blasd_key_time(text, seconds));
}

static int parse_key(const json_t *object, struct blasd_auth_key *key, struct blasd_err *err) {
    static const char *const members[] = {"name",    "id",      "hash", "certificate",
                                          "created", "expires", NULL};
    struct blasd_identity *caller = &key->caller;
    char what[200];
    *key = (struct blasd_auth_key){.created_s = 0};
    blasd_identity_init(caller, BLASD_ROLE_USER);
    if (!json_is_object(object) || !read_text(object, "name", caller->name, sizeof caller->name) ||
        !blasd_key_name_valid(caller->name, BLASD_TENANT_MAX))
        return blasd_fail(err, BLASD_E_invalid_field, "keys",
                          "a key has no name of up to 31 letters, digits, '.', '_' and '-'");
    if (auth_claims_only(object, members, err) != 0 || auth_claims_read(object, caller, err) != 0) {
        snprintf(what, sizeof what, "is not well formed: %.150s", err->detail);
        return bad_key(err, caller->name, what);
    }
    if (caller->principal.tenant[0] == '\0')
        memcpy(caller->principal.tenant, caller->name, BLASD_TENANT_MAX);
    if (!read_text(object, "id", key->id, sizeof key->id) ||
        !read_text(object, "hash", key->hash, sizeof key->hash) ||
        !read_text(object, "certificate", key->certificate, sizeof key->certificate))
        return bad_key(err, caller->name, "has an invalid id, hash or certificate");
    if ((strlen(key->id) != BLASD_KEY_ID || !blasd_secret_hash_valid(key->hash)) &&
        (key->id[0] != '\0' || key->hash[0] != '\0' || key->certificate[0] == '\0'))
        return bad_key(err, caller->name, "has neither an id with its hash nor a certificate");
    if (!read_time(object, "created", &key->created_s) ||
        !read_time(object, "expires", &key->expires_s))
        return bad_key(err, caller->name, "has a time that is not as 2027-01-31T12:00:00Z");
    return 0;
}

int blasd_keyring_parse(const char *text, size_t len, struct blasd_keyring *ring,
                        struct blasd_err *err) {
    json_error_t where;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where), *key;
    const json_t *keys = json_object_get(root, "keys");
    struct blasd_auth_key one;
    size_t i;
    int rc = 0;
    if (root == NULL)
        rc = blasd_fail(err, BLASD_E_malformed_json, "", "line %d: %.150s", where.line, where.text);
    else if (json_integer_value(json_object_get(root, "blasd_keys")) != FORMAT ||
             !json_is_array(keys))
        rc = blasd_fail(err, BLASD_E_invalid_field, "",
                        "it is not a file of keys that this version knows");
    json_array_foreach((json_t *)(uintptr_t)keys, i, key) {
        if (rc == 0) rc = parse_key(key, &one, err);
        if (rc == 0) rc = blasd_keyring_add(ring, &one, err);
    }
    json_decref(root);
    if (rc != 0) blasd_keyring_release(ring);
    return rc;
}

static int set_text(json_t *object, const char *member, const char *text) {
    return text[0] == '\0' ? 0 : json_object_set_new(object, member, json_string(text));
}

static int set_time(json_t *object, const char *member, int64_t seconds) {
    struct tm tm;
    char text[BLASD_TIME_TEXT];
    time_t when = (time_t)seconds;
    if (seconds == 0) return 0;
    gmtime_r(&when, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return set_text(object, member, text);
}

int blasd_keyring_write(const struct blasd_keyring *ring, struct blasd_buf *text,
                        struct blasd_err *err) {
    json_t *keys = json_array(),
           *root = json_pack("{s:i, s:o}", "blasd_keys", FORMAT, "keys", keys);
    char *dump = NULL;
    int failed = root == NULL;
    for (size_t i = 0; failed == 0 && i < ring->count; i++) {
        const struct blasd_auth_key *key = &ring->keys[i];
        json_t *object = json_object();
        failed |= set_text(object, "name", key->caller.name);
        failed |= set_text(object, "id", key->id) | set_text(object, "hash", key->hash);
        failed |= set_text(object, "certificate", key->certificate);
        failed |= auth_claims_write(&key->caller, object);
        failed |= set_time(object, "created", key->created_s);
        failed |= set_time(object, "expires", key->expires_s);
        failed |= json_array_append_new(keys, object);
    }
    if (failed == 0) dump = json_dumps(root, JSON_INDENT(1));
    if (dump == NULL || blasd_buf_puts(text, dump) != 0 || blasd_buf_puts(text, "\n") != 0)
        failed = 1;
    free(dump);
    json_decref(root);
    return failed == 0 ? 0 : blasd_no_memory(err);
}

/* Whoever may write to the file may come in. */
static int check_rights(const char *path, struct blasd_err *err) {
    struct stat facts;
    if (stat(path, &facts) == 0 && (facts.st_mode & 022) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "others than its owner may write to %.150s: chmod 600 it", path);
    return 0;
}

int blasd_keyring_load(const char *path, struct blasd_keyring *ring, bool *missing,
                       struct blasd_err *err) {
    struct blasd_err why = {0};
    size_t len = 0;
    /* an orchestrator mounts its secrets as links */
    char *real = realpath(path, NULL);
    char *text = real == NULL ? NULL : blasd_file_read(real, FILE_MOST, &len);
    int rc;
    free(real);
    *missing = text == NULL && errno == ENOENT;
    if (text == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "", "no keys can be read from %.150s: %s",
                          path, strerror(errno));
    rc = check_rights(path, err);
    if (rc == 0 && blasd_keyring_parse(text, len, ring, &why) != 0)
        rc = blasd_fail(err, BLASD_E_internal_error, "", "the keys in %.80s cannot be read: %.150s",
                        path, why.detail);
    free(text);
    return rc;
}

/* What root puts in place stays its owner's, and a new file is whose the directory is: the service
 * has to read it. So has one that was let read it as one of its group: it would go on with what has
 * been revoked. */
static void give_away(const char *path, const struct stat *before) {
    struct stat facts, folder;
    char *name, *slash;
    /* whoever owns the folder may have put a link to another file there meanwhile */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_nlink != 1) {
        if (fd >= 0) close(fd);
        return;
    }
    if (before->st_nlink > 0) {
        uid_t owner = geteuid() == 0 ? before->st_uid : (uid_t)-1;
        if (fchown(fd, owner, before->st_gid) == 0)
            (void)!fchmod(fd, 0600 | (before->st_mode & 044));
    } else if (geteuid() == 0 && (name = strdup(path)) != NULL) {
        slash = strrchr(name, '/');
        if (slash != NULL) slash[slash == name] = '\0';
        if (stat(slash == NULL ? "." : name, &folder) == 0)
            (void)!fchown(fd, folder.st_uid, folder.st_gid);
        free(name);
    }
    close(fd);
}

int blasd_keyring_save(const char *path, const struct blasd_keyring *ring, struct blasd_err *err) {
    struct stat before = {.st_nlink = 0};
    struct blasd_buf text;
    int rc;
    if (stat(path, &before) != 0) before.st_nlink = 0;
    blasd_buf_init(&text, FILE_MOST);
    rc = blasd_keyring_write(ring, &text, err);
    if (rc == 0 && blasd_file_replace(path, text.data, text.len) != 0)
        rc = blasd_fail(err, BLASD_E_internal_error, "", "%.150s cannot be written: %s", path,
                        strerror(errno));
    if (rc == 0) give_away(path, &before);
    blasd_buf_release(&text);
    return rc;
}
