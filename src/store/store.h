/* The blob store: the tensors that are too large for Redis.
 *
 * There is one for a deployment. Its kind is recorded in Redis:
 *   dir    files in one directory, on tmpfs as a rule; every process shares the machine or the file
 *          system. A blob is written and mapped in place, and never copied.
 *   redis  chunked values; for machines that share nothing else. Locally a blob is then a memfd.
 * A blob is named after its job: "ID.in" (inputs) or "ID.out" (outputs), or after its tensor:
 * "ID.in"; one that many jobs share is a segment, "NAME.seg" (segment.h). Whoever writes one holds
 * a lock on it until Redis refers to it, a segment's owner for as long as it lives, so a sweep
 * removes by reference and never by age. A client on the same machine may write a file there itself
 * and hand it in (store_shared.h). Read next: segment.h; worker_queue.h and front_queue.h, which
 * move blobs of the kind redis. */
#ifndef BLASD_STORE_H
#define BLASD_STORE_H

#include "base/err.h"
#include "base/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum blasd_store_kind { BLASD_STORE_DIR, BLASD_STORE_REDIS };

#define BLASD_BLOB_NAME (BLASD_ID_LEN + 5) /* "ID.in", "ID.out" and a zero */

struct blasd_store;

/* How much room the files of removed blobs may take that are kept for the next ones (store_pool.h);
 * `bytes` 0: a sixteenth of the store. To be called before threads share the store; without it, and
 * where the directory is not on tmpfs, nothing is kept. */
void blasd_store_recycle(struct blasd_store *store, uint64_t bytes);
/* Lets go of what has been kept for long; to be called about once a second. */
void blasd_store_trim(struct blasd_store *store);

/* For who copies to and from mappings by itself, a device: memory where blobs lie, which shows the
 * same pages until it is said to go. Not all mappings are told: none of files that are, or have
 * been, cut. */
struct blasd_store_watch {
    void (*comes)(void *arg, void *memory, uint64_t bytes, bool writable);
    void (*goes)(void *arg, void *memory);
    void *arg;
};
/* To be called while one thread has the store; NULL: nobody watches any more. */
void blasd_store_watch(struct blasd_store *store, const struct blasd_store_watch *watch);

/* One blob, open. Zero it before use; blasd_blob_close takes it half-built or closed. */
struct blasd_blob {
    struct blasd_store *store; /* borrowed */
    char name[BLASD_BLOB_NAME];
    int fd;         /* owned; -1 when closed */
    uint64_t bytes; /* allocated; of a recycled blob they hold what an earlier job left there */
    void *data;     /* the mapping, once blasd_blob_map was called; owned */
    uint64_t mapped, inode; /* the store's: bytes of the mapping, and the file behind it */
    bool writable;          /* this process made it */
    bool recycled;          /* it was one of the files kept */
    bool told;              /* the mapping, to who watches */
    bool cut; /* by somebody else, while it was mapped: the mapping is for no one else to use */
};

/* Opens the store that `spec` names: "dir:/path" (made with mode 0700 where it is missing; refused
 * where others could read it or own it) or "redis". A dir holds a file `.store` with a random token
 * that Redis records too, so that two processes never believe different directories to be one.
 * New: free with blasd_store_free. */
int blasd_store_open(const char *spec, struct blasd_store **ret, struct blasd_err *err);
void blasd_store_free(struct blasd_store *store); /* takes NULL */
enum blasd_store_kind blasd_store_kind(const struct blasd_store *store);
/* "redis", or "dir:TOKEN": what Redis records. Borrowed. */
const char *blasd_store_identity(const struct blasd_store *store);
/* The directory's path, or NULL for the kind redis. Borrowed. */
const char *blasd_store_path(const struct blasd_store *store);
/* Bytes free (with what is only kept for the next blobs), and in all, where the blobs lie. */
void blasd_store_space(const struct blasd_store *store, uint64_t *free_bytes, uint64_t *all_bytes);

