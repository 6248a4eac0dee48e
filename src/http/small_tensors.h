/* The bytes of small tensors that jobs refer to, as a loop has read them lately. Private to it.
 *
 * A tensor does not change and no id is given twice, so they hold for good; whether the tensor is
 * still kept, and whose it is, the queue says each time. Read next: references.c. */
#ifndef BLASD_HTTP_SMALL_TENSORS_H
#define BLASD_HTTP_SMALL_TENSORS_H

#include "core/reference.h"
#include "store/store.h"

#define HTTP_SMALL_TENSOR (16 * 1024) /* bytes; one that has more is not small */

struct http_small_tensor;

/* Zeroed: none were read. */
struct http_small_tensors {
    struct http_small_tensor *of; /* owned; NULL before the first */
};

/* The bytes of a tensor that is kept, borrowed until the next call; NULL where it is not small, or
 * cannot be read here and now: whoever runs the job will tell why. */
const void *http_small_tensor(struct http_small_tensors *small, struct blasd_store *store,
                              const struct blasd_stored_tensor *tensor);
void http_small_tensors_release(struct http_small_tensors *small);

#endif
