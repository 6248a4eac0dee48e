/* A user's text in error messages: made safe to print, and compared with the names there are. */
#include "wire/sanitize.h"

#include <string.h>

const char *blasd_sanitize(char out[BLASD_SANITIZED_MAX], const char *text, size_t len) {
    size_t shown = len > 40 ? 40 : len;
    for (size_t i = 0; i < shown; i++) out[i] = text[i] >= ' ' && text[i] < 0x7f ? text[i] : '?';
    memcpy(out + shown, "...", 4);
    if (shown == len) out[shown] = '\0';
    return out;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int blasd_similar(const char *a, size_t len, const char *b) {
    enum { most = 32 };
    size_t other = strlen(b), slips;
    size_t rows[3][most + 1]; /* of the table of distances: this one and the two above */
    if (len == 0 || len > most || other > most) return 0;
    for (size_t j = 0; j <= other; j++) rows[0][j] = j;
    for (size_t i = 1; i <= len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        char c = lower(a[i - 1]);
        row[0] = i;
        for (size_t j = 1; j <= other; j++) {
            size_t change = above[j - 1] + (c != lower(b[j - 1]));
            row[j] = above[j] < row[j - 1] ? above[j] + 1 : row[j - 1] + 1;
            if (change < row[j]) row[j] = change;
            if (i > 1 && j > 1 && c == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
                above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    slips = rows[len % 3][other];
    return slips == 0 || (slips <= 2 && other >= 3 * slips);
}
