/* The reference of distance: the definition of each metric, one pair of points at a time, in long
 * double. Every backend is tested against it. */
#ifndef BLASD_REF_DISTANCE_H
#define BLASD_REF_DISTANCE_H

#include <stdint.h>

/* What a metric takes beside the points; arrays are borrowed and may be NULL. */
struct blasd_ref_distance {
    const char *metric; /* SciPy's name */
    int64_t k;
    const long double *w;  /* k weights */
    const long double *v;  /* k variances, of seuclidean */
    const long double *vi; /* k x k, of mahalanobis */
    long double p;         /* of minkowski */
    long double base;      /* of jensenshannon; 0: e */
};

/* The distance from a to b, each of k coordinates. */
long double blasd_ref_distance(const struct blasd_ref_distance *ref, const long double *a,
                               const long double *b);

#endif
