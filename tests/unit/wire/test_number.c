/* Numbers of JSON, read and written. */
#include "wire/number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *read_text(const char *text, double *ret) {
    /* a copy of its own size, so that a look beyond its end is seen by the sanitizer */
    size_t len = strlen(text);
    char *copy = malloc(len + 1);
    const char *next;
    memcpy(copy, text, len);
    copy[len] = '#';
    next = blasd_number_read(copy, copy + len, ret);
    next = next == NULL ? NULL : text + (next - copy);
    free(copy);
    return next;
}

static void expect_number(const char *text, double wanted) {
    double value = 1234;
    const char *next = read_text(text, &value);
    if (next != text + strlen(text)) print_error("not read to its end: %s\n", text);
    assert_ptr_equal(next, text + strlen(text));
    if (memcmp(&value, &wanted, sizeof value) != 0) print_error("%s read as %a\n", text, value);
    assert_memory_equal(&value, &wanted, sizeof value);
}

static void test_read(void **state) {
    (void)state;
    expect_number("0", 0.0);
    expect_number("-0", -0.0);
    expect_number("-0.0", -0.0);
    expect_number("0e5", 0.0);
    expect_number("1", 1.0);
    expect_number("-17", -17.0);
    expect_number("123456789012345", 123456789012345.0);
    expect_number("1234567890123456", 1234567890123456.0);
    expect_number("9007199254740993", 9007199254740992.0); /* tie, to even */
    expect_number("9007199254740993.0000000000000000000000001", 9007199254740994.0);
    expect_number("18446744073709551616", 18446744073709551616.0);
    expect_number("0.1", 0.1);
    expect_number("3.141592653589793", 3.141592653589793);
    expect_number("1e3", 1e3);
    expect_number("1E+3", 1e3);
    expect_number("25e-1", 2.5);
    expect_number("2.2250738585072011e-308", 2.2250738585072011e-308);
    expect_number("5e-324", 5e-324);
    expect_number("2.4703282292062327e-324", 0.0);
    expect_number("2.4703282292062328e-324", 5e-324);
    expect_number("1.7976931348623157e308", 1.7976931348623157e308);
}

static void test_read_beyond_range(void **state) {
    char text[1300];
    (void)state;
    expect_number("1e309", (double)INFINITY);
    expect_number("-1e309", -(double)INFINITY);
    expect_number("1.7976931348623159e308", (double)INFINITY);
    expect_number("1e-400", 0.0);
    expect_number("-1e-400", -0.0);
    expect_number("0e999999999999999999999", 0.0);
    expect_number("1e999999999999999999999", (double)INFINITY);
    expect_number("1e-999999999999999999999", 0.0);
    /* a small exponent behind a point far away, both ways */
    memset(text, '0', sizeof text);
    memcpy(text, "0.", 2);
    strcpy(text + 402, "1e402");
    expect_number(text, 10.0);
    strcpy(text + 402, "1e10");
    expect_number(text, 0.0);
    memset(text, '0', sizeof text);
    text[0] = '1';
    strcpy(text + 400, "e-399");
    expect_number(text, 1.0);
    strcpy(text + 400, "e-10");
    expect_number(text, (double)INFINITY);
}

static void test_read_malformed(void **state) {
    static const char *const texts[] = {"",     "-",   "+1",  "01",   "-01", "00",        ".5",
                                        "-.5",  "1.",  "1.e", "1.e5", "1e",  "1e+",       "1e-",
                                        "1.5e", "inf", "nan", "-inf", "NaN", "-nan(ind)", "00.5",
                                        "e5",   "- 1", " 1",  "01.5"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double value;
        if (read_text(texts[i], &value) != NULL) print_error("read: %s\n", texts[i]);
        assert_null(read_text(texts[i], &value));
    }
}

