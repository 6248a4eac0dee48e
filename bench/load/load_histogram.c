/* Latencies in buckets of 0.8 % width, so that the tail is exact enough and adding one costs
 * nothing. Knows nothing of requests. Read next: load.h. */
#include "load.h"

static unsigned bucket_of(uint64_t ns) {
    unsigned shift;
    if (ns < (1u << LOAD_SUB_BITS)) return (unsigned)ns;
    shift = 63u - (unsigned)__builtin_clzll(ns) - LOAD_SUB_BITS;
    return (shift << LOAD_SUB_BITS) + (unsigned)(ns >> shift);
}

/* The middle of a bucket. */
static double value_of(unsigned bucket) {
    unsigned shift;
    if (bucket < (2u << LOAD_SUB_BITS)) return bucket;
    shift = (bucket >> LOAD_SUB_BITS) - 1;
    return ((double)(bucket - (shift << LOAD_SUB_BITS)) + 0.5) * (double)(1ull << shift);
}

void load_histogram_add(struct load_histogram *histogram, int64_t ns) {
    if (ns < 0) ns = 0;
    histogram->buckets[bucket_of((uint64_t)ns)]++;
    histogram->count++;
    histogram->sum_ns += (double)ns;
    if (ns > histogram->most_ns) histogram->most_ns = ns;
}

void load_histogram_merge(struct load_histogram *into, const struct load_histogram *from) {
    for (int i = 0; i < LOAD_BUCKETS; i++) into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum_ns += from->sum_ns;
    if (from->most_ns > into->most_ns) into->most_ns = from->most_ns;
}

static double quantile_ms(const struct load_histogram *histogram, double q) {
    double rank = q * (double)histogram->count;
    uint64_t seen = 0;
    for (unsigned i = 0; i < LOAD_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= rank) {
            double ns = value_of(i);
            return (ns < (double)histogram->most_ns ? ns : (double)histogram->most_ns) * 1e-6;
        }
    }
    return 0;
}

json_t *load_histogram_json(const struct load_histogram *histogram) {
    double mean = histogram->count > 0 ? histogram->sum_ns / (double)histogram->count * 1e-6 : 0;
    return json_pack("{s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "count", (json_int_t)histogram->count, "mean",
                     mean, "p50", quantile_ms(histogram, 0.5), "p90", quantile_ms(histogram, 0.9),
                     "p99", quantile_ms(histogram, 0.99), "p999", quantile_ms(histogram, 0.999),
                     "max", (double)histogram->most_ns * 1e-6);
}