/* Makes a new empty blob, locked. no_space or internal_error. */
int blasd_blob_create(struct blasd_store *store, const char *name, struct blasd_blob *blob,
                      struct blasd_err *err);
/* The same for a blob of about `want` bytes: it may be one of the files kept, so that blob->bytes
 * is not 0. Every byte of it that anybody may read is the caller's to write. */
int blasd_blob_obtain(struct blasd_store *store, const char *name, uint64_t want,
                      struct blasd_blob *blob, struct blasd_err *err);
/* Allocates it to `bytes` in all (posix_fallocate: a full tmpfs is an error here and not a SIGBUS
 * later). no_space, or cancelled where it is for a batch that is not wanted any more (wanted.h); it
 * may have grown then. */
int blasd_blob_grow(struct blasd_blob *blob, uint64_t bytes, struct blasd_err *err);
/* It is to have `bytes` and no more: grows, or gives back what a recycled file has too much of. */
int blasd_blob_fit(struct blasd_blob *blob, uint64_t bytes, struct blasd_err *err);
int blasd_blob_write(struct blasd_blob *blob, uint64_t offset, const void *bytes, size_t len,
                     struct blasd_err *err);
/* Maps the whole blob, readable and (where this process made it) writable. */
int blasd_blob_map(struct blasd_blob *blob, struct blasd_err *err);
/* Unmaps it, so that it can grow again. */
void blasd_blob_unmap(struct blasd_blob *blob);
/* Opens an existing blob of the kind dir for reading; inputs_lost where it is not there or shorter
 * than `bytes`. */
int blasd_blob_open(struct blasd_store *store, const char *name, uint64_t bytes,
                    struct blasd_blob *blob, struct blasd_err *err);
/* Makes a file that a client wrote into the directory, and calls `given` (store_shared.h), a blob
 * as well: it gets the name `name` beside its own, and is opened for blasd_blob_read alone, locked
 * (shared) until it is closed. It has all its bytes now; the client may yet cut it.
 * malformed_query where `given` is no name of such a file, body_file_refused where the file is none
 * to be taken, no_space. */
int blasd_blob_adopt(struct blasd_store *store, const char *given, const char *name,
                     struct blasd_blob *blob, struct blasd_err *err);
/* Copies bytes out of it; body_file_refused where it has been cut. */
int blasd_blob_read(const struct blasd_blob *blob, uint64_t offset, void *bytes, size_t len,
                    struct blasd_err *err);
/* Whether its name still is this file's: of the kind dir it may have been removed, and made anew.
 */
bool blasd_blob_is_named(const struct blasd_blob *blob);
/* Unmaps, closes, unlocks. */
void blasd_blob_close(struct blasd_blob *blob);
/* Opens what there is of that name in a store of the kind dir, whoever's it is, to remove it later;
 * false: nothing. Locked, unless its maker still has it. */
bool blasd_blob_find(struct blasd_store *store, const char *name, struct blasd_blob *blob);
/* Removes the blob, where the name still is its, as blasd_store_remove does, and closes it; of the
 * kind redis it is only closed. */
void blasd_blob_remove(struct blasd_blob *blob);
/* Removes a blob of the kind dir by name; no error where it is not there. A large file is kept for
 * another blob, unless somebody still has it open. */
void blasd_store_remove(struct blasd_store *store, const char *name);

/* Whether there is a blob of the kind dir of that name. */
bool blasd_store_has(const struct blasd_store *store, const char *name);

/* Removes blobs of the kind dir that nobody holds and `referenced` does not know, and clients'
 * files that nobody holds. `referenced` gets
 * up to 256 names at a time and sets keep[i]; a negative return stops the sweep and removes nothing
 * of that group. Returns the number removed or a negative code. */
int blasd_store_sweep(struct blasd_store *store,
                      int (*referenced)(void *arg, const char (*names)[BLASD_BLOB_NAME], int count,
                                        bool *keep),
                      void *arg, struct blasd_err *err);

#endif
