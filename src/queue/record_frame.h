/* A record frame: the bytes of a job (its frame, or its record) behind their length and the job's
 * id. What batch entries, records of batch entries and messages are made of; see
 * functions/contract.lua. */
#ifndef BLASD_QUEUE_RECORD_FRAME_H
#define BLASD_QUEUE_RECORD_FRAME_H

#include "base/buf.h"
#include "base/id.h"

#include <stdint.h>

#define BLASD_RECORD_FRAME_HEAD ((size_t)4 + BLASD_ID_LEN)

/* Of the record frame at `at`, of which the head is there: how many bytes follow the head. */
static inline size_t blasd_record_frame_len(const char *at) {
    const unsigned char *head = (const unsigned char *)at;
    return (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
}

/* Appends the record frame; 0, or -1 where there is no room for all of it. `len` has 32 bits. */
__attribute__((warn_unused_result)) static inline int blasd_record_frame_add(struct blasd_buf *out,
                                                                             const char *id,
                                                                             const void *bytes,
                                                                             size_t len) {
    const unsigned char size[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                                   (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    if (blasd_buf_reserve(out, BLASD_RECORD_FRAME_HEAD + len) != 0) return -1;
    if (blasd_buf_add(out, size, sizeof size) != 0) return -1;
    if (blasd_buf_add(out, id, BLASD_ID_LEN) != 0) return -1;
    return blasd_buf_add(out, bytes, len);
}

#endif
