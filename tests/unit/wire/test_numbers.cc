/* Runs of numbers, read against strtod and written against std::to_chars.
 *
 *     test_numbers          samples of some millions
 *     test_numbers floats   every float there is, which takes minutes */
#include "wire/number.h"

#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <setjmp.h>
#include <stddef.h>
extern "C" {
#include <cmocka.h>
}

namespace {

uint64_t state = 88172645463325252u;

uint64_t random_bits() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Numbers of `text` read in one run; *rest is what is left of it. The copy ends where it may be
 * looked at no more, so that the sanitizer sees a look beyond. */
std::vector<double> read_run(const std::string &text, std::string *rest, size_t most = 8) {
    char *copy = (char *)std::calloc(1, text.size() + BLASD_NUMBER_SLACK);
    std::vector<double> values(most);
    size_t n;
    std::memcpy(copy, text.data(), text.size());
    const char *end = copy + text.size();
    const char *next = blasd_numbers_read(copy, end, values.data(), most, &n);
    rest->assign(next, (size_t)(end - next));
    std::free(copy);
    values.resize(n);
    return values;
}

bool same(double a, double b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

void expect_as_strtod(const std::string &text) {
    std::string rest;
    double wanted = std::strtod(text.c_str(), nullptr);
    std::vector<double> got = read_run(text, &rest);
    if (got.size() != 1 || !same(got[0], wanted) || !rest.empty())
        print_error("%s read as %a, not %a; rest '%s'\n", text.c_str(), got.empty() ? 0 : got[0],
                    wanted, rest.c_str());
    assert_int_equal(got.size(), 1);
    assert_true(same(got[0], wanted));
    assert_string_equal(rest.c_str(), "");
    /* what follows changes nothing */
    got = read_run(text + ",7]", &rest);
    assert_int_equal(got.size(), 2);
    assert_true(same(got[0], wanted) && got[1] == 7);
    assert_string_equal(rest.c_str(), "]");
}

void expect_both_signs(const std::string &text) {
    expect_as_strtod(text);
    expect_as_strtod("-" + text);
}

std::string digits(size_t n) {
    std::string text;
    while (text.size() < n) text += std::to_string(random_bits());
    text.resize(n);
    return text;
}

/* The shapes of numbers: any lengths before and behind the point, with and without exponent. */
void reads_random_texts(void **) {
    for (int i = 0; i < 150000; i++) {
        uint64_t how = random_bits();
        std::string text = how % 4 == 0 ? "0" : digits(1 + (how >> 8) % (how % 32 == 1 ? 40 : 12));
        if (text.size() > 1 && text[0] == '0') text[0] = '1';
        if (how & 0x40) text += "." + digits(1 + (how >> 16) % (how % 16 == 2 ? 60 : 20));
        if (how & 0x80) {
            text += (how >> 24) & 1 ? "e" : "E";
            text += (how >> 25) % 3 == 0 ? "+" : (how >> 25) % 3 == 1 ? "-" : "";
            text += std::to_string((how >> 32) % ((how >> 30) & 1 ? 330 : 25));
        }
        if (how & 0x8000000) text = "-" + text;
        expect_as_strtod(text);
    }
}

void reads_the_edges(void **) {
    static const char *const texts[] = {"0",
                                        "0.0",
                                        "0e5",
                                        "0.000000000000000000000000000001",
                                        "0e-999999",
                                        "0e999999",
                                        "9007199254740991",
                                        "9007199254740992",
                                        "9007199254740993",
                                        "9007199254740995",
                                        "9007199254740993.00000000000000000000000000000001",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "99999999999999999999",
                                        "9999999999999999999",
                                        "0.9999999999999999999",
                                        "0.99999999999999999999",
                                        "1e22",
                                        "1e23",
                                        "8.5e22",
                                        "1e-22",
                                        "1e-23",
                                        "999999999999999e22",
                                        "1000000000000000e22",
                                        "999999999999999e-22",
                                        "123456789012345678e-292",
                                        "123456789012345678e-293",
                                        "1e-292",
                                        "1e-293",
                                        "1234567890123456789e288",
                                        "1234567890123456789e289",
                                        "1e288",
                                        "1e289",
                                        "1e308",
                                        "1.7976931348623157e308",
                                        "1.7976931348623158e308",
                                        "1.7976931348623159e308",
                                        "1e309",
                                        "1e9999",
                                        "1e99999",
                                        "1e18446744073709551616",
                                        "1e-18446744073709551616",
                                        "2.2250738585072014e-308",
                                        "2.2250738585072011e-308",
                                        "2.2250738585072009e-308",
                                        "5e-324",
                                        "4.9406564584124654e-324",
                                        "2.4703282292062327e-324",
                                        "2.4703282292062328e-324",
                                        "1e-400",
                                        "0.1e1",
                                        "1E5",
                                        "1e05",
                                        "1e0005",
                                        "1e-0005",
                                        "1e+0000000005",
                                        "100000000000000000000000",
                                        "0.5000000000000000000",
                                        "1.0000000000000000000",
                                        "12345678",
                                        "123456789",
                                        "1234567.8",
                                        "12345678.12345678",
                                        "1.12345678",
                                        "1.1234567",
                                        "1.1234567812345678",
                                        "0.12345678123456781234"};
    for (const char *text : texts) expect_both_signs(text);
    /* long ones: 800 digits, and a place of the point and an exponent that make up for each other
     */
    for (size_t n : {17, 18, 19, 20, 21, 30, 100, 767, 768, 769, 800, 5000}) {
        expect_both_signs("0." + digits(n));
        expect_both_signs("1" + digits(n));
        expect_both_signs("1" + std::string(n, '0') + "e-" + std::to_string(n));
        expect_both_signs("0." + std::string(n, '0') + "1e" + std::to_string(n));
        expect_both_signs("9007199254740993." + std::string(n, '0'));
        expect_both_signs("9007199254740993." + std::string(n, '0') + "1");
        expect_both_signs("9007199254740992." + std::string(n, '9'));
    }
}

/* Texts halfway between two doubles in full, a little more and a little less, and their beginnings
 * of 15 to 20 digits. */
void reads_halfway_cases(void **) {
    for (int i = 0; i < 6000; i++) {
        uint64_t bits = random_bits() & ~(UINT64_C(1) << 63);
        char text[1400];
        double value, next;
        if (i % 4 == 0) bits &= UINT64_C(0x000fffffffffffff);                        /* subnormal */
        if (i % 4 == 1) bits = bits % (UINT64_C(80) << 52) + (UINT64_C(1000) << 52); /* common */
        if (i % 4 == 2) bits &= ~UINT64_C(0xffffffffff); /* few digits: ties that are short */
        std::memcpy(&value, &bits, sizeof value);
        next = std::nextafter(value, INFINITY);
        if (!std::isfinite(next)) continue;
        long double half = ((long double)value + (long double)next) / 2; /* exact: 64 bits */
        int n = std::snprintf(text, sizeof text, "%.1100Le", half);
        std::string all(text, (size_t)n), exponent = all.substr(all.find('e'));
        std::string body = all.substr(0, all.find('e'));
        body.erase(body.find_last_not_of('0') + 1);
        if (body.back() == '.') body += "0";
        expect_both_signs(body + exponent);
        expect_both_signs(body + "000000000000000000000000000000000001" + exponent);
        std::string less = body;
        if (less.back() > '0') less.back()--;
        expect_both_signs(less + "9999999999999999999999" + exponent);
        for (size_t cut = 15; cut <= 20 && cut + 1 < body.size(); cut++)
            expect_as_strtod(body.substr(0, cut + 1) + exponent);
    }
}

void reads_runs(void **) {
    std::string rest;
    std::vector<double> got = read_run("1 ,\t-2.5\r\n, 3e2 ] ,4", &rest);
    assert_int_equal(got.size(), 3);
    assert_true(got[0] == 1 && got[1] == -2.5 && got[2] == 300);
    assert_string_equal(rest.c_str(), " ] ,4");
    got = read_run("1,2,3,4,5", &rest, 3);
    assert_int_equal(got.size(), 3);
    assert_string_equal(rest.c_str(), ",4,5");
    /* it ends just behind the last number that is one */
    static const char *const stops[] = {",",   ",]",  ",\"NaN\"", ",[1]",      ",-",  ",01",
                                        ",+1", ",.5", ",1.",      ",1e",       ",-x", ",,3",
                                        " 3",  "x",   "}",        ",-Infinity"};
    for (const char *stop : stops) {
        got = read_run(std::string("12.25") + stop, &rest);
        assert_int_equal(got.size(), 1);
        assert_true(got[0] == 12.25);
        assert_string_equal(rest.c_str(), stop);
    }
    static const char *const none[] = {"",   "-",     "01",   "-01",  "00",  "+1",
                                       ".5", "1.",    "1.e5", "1e",   "1e+", "-",
                                       "x",  "\"1\"", "[1]",  "1.5e", "nan", "inf"};
    for (const char *text : none) {
        assert_int_equal(read_run(text, &rest).size(), 0);
        assert_string_equal(rest.c_str(), text);
    }
}

/* Up to three digits with every byte behind them: what blasd_number_read says of the first is what
 * the run begins with. */
void reads_digits_whatever_follows(void **) {
    for (int value = 0; value < 1000; value++) {
        for (int c = 0; c < 256; c++) {
            std::string text = std::to_string(value) + (char)c + "5]", rest;
            std::vector<double> got = read_run(text, &rest, 1);
            double wanted = 0;
            const char *end = text.data() + text.size();
            const char *next = blasd_number_read(text.data(), end, &wanted);
            assert_int_equal(got.size(), next == nullptr ? 0 : 1);
            if (next != nullptr) assert_true(same(got[0], wanted));
            assert_string_equal(rest.c_str(), next == nullptr ? text.c_str() : next);
        }
    }
}

/* What std::to_chars writes; for floats beyond 2^24 and doubles beyond 2^53 it is to_chars. */
template <typename real> bool written_as_to_chars(real value, char *(*write)(char *, real)) {
    char got[BLASD_NUMBER_MAX], wanted[64];
    size_t n = (size_t)(write(got, value) - got);
    size_t m = (size_t)(std::to_chars(wanted, wanted + sizeof wanted, value).ptr - wanted);
    if (n == m && std::memcmp(got, wanted, n) == 0) return true;
    print_error("%.*s in place of %.*s\n", (int)n, got, (int)m, wanted);
    return false;
}

void expect_double(double value) {
    char text[BLASD_NUMBER_MAX + 1 + BLASD_NUMBER_SLACK];
    double back;
    size_t n;
    assert_true(written_as_to_chars(value, blasd_number_write));
    char *end = blasd_number_write(text, value);
    std::memset(end, 0, BLASD_NUMBER_SLACK);
    assert_ptr_equal(blasd_numbers_read(text, end, &back, 1, &n), end);
    assert_true(same(back, value));
}

void writes_doubles(void **) {
    for (int e = -1074; e < 1024; e++) {
        double power = std::ldexp(1.0, e);
        expect_double(power);
        expect_double(std::nextafter(power, INFINITY) < INFINITY ? std::nextafter(power, INFINITY)
                                                                 : 1);
        expect_double(std::nextafter(power, 0));
    }
    for (int e = -323; e < 309; e++) {
        double power = std::strtod(("1e" + std::to_string(e)).c_str(), nullptr);
        for (int i = 1; i < 10; i++) {
            if (!std::isfinite(power * i)) continue;
            expect_double(power * i);
            expect_double(-std::nextafter(power * i, 0));
        }
    }
    for (int i = 0; i < 1000000; i++) {
        uint64_t bits = random_bits();
        double value;
        std::memcpy(&value, &bits, sizeof value);
        if (std::isfinite(value)) expect_double(value);
        expect_double((double)(int64_t)bits * 0x1p-62);
        if (i % 4 != 0) continue;
        bits &= UINT64_C(0x800fffffffffffff) >> (i % 48);
        std::memcpy(&value, &bits, sizeof value);
        expect_double(value); /* subnormal */
        expect_double((double)(int64_t)(random_bits() >> 30) / 100);
        expect_double((double)(float)((double)(int64_t)random_bits() * 0x1p-62));
        expect_double((double)(random_bits() >> (random_bits() % 64)));
        expect_double(std::ldexp((double)(random_bits() >> 20), (int)(random_bits() % 60) - 59));
    }
}

uint32_t float_step = 1021;

void writes_floats(void **) {
    uint64_t bits = 0;
    for (; bits < UINT64_C(1) << 32; bits += float_step) {
        uint32_t word = (uint32_t)bits;
        float value;
        std::memcpy(&value, &word, sizeof value);
        if (!std::isfinite(value)) continue;
        if (!written_as_to_chars(value, blasd_number_write_float)) fail();
    }
}

template <typename integer> void expect_integer(integer value, char *(*write)(char *, integer)) {
    char got[BLASD_NUMBER_MAX + 1];
    *write(got, value) = '\0';
    assert_string_equal(got, std::to_string(value).c_str());
}

void writes_integers(void **) {
    for (uint64_t power = 1; power < UINT64_C(10000000000000000000); power *= 10) {
        for (uint64_t value : {power - 1, power, power + 1, 2 * power}) {
            expect_integer(value, blasd_number_write_uint);
            expect_integer((int64_t)value, blasd_number_write_int);
            expect_integer(-(int64_t)value, blasd_number_write_int);
        }
    }
    expect_integer(UINT64_MAX, blasd_number_write_uint);
    expect_integer(INT64_MIN, blasd_number_write_int);
    for (int i = 0; i < 200000; i++) {
        uint64_t value = random_bits() >> (random_bits() % 64);
        expect_integer(value, blasd_number_write_uint);
        expect_integer((int64_t)value, blasd_number_write_int);
    }
}

/* A run of either kind, from memory of odd alignment, up to each that is written otherwise. */
template <typename real>
void expect_runs(char *(*write)(char *, const void *, size_t, size_t *), real large) {
    const real values[] = {0, 1, real(-2.5), 100000, real(0.1), real(1e-7), 123456};
    const char *const wanted = "0,1,-2.5,1e+05,0.1,1e-07,123456,";
    const size_t count = sizeof values / sizeof *values;
    unsigned char bytes[sizeof values + 1 + sizeof(real)];
    char text[(count + 1) * (BLASD_NUMBER_MAX + 1)];
    size_t n;
    for (real stop : {real(NAN), real(INFINITY), real(-INFINITY), real(-0.0), large, -large}) {
        std::memcpy(bytes + 1, values, sizeof values);
        std::memcpy(bytes + 1 + sizeof values, &stop, sizeof stop);
        *write(text, bytes + 1, count + 1, &n) = '\0';
        /* 100000 is left to to_chars: the run may end before it, and goes on behind it */
        std::string all = text;
        size_t at = n;
        if (at == 3) {
            *blasd_number_write(text, 100000) = '\0';
            all += std::string(text) + ",";
            at++;
            *write(text, bytes + 1 + at * sizeof(real), count + 1 - at, &n) = '\0';
            all += text;
            at += n;
        }
        assert_string_equal(all.c_str(), wanted);
        assert_int_equal(at, count);
    }
}

void writes_runs(void **) {
    expect_runs<double>(blasd_numbers_write, 9007199254740992.0);
    expect_runs<float>(blasd_numbers_write_float, 16777216.0f);
}

} // namespace

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_random_texts),
        cmocka_unit_test(reads_the_edges),
        cmocka_unit_test(reads_halfway_cases),
        cmocka_unit_test(reads_runs),
        cmocka_unit_test(reads_digits_whatever_follows),
        cmocka_unit_test(writes_doubles),
        cmocka_unit_test(writes_floats),
        cmocka_unit_test(writes_integers),
        cmocka_unit_test(writes_runs),
    };
    if (argc > 1 && std::strcmp(argv[1], "floats") == 0) float_step = 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
