/* Numbers held as the unevaluated sum of four doubles, about 62 digits, for what squares a
 * condition number and is small enough to pay for it: a product is 300 operations. As
 * dd.h, it needs a compiler that neither reorders nor contracts. */
#ifndef BLASD_KERNELS_QUAD_DOUBLE_H
#define BLASD_KERNELS_QUAD_DOUBLE_H

#include "kernels/numeric/dd.h"

struct quad {
    double c[4]; /* falling; each at most about a unit in the last place of the one before */
};

DD_INLINE struct quad quad_from(double a) {
    return (struct quad){{a, 0, 0, 0}};
}
/* Adds a number without ordering the parts again: quad_settle does. */
DD_INLINE void quad_take(struct quad *sum, double a) {
    for (int i = 0; i < 3; i++) {
        struct dd next = dd_two_sum(sum->c[i], a);
        sum->c[i] = next.hi;
        a = next.lo;
    }
    sum->c[3] += a;
}
DD_INLINE struct quad quad_settle(struct quad a) {
    for (int pass = 0; pass < 2; pass++)
        for (int i = 2; i >= 0; i--) {
            struct dd next = dd_two_sum(a.c[i], a.c[i + 1]);
            a.c[i] = next.hi;
            a.c[i + 1] = next.lo;
        }
    return a;
}
DD_INLINE struct quad quad_add(struct quad a, struct quad b) {
    for (int i = 0; i < 4; i++) quad_take(&a, b.c[i]);
    return quad_settle(a);
}
DD_INLINE struct quad quad_negate(struct quad a) {
    return (struct quad){{-a.c[0], -a.c[1], -a.c[2], -a.c[3]}};
}
DD_INLINE struct quad quad_subtract(struct quad a, struct quad b) {
    return quad_add(a, quad_negate(b));
}
DD_INLINE struct quad quad_multiply(struct quad a, struct quad b) {
    struct quad sum = {{0, 0, 0, 0}};
    for (int order = 0; order < 4; order++)
        for (int i = 0; i <= order; i++) {
            struct dd part = dd_two_product(a.c[i], b.c[order - i]);
            quad_take(&sum, part.hi);
            quad_take(&sum, part.lo);
        }
    return quad_settle(sum);
}
DD_INLINE struct quad quad_divide(struct quad a, struct quad b) {
    struct quad sum = {{0, 0, 0, 0}};
    for (int i = 0; i < 5; i++) {
        double part = a.c[0] / b.c[0];
        quad_take(&sum, part);
        a = quad_subtract(a, quad_multiply(b, quad_from(part)));
    }
    return quad_settle(sum);
}
/* a 2^e, which rounds nothing as long as it stays within the range of numbers. */
DD_INLINE struct quad quad_shift(struct quad a, int e) {
    for (int i = 0; i < 4; i++) a.c[i] = ldexp(a.c[i], e);
    return a;
}
DD_INLINE struct dd quad_round(struct quad a) {
    return dd_fast_sum(a.c[0], a.c[1] + a.c[2]);
}

#endif
