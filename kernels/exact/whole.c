/* Whole numbers of any length, and elimination with them. Read next: whole.h. */
#include "kernels/exact/whole.h"

#include "core/wanted.h"

#include <stdlib.h>

static int64_t size_of(const struct blasd_whole *a) {
    return a->length < 0 ? -a->length : a->length;
}

static void settle(struct blasd_whole *ret, int64_t length, bool negative) {
    while (length > 0 && ret->limb[length - 1] == 0) length--;
    ret->length = negative ? -length : length;
}

/* to[0 .. n] += a[0 .. n - 1] * factor. */
static void add_times(uint64_t *restrict to, const uint64_t *restrict a, int64_t n,
                      uint64_t factor) {
    uint64_t carry = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned __int128 all = (unsigned __int128)a[i] * factor + to[i] + carry;
        to[i] = (uint64_t)all;
        carry = (uint64_t)(all >> 64);
    }
    to[n] += carry;
}

/* to[0 .. n - 1] -= a[0 .. n - 1] * factor; returns what is left to take from to[n]. */
static uint64_t take_times(uint64_t *restrict to, const uint64_t *restrict a, int64_t n,
                           uint64_t factor) {
    uint64_t carry = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned __int128 all = (unsigned __int128)a[i] * factor + carry;
        uint64_t low = (uint64_t)all;
        carry = (uint64_t)(all >> 64) + (to[i] < low);
        to[i] -= low;
    }
    return carry;
}

void blasd_whole_multiply(struct blasd_whole *ret, const struct blasd_whole *a,
                          const struct blasd_whole *b) {
    int64_t na = size_of(a), nb = size_of(b);
    memset(ret->limb, 0, (size_t)(na + nb) * sizeof *ret->limb);
    for (int64_t j = 0; j < nb && na > 0; j++) add_times(ret->limb + j, a->limb, na, b->limb[j]);
    settle(ret, nb > 0 && na > 0 ? na + nb : 0, (a->length < 0) != (b->length < 0));
}

