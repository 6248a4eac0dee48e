/* The elements of rules, for the host's compilers and for nvcc: every operation here is exact or
 * rounds correctly, and none is fused, so that a CPU and a GPU make the same bits.
 *
 * Random elements: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", 2011). The key is the seed, low word first; block b of four words has the counter
 * (b mod 2^32, b / 2^32, 0, 0). Parts are what elements consist of, in row-major order: a complex
 * element is two, the real one first.
 *
 *     float64    takes two words, x = word 0 + 2^32 word 1: part 2b + i, words 2i and 2i + 1
 *     others     take one word x: part 4b + i, word i
 *     uniform    the top p bits of x times 2^-p, with p = 53, 24 (float32), 11 (float16) or
 *                8 (bfloat16): exact, from 0 to 1 - 2^-p
 *     normal     Box-Muller in float64, then rounded once to the dtype: parts 2j and 2j + 1 are
 *                r cos(2 pi v) and r sin(2 pi v), r = sqrt(-2 log(u)), from the numbers x and y in
 *                their places: u = (top q bits of x + 1) 2^-q and v = top q bits of y 2^-q, with
 *                q = 53 for float64, else 32
 *
 * Knows no memory. Read next: rule.c, ../../kernels/cuda/rule_gpu.cu. */
#ifndef BLASD_CORE_RULE_ELEMENT_H
#define BLASD_CORE_RULE_ELEMENT_H

#include "core/half.h"
#include "core/rule.h"

#include <math.h>

/* a compiler that may fuse a product and a sum is told not to by -ffp-contract=off */
#ifdef __CUDA_ARCH__
#define BLASD_RULE_MUL(a, b) __dmul_rn(a, b)
#define BLASD_RULE_ADD(a, b) __dadd_rn(a, b)
#define BLASD_RULE_FLOAT_MUL(a, b) __fmul_rn(a, b)
#define BLASD_RULE_FLOAT_ADD(a, b) __fadd_rn(a, b)
#else
#define BLASD_RULE_MUL(a, b) ((a) * (b))
#define BLASD_RULE_ADD(a, b) ((a) + (b))
#define BLASD_RULE_FLOAT_MUL(a, b) ((a) * (b))
#define BLASD_RULE_FLOAT_ADD(a, b) ((a) + (b))
#endif

/* ---- lines, as NumPy's arange and linspace make them ---- */

/* Element `i` of an arange, computed in the precision in which NumPy does. */
BLASD_ANYWHERE double blasd_rule_arange_at(double start, double step, double next,
                                           enum blasd_dtype part, int64_t i) {
    if (i < 2) return i == 0 ? start : next;
    if (part == BLASD_float32)
        return (double)BLASD_RULE_FLOAT_ADD((float)start,
                                            BLASD_RULE_FLOAT_MUL((float)i, (float)step));
    if (part == BLASD_float16 || part == BLASD_bfloat16) /* rounded to it by who stores it */
        return (double)BLASD_RULE_FLOAT_ADD((float)start,
                                            BLASD_RULE_FLOAT_MUL((float)i, (float)step));
    if (part != BLASD_float64) /* integers below 2^53, of which the way from start may be longer */
        return (double)((int64_t)start + i * (int64_t)step);
    return BLASD_RULE_ADD(start, BLASD_RULE_MUL((double)i, step));
}

/* Element `i` of `n`, before it is rounded to the dtype. */
BLASD_ANYWHERE double blasd_rule_linspace_at(double start, double step, double stop, int64_t n,
                                             int64_t i) {
    double at = (double)i;
    if (i == n - 1 && n > 1) return stop;
    if (step != 0)
        at = BLASD_RULE_MUL(at, step);
    else /* there is none, or it is too small for a number */
        at = BLASD_RULE_MUL(n > 1 ? at / (double)(n - 1) : at, BLASD_RULE_ADD(stop, -start));
    return BLASD_RULE_ADD(at, start);
}

/* Part `i` of any rule that is not random nor full; `row` is the tensor's last length, `n` all its
 * elements. */
BLASD_ANYWHERE double blasd_rule_number(const struct blasd_rule *rule, enum blasd_dtype part,
                                        int parts, int64_t row, int64_t n, int64_t i) {
    if (parts == 2) {
        if (i % 2 != 0) return 0;
        i /= 2;
    }
    if (rule->kind == BLASD_RULE_EYE) return i / row == i % row ? 1 : 0;
    if (rule->kind == BLASD_RULE_ARANGE)
        return blasd_rule_arange_at(rule->line.start, rule->line.step, rule->line.stop, part, i);
    return blasd_rule_linspace_at(rule->line.start, rule->line.step, rule->line.stop, n, i);
}

/* ---- Philox ---- */

struct blasd_philox {
    uint32_t word[4];
};

BLASD_ANYWHERE struct blasd_philox blasd_philox(struct blasd_philox counter, uint64_t key) {
    uint32_t *c = counter.word, low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p = UINT64_C(0xd2511f53) * c[0], q = UINT64_C(0xcd9e8d57) * c[2];
        uint32_t first = (uint32_t)(q >> 32) ^ c[1] ^ low,
                 third = (uint32_t)(p >> 32) ^ c[3] ^ high;
        c[0] = first;
        c[1] = (uint32_t)q;
        c[2] = third;
        c[3] = (uint32_t)p;
        low += 0x9e3779b9u;
        high += 0xbb67ae85u;
    }
    return counter;
}

/* ---- the normal distribution ---- */

/* log(x) to about an ulp and a half, for normal numbers: the exponent, and the series of the area
 * function, log(m) = 2 artanh((m - 1) / (m + 1)), for m between the roots of 1/2 and 2. */