static void test_read_stops(void **state) {
    static const struct {
        const char *text;
        int len;
        double value;
    } cases[] = {{"1,2", 1, 1},     {"1.5]", 3, 1.5}, {"2.5.5", 3, 2.5}, {"1e5e5", 3, 1e5},
                 {"0x10", 1, 0},    {"12abc", 2, 12}, {"1.5f", 3, 1.5},  {"7-3", 1, 7},
                 {"1e5.5", 3, 1e5}, {"3 4", 1, 3},    {"1_000", 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double value;
        const char *next = read_text(cases[i].text, &value);
        assert_ptr_equal(next, cases[i].text + cases[i].len);
        assert_true(value == cases[i].value);
    }
}

static void expect_int(const char *text, enum blasd_number_int kind, uint64_t magnitude,
                       bool negative) {
    const char *next;
    uint64_t got = 0;
    bool sign = false;
    assert_int_equal(blasd_number_read_int(text, text + strlen(text), &next, &got, &sign), kind);
    assert_ptr_equal(next, text + strlen(text));
    if (kind != BLASD_INT_OK) return;
    assert_true(got == magnitude);
    assert_int_equal(sign, negative);
}

static void test_read_int(void **state) {
    const char *next;
    uint64_t magnitude;
    bool negative;
    (void)state;
    expect_int("0", BLASD_INT_OK, 0, false);
    expect_int("-0", BLASD_INT_OK, 0, true);
    expect_int("9223372036854775807", BLASD_INT_OK, INT64_MAX, false);
    expect_int("-9223372036854775808", BLASD_INT_OK, UINT64_C(9223372036854775808), true);
    expect_int("18446744073709551615", BLASD_INT_OK, UINT64_MAX, false);
    expect_int("18446744073709551616", BLASD_INT_RANGE, 0, false);
    expect_int("99999999999999999999999", BLASD_INT_RANGE, 0, false);
    expect_int("1.0", BLASD_INT_LITERAL, 0, false);
    expect_int("1e2", BLASD_INT_LITERAL, 0, false);
    blasd_number_read_int("01", &"01"[2], &next, &magnitude, &negative);
    assert_null(next);
}

/* Every finite double that is written reads back the same, and so does every float. */
static void test_round_trip(void **state) {
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        char text[BLASD_NUMBER_MAX + 1] = "";
        char *end;
        double value, back;
        float single;
        uint32_t bits;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        memcpy(&value, &seed, sizeof value);
        if (isfinite(value)) {
            end = blasd_number_write(text, value);
            *end = '\0';
            assert_ptr_equal(blasd_number_read(text, end, &back), end);
            assert_memory_equal(&back, &value, sizeof value);
            assert_true(back == strtod(text, NULL));
        }
        bits = (uint32_t)(seed >> 16);
        memcpy(&single, &bits, sizeof single);
        if (isfinite(single)) {
            float single_back;
            end = blasd_number_write_float(text, single);
            assert_ptr_equal(blasd_number_read(text, end, &back), end);
            single_back = (float)back;
            assert_memory_equal(&single_back, &single, sizeof single);
        }
    }
}

/* Short decimals take a way of their own: they must read as strtod reads them. */
static void test_short_decimals(void **state) {
    uint64_t seed = 2463534242u;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        char text[64];
        uint64_t whole, fraction;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        whole = (seed >> 4) % 1000000000;
        for (uint64_t cut = seed >> 60; cut > 6; cut--) whole /= 10;
        fraction = (seed * UINT64_C(0x9e3779b97f4a7c15)) >> 8;
        snprintf(text, sizeof text, "%s%llu.%0*llu", seed & 1 ? "-" : "", (unsigned long long)whole,
                 (int)(seed >> 50) % 17 + 1, (unsigned long long)fraction);
        text[strlen(text) - (seed >> 20) % (strlen(text) - strcspn(text, ".") - 1)] = '\0';
        expect_number(text, strtod(text, NULL));
        strcat(text, ",");
        assert_int_equal(read_text(text, &(double){0}) - text, strlen(text) - 1);
    }
}

