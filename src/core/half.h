/* float16 and bfloat16 as bit patterns, to and from float, rounding to nearest even. */
#ifndef BLASD_CORE_HALF_H
#define BLASD_CORE_HALF_H

#include <stdint.h>
#include <string.h>

/* For the host and, where nvcc compiles it, for the device. */
#ifdef __CUDACC__
#define BLASD_ANYWHERE static inline __host__ __device__
#else
#define BLASD_ANYWHERE static inline
#endif

BLASD_ANYWHERE uint32_t blasd_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BLASD_ANYWHERE float blasd_float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

BLASD_ANYWHERE float blasd_bfloat16_read(uint16_t half) {
    return blasd_float_from_bits((uint32_t)half << 16);
}

BLASD_ANYWHERE uint16_t blasd_bfloat16_write(float value) {
    uint32_t bits = blasd_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* keep NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

BLASD_ANYWHERE float blasd_float16_read(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, fraction = half & 0x3ffu;
    if (exponent == 31) return blasd_float_from_bits(sign | 0x7f800000u | (fraction << 13));
    if (exponent == 0) {
        float tiny = (float)fraction * 0x1p-24f; /* exact */
        return sign != 0 ? -tiny : tiny;
    }
    return blasd_float_from_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

BLASD_ANYWHERE uint16_t blasd_float16_write(float value) {
    uint32_t bits = blasd_float_bits(value), sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
    if (magnitude < 0x38800000u) { /* subnormal: the addition aligns and rounds */
        float shifted = blasd_float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (blasd_float_bits(shifted) - blasd_float_bits(0.5f)));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - (112u << 23)) >> 13));
}

/* A double to float such that a second rounding to a shorter format is right: where the double is
 * not a float, the last bit is made odd ("round to odd"), which no shorter tie can be. */
BLASD_ANYWHERE float blasd_float_round_odd(double value) {
    float nearest = (float)value;
    uint32_t bits = blasd_float_bits(nearest);
    double back = (double)nearest;
    if (back == value || back != back || (bits & 1u) != 0 || (bits & 0x7f800000u) == 0x7f800000u)
        return nearest;
    /* even and not exact: step to the odd neighbour on the side where `value` lies */
    return blasd_float_from_bits(((value > back) == (value > 0)) ? bits + 1 : bits - 1);
}

#endif
