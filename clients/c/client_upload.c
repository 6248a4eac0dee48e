/* A request body as libcurl asks for it: piece by piece, out of the arrays where they lie. */
#include "clients/c/internal.h"

#include <stdio.h>
#include <string.h>

/* Copies what lies at `sent` of a region that starts at `from`; 0 where it lies elsewhere. */
static size_t copy_region(const struct blasd_upload *upload, uint64_t from, const void *bytes,
                          uint64_t len, char *out, size_t room) {
    uint64_t at = upload->sent - from;
    if (upload->sent < from || at >= len) return 0;
    if (room > len - at) room = (size_t)(len - at);
    memcpy(out, (const char *)bytes + at, room);
    return room;
}

size_t blasd_upload_read(char *out, size_t size, size_t count, void *arg) {
    struct blasd_upload *upload = arg;
    size_t room = size * count, n;
    uint64_t from = upload->header_len;
    if (upload->sent >= upload->total) return 0;
    n = copy_region(upload, 0, upload->header, upload->header_len, out, room);
    for (int i = 0; n == 0 && i < upload->count; i++) {
        const struct blasd_array *array = &upload->arrays[i];
        uint64_t len = (uint64_t)blasd_array_bytes(array); /* the header was made of it */
        n = copy_region(upload, from, array->data, len, out, room);
        from += len;
    }
    upload->sent += n;
    return n > 0 ? n : CURL_READFUNC_ABORT; /* it asked for nothing: its memory has run out */
}

/* libcurl rewinds when it sends a body again on a fresh connection. */
int blasd_upload_seek(void *arg, curl_off_t offset, int origin) {
    struct blasd_upload *upload = arg;
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    upload->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}
