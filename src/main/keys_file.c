/* The file of keys, held by a lock on its directory while it is read, changed and replaced. */
#include "main/keys_file.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A new user of the machine has not even ~/.config. */
static int make_folder(char *folder) {
    char *slash = strrchr(folder, '/');
    *slash = '\0';
    (void)mkdir(folder, 0700);
    *slash = '/';
    return mkdir(folder, 0700) != 0 && errno != EEXIST ? -1 : 0;
}

int keys_file_default(char path[KEYS_FILE_PATH], struct blasd_err *err) {
    const char *given = getenv("BLASD_KEYS"), *config = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    char folder[KEYS_FILE_PATH - 32];
    if (given != NULL && given[0] != '\0') {
        snprintf(path, KEYS_FILE_PATH, "%s", given);
        return 0;
    }
    if (geteuid() == 0)
        snprintf(folder, sizeof folder, "/etc/blasd");
    else if (config != NULL && config[0] == '/')
        snprintf(folder, sizeof folder, "%s/blasd", config);
    else
        snprintf(folder, sizeof folder, "%s/.config/blasd", home == NULL ? "" : home);
    if (make_folder(folder) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "%.150s cannot be made: %s; give --file",
                          folder, strerror(errno));
    snprintf(path, KEYS_FILE_PATH, "%s/keys.json", folder);
    return 0;
}

/* A descriptor that holds the lock until it is closed. */
static int hold(const char *path, struct blasd_err *err) {
    char folder[KEYS_FILE_PATH];
    char *slash;
    int fd;
    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL)
        snprintf(folder, sizeof folder, ".");
    else
        slash[slash == folder] = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0) return fd;
    blasd_fail(err, BLASD_E_internal_error, "", "the directory %.150s: %s", folder,
               strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

/* Of a link what it shows: the service may have been given that. New: freed by the caller. */
static char *file_of(const char *path) {
    char *real = realpath(path, NULL);
    return real != NULL ? real : strdup(path);
}

static int add(const char *path, struct blasd_auth_key *key, char text[BLASD_KEY_TEXT],
               bool only_first, struct blasd_err *err) {
    struct blasd_keyring ring = {0};
    bool missing = false;
    int lock = hold(path, err), rc;
    text[0] = '\0';
    if (lock < 0) return -(int)err->code;
    rc = blasd_keyring_load(path, &ring, &missing, err);
    if (missing) rc = 0;
    if (rc == 0 && (missing || !only_first)) {
        key->created_s = blasd_clock_wall_us() / 1000000;
        rc = blasd_secret_init(err);
        if (rc == 0 && key->certificate[0] == '\0') blasd_secret_new(key, text);
        if (rc == 0) rc = blasd_keyring_add(&ring, key, err);
        if (rc == 0) rc = blasd_keyring_save(path, &ring, err);
    }
    blasd_keyring_release(&ring);
    close(lock);
    return rc;
}

static int no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for the path of the keys");
}

int keys_file_add(const char *path, struct blasd_auth_key *key, char text[BLASD_KEY_TEXT],
                  struct blasd_err *err) {
    char *file = file_of(path);
    int rc = file == NULL ? no_memory(err) : add(file, key, text, false, err);
    free(file);
    return rc;
}

static int take_away(const char *path, const char *name, struct blasd_err *err) {
    struct blasd_keyring ring = {0};
    bool missing;
    int lock = hold(path, err), rc;
    if (lock < 0) return -(int)err->code;
    rc = blasd_keyring_load(path, &ring, &missing, err);
    if (rc == 0 && !blasd_keyring_remove(&ring, name))
        rc = blasd_fail(err, BLASD_E_invalid_field, "name", "no key in %.150s is called '%.40s'",
                        path, name);
    else if (rc == 0)
        rc = blasd_keyring_save(path, &ring, err);
    blasd_keyring_release(&ring);
    close(lock);
    return rc;
}

int keys_file_revoke(const char *path, const char *name, struct blasd_err *err) {
    char *file = file_of(path);
    int rc = file == NULL ? no_memory(err) : take_away(file, name, err);
    free(file);
    return rc;
}

int keys_file_first(const char *path, struct blasd_err *err) {
    struct blasd_auth_key key = {.expires_s = 0};
    char text[BLASD_KEY_TEXT];
    int rc;
    blasd_identity_init(&key.caller, BLASD_ROLE_ADMIN);
    snprintf(key.caller.name, sizeof key.caller.name, "admin");
    snprintf(key.caller.principal.tenant, sizeof key.caller.principal.tenant, "admin");
    rc = add(path, &key, text, true, err);
    if (rc == 0 && text[0] != '\0')
        fprintf(
            stderr,
            "blasd: %s is new. Its key, which is not shown again:\n\n    %s\n\n"
            "Send it as `Authorization: Bearer …`, or set BLASD_API_KEY. More keys: `blasd keys "
            "add NAME --file %s`.\n",
            path, text, path);
    return rc;
}
