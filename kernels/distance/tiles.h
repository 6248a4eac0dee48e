/* The inner loops of distance: a few rows of x against a panel of y's points.
 *
 * A panel holds points in blocks of one vector's width, coordinate by coordinate ("structure of
 * arrays"), so that each lane of a vector is one point, whatever the number of dimensions, and
 * nothing has to be summed across lanes. The loops know only how to accumulate; which metric needs
 * which loop, and how its rows are made ready, is prepare.c's knowledge.
 * Read next: tiles_body.h, which is compiled once for each of float64 and float32. */
#ifndef BLASD_DISTANCE_TILES_H
#define BLASD_DISTANCE_TILES_H

#include <stdbool.h>
#include <stdint.h>

#define DISTANCE_ROWS 4       /* rows of x in one call of a loop */
#define DISTANCE_VECTOR 64    /* bytes of a block's row: one coordinate of its points */
#define DISTANCE_PAD (64 / 4) /* most points in a block */

/* Of a sum of squares: above the one it may have overflowed, below the other squares may have lost
 * bits to underflow. */
#define DISTANCE_SQUARE_MOST_F64 0x1p1020
#define DISTANCE_SQUARE_LEAST_F64 0x1p-960
#define DISTANCE_SQUARE_MOST_F32 0x1p126
#define DISTANCE_SQUARE_LEAST_F32 0x1p-98

enum distance_loop {
    LOOP_SQUARES,       /* sum of (a-b)^2 */
    LOOP_SQUARES_W,     /* sum of w (a-b)^2 */
    LOOP_ABSOLUTE,      /* sum of |a-b| */
    LOOP_ABSOLUTE_W,    /* sum of w |a-b| */
    LOOP_LARGEST,       /* largest |a-b| among coordinates with w > 0 */
    LOOP_POWER,         /* sum of w |a-b|^p */
    LOOP_CANBERRA,      /* sum of w |a-b| / (|a|+|b|), 0/0 being 0 */
    LOOP_BRAYCURTIS,    /* sum of w |a-b| over sum of w |a+b| */
    LOOP_JENSENSHANNON, /* sum of (a+b) g((a-b)/(a+b)); see README.md */
    LOOP_HAMMING,       /* sum of w where a != b, over the sum of w */
    LOOP_JACCARD,       /* the same among coordinates where either is not 0 */
    LOOP_DICE,          /* sum of w where a != b, by it and twice where neither is 0 */
    LOOP_BOOLEAN,       /* counts of (true, true), (true, false), (false, true) */
    LOOP_MAHALANOBIS    /* (a-b)' V (a-b) */
};

enum distance_finish {
    FINISH_NONE,
    FINISH_ROOT, /* square root of the sum */
    FINISH_HALF, /* half the sum: cosine and correlation of rows of length 1 */
    /* of LOOP_BOOLEAN */
    FINISH_DICE,
    FINISH_KULCZYNSKI1,
    FINISH_ROGERSTANIMOTO, /* sokalmichener is the same */
    FINISH_RUSSELLRAO,
    FINISH_SOKALSNEATH,
    FINISH_YULE
};

/* What *left says of some entry. */
enum {
    DISTANCE_ABOVE = 1, /* its sum may have overflowed */
    DISTANCE_BELOW = 2  /* its sum may have lost digits, or all, at the lower end of the range */
};

/* What a loop needs beside the points. Arrays are of the loop's own type. */
struct distance_args {
    enum distance_loop loop;
    enum distance_finish finish;
    int64_t k;     /* coordinates */
    const void *w; /* k weights; ones where none were given */
    bool weighted; /* some were */
    bool scaled;   /* points and weights were, so as to be safe */
    const void *v; /* k x k, of mahalanobis */
    bool whitened; /* v is a lower triangle: the sum is the squared length of v (a-b) */
    void *scratch; /* k blocks' rows, of mahalanobis; each thread has its own */
    int *left;     /* what entries say of the range; each thread has its own */
    double p;      /* of minkowski */
    double scale;  /* of jensenshannon: 1 / ln(base) */
};

/* out[r][j] = distance of row a[r] to point j of the panel, for r < DISTANCE_ROWS, j < n. */
void blasd_distance_f64(const struct distance_args *args, const double *const *a,
                        const double *panel, int64_t n, double *const *out);
void blasd_distance_f32(const struct distance_args *args, const float *const *a, const float *panel,
                        int64_t n, float *const *out);

/* out[i] = distance of row a to row b[i], the same to the last bit; of LOOP_SQUARES alone. */
void blasd_distance_few_f64(const struct distance_args *args, const double *a,
                            const double *const *b, double *out);
void blasd_distance_few_f32(const struct distance_args *args, const float *a, const float *const *b,
                            float *out);

/* Fills `found` with the places of those of n numbers that are not above `most`; how many. */
int64_t blasd_distance_pick_f64(const double *from, int64_t n, double most, int32_t *found);
int64_t blasd_distance_pick_f32(const float *from, int64_t n, float most, int32_t *found);

/* Lays n points (rows of k) out as a panel, of (n rounded up to whole blocks) * k elements. */
void blasd_distance_pack_f64(const double *rows, int64_t n, int64_t k, double *panel);
void blasd_distance_pack_f32(const float *rows, int64_t n, int64_t k, float *panel);

#endif
