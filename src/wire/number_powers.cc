/* The table of powers of ten, made by the compiler. Read next: number_powers.h. */
#include "wire/number_powers.h"

namespace blasd {

namespace {

using wide = unsigned __int128;

/* A whole number of up to 1280 bits. */
struct big {
    static constexpr int WORDS = 20;
    uint64_t words[WORDS] = {};

    constexpr void times_ten() {
        uint64_t carry = 0;
        for (uint64_t &word : words) {
            wide product = (wide)word * 10 + carry;
            word = (uint64_t)product;
            carry = (uint64_t)(product >> 64);
        }
    }
    constexpr void by_ten() {
        uint64_t rest = 0;
        for (int i = WORDS - 1; i >= 0; i--) {
            wide part = (wide)rest << 64 | words[i];
            words[i] = (uint64_t)(part / 10);
            rest = (uint64_t)(part % 10);
        }
    }
    constexpr power top() const {
        int i = WORDS - 1, shift = 0;
        while (words[i] == 0) i--;
        while ((words[i] << shift >> 63) == 0) shift++;
        uint64_t part[3] = {words[i], i > 0 ? words[i - 1] : 0, i > 1 ? words[i - 2] : 0};
        uint64_t high = shift == 0 ? part[0] : part[0] << shift | part[1] >> (64 - shift);
        uint64_t low = shift == 0 ? part[1] : part[1] << shift | part[2] >> (64 - shift);
        return {low == UINT64_MAX ? high + 1 : high, low + 1};
    }
};

constexpr power_table make_powers() {
    power_table all{};
    big up, down;
    up.words[0] = 1;
    for (int k = 0; k <= MOST_POWER; k++, up.times_ten()) all.at[k - LEAST_POWER] = up.top();
    down.words[big::WORDS - 1] = UINT64_C(1) << 63;
    for (int k = -1; k >= LEAST_POWER; k--) {
        down.by_ten(); /* rounded down again and again is rounded down once */
        all.at[k - LEAST_POWER] = down.top();
    }
    return all;
}

constexpr bool high_is_rounded_down(const power_table &all) {
    for (const power &p : all.at)
        if (p.low == 0) return false;
    return true;
}

constexpr bool logarithms_fit(const power_table &all) {
    /* 10^k in [2^e, 2^(e+1)): multiplying by ten moves the highest bit by 3 or 4 */
    for (int k = LEAST_POWER; k < MOST_POWER; k++) {
        const power &p = all.at[k - LEAST_POWER];
        wide ten = (wide)p.high * 10 + (uint64_t)((wide)p.low * 10 >> 64);
        int step = (ten >> 67) != 0 ? 4 : 3;
        if (log2_of_10_to(k + 1) - log2_of_10_to(k) != step) return false;
    }
    return log2_of_10_to(0) == 0;
}

} // namespace

constexpr power_table powers = make_powers();
static_assert(high_is_rounded_down(powers), "adding one never carries into the high half");
static_assert(logarithms_fit(powers), "log2_of_10_to holds for the whole table");

} // namespace blasd
