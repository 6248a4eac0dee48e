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

size_t blasd_utf8_len(const char *text, const char *end) {
    const unsigned char *p = (const unsigned char *)text;
    size_t left = (size_t)(end - text);
    unsigned char low = 0x80, high = 0xbf;
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len == 1) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4 || left < len) return 0;
    if (p[0] == 0xe0) low = 0xa0;
    if (p[0] == 0xed) high = 0x9f;
    if (p[0] == 0xf0) low = 0x90;
    if (p[0] == 0xf4) high = 0x8f;
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return len;
}

bool blasd_utf8_text(const char *text, size_t len) {
    const char *end = text + len;
    size_t n = 1;
    while (text < end && n != 0 && *text != '\0') text += n = blasd_utf8_len(text, end);
    return text == end;
}