static int compare(const uint64_t *a, int64_t na, const uint64_t *b, int64_t nb) {
    if (na != nb) return na < nb ? -1 : 1;
    for (int64_t i = na - 1; i >= 0; i--)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* ret = a - b of sizes, a being the larger. */
static void take(uint64_t *ret, const uint64_t *a, int64_t na, const uint64_t *b, int64_t nb) {
    uint64_t borrow = 0;
    for (int64_t i = 0; i < na; i++) {
        uint64_t less = i < nb ? b[i] : 0, from = a[i];
        ret[i] = from - less - borrow;
        borrow = from < less || (from == less && borrow != 0);
    }
}

void blasd_whole_subtract(struct blasd_whole *ret, const struct blasd_whole *a,
                          const struct blasd_whole *b) {
    int64_t na = size_of(a), nb = size_of(b), n = na > nb ? na : nb;
    bool minus_a = a->length < 0, minus_b = b->length < 0;
    uint64_t carry = 0;
    if (minus_a == minus_b) {
        bool below = compare(a->limb, na, b->limb, nb) < 0;
        if (below)
            take(ret->limb, b->limb, nb, a->limb, na);
        else
            take(ret->limb, a->limb, na, b->limb, nb);
        settle(ret, n, minus_a != below);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        unsigned __int128 all =
            (unsigned __int128)(i < na ? a->limb[i] : 0) + (i < nb ? b->limb[i] : 0) + carry;
        ret->limb[i] = (uint64_t)all;
        carry = (uint64_t)(all >> 64);
    }
    ret->limb[n] = carry;
    settle(ret, n + 1, minus_a);
}

/* What divides numbers of which it is a factor: without its zeros at the lower end. */
struct divisor {
    uint64_t *limb;
    int64_t length, limbs_off;
    int bits_off;
    uint64_t inverse; /* of its lowest limb, modulo 2^64 */
    bool negative;
};

static void shift_down(uint64_t *to, const uint64_t *from, int64_t n, int bits) {
    for (int64_t i = 0; i < n; i++)
        to[i] =
            bits == 0 ? from[i] : from[i] >> bits | (i + 1 < n ? from[i + 1] << (64 - bits) : 0);
}

static void divisor_of(const struct blasd_whole *a, struct divisor *ret) {
    struct blasd_whole left = {.limb = ret->limb};
    int64_t n = size_of(a);
    ret->limbs_off = 0;
    while (a->limb[ret->limbs_off] == 0) ret->limbs_off++;
    ret->bits_off = __builtin_ctzll(a->limb[ret->limbs_off]);
    shift_down(ret->limb, a->limb + ret->limbs_off, n - ret->limbs_off, ret->bits_off);
    settle(&left, n - ret->limbs_off, false);
    ret->length = left.length;
    ret->negative = a->length < 0;
    ret->inverse = 1;
    for (int i = 0; i < 6; i++) ret->inverse *= 2 - ret->limb[0] * ret->inverse;
}

/* a /= the divisor, from the lowest limb on. */
static void divide(struct blasd_whole *a, const struct divisor *by) {
    int64_t n = size_of(a) - by->limbs_off, quotient;
    if (a->length == 0) return;
    shift_down(a->limb, a->limb + by->limbs_off, n, by->bits_off);
    quotient = n - by->length + 1;
    for (int64_t i = 0; i < quotient; i++) {
        int64_t reach = quotient - i < by->length ? quotient - i : by->length;
        uint64_t digit = a->limb[i] * by->inverse;
        uint64_t carry = take_times(a->limb + i, by->limb, reach, digit);
        for (int64_t j = i + reach; j < quotient && carry != 0; j++) {
            uint64_t from = a->limb[j];
            a->limb[j] = from - carry;
            carry = from < carry;
        }
        a->limb[i] = digit;
    }
    settle(a, quotient, (a->length < 0) != by->negative);
}

void blasd_whole_load(const struct blasd_exact_number *number, int64_t unit,
                      struct blasd_whole *ret, int64_t room) {
    memset(ret->limb, 0, (size_t)room * sizeof *ret->limb);
    for (int l = 0; l < number->length; l++) /* what is below 1 has no digits */
        for (int half = 0; half < 2; half++) {
            uint64_t part = half == 0 ? number->limb[l] & 0xffffffffu : number->limb[l] >> 32;
            int64_t bit = number->exponent - unit + 64 * l + 32 * half;
            if (part == 0) continue;
            if (bit < 0) {
                part >>= -bit;
                bit = 0;
            }
            ret->limb[bit / 64] |= part << bit % 64;
            if (bit % 64 > 32) ret->limb[bit / 64 + 1] |= part >> (64 - bit % 64);
        }
    settle(ret, room, number->negative);
}

double blasd_whole_quotient(const struct blasd_whole *above, const struct blasd_whole *below,
                            int64_t exponent, enum blasd_dtype dtype, uint64_t *work) {
    int64_t na = size_of(above), nb = size_of(below), n = (na > nb ? na : nb) + 1;
    int64_t bits = blasd_exact_bits(above->limb, na), more = blasd_exact_bits(below->limb, nb);
    int64_t by = more > bits ? more - bits : 0, less = bits > more ? bits - more : 0;
    uint64_t *rest = work, *unit = work + n, digits[2] = {0};
    if (na == 0) return 0;
    /* both with their highest bit at the same place */
    memset(work, 0, 2 * (size_t)n * sizeof *work);
    for (int64_t i = 0; i < na; i++) {
        rest[i + by / 64] |= above->limb[i] << by % 64;
        if (by % 64 != 0) rest[i + by / 64 + 1] |= above->limb[i] >> (64 - by % 64);
    }
    for (int64_t i = 0; i < nb; i++) {
        unit[i + less / 64] |= below->limb[i] << less % 64;
        if (less % 64 != 0) unit[i + less / 64 + 1] |= below->limb[i] >> (64 - less % 64);
    }
    for (int bit = 0; bit < 72; bit++) { /* the quotient is between 1/2 and 2 */
        bool fits = compare(rest, n, unit, n) >= 0;
        uint64_t carry = 0;
        if (fits) take(rest, rest, n, unit, n);
        digits[1] = digits[1] << 1 | digits[0] >> 63;
        digits[0] = digits[0] << 1 | fits;
        for (int64_t i = 0; i < n; i++) {
            uint64_t next = rest[i] >> 63;
            rest[i] = rest[i] << 1 | carry;
            carry = next;
        }
    }
    return blasd_exact_nearest(digits, 2, exponent + less - by - 71,
                               (above->length < 0) != (below->length < 0),
                               blasd_exact_bits(rest, n) > 0, dtype);
}

/* ---- elimination ---- */

static struct blasd_whole *at(const struct blasd_elimination *system, int64_t i, int64_t j) {
    return &system->element[i * system->columns + j];
}

bool blasd_elimination_prepare(struct blasd_elimination *system) {
    struct blasd_exact_number number;
    int64_t n = system->n, bits = 0, digits = 64 - __builtin_clzll((uint64_t)system->columns);
    double work, room;
    for (int64_t i = 0; i < n; i++) {
        int64_t most = 0;
        for (int64_t j = 0; j < system->columns; j++) {
            int64_t size;
            system->get(system->arg, i, j, &number);
            size = blasd_exact_bits(number.limb, number.length) + number.exponent - system->row[i] -
                   system->column[j];
            if (number.length > 0 && size > most) most = size;
        }
        bits += most + (digits + 1) / 2; /* Hadamard: a minor is at most the product of rows */
        if (bits > 1 << 24 || !blasd_wanted()) return false;
    }
    system->room = bits / 64 + 2;
    room = (double)system->room;
    work = (double)n * (double)n * (double)(3 * system->columns - 2 * n) / 3 * room * room;
    return work <= EXACT_WORK;
}

static void swap_rows(struct blasd_elimination *system, int64_t i, int64_t k) {
    for (int64_t j = 0; j < system->columns && i != k; j++) {
        struct blasd_whole one = *at(system, i, j);
        *at(system, i, j) = *at(system, k, j);
        *at(system, k, j) = one;
    }
}

/* Step k of the elimination: rows below k lose unknown k. */
static bool eliminate(struct blasd_elimination *system, int64_t k, const struct divisor *last) {
    struct blasd_whole left = {.limb = system->work},
                       right = {.limb = system->work + 2 * system->room};
    const struct blasd_whole *pivot = at(system, k, k);
    int64_t done = 0;
    for (int64_t i = k + 1; i < system->n; i++) {
        const struct blasd_whole *factor = at(system, i, k);
        for (int64_t j = k + 1; j < system->columns; j++) {
            struct blasd_whole *to = at(system, i, j);
            if (!blasd_wanted_after(&done, system->room * system->room)) return false;
            blasd_whole_multiply(&left, pivot, to);
            blasd_whole_multiply(&right, factor, at(system, k, j));
            blasd_whole_subtract(&left, &left, &right);
            if (last != NULL) divide(&left, last);
            memcpy(to->limb, left.limb, (size_t)size_of(&left) * sizeof *to->limb);
            to->length = left.length;
        }
        at(system, i, k)->length = 0;
    }
    return true;
}

/* Column `side` of the unknowns, over the determinant. */
static bool substitute(struct blasd_elimination *system, int64_t side, struct divisor *by) {
    struct blasd_whole sum = {.limb = system->work},
                       one = {.limb = system->work + 3 * system->room};
    int64_t done = 0;
    for (int64_t i = system->n - 1; i >= 0; i--) {
        struct blasd_whole *to = at(system, i, side);
        blasd_whole_multiply(&sum, &system->determinant, to);
        for (int64_t j = i + 1; j < system->n; j++) {
            if (!blasd_wanted_after(&done, system->room * system->room)) return false;
            blasd_whole_multiply(&one, at(system, i, j), at(system, j, side));
            blasd_whole_subtract(&sum, &sum, &one);
        }
        divisor_of(at(system, i, i), by);
        divide(&sum, by);
        memcpy(to->limb, sum.limb, (size_t)size_of(&sum) * sizeof *to->limb);
        to->length = sum.length;
    }
    return true;
}

int64_t blasd_elimination_solve(struct blasd_elimination *system) {
    int64_t n = system->n, all = n * system->columns, room = system->room;
    struct divisor by = {0};
    struct blasd_exact_number number;
    system->element = malloc((size_t)all * sizeof *system->element);
    system->limbs = malloc((size_t)(all * room) * sizeof *system->limbs);
    system->work = malloc((size_t)(8 * room + 8) * sizeof *system->work);
    if (system->element == NULL || system->limbs == NULL || system->work == NULL) return -1;
    by.limb = system->work + 6 * room + 4;
    for (int64_t i = 0; i < all; i++) {
        system->element[i] = (struct blasd_whole){.limb = system->limbs + i * room};
        system->get(system->arg, i / system->columns, i % system->columns, &number);
        blasd_whole_load(&number,
                         system->row[i / system->columns] + system->column[i % system->columns],
                         &system->element[i], room);
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        while (pivot < n && at(system, pivot, k)->length == 0) pivot++;
        if (pivot == n) return k + 1;
        swap_rows(system, k, pivot);
        if (k > 0) divisor_of(at(system, k - 1, k - 1), &by);
        if (!eliminate(system, k, k > 0 ? &by : NULL)) return -1;
    }
    system->determinant = *at(system, n - 1, n - 1);
    for (int64_t side = n; side < system->columns; side++)
        if (!substitute(system, side, &by)) return -1;
    return 0;
}

void blasd_elimination_release(struct blasd_elimination *system) {
    free(system->element);
    free(system->limbs);
    free(system->work);
    system->element = NULL;
    system->limbs = system->work = NULL;
}
