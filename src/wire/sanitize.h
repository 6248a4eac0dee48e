/* What may be shown of a user's text in an error message. Read next: tensor_writer.h. */
#ifndef BLASD_WIRE_SANITIZE_H
#define BLASD_WIRE_SANITIZE_H

#include <stddef.h>

#define BLASD_SANITIZED_MAX 44 /* bytes that hold what blasd_sanitize writes, with its zero */

/* Writes the first 40 bytes of `text` into `out` and returns it, "..." behind them where there are
 * more; what is not printable ASCII shows as '?'. */
const char *blasd_sanitize(char out[BLASD_SANITIZED_MAX], const char *text, size_t len);

/* Whether `a` was likely meant to be `b`: equal without regard to case, or up to two slips of the
 * keyboard in a word that is long enough for them. */
int blasd_similar(const char *a, size_t len, const char *b);

#endif
