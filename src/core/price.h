/* What the operator asks for a device's time and for energy, and what a job then costs. Pure.
 * Read next: record.h, whose figures it is made from. */
#ifndef BLASD_CORE_PRICE_H
#define BLASD_CORE_PRICE_H

#include "core/job.h"

/* A plain value. Zeroed: nothing has a price. */
struct blasd_prices {
    double per_hour[BLASD_DEVICE_CLASS_COUNT]; /* of a device of the class */
    bool priced[BLASD_DEVICE_CLASS_COUNT];     /* it has one, which may be 0 */
    double per_kwh;                            /* 0: none */
    char currency[4];                          /* "EUR"; "" where there are no prices */
};

/* Reads "cpu=0.05/h,cuda=2.5/h,kwh=0.30,currency=EUR": a price of each class, for an hour (/h) or a
 * second (/s), and of energy, each of which may be left out, and the currency, three capitals,
 * which may not. invalid_field where it is not so. */
int blasd_prices_read(const char *text, struct blasd_prices *ret, struct blasd_err *err);

/* What a job took. */
struct blasd_usage {
    enum blasd_device_class device;
    double device_s;      /* its share of the batch it ran in */
    double energy_joules; /* likewise; 0: not known */
};

/* The sum in *amount. False where neither the class nor the energy has a price. */
bool blasd_price_of(const struct blasd_prices *prices, const struct blasd_usage *usage,
                    double *amount);

#endif
