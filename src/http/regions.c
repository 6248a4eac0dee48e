/* The table of regions. */
#include "http/regions.h"

#include "base/text.h"
#include "http/exchange.h"
#include "http/peer.h"
#include "http/timeouts.h"
#include "wire/document.h"
#include "wire/sanitize.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX 256
#define DIRECTORY "/dev/shm/" /* where POSIX shared memory objects lie on Linux */

struct http_region {
    struct blasd_list node; /* in regions->all */
    char name[BLASD_OIP_REGION_MAX], key[KEY_MAX];
    uint64_t offset, bytes;
    struct http_region_owner owner;
    int fd; /* owned */
    bool writable;
};

void http_regions_init(struct http_regions *regions) {
    *regions = (struct http_regions){.lock = PTHREAD_MUTEX_INITIALIZER};
    blasd_list_init(&regions->all);
}

static struct http_region *region_of(struct blasd_list *node) {
    return blasd_container_of(node, struct http_region, node);
}

static void region_free(struct http_region *region) {
    if (region->fd >= 0) close(region->fd);
    free(region);
}

void http_regions_release(struct http_regions *regions) {
    BLASD_LIST_EACH(node, &regions->all) region_free(region_of(node));
}

int http_regions_caller(const struct http_exchange *exchange, struct http_region_owner *ret,
                        struct blasd_err *err) {
    struct http_connection *of;
    if (exchange->connection == NULL) return blasd_fail(err, BLASD_E_cancelled, "", "it has left");
    if (exchange->request.forwarded) /* or whoever asks a proxy would be taken for its user */
        return blasd_fail(err, BLASD_E_caller_unknown, "",
                          "the request comes through a proxy, whose process is not the caller's");
    of = http_connection_of(exchange->connection);
    if (of != NULL && !of->user_known)
        of->user_known = http_peer_uid(http_connection_fd(exchange->connection), &of->user);
    if (of == NULL || !of->user_known)
        return blasd_fail(err, BLASD_E_caller_unknown, "",
                          "the system does not say whose process the caller is: it must run on "
                          "this machine, beside the service");
    ret->uid = of->user;
    memcpy(ret->tenant, exchange->caller.principal.tenant, sizeof ret->tenant);
    return 0;
}

/* --- one region --------------------------------------------------------------------------------
 */

/* What the modes of a file allow a user, who is taken to be in no group of it. */
static bool allows(const struct stat *info, uid_t uid, mode_t own, mode_t others) {
    return uid == 0 || (info->st_mode & (info->st_uid == uid ? own : others)) != 0;
}

/* Opens the object, where the caller may read it. */
static int open_object(struct http_region *region, struct blasd_err *err) {
    const char *key = region->key[0] == '/' ? region->key + 1 : region->key;
    char path[sizeof DIRECTORY + KEY_MAX], shown[BLASD_SANITIZED_MAX];
    struct stat info;
    bool plain = key[0] != '\0' && key[0] != '.' && strchr(key, '/') == NULL;
    blasd_sanitize(shown, region->key, strlen(region->key));
    if (!plain)
        return blasd_fail(err, BLASD_E_invalid_field, "key",
                          "'%s' is no name of a shared memory object: one name, behind a slash or "
                          "none",
                          shown);
    blasd_text_join(path, sizeof path, DIRECTORY, key, NULL);
    region->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    region->writable = region->fd >= 0;
    if (region->fd < 0) region->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    /* what the caller may not read is to it as if it were not there */
    if (region->fd < 0 || fstat(region->fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        !allows(&info, region->owner.uid, S_IRUSR, S_IROTH))
        return blasd_fail(err, BLASD_E_invalid_field, "key",
                          "there is no shared memory object '%s' that both the caller and the "
                          "service may read",
                          shown);
    region->writable = region->writable && allows(&info, region->owner.uid, S_IWUSR, S_IWOTH);
    if (region->offset <= (uint64_t)info.st_size &&
        region->bytes <= (uint64_t)info.st_size - region->offset)
        return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "byte_size",
                      "offset %llu and byte_size %llu go beyond the object '%s', which has %llu "
                      "bytes",
                      (unsigned long long)region->offset, (unsigned long long)region->bytes, shown,
                      (unsigned long long)info.st_size);
}

static bool owns(const struct http_region_owner *caller, const struct http_region *region) {
    return region->owner.uid == caller->uid && strcmp(region->owner.tenant, caller->tenant) == 0;
}

/* How many the caller has. Locked. */
static uint64_t count_of(const struct http_regions *regions,
                         const struct http_region_owner *caller) {
    uint64_t count = 0;
    BLASD_LIST_EACH(node, &regions->all) count += owns(caller, region_of(node));
    return count;
}

/* The caller's region of that name, or NULL. Locked. */
static const struct http_region *find(const struct http_regions *regions, const char *name,
                                      const struct http_region_owner *caller) {
    BLASD_LIST_EACH(node, &regions->all) {
        const struct http_region *region = region_of(node);
        if (owns(caller, region) && strcmp(region->name, name) == 0) return region;
    }
    return NULL;
}

/* --- the table ---------------------------------------------------------------------------------
 */

