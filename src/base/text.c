/* Joining texts and writing whole numbers. */
#include "base/text.h"

#include <string.h>

static size_t append(char *out, size_t room, const char *text) {
    size_t len = text == NULL ? 0 : strlen(text);
    if (len > room) len = room;
    if (len > 0) memcpy(out, text, len);
    return len;
}

size_t blasd_text_join(char *out, size_t size, const char *a, const char *b, const char *c) {
    size_t room = size - 1, len = append(out, room, a);
    len += append(out + len, room - len, b);
    len += append(out + len, room - len, c);
    out[len] = '\0';
    return len;
}

size_t blasd_text_number(char out[BLASD_TEXT_NUMBER], uint64_t number) {
    char digits[BLASD_TEXT_NUMBER];
    size_t len = 0;
    do {
        digits[len++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < len; i++) out[i] = digits[len - 1 - i];
    out[len] = '\0';
    return len;
}

const char *blasd_input_field(char field[BLASD_INPUT_FIELD], const char *name) {
    blasd_text_join(field, BLASD_INPUT_FIELD, "inputs.", name, NULL);
    return field;
}
