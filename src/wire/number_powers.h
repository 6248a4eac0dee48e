/* Powers of ten to 128 bits, shared by the two ways of numbers. C++ alone includes this.
 * Read next: number_read.cc, number_write.cc. */
#ifndef BLASD_WIRE_NUMBER_POWERS_H
#define BLASD_WIRE_NUMBER_POWERS_H

#include <cstddef>
#include <cstdint>

namespace blasd {

constexpr int LEAST_POWER = -292, MOST_POWER = 324;

/* The first 128 bits of a power of ten, its highest bit set, plus one in the last place: above the
 * exact value, by one unit at the most. `high` alone is the first 64 bits, rounded down. */
struct power {
    uint64_t high, low;
};

/* 10^LEAST_POWER, … 10^MOST_POWER. */
struct power_table {
    power at[MOST_POWER - LEAST_POWER + 1];
};
extern const power_table powers __attribute__((visibility("hidden")));

inline const power &power_of_ten(int k) {
    return powers.at[(size_t)(k - LEAST_POWER)];
}

/* floor(log2(10^k)) for every k of the table. */
constexpr int log2_of_10_to(int k) {
    return (k * 1741647) >> 19;
}

} // namespace blasd

#endif