int http_regions_add(struct http_regions *regions, const char *name, const char *key,
                     uint64_t offset, uint64_t bytes, uint64_t most,
                     const struct http_region_owner *caller, struct blasd_err *err) {
    struct http_region *region;
    int rc;
    if (strlen(name) >= sizeof region->name)
        return blasd_fail(err, BLASD_E_invalid_field, "name",
                          "the region's name has at most %d bytes", BLASD_OIP_REGION_MAX - 1);
    if (strlen(key) >= sizeof region->key)
        return blasd_fail(err, BLASD_E_invalid_field, "key",
                          "the name of a shared memory object has at most %d bytes", KEY_MAX - 1);
    region = calloc(1, sizeof *region);
    if (region == NULL) return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
    blasd_text_join(region->name, sizeof region->name, name, NULL, NULL);
    blasd_text_join(region->key, sizeof region->key, key, NULL, NULL);
    region->offset = offset;
    region->bytes = bytes;
    region->owner = *caller;
    region->fd = -1;
    rc = open_object(region, err);
    pthread_mutex_lock(&regions->lock);
    if (rc == 0 && find(regions, name, caller) != NULL)
        rc = blasd_fail(err, BLASD_E_invalid_field, "name",
                        "a region of this name is registered already: unregister it first");
    else if (rc == 0 && count_of(regions, caller) >= most)
        rc = blasd_fail(err, BLASD_E_no_space, "",
                        "%llu regions are registered by this caller (limit shared_regions)",
                        (unsigned long long)most);
    else if (rc == 0 && (uint64_t)regions->count >= HTTP_REGION_OWNERS * most)
        rc = blasd_fail(err, BLASD_E_no_space, "",
                        "no more regions can be registered (limit shared_regions)");
    if (rc == 0) {
        blasd_list_add(&regions->all, &region->node);
        regions->count++;
    }
    pthread_mutex_unlock(&regions->lock);
    if (rc != 0) region_free(region);
    return rc;
}

void http_regions_remove(struct http_regions *regions, const char *name,
                         const struct http_region_owner *caller) {
    pthread_mutex_lock(&regions->lock);
    BLASD_LIST_EACH(node, &regions->all) {
        struct http_region *region = region_of(node);
        if (!owns(caller, region) || (name != NULL && strcmp(region->name, name) != 0)) continue;
        blasd_list_remove(node);
        regions->count--;
        region_free(region);
    }
    pthread_mutex_unlock(&regions->lock);
}

/* `at` NULL: there is no such region. Locked. */
static int open_place(const struct http_region *at, const struct blasd_oip_place *place, bool write,
                      int *fd, struct blasd_err *err) {
    char shown[BLASD_SANITIZED_MAX];
    blasd_sanitize(shown, place->region, strlen(place->region));
    if (at == NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "shared_memory_region",
                          "no region '%s' is registered by this caller", shown);
    if (place->offset > at->bytes || place->bytes > at->bytes - place->offset)
        return blasd_fail(err, BLASD_E_invalid_field, "shared_memory_byte_size",
                          "offset %llu and byte_size %llu go beyond the region '%s', which has "
                          "%llu bytes",
                          (unsigned long long)place->offset, (unsigned long long)place->bytes,
                          shown, (unsigned long long)at->bytes);
    if (write && !at->writable)
        return blasd_fail(err, BLASD_E_invalid_field, "shared_memory_region",
                          "the region '%s' cannot be written to", shown);
    *fd = fcntl(at->fd, F_DUPFD_CLOEXEC, 0);
    if (*fd >= 0) return 0;
    return blasd_fail(err, BLASD_E_no_space, "", "no descriptor is left: %s", strerror(errno));
}

int http_regions_open(struct http_regions *regions, const struct blasd_oip_place *place, bool write,
                      const struct http_region_owner *caller, int *fd, uint64_t *at,
                      struct blasd_err *err) {
    const struct http_region *found;
    int rc;
    pthread_mutex_lock(&regions->lock);
    found = find(regions, place->region, caller);
    rc = open_place(found, place, write, fd, err);
    if (found != NULL && rc == 0) *at = found->offset + place->offset;
    pthread_mutex_unlock(&regions->lock);
    return rc;
}

int http_regions_write(struct http_regions *regions, const char *name,
                       const struct http_region_owner *caller, struct blasd_buf *buf) {
    struct json_out out = {.buf = buf};
    size_t before = buf->len;
    bool first = true;
    json_out_put(&out, "[");
    pthread_mutex_lock(&regions->lock);
    BLASD_LIST_EACH(node, &regions->all) {
        const struct http_region *at = region_of(node);
        if (!owns(caller, at) || (name != NULL && strcmp(at->name, name) != 0)) continue;
        json_out_put(&out, "%r{\"name\":%s,\"key\":%s,\"offset\":%u,\"byte_size\":%u}",
                     first ? "" : ",", at->name, at->key, at->offset, at->bytes);
        first = false;
    }
    pthread_mutex_unlock(&regions->lock);
    json_out_put(&out, "]");
    return document_end(&out, before);
}

bool http_regions_has(struct http_regions *regions, const char *name,
                      const struct http_region_owner *caller) {
    bool has;
    pthread_mutex_lock(&regions->lock);
    has = find(regions, name, caller) != NULL;
    pthread_mutex_unlock(&regions->lock);
    return has;
}
