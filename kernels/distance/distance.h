/* What the files of distance share: a job as numbers, and a problem made ready for the loops.
 *
 * Read next: op_distance.c (what may be asked), prepare.c (how rows are made ready), cpu_distance.c
 * (who runs what), rows.c (what becomes of the rows of the matrix). */
#ifndef BLASD_DISTANCE_H
#define BLASD_DISTANCE_H

#include "core/job.h"
#include "kernels/distance/tiles.h"

struct blasd_task;
struct blasd_watch;

/* X(name, loop, finish, what becomes of rows, extra): see enum distance_rows, enum distance_extra
 */
#define DISTANCE_METRICS(X)                                                                        \
    X(euclidean, LOOP_SQUARES, FINISH_ROOT, ROWS_PLAIN, EXTRA_W)                                   \
    X(sqeuclidean, LOOP_SQUARES, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                 \
    X(cityblock, LOOP_ABSOLUTE, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                  \
    X(chebyshev, LOOP_LARGEST, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                   \
    X(minkowski, LOOP_POWER, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                     \
    X(cosine, LOOP_SQUARES, FINISH_HALF, ROWS_UNIT, EXTRA_W)                                       \
    X(correlation, LOOP_SQUARES, FINISH_HALF, ROWS_CENTRED, EXTRA_W)                               \
    X(canberra, LOOP_CANBERRA, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                   \
    X(braycurtis, LOOP_BRAYCURTIS, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                               \
    X(jensenshannon, LOOP_JENSENSHANNON, FINISH_NONE, ROWS_SHARES, EXTRA_NONE)                     \
    X(seuclidean, LOOP_SQUARES_W, FINISH_ROOT, ROWS_PLAIN, EXTRA_V)                                \
    X(mahalanobis, LOOP_MAHALANOBIS, FINISH_NONE, ROWS_PLAIN, EXTRA_VI)                            \
    X(hamming, LOOP_HAMMING, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                                     \
    X(jaccard, LOOP_JACCARD, FINISH_NONE, ROWS_TRUTH, EXTRA_W)                                     \
    X(jaccard_legacy, LOOP_JACCARD, FINISH_NONE, ROWS_PLAIN, EXTRA_W)                              \
    X(dice, LOOP_BOOLEAN, FINISH_DICE, ROWS_PLAIN, EXTRA_W)                                        \
    X(dice_legacy, LOOP_BOOLEAN, FINISH_DICE, ROWS_TRUTH, EXTRA_W)                                 \
    X(kulczynski1, LOOP_BOOLEAN, FINISH_KULCZYNSKI1, ROWS_TRUTH, EXTRA_W)                          \
    X(rogerstanimoto, LOOP_BOOLEAN, FINISH_ROGERSTANIMOTO, ROWS_TRUTH, EXTRA_W)                    \
    X(russellrao, LOOP_BOOLEAN, FINISH_RUSSELLRAO, ROWS_TRUTH, EXTRA_W)                            \
    X(sokalmichener, LOOP_BOOLEAN, FINISH_ROGERSTANIMOTO, ROWS_TRUTH, EXTRA_W)                     \
    X(sokalsneath, LOOP_BOOLEAN, FINISH_SOKALSNEATH, ROWS_TRUTH, EXTRA_W)                          \
    X(yule, LOOP_BOOLEAN, FINISH_YULE, ROWS_TRUTH, EXTRA_W)

enum distance_metric {
#define X(name, loop, finish, rows, extra) METRIC_##name,
    DISTANCE_METRICS(X)
#undef X
        DISTANCE_METRIC_COUNT
};

/* What is done to each point before the loops see it. */
enum distance_rows {
    ROWS_PLAIN,   /* nothing */
    ROWS_UNIT,    /* scaled to length 1 */
    ROWS_CENTRED, /* less its mean, then scaled to length 1 */
    ROWS_SHARES,  /* divided by its sum; -1 everywhere where it has none or is negative somewhere */
    ROWS_TRUTH    /* 1 where it is not 0 */
};

/* The array that a metric takes beside x and y. */
enum distance_extra { EXTRA_NONE, EXTRA_W, EXTRA_V, EXTRA_VI };

/* The choices of output. */
enum distance_output { OUTPUT_FULL, OUTPUT_CONDENSED, OUTPUT_ARGMIN, OUTPUT_TOPK, OUTPUT_WITHIN };

/* Positions in the descriptor. */
#define BLASD_DECLARED "kernels/distance/distance.def"
#include "core/op_enums.h"

struct distance_metric_info {
    const char *name;
    enum distance_loop loop;
    enum distance_finish finish;
    enum distance_rows rows;
    enum distance_extra extra;
};
extern const struct distance_metric_info blasd_distance_metrics[DISTANCE_METRIC_COUNT];

/* A job as numbers. A plain value, the same for all tasks of a batch. */
struct distance_shape {
    enum distance_metric metric;
    enum distance_output output;
    bool alone;                  /* no y: x against itself */
    bool weighted;               /* w was given */
    bool correct;                /* each entry is the nearest to the exact one */
    enum blasd_dtype arithmetic; /* BLASD_float64 or BLASD_float32 */
    enum blasd_dtype storage;    /* of d */
    int64_t m, n, k;             /* points in x, in y (or x), coordinates */
    int64_t neighbours;          /* of topk */
    int64_t pairs;               /* most pairs that within lists */
    double p, base, radius;
    double reach; /* of the arithmetic's type: what d rounds to within the radius */
    double unit;  /* of rounding, of the points as sent */
    int batch_rank;
    int64_t batch_shape[BLASD_MAX_RANK];
    int64_t problems; /* product of batch_shape */
};

/* Reads a job whose descriptor checks passed; refuses what does not fit together. */
int blasd_distance_read(const struct blasd_job *job, struct distance_shape *shape,
                        struct blasd_err *err);

/* Operations for one entry of the matrix, with the cost of writing it. */
double blasd_distance_entry_work(const struct distance_shape *shape);
/* The loop that the job's metric needs, and its numbers; fills no array. */
void blasd_distance_choose(const struct distance_shape *shape, struct distance_args *args);
/* Refuses weights of the arithmetic's type (k of them, or NULL) that are negative or NaN. */
int blasd_distance_check_weights(const struct distance_shape *shape, const void *w,
                                 struct blasd_err *err);
/* Runs one task on the calling thread: the host's part of other backends. A negative code where the
 * run failed; what is wrong with the task itself is in task->err. */
int blasd_distance_on_host(struct blasd_task *task, struct blasd_watch *watch,
                           struct blasd_err *err);
/* What is to be said of one problem. */
struct distance_note {
    bool zero_row;
    bool below;         /* entries lost digits at the lower end of the range */
    unsigned char lost; /* more than half of the digits, by the covariance: so many; else 0 */
};
/* Warns of what `count` notes say, those of a task's problems. */
void blasd_distance_warn(struct blasd_task *task, const struct distance_shape *shape,
                         const struct distance_note *notes, int64_t count);
/* The error of a job within whose radius more pairs lie than it has room for. */
int blasd_distance_no_room(const struct distance_shape *shape, int64_t pairs,
                           struct blasd_err *err);

/* Points as factors of a product that is near to their squared distances, less the squares of x:
 * x has rows -2 (x - c) s, 1 and y rows (y - c) s, |(y - c) s|^2, s being a power of two. */
struct distance_product {
    float *x, *y;      /* k + 1 columns; x is owned, and all others are parts of it */
    double *x_squares; /* |(x - c) s|^2 of each row */
    double *y_lengths; /* the longest (y - c) s of each part of DISTANCE_PART rows */
    double *centre;    /* c: the mean of y */
    double scale;      /* s^2; 0: distances are too large or small for a product */
};
#define DISTANCE_PART 1024
/* Whether the nearest are looked for by a product first. */
bool blasd_distance_multiplies(const struct distance_shape *shape);
struct distance_problem;
/* Room for the factors, false where memory has run out; the factors of a problem whose rows are
 * ready. */
bool blasd_distance_product_init(struct distance_problem *problem);
void blasd_distance_product_load(struct distance_problem *problem);

/* One problem (a batch element of one task) made ready: the rows of x as the loops want them, y as
 * panels, and the loops' arguments. Everything is of the arithmetic's type. */
struct distance_problem {
    const struct distance_shape *shape; /* borrowed */
    struct distance_args args;          /* w and v point into `extra` or into the task */
    const void *x;                      /* m rows of k: the task's, or `rows` */
    const void *y;                      /* its n rows, or `rows_y` */
    void *rows, *rows_y;                /* owned: rows made ready, where they differ */
    void *panel;                        /* owned: y in panels */
    void *extra;                        /* owned: weights or matrix */
    bool scaled;                        /* by powers of two, so that sums stay in range */
    int *shift;                         /* owned: of each coordinate, where it is scaled */
    struct distance_product product;    /* x is NULL where none serves */
    int unscale;                        /* the power of two that entries are to be multiplied by */
    int left;                           /* DISTANCE_ABOVE, DISTANCE_BELOW: of loading */
    bool dropped;                       /* coordinates have the weight 0 */
    bool zero_row;                      /* some row has no direction, or no shares */
    long double inflation;              /* of mahalanobis without VI: blasd_distance_whiten */
};

/* Allocates what problems of this shape need; the same object then serves one after the other. */
int blasd_distance_problem_init(struct distance_problem *problem,
                                const struct distance_shape *shape, struct blasd_err *err);
/* What there is to say of a problem that is ready. */
struct distance_note blasd_distance_note(const struct distance_problem *problem);
/* Makes the problem ready: x and y are its points, in the arithmetic's type; w, v, vi may be NULL.
 * `scaled`: again, as entries left the range; those that do so still are lost. */
int blasd_distance_problem_load(struct distance_problem *problem, bool scaled, const void *x,
                                const void *y, const void *w, const void *v, const void *vi,
                                struct blasd_err *err);
void blasd_distance_problem_release(struct distance_problem *problem);

/* A mean in two parts. One number would be rounded by as much as the mean is large, which may be
 * more than the points lie apart; from an origin among them nothing is lost. */
struct distance_mean {
    long double origin, rest;
};
static inline long double blasd_distance_deviation(double x, struct distance_mean mean) {
    return ((long double)x - mean.origin) - mean.rest;
}
/* Fills `extra` with T: (a-b)' S^-1 (a-b) is the squared length of T (a-b), with coordinate d of
 * the points divided by 2^shift[d]. `inflation` becomes the largest variance inflation of a
 * coordinate: its variance over what of that the other coordinates do not say. Infinity where they
 * say all, or points are not finite. */
int blasd_distance_whiten(struct distance_problem *problem, const double *x, const double *y,
                          const struct distance_mean *means, int *shift, struct blasd_err *err);

/* Where one problem's outputs go. */
struct distance_out {
    void *d;             /* of the storage type */
    int64_t *index;      /* argmin, topk, within */
    int64_t *row_splits; /* within: m + 1 */
};

/* One problem's rows as they were given; y is x where that stands alone. */
struct distance_points {
    const char *x, *y;
};
/* Of problem number `at` of a task. */
struct distance_points blasd_distance_points(const struct distance_shape *shape,
                                             const struct blasd_task *task, int64_t at);
struct distance_out blasd_distance_outputs(const struct distance_shape *shape,
                                           const struct blasd_task *task, int64_t at);

/* Room that one thread needs to work on rows. */
struct distance_room {
    char *memory;            /* owned */
    size_t scratch, nearest; /* where its parts begin: rows.h */
    int left;                /* DISTANCE_ABOVE, DISTANCE_BELOW: of entries computed with it */
};
int blasd_distance_room_init(struct distance_room *room, const struct distance_shape *shape,
                             struct blasd_err *err);
void blasd_distance_room_release(struct distance_room *room);

#define DISTANCE_BLOCK 64 /* rows of x that are one piece of work, at most */

/* Computes rows [from, to) of one problem and puts what is asked for into `out`. */
void blasd_distance_rows(const struct distance_problem *problem, struct distance_room *room,
                         int64_t from, int64_t to, const struct distance_out *out);
/* The two passes of within: without `fill`, row_splits[i + 1] becomes the number of row i's
 * neighbours; with it, the lists are filled from row_splits[i] on. */
void blasd_distance_within(const struct distance_problem *problem, struct distance_room *room,
                           int64_t from, int64_t to, bool fill, const struct distance_out *out);

#endif
