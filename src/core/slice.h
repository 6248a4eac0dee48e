/* A place in a segment: where a payload of middling size lies that is neither beside its frame nor
 * a blob of its own. Plain data, stored in frames and records.
 * Read next: ../store/segment.h, which makes and reads them. */
#ifndef BLASD_CORE_SLICE_H
#define BLASD_CORE_SLICE_H

#include <stdbool.h>
#include <stdint.h>

#define BLASD_SEGMENT_NAME 16 /* hexadecimal digits */

struct blasd_slice {
    char segment[BLASD_SEGMENT_NAME + 1]; /* "": there is no slice */
    uint32_t generation;                  /* of the segment when the slice was written */
    uint64_t offset;                      /* a multiple of 64 */
};

static inline bool blasd_slice_given(const struct blasd_slice *slice) {
    return slice->segment[0] != '\0';
}

#endif
