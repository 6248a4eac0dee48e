/* Small things that are done with files in many places. */
#ifndef BLASD_BASE_FILE_H
#define BLASD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes all of it, whatever a single call takes. 0, or -1 with errno. */
int blasd_write_all(int fd, const void *bytes, size_t len);
/* A file of at most `most` bytes, ended by a zero; NULL with errno where there is none, it is
 * longer or no plain file. New: freed by the caller. */
char *blasd_file_read(const char *path, size_t most, size_t *len);
/* Puts these bytes in place of what is at `path`, on the disk whole or not at all. 0, or -1 with
 * errno. */
int blasd_file_replace(const char *path, const void *bytes, size_t len);

/* Findings kept from one start to the next: DIR/NAME has a line that says all they depend on
 * (`key`, of which control characters are made blanks), when they were written, and what they are.
 * They hold for 30 days: clocks, cooling and neighbours change without a version. */
#define BLASD_KEPT_KEY 2048
/* NULL where there are none, or not under this key. New: freed by the caller. */
char *blasd_kept_load(const char *dir, const char *name, const char *key, size_t most);
/* Makes `dir`, not what is above it, where it is missing. `sync`: waits for the disk, so that it
 * outlasts a machine that goes down next. 0, or -1 with errno. */
int blasd_kept_save(const char *dir, const char *name, const char *key, const char *text,
                    bool sync);

/* The value after "KEY : " in a file of such lines, as /proc/cpuinfo is, or "" where there is none.
 * A key may end in the tab behind it. */
void blasd_file_value(const char *path, const char *key, char *value, size_t size);

#endif