BLASD_ANYWHERE double blasd_rule_log(double x) {
    uint64_t bits, root = UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
    /* 2/3, 2/5, …, the highest first */
    const double series[] = {2.0 / 25, 2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15,
                             2.0 / 13, 2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3};
    double m, s, z, sum = series[0], e;
    int exponent;
    memcpy(&bits, &x, sizeof bits);
    exponent = (int)((bits - root + (UINT64_C(1024) << 52)) >> 52) - 1024;
    bits -= (uint64_t)(int64_t)exponent << 52;
    memcpy(&m, &bits, sizeof m);
    s = BLASD_RULE_ADD(m, -1.0) / BLASD_RULE_ADD(m, 1.0);
    z = BLASD_RULE_MUL(s, s);
    for (int k = 1; k < 12; k++) sum = BLASD_RULE_ADD(BLASD_RULE_MUL(sum, z), series[k]);
    sum = BLASD_RULE_MUL(BLASD_RULE_MUL(sum, z), s);
    e = (double)exponent;
    /* log(2) in two parts, the first with so many zeros that e times it is exact */
    sum = BLASD_RULE_ADD(sum, BLASD_RULE_MUL(e, 0x1.cf79abc9e3b3ap-40));
    sum = BLASD_RULE_ADD(sum, BLASD_RULE_ADD(s, s));
    return BLASD_RULE_ADD(BLASD_RULE_MUL(e, 0x1.62e42fefap-1), sum);
}

/* cos(2 pi v) and sin(2 pi v) for v from 0 to 1, by their series in the eighth around the nearest
 * quarter of a turn. */
BLASD_ANYWHERE void blasd_rule_turn(double v, double *cosine, double *sine) {
    /* 1/2!, 1/4!, … 1/18! and 1/3!, 1/5!, … 1/17!, their signs in turn */
    const double even[] = {-1.0 / 6402373705728000.0,
                           1.0 / 20922789888000.0,
                           -1.0 / 87178291200.0,
                           1.0 / 479001600.0,
                           -1.0 / 3628800.0,
                           1.0 / 40320.0,
                           -1.0 / 720.0,
                           1.0 / 24.0,
                           -1.0 / 2.0};
    const double odd[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    int quarter = (int)BLASD_RULE_ADD(BLASD_RULE_MUL(v, 4.0), 0.5);
    double x = BLASD_RULE_MUL(BLASD_RULE_ADD(v, -0.25 * (double)quarter), 0x1.921fb54442d18p+2);
    double z = BLASD_RULE_MUL(x, x), c = even[0], s = odd[0], turned;
    for (int k = 1; k < 9; k++) c = BLASD_RULE_ADD(BLASD_RULE_MUL(c, z), even[k]);
    for (int k = 1; k < 8; k++) s = BLASD_RULE_ADD(BLASD_RULE_MUL(s, z), odd[k]);
    c = BLASD_RULE_ADD(1.0, BLASD_RULE_MUL(c, z));
    s = BLASD_RULE_ADD(x, BLASD_RULE_MUL(BLASD_RULE_MUL(s, z), x));
    turned = (quarter & 1) != 0 ? s : c;
    s = (quarter & 1) != 0 ? c : s;
    *cosine = ((quarter + 1) & 2) != 0 ? -turned : turned;
    *sine = (quarter & 2) != 0 ? -s : s;
}

/* Two normal numbers from two independent ones: 0 < u <= 1, 0 <= v < 1. */
BLASD_ANYWHERE void blasd_rule_pair(double u, double v, double *first, double *second) {
    double radius = sqrt(BLASD_RULE_MUL(-2.0, blasd_rule_log(u))), cosine, sine;
    blasd_rule_turn(v, &cosine, &sine);
    *first = BLASD_RULE_MUL(radius, cosine);
    *second = BLASD_RULE_MUL(radius, sine);
}

/* ---- random parts ---- */

/* How many parts a block makes. */
BLASD_ANYWHERE int blasd_rule_block_parts(enum blasd_dtype part) {
    return part == BLASD_float64 ? 2 : 4;
}

/* What a block makes, before it is rounded to the dtype: blasd_rule_block_parts of them. */
BLASD_ANYWHERE void blasd_rule_block(const struct blasd_rule *rule, enum blasd_dtype part,
                                     uint64_t block, double out[4]) {
    struct blasd_philox x = {{(uint32_t)block, (uint32_t)(block >> 32), 0, 0}};
    x = blasd_philox(x, rule->seed);
    if (part == BLASD_float64) {
        uint64_t a = (x.word[0] | (uint64_t)x.word[1] << 32) >> 11;
        uint64_t b = (x.word[2] | (uint64_t)x.word[3] << 32) >> 11;
        if (rule->kind == BLASD_RULE_NORMAL) {
            blasd_rule_pair((double)(a + 1) * 0x1p-53, (double)b * 0x1p-53, &out[0], &out[1]);
        } else {
            out[0] = (double)a * 0x1p-53;
            out[1] = (double)b * 0x1p-53;
        }
    } else if (rule->kind == BLASD_RULE_NORMAL) {
        for (int i = 0; i < 4; i += 2)
            blasd_rule_pair(((double)x.word[i] + 1) * 0x1p-32, (double)x.word[i + 1] * 0x1p-32,
                            &out[i], &out[i + 1]);
    } else {
        int bits = part == BLASD_float32 ? 24 : part == BLASD_float16 ? 11 : 8;
        double unit = part == BLASD_float32 ? 0x1p-24 : part == BLASD_float16 ? 0x1p-11 : 0x1p-8;
        for (int i = 0; i < 4; i++) out[i] = (double)(x.word[i] >> (32 - bits)) * unit;
    }
}

#endif
