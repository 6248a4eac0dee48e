/* Prices as operators write them, and what a job costs by them. */
#include "base/err.h"
#include "core/price.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct blasd_prices prices;
static struct blasd_err err;

static void what_is_written(void **state) {
    (void)state;
    assert_int_equal(
        blasd_prices_read("cpu=0.05/h,cuda=0.001/s,kwh=.3,currency=EUR", &prices, &err), 0);
    assert_true(prices.per_hour[BLASD_DEVICE_CPU] == 0.05);
    assert_true(fabs(prices.per_hour[BLASD_DEVICE_CUDA] - 3.6) < 1e-12);
    assert_true(prices.per_kwh == 0.3);
    assert_string_equal(prices.currency, "EUR");
    assert_int_equal(blasd_prices_read("currency=USD,cuda=2/h", &prices, &err), 0);
    assert_true(prices.per_hour[BLASD_DEVICE_CPU] == 0);
    assert_int_equal(blasd_prices_read("kwh=0,currency=CHF", &prices, &err), 0);
}

static void what_is_no_price(void **state) {
    static const char *const wrong[][2] = {{"", "has no '='"},
                                           {"cpu", "has no '='"},
                                           {"cpu=1/h", "names no currency"},
                                           {"cpu=1,currency=EUR", "/h or /s"},
                                           {"cpu=1/d,currency=EUR", "/h or /s"},
                                           {"cpu=1/hour,currency=EUR", "/h or /s"},
                                           {"cpu=,currency=EUR", "no amount"},
                                           {"cpu=-1/h,currency=EUR", "no amount"},
                                           {"cpu=nan/h,currency=EUR", "no amount"},
                                           {"cpu=inf/h,currency=EUR", "no amount"},
                                           {"cpu=1e999/h,currency=EUR", "no amount"},
                                           {"kwh=0.3/h,currency=EUR", "no amount"},
                                           {"any=1/h,currency=EUR", "price of nothing"},
                                           {"tpu=1/h,currency=EUR", "price of nothing"},
                                           {"cpu=1/h,,currency=EUR", "has no '='"},
                                           {"cpu=1/h,currency=EUR,", "has no '='"},
                                           {"cpu=1/h,cpu=1/h,currency=EUR", "is there twice"},
                                           {"cpu=0/h,cpu=2/s,currency=EUR", "is there twice"},
                                           {"kwh=1,currency=EUR,kwh=2", "is there twice"},
                                           {"currency=EUR,currency=USD", "is there twice"},
                                           {"currency=EURO", "three capitals"},
                                           {"currency=eur", "three capitals"},
                                           {"currency=", "three capitals"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(blasd_prices_read(wrong[i][0], &prices, &err),
                         -(int)BLASD_E_invalid_field);
        if (strstr(err.detail, wrong[i][1]) == NULL) fail_msg("%s: %s", wrong[i][0], err.detail);
    }
}

static void what_a_job_costs(void **state) {
    struct blasd_usage usage = {BLASD_DEVICE_CUDA, 7200, 0};
    double amount;
    (void)state;
    assert_int_equal(blasd_prices_read("cuda=2.5/h,kwh=0.30,currency=EUR", &prices, &err), 0);
    assert_true(blasd_price_of(&prices, &usage, &amount));
    assert_true(fabs(amount - 5) < 1e-12);
    usage.energy_joules = 3.6e6;
    assert_true(blasd_price_of(&prices, &usage, &amount));
    assert_true(fabs(amount - 5.3) < 1e-12);
    usage.device = BLASD_DEVICE_CPU; /* has no price, but what it draws has */
    assert_true(blasd_price_of(&prices, &usage, &amount));
    assert_true(fabs(amount - 0.3) < 1e-12);
    usage.energy_joules = 0;
    assert_false(blasd_price_of(&prices, &usage, &amount));
    assert_int_equal(blasd_prices_read("cpu=0/h,currency=EUR", &prices, &err), 0);
    assert_true(blasd_price_of(&prices, &usage, &amount)); /* 0 is a price, too */
    assert_true(amount == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written),
        cmocka_unit_test(what_is_no_price),
        cmocka_unit_test(what_a_job_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
