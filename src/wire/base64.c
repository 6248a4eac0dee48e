/* Base64 by a table of six-bit values. */
#include "wire/base64.h"

#include <stdint.h>
#include <string.h>

/* The value of a letter plus 1; 0: not of the alphabet. */
static const unsigned char values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

size_t blasd_base64_decode(const char *text, size_t groups, unsigned char *out) {
    const unsigned char *in = (const unsigned char *)text;
    for (size_t i = 0; i < groups; i++, in += 4, out += 3) {
        unsigned a = values[in[0]], b = values[in[1]], c = values[in[2]], d = values[in[3]];
        uint32_t bits;
        if (a == 0 || b == 0 || c == 0 || d == 0) return i;
        bits = (a - 1) << 18 | (b - 1) << 12 | (c - 1) << 6 | (d - 1);
        out[0] = (unsigned char)(bits >> 16);
        out[1] = (unsigned char)(bits >> 8);
        out[2] = (unsigned char)bits;
    }
    return groups;
}

size_t blasd_base64_decode_last(const char text[4], unsigned char out[3]) {
    char whole[4];
    size_t bytes = text[3] != '=' ? 3 : text[2] != '=' ? 2 : 1;
    memcpy(whole, text, 4);
    if (bytes < 3) whole[3] = 'A';
    if (bytes < 2) whole[2] = 'A';
    if (blasd_base64_decode(whole, 1, out) != 1) return 0;
    /* bits that the padding leaves over must be 0, so that one text has one meaning */
    for (size_t i = bytes; i < 3; i++)
        if (out[i] != 0) return 0;
    return bytes;
}
