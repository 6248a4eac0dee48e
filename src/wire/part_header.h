/* The headers of one part of a multipart body, and the boundary in a Content-Type. */
#ifndef BLASD_WIRE_PART_HEADER_H
#define BLASD_WIRE_PART_HEADER_H

#include "base/err.h"

#include <stddef.h>

struct blasd_part_header {
    char name[64]; /* cut where longer: longer than any name there is */
    bool is_file;  /* it has a file name */
};

/* Reads the lines of a part's headers, CR LF at the end of each. malformed_multipart. */
int blasd_part_header_read(const char *text, size_t len, struct blasd_part_header *ret,
                           struct blasd_err *err);

/* Finds the parameter `name` behind the first ';' of a header's value, "form-data; name=x", and
 * copies it into `value`, cut to size - 1 bytes with a zero behind. *whole is its full length.
 * False where it is not there or not well formed. */
bool blasd_header_param(const char *text, size_t len, const char *name, char *value, size_t size,
                        size_t *whole);

/* Whether the media type in front of any ';' is `name`; NULL is none. */
bool blasd_media_type_is(const char *type, const char *name);

#endif
