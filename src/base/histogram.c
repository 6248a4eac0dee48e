/* Counting into buckets. */
#include "base/histogram.h"

const int64_t blasd_bounds_us[BLASD_BUCKETS] = {
    10,    50,    100,    250,    500,     1000,    2500,     5000,
    10000, 25000, 100000, 250000, 1000000, 5000000, 30000000, 300000000};
const int64_t blasd_bounds_jobs[BLASD_BUCKETS] = {1,   2,   4,   8,   16,   32,   64,   96,
                                                  128, 192, 256, 512, 1024, 2048, 4096, 16384};

void blasd_histogram_add(struct blasd_histogram *histogram, const int64_t *bounds, int64_t value) {
    int bucket = 0;
    if (value < 0) value = 0;
    while (bucket < BLASD_BUCKETS && value > bounds[bucket]) bucket++;
    atomic_fetch_add_explicit(&histogram->buckets[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, (uint64_t)value, memory_order_relaxed);
}

void blasd_histogram_sum(const struct blasd_histogram *from, struct blasd_histogram_sum *into) {
    for (int i = 0; i <= BLASD_BUCKETS; i++)
        into->buckets[i] += atomic_load_explicit(&from->buckets[i], memory_order_relaxed);
    into->sum += atomic_load_explicit(&from->sum, memory_order_relaxed);
}