static void test_write(void **state) {
    char text[BLASD_NUMBER_MAX + 1];
    (void)state;
    *blasd_number_write(text, 0.1) = '\0';
    assert_string_equal(text, "0.1");
    *blasd_number_write(text, 22) = '\0';
    assert_string_equal(text, "22");
    *blasd_number_write(text, -2.2250738585072014e-308) = '\0';
    assert_string_equal(text, "-2.2250738585072014e-308");
    *blasd_number_write_float(text, 0.1f) = '\0';
    assert_string_equal(text, "0.1");
    *blasd_number_write_int(text, INT64_MIN) = '\0';
    assert_string_equal(text, "-9223372036854775808");
}

/* The digits of a text and its decimal exponent, without zeros at either end. */
static int digits_of(const char *text, const char *end, char digits[40], int *exponent) {
    int n = 0, after = 0;
    bool point = false;
    *exponent = 0;
    for (const char *p = text; p < end; p++) {
        if (*p == 'e') {
            *exponent = (int)strtol(p + 1, NULL, 10);
            break;
        }
        if (*p == '.') point = true;
        if (*p < '0' || *p > '9') continue;
        if (point) after++;
        if (n > 0 || *p != '0') digits[n++] = *p;
    }
    *exponent -= after;
    while (n > 0 && digits[n - 1] == '0') {
        n--;
        ++*exponent;
    }
    digits[n] = '\0';
    return n;
}

/* Held against printf: what reads back, with the fewest digits that do, and of those the nearest.
 * (Below a power of two there may be a shorter one that printf does not come upon.) */
static void expect_shortest(double value) {
    char text[BLASD_NUMBER_MAX + 1], wanted[40], got[40], longer[40];
    char *end = blasd_number_write(text, value);
    double back;
    int precision = 17, n, place, wanted_place;
    assert_true(end - text <= 24);
    *end = '\0';
    assert_ptr_equal(blasd_number_read(text, end, &back), end);
    assert_memory_equal(&back, &value, sizeof value);
    if (fabs(value) >= 0x1p53)
        return; /* whole numbers with all their digits, where that is short */
    do {
        snprintf(longer, sizeof longer, "%.*e", precision - 1, value);
        if (strtod(longer, NULL) != value) break;
        memcpy(wanted, longer, sizeof wanted);
    } while (--precision > 0);
    n = digits_of(text, end, got, &place);
    memcpy(longer, wanted, sizeof longer);
    if (n < digits_of(longer, longer + strlen(longer), wanted, &wanted_place)) return;
    if (strcmp(got, wanted) != 0 || place != wanted_place)
        print_error("%s in place of %s\n", text, longer);
    assert_string_equal(got, wanted);
    assert_int_equal(place, wanted_place);
}

static void test_shortest(void **state) {
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int e = -1074; e < 1024; e++) {
        double power = ldexp(1.0, e);
        expect_shortest(power);
        expect_shortest(nextafter(power, INFINITY));
        if (power > 4.95e-324) expect_shortest(nextafter(power, 0));
    }
    for (int e = -323; e < 309; e++) {
        char text[16];
        double power;
        snprintf(text, sizeof text, "1e%d", e);
        power = strtod(text, NULL);
        expect_shortest(power);
        expect_shortest(nextafter(power, INFINITY));
    }
    for (int i = 0; i < 200000; i++) {
        double value;
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        memcpy(&value, &seed, sizeof value);
        if (isfinite(value)) expect_shortest(value);
        expect_shortest((double)(seed >> 11) * 0x1p-53);       /* of 16 and 17 digits */
        expect_shortest((double)(int64_t)(seed >> 24) / 1000); /* of few decimals */
        expect_shortest(ldexp((double)(seed >> 20), (int)(seed % 40) - 39));
        expect_shortest((double)(seed >> (11 + seed % 40))); /* whole */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),           cmocka_unit_test(test_read_beyond_range),
        cmocka_unit_test(test_read_malformed), cmocka_unit_test(test_read_stops),
        cmocka_unit_test(test_read_int),       cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_short_decimals), cmocka_unit_test(test_write),
        cmocka_unit_test(test_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
