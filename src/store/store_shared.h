/* Files that clients on the same machine write into the directory of a store, to hand them in.
 *
 * Such a file is called NAME.put, NAME being 32 digits of 0-9a-f. It is its client's; a job that is
 * handed it gives it a second name, ID.in, which is a blob like any other. The bytes are never
 * copied, and the client may hand the same file in again. Its client holds a lock on it
 * (flock, LOCK_SH) for as long as it wants to keep it: one that nobody holds is swept.
 * So that lock cannot tell which of the names are in use: each has a lock of its own, on one byte
 * of the file that its letters tell (fcntl, of the open file), held until Redis refers to the name.
 * Once handed in a file carries the sticky bit: it is never recycled, for its client may still
 * have it mapped. Internal to the store; knows nothing of what is in the file. */
#ifndef BLASD_STORE_SHARED_H
#define BLASD_STORE_SHARED_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define STORE_SHARED_NAME 32 /* digits */

/* Whether `name` is NAME.put. */
bool store_shared_name_valid(const char *name);
/* Checks that the file `given`.put is an ordinary file of this user and (`whole`) has all its
 * pages, locks it (shared) and gives it the second name `name`, which is locked before it is there.
 * Returns a descriptor for reading, *bytes its size; or a negative code as of blasd_blob_adopt, and
 * then `name` is not there. */
int store_shared_open(int dir_fd, const char *given, const char *name, bool whole, uint64_t *bytes,
                      struct blasd_err *err);
/* Locks one name, ID.in, of a file that was handed in: F_RDLCK while it is made a job's, F_WRLCK to
 * take it away. False where somebody else has it. */
bool store_shared_lock_name(int fd, const char *name, short how);
/* Removes the file `name`, NAME.put, unless somebody holds it; true where it did. */
bool store_shared_sweep(int dir_fd, const char *name);

#endif
