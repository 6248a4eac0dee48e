/* JSON text: escapes and numbers. */
#include "wire/json_out.h"

#include "base/clock.h"
#include "base/hex.h"
#include "base/text.h"
#include "wire/number.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static void escape_ascii(struct json_out *out, unsigned char c) {
    char text[6] = {'\\', (char)c};
    size_t len = 2;
    switch (c) {
    case '"':
    case '\\': break;
    case '\n': text[1] = 'n'; break;
    case '\r': text[1] = 'r'; break;
    case '\t': text[1] = 't'; break;
    default:
        text[1] = 'u';
        text[2] = text[3] = '0';
        blasd_hex_write(text + 4, c, 2);
        len = 6;
    }
    json_out_raw(out, text, len);
}

void json_out_escaped(struct json_out *out, const char *text, size_t len) {
    const unsigned char *p = (const unsigned char *)text, *end = p + len, *run = p;
    while (p < end) {
        size_t n = 1;
        bool plain = *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\';
        if (!plain && *p >= 0x80)
            plain = (n = blasd_utf8_len((const char *)p, (const char *)end)) != 0;
        if (plain) {
            p += n;
            continue;
        }
        json_out_raw(out, (const char *)run, (size_t)(p - run));
        if (*p < 0x80)
            escape_ascii(out, *p);
        else
            json_out_raw(out, "\xef\xbf\xbd", 3); /* U+FFFD */
        run = ++p;
    }
    json_out_raw(out, (const char *)run, (size_t)(p - run));
}

static char *write_text(char *p, const char *text, size_t len) {
    memcpy(p, text, len);
    return p + len;
}
#define WRITE(p, literal) write_text(p, literal, sizeof(literal) - 1)

/* What is written otherwise than by to_chars. Readers that take a number without point or exponent
 * for an integer would lose the sign of -0 and fail above 2^63, hence the ".0". */
static char *write_special(char *p, double value) {
    if (isnan(value)) return WRITE(p, "\"NaN\"");
    if (isinf(value)) return value > 0 ? WRITE(p, "\"Infinity\"") : WRITE(p, "\"-Infinity\"");
    return signbit(value) ? WRITE(p, "-0.0") : WRITE(p, "0");
}

static char *mark_real(char *start, char *p) {
    for (const char *q = start; q < p; q++)
        if (*q == '.' || *q == 'e') return p;
    return WRITE(p, ".0");
}

#define YEAR_10000_US INT64_C(253402300800000000)
#define INTEGER_LIMIT 9007199254740992.0 /* 2^53 */

char *json_write_double(char *p, double value) {
    double size = fabs(value);
    char *end;
    if (!(size > 0 && size <= 0x1.fffffffffffffp1023)) return write_special(p, value);
    end = blasd_number_write(p, value);
    return size < INTEGER_LIMIT ? end : mark_real(p, end);
}

char *json_write_float(char *p, float value) {
    float size = fabsf(value);
    char *end;
    if (!(size > 0 && size <= 0x1.fffffep127f)) return write_special(p, (double)value);
    end = blasd_number_write_float(p, value);
    return size < (float)INTEGER_LIMIT ? end : mark_real(p, end);
}

static char *write_ms(char *p, int64_t us) {
    uint64_t size = us < 0 ? -(uint64_t)us : (uint64_t)us;
    unsigned part = (unsigned)(size % 1000);
    if (us < 0) *p++ = '-';
    p = blasd_number_write_uint(p, size / 1000);
    if (part != 0) *p++ = '.';
    for (unsigned place = 100; part != 0; place /= 10) {
        *p++ = (char)('0' + part / place);
        part %= place;
    }
    return p;
}

static char *write_date(char *p, int64_t us) {
    if (us <= 0 || us >= YEAR_10000_US) return WRITE(p, "null");
    *p = '"';
    blasd_clock_text(us, p + 1);
    p += strlen(p);
    return WRITE(p, "\"");
}

static void put_string(struct json_out *out, const char *text) {
    json_out_raw(out, "\"", 1);
    json_out_escaped(out, text, strlen(text));
    json_out_raw(out, "\"", 1);
}

/* Writes the value of one conversion. Those that are no text are short. */
static void put_value(struct json_out *out, char kind, va_list *args) {
    char room[JSON_NUMBER_MOST], *p = room;
    const char *text;
    switch (kind) {
    case 's':
    case 'n':
        text = va_arg(*args, const char *);
        if (kind == 's' || text[0] != '\0') {
            put_string(out, text);
            return;
        }
        p = WRITE(p, "null");
        break;
    case 'r':
        text = va_arg(*args, const char *);
        json_out_raw(out, text, strlen(text));
        return;
    case 'b': p = va_arg(*args, int) != 0 ? WRITE(p, "true") : WRITE(p, "false"); break;
    case 'i': p = blasd_number_write_int(p, va_arg(*args, int64_t)); break;
    case 'u': p = blasd_number_write_uint(p, va_arg(*args, uint64_t)); break;
    case 'f': p = json_write_double(p, va_arg(*args, double)); break;
    case 'm': p = write_ms(p, va_arg(*args, int64_t)); break;
    case 't': p = write_date(p, va_arg(*args, int64_t)); break;
    default: out->failed = true;
    }
    json_out_raw(out, room, (size_t)(p - room));
}

void json_out_put(struct json_out *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    for (const char *at; *format != '\0'; format = at) {
        at = strchrnul(format, '%');
        json_out_raw(out, format, (size_t)(at - format));
        if (*at == '\0') break;
        put_value(out, at[1], &args);
        at += 2;
    }
    va_end(args);
}
