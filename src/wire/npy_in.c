/* The reader of .npy files: magic, version, header, then the elements, which go to the sink as
 * they come. Versions 1, 2 and 3 differ in the width of a length and in nothing that matters here.
 */
#include "wire/npy_in.h"

#include "wire/npy_header.h"

#include <stdio.h>
#include <string.h>

#define HEADER_MOST 65536 /* version 1 can have no more */

void blasd_npy_begin(struct blasd_npy_in *npy, const struct blasd_body *body,
                     struct blasd_arrival *to) {
    memset(npy, 0, sizeof *npy);
    npy->body = body;
    npy->to = to;
    snprintf(npy->field, sizeof npy->field, "inputs.%s", to->name);
    blasd_buf_init(&npy->header, HEADER_MOST + 16);
}

void blasd_npy_release(struct blasd_npy_in *npy) {
    blasd_buf_release(&npy->header);
}

/* Bytes in front of the header's text: magic, version and a length of 2 or 4 bytes. 0: the version
 * has not come yet. */
static size_t front_len(const struct blasd_npy_in *npy) {
    if (npy->header.len < BLASD_NPY_MAGIC_LEN + 2) return 0;
    return BLASD_NPY_MAGIC_LEN + 2 + (npy->header.data[BLASD_NPY_MAGIC_LEN] == 1 ? 2 : 4);
}

static int check_front(struct blasd_npy_in *npy, struct blasd_err *err) {
    const unsigned char *front = (const unsigned char *)npy->header.data;
    unsigned major = front[BLASD_NPY_MAGIC_LEN], minor = front[BLASD_NPY_MAGIC_LEN + 1];
    if (memcmp(front, BLASD_NPY_MAGIC, BLASD_NPY_MAGIC_LEN) != 0)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "%s does not begin as .npy files do", npy->field);
    if (major < 1 || major > 3 || minor != 0)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "version %u.%u of the format is not known; 1.0, 2.0 and 3.0 are", major,
                          minor);
    return 0;
}

static int read_length(struct blasd_npy_in *npy, size_t front, struct blasd_err *err) {
    const unsigned char *at = (const unsigned char *)npy->header.data + front;
    size_t len = front == BLASD_NPY_MAGIC_LEN + 4 ? (size_t)at[-2] | (size_t)at[-1] << 8
                                                  : (size_t)at[-4] | (size_t)at[-3] << 8 |
                                                        (size_t)at[-2] << 16 | (size_t)at[-1] << 24;
    if (len > HEADER_MOST)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "the header says it has %zu bytes; %d are more than it needs", len,
                          HEADER_MOST);
    npy->header_len = front + len;
    return 0;
}

/* Describes the tensor and makes room for it. */
static int read_header(struct blasd_npy_in *npy, struct blasd_err *err) {
    struct blasd_tensor *tensor = &npy->to->input.tensor;
    size_t front = front_len(npy);
    bool big_endian = false;
    uint64_t bytes, length = npy->body->content_length;
    int rc = blasd_npy_header(npy->header.data + front, npy->header_len - front, npy->field, tensor,
                              &big_endian, err);
    if (rc != 0) return rc;
    bytes = blasd_tensor_bytes(tensor);
    if (bytes > npy->body->limits->body_bytes)
        return blasd_fail(err, BLASD_E_body_too_large, npy->field,
                          "its header describes %llu bytes; the limit body_bytes is %llu",
                          (unsigned long long)bytes,
                          (unsigned long long)npy->body->limits->body_bytes);
    if (length != 0 && bytes > length)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "its header describes %llu bytes, and the whole request has %llu",
                          (unsigned long long)bytes, (unsigned long long)length);
    npy->landing_now = true;
    return blasd_landing_begin(&npy->landing, npy->body->arrivals->sink, npy->to, bytes, true,
                               big_endian, err);
}

/* Takes header bytes from the front of *bytes, as far as they go. */
static int feed_header(struct blasd_npy_in *npy, const char **bytes, size_t *len,
                       struct blasd_err *err) {
    while (*len > 0 && !npy->landing_now) {
        size_t front = front_len(npy), take;
        size_t want = npy->header_len != 0 ? npy->header_len
                      : front != 0         ? front
                                           : BLASD_NPY_MAGIC_LEN + 2;
        int rc;
        take = want - npy->header.len < *len ? want - npy->header.len : *len;
        if (blasd_buf_add(&npy->header, *bytes, take) != 0)
            return blasd_fail(err, BLASD_E_no_space, npy->field, "out of memory for the header");
        *bytes += take;
        *len -= take;
        if (npy->header.len < want) return 0;
        if (front == 0)
            rc = check_front(npy, err);
        else if (npy->header_len == 0)
            rc = read_length(npy, front, err);
        else
            rc = read_header(npy, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int blasd_npy_feed(struct blasd_npy_in *npy, const char *bytes, size_t len, struct blasd_err *err) {
    int rc = feed_header(npy, &bytes, &len, err);
    size_t take = len;
    if (rc != 0 || len == 0) return rc;
    /* what fits is looked at first, so that the error does not depend on how the body was cut */
    if (take > npy->landing.left) take = (size_t)npy->landing.left;
    if ((rc = blasd_landing_feed(&npy->landing, bytes, take, err)) != 0 || take == len) return rc;
    return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                      "%s has more bytes than its header describes", npy->field);
}

int blasd_npy_finish(struct blasd_npy_in *npy, struct blasd_err *err) {
    if (!npy->landing_now)
        return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                          "the .npy file of %s ends inside its header", npy->field);
    if (npy->landing.left == 0) return 0;
    return blasd_fail(err, BLASD_E_malformed_npy, npy->field,
                      "the .npy file of %s is truncated: it ends %llu bytes early", npy->field,
                      (unsigned long long)npy->landing.left);
}
