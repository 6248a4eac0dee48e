/* Changing the file of keys, one process at a time. Read next: cmd_keys.c. */
#ifndef BLASD_MAIN_KEYS_FILE_H
#define BLASD_MAIN_KEYS_FILE_H

#include "auth/key.h"

#include <limits.h>

#define KEYS_FILE_PATH PATH_MAX

/* Where the keys are that nothing else is said of; makes its directory. */
int keys_file_default(char path[KEYS_FILE_PATH], struct blasd_err *err);
/* Adds the key, whose caller is filled in; the file is made where there is none. `text` becomes the
 * key as its holder shows it, "" where a certificate takes its place. */
int keys_file_add(const char *path, struct blasd_auth_key *key, char text[BLASD_KEY_TEXT],
                  struct blasd_err *err);
int keys_file_revoke(const char *path, const char *name, struct blasd_err *err);
/* Where there is no file yet: makes one with one key, of an admin, and says it on standard error,
 * once. */
int keys_file_first(const char *path, struct blasd_err *err);

#endif
