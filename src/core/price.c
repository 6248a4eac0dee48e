/* Prices as operators write them, and the sum of two products. */
#include "core/price.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_S 3600.0
#define KWH_J 3.6e6
#define MOST 1e12

static int bad(struct blasd_err *err, const char *item, size_t len, const char *why) {
    return blasd_fail(err, BLASD_E_invalid_field, "price",
                      "'%.*s' %s; a price is written like "
                      "cpu=0.05/h,cuda=2.5/h,kwh=0.30,currency=EUR",
                      (int)(len < 40 ? len : 40), item, why);
}

static bool is_named(const char *item, size_t name, const char *want) {
    return strlen(want) == name && memcmp(item, want, name) == 0;
}

/* The number at `text`, from 0, and where it ends; false where there is none. */
static bool read_amount(const char *text, double *ret, const char **end) {
    char *after;
    if ((*text < '0' || *text > '9') && *text != '.') return false;
    *ret = strtod(text, &after);
    *end = after;
    return after != text && *ret <= MOST;
}

static int read_device(const char *item, size_t len, double *slot, const char *value,
                       struct blasd_err *err) {
    const char *unit, *end = item + len;
    double amount;
    if (!read_amount(value, &amount, &unit)) return bad(err, item, len, "has no amount");
    if (end - unit != 2 || unit[0] != '/' || (unit[1] != 'h' && unit[1] != 's'))
        return bad(err, item, len, "does not say for what: end it with /h or /s");
    *slot = unit[1] == 'h' ? amount : amount * HOUR_S;
    return 0;
}

/* Whether an item of that name was there before, of those up to `item`. */
static bool was_there(const char *text, const char *item, size_t name) {
    for (; text < item; text += strcspn(text, ",") + 1)
        if (strncmp(text, item, name + 1) == 0) return true; /* up to the '=' */
    return false;
}

/* One item, "name=value" of `len` bytes. */
static int read_item(const char *item, size_t len, struct blasd_prices *prices,
                     struct blasd_err *err) {
    const char *equals = memchr(item, '=', len), *value, *end;
    size_t name;
    if (equals == NULL) return bad(err, item, len, "has no '='");
    name = (size_t)(equals - item);
    value = equals + 1;
    for (int c = BLASD_DEVICE_CPU; c < BLASD_DEVICE_CLASS_COUNT; c++)
        if (is_named(item, name, blasd_device_class_names[c])) {
            prices->priced[c] = true;
            return read_device(item, len, &prices->per_hour[c], value, err);
        }
    if (is_named(item, name, "kwh"))
        return read_amount(value, &prices->per_kwh, &end) && end == item + len
                   ? 0
                   : bad(err, item, len, "has no amount");
    if (!is_named(item, name, "currency")) return bad(err, item, len, "is the price of nothing");
    if (item + len - value != 3) return bad(err, item, len, "is not three capitals");
    for (int i = 0; i < 3; i++) {
        if (value[i] < 'A' || value[i] > 'Z') return bad(err, item, len, "is not three capitals");
        prices->currency[i] = value[i];
    }
    return 0;
}

int blasd_prices_read(const char *text, struct blasd_prices *ret, struct blasd_err *err) {
    struct blasd_prices prices = {.currency = ""};
    for (const char *item = text;; item++) {
        size_t len = strcspn(item, ",");
        int code = read_item(item, len, &prices, err);
        if (code == 0 && was_there(text, item, strcspn(item, "=")))
            code = bad(err, item, len, "is there twice");
        if (code != 0) return code;
        item += len;
        if (*item == '\0') break;
    }
    if (prices.currency[0] == '\0') return bad(err, text, strlen(text), "names no currency");
    *ret = prices;
    return 0;
}

bool blasd_price_of(const struct blasd_prices *prices, const struct blasd_usage *usage,
                    double *amount) {
    double per_hour = prices->per_hour[usage->device];
    bool energy = prices->per_kwh > 0 && usage->energy_joules > 0;
    *amount = usage->device_s / HOUR_S * per_hour;
    if (energy) *amount += usage->energy_joules / KWH_J * prices->per_kwh;
    return (prices->priced[usage->device] || energy) && isfinite(*amount);
}
