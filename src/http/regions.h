/* Regions of system shared memory that clients on this machine have registered, by their names.
 *
 * A region is a part of a POSIX shared memory object, which is opened once, when it is registered,
 * and read and written, never mapped: a client that cuts it harms itself alone. It is its
 * registrant's: only a caller of the same tenant and user may use it, see it and unregister it, and
 * only of an object that this user may read. Which user calls is asked of the system, not of the
 * caller.
 * All loops share the table. Read next: inference.c. */
#ifndef BLASD_HTTP_REGIONS_H
#define BLASD_HTTP_REGIONS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "core/principal.h"
#include "oip/oip.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct http_exchange;
struct http_region;

/* Whose a region is. */
struct http_region_owner {
    uid_t uid;
    char tenant[BLASD_TENANT_MAX];
};

struct http_regions {
    pthread_mutex_t lock;
    struct blasd_list all; /* owned */
    int count;
};

void http_regions_init(struct http_regions *regions);
void http_regions_release(struct http_regions *regions);
/* Who asks: the tenant, and the user whose process is at the other end; caller_unknown where that
 * is no process of this machine, cancelled where it has left. */
int http_regions_caller(const struct http_exchange *exchange, struct http_region_owner *ret,
                        struct blasd_err *err);
/* Registers `bytes` from `offset` on of the object `key` as `name`; one owner may have `most`, all
 * together HTTP_REGION_OWNERS times as many. invalid_field, no_space. */
#define HTTP_REGION_OWNERS 16
int http_regions_add(struct http_regions *regions, const char *name, const char *key,
                     uint64_t offset, uint64_t bytes, uint64_t most,
                     const struct http_region_owner *caller, struct blasd_err *err);
/* Unregisters the caller's region of that name, or all of the caller's where it is NULL. What is
 * under way with it goes on. A name that is not there is no error. */
void http_regions_remove(struct http_regions *regions, const char *name,
                         const struct http_region_owner *caller);
/* Opens the caller's region for one request: *fd is to be closed, and the place begins at *at of
 * it. invalid_field where there is no such region, or the place is not inside it, or cannot be
 * written. */
int http_regions_open(struct http_regions *regions, const struct blasd_oip_place *place, bool write,
                      const struct http_region_owner *caller, int *fd, uint64_t *at,
                      struct blasd_err *err);
/* Writes the list of the caller's regions, or the one named, as JSON. As blasd_oip_problem. */
int http_regions_write(struct http_regions *regions, const char *name,
                       const struct http_region_owner *caller, struct blasd_buf *out);
bool http_regions_has(struct http_regions *regions, const char *name,
                      const struct http_region_owner *caller);

#endif
