/* Histograms for GET /metrics: counts by fixed bounds, and the sum. Read next: metric_table.h. */
#ifndef BLASD_BASE_HISTOGRAM_H
#define BLASD_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define BLASD_BUCKETS 16

/* Upper bounds, ascending: of times in microseconds, and of jobs in a batch. */
extern const int64_t blasd_bounds_us[BLASD_BUCKETS];
extern const int64_t blasd_bounds_jobs[BLASD_BUCKETS];

struct blasd_histogram {
    _Atomic uint64_t buckets[BLASD_BUCKETS + 1]; /* the last one: beyond all bounds */
    _Atomic uint64_t sum;                        /* in the unit of the bounds */
};

/* Adds one value; below 0 it counts as 0. Any thread may, and so may any reader read meanwhile. */
void blasd_histogram_add(struct blasd_histogram *histogram, const int64_t *bounds, int64_t value);
/* Adds up the histogram `from` into numbers that nobody else writes. */
struct blasd_histogram_sum {
    uint64_t buckets[BLASD_BUCKETS + 1], sum;
};
void blasd_histogram_sum(const struct blasd_histogram *from, struct blasd_histogram_sum *into);

#endif
