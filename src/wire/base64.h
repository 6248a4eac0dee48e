/* Base64 (RFC 4648, the plain alphabet with padding), decoded in pieces. */
#ifndef BLASD_WIRE_BASE64_H
#define BLASD_WIRE_BASE64_H

#include <stddef.h>

/* Decodes `groups` groups of four letters without padding into 3 bytes each. Returns the number of
 * groups that were good: less than `groups` where a letter is not of the alphabet. */
size_t blasd_base64_decode(const char *text, size_t groups, unsigned char *out);
/* Decodes the last group, which may end in = or ==. Returns the number of bytes, or 0 where it is
 * not well formed. */
size_t blasd_base64_decode_last(const char text[4], unsigned char out[3]);

#endif
