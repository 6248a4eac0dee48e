/* The nearest by sqeuclidean that a device found, put in order on the host: rows of which a square
 * left the range are computed again, as the CPU does it, and get the squares that the device's
 * matrix has. Few rows come here, if any.
 *
 * Read next: rows.c, pair_tiles.cuh. */
#include "kernels/distance/distance.h"

#include "core/half.h"
#include "core/kernel.h"

#include <math.h>

static double stored_at(const struct blasd_tensor *tensor, int64_t i) {
    switch (tensor->dtype) {
    case BLASD_float64: return ((const double *)tensor->data)[i];
    case BLASD_float32: return (double)((const float *)tensor->data)[i];
    case BLASD_float16: return (double)blasd_float16_read(((const uint16_t *)tensor->data)[i]);
    default: return (double)blasd_bfloat16_read(((const uint16_t *)tensor->data)[i]);
    }
}

/* Whether some of the rows from `first` to `end`, of all of a task's problems, have a neighbour
 * whose square left the range; x and y are the points of their problem. */
static bool rows_left(const struct distance_shape *shape, const struct blasd_task *task,
                      int64_t problem, int64_t first, int64_t end,
                      const struct distance_points *points) {
    const struct blasd_tensor *d = &task->outputs[OUT_D];
    const int64_t *index = task->outputs[OUT_INDEX].data;
    int64_t count = shape->output == OUTPUT_TOPK ? shape->neighbours : 1;
    size_t row = (size_t)shape->k * blasd_dtype_size(shape->arithmetic);
    for (int64_t i = first; i < end; i++) {
        int64_t at = (problem * shape->m + i) * count;
        for (int64_t c = at; c < at + count; c++) {
            int64_t j = index[c]; /* the device's word, which is not followed unseen */
            if (j < 0 || j >= shape->n ||
                blasd_distance_square_left(shape, task->inputs[IN_W].data,
                                           points->x + (size_t)i * row, points->y + (size_t)j * row,
                                           stored_at(d, c)))
                return true;
        }
    }
    return false;
}

/* The square of the distance of two points as a device has it in its matrix (pair_tiles.cuh), where
 * multiplications and additions are fused; w: NULL, or weights. */
#define DEVICE_SQUARE(name, T, FMA, SQRT, FABS, LEAST, MOST)                                       \
    static T name(const T *x, const T *y, const T *w, int64_t k) {                                 \
        T sum = 0, root, largest = 0, scaled = 0;                                                  \
        for (int64_t d = 0; d < k; d++) {                                                          \
            T e = x[d] - y[d];                                                                     \
            sum = FMA(w == NULL ? e : e * w[d], e, sum);                                           \
        }                                                                                          \
        root = SQRT(sum);                                                                          \
        if (w == NULL || (root <= MOST && root >= LEAST)) return sum;                              \
        for (int64_t d = 0; d < k; d++) {                                                          \
            T e = FABS(x[d] - y[d]) * SQRT(w[d]);                                                  \
            if (e != e) return e;                                                                  \
            if (e > largest) largest = e;                                                          \
        }                                                                                          \
        if (largest == 0 || isinf(largest)) return largest * largest;                              \
        for (int64_t d = 0; d < k; d++) {                                                          \
            T e = FABS(x[d] - y[d]) * SQRT(w[d]) / largest;                                        \
            scaled = FMA(e, e, scaled);                                                            \
        }                                                                                          \
        root = largest * SQRT(scaled);                                                             \
        return root * root;                                                                        \
    }
DEVICE_SQUARE(device_square_f32, float, __builtin_fmaf, __builtin_sqrtf, __builtin_fabsf, 0x1p-49F,
              0x1p63F)
DEVICE_SQUARE(device_square_f64, double, __builtin_fma, __builtin_sqrt, __builtin_fabs, 0x1p-480,
              0x1p510)

/* Gives the neighbours of row i the squares that the matrix has of them. */
static void put_device_squares(const struct distance_shape *shape, const struct blasd_task *task,
                               int64_t i, const struct distance_points *points,
                               const struct distance_out *out) {
    int64_t count = shape->output == OUTPUT_TOPK ? shape->neighbours : 1, one = 1;
    struct blasd_tensor from = blasd_tensor_make(shape->arithmetic, 1, &one);
    struct blasd_tensor to = blasd_tensor_make(shape->storage, 1, &one);
    const void *w = task->inputs[IN_W].data;
    for (int64_t c = i * count; c < (i + 1) * count; c++) {
        int64_t x = i * shape->k, y = out->index[c] * shape->k;
        double wide;
        float single;
        if (shape->arithmetic == BLASD_float64) {
            wide = device_square_f64((const double *)(const void *)points->x + x,
                                     (const double *)(const void *)points->y + y, w, shape->k);
            from.data = &wide;
        } else {
            single = device_square_f32((const float *)(const void *)points->x + x,
                                       (const float *)(const void *)points->y + y, w, shape->k);
            from.data = &single;
        }
        to.data = (char *)out->d + (size_t)c * blasd_dtype_size(shape->storage);
        blasd_tensor_convert(&from, &to);
    }
}

/* What is made ready for a problem, once it is. */
struct again {
    struct distance_problem problem;
    struct distance_room room;
};

/* The rows of one problem that are to be computed again. A negative code: task->err says why. */
static int order_problem(const struct distance_shape *shape, struct blasd_task *task,
                         int64_t number, struct again *again) {
    struct distance_points points = blasd_distance_points(shape, task, number);
    struct distance_out out = blasd_distance_outputs(shape, task, number);
    bool ready = false;
    for (int64_t i = 0; i < shape->m; i += DISTANCE_ROWS) {
        int64_t end = shape->m - i < DISTANCE_ROWS ? shape->m : i + DISTANCE_ROWS;
        int code = 0;
        if (!rows_left(shape, task, number, i, end, &points)) continue;
        if (!ready)
            code = blasd_distance_problem_load(&again->problem, points.x, points.y,
                                               task->inputs[IN_W].data, task->inputs[IN_V].data,
                                               task->inputs[IN_VI].data, &task->err);
        if (code != 0) return code;
        ready = true;
        blasd_distance_rows(&again->problem, &again->room, i, end, &out);
        for (int64_t row = i; row < end; row++) put_device_squares(shape, task, row, &points, &out);
    }
    return 0;
}

int blasd_distance_order_on_host(struct blasd_task *task, struct blasd_err *err) {
    struct distance_shape shape;
    struct again again = {0};
    int code = blasd_distance_read(task->job, &shape, err);
    if (code == 0) code = blasd_distance_room_init(&again.room, &shape, err);
    if (code == 0) code = blasd_distance_problem_init(&again.problem, &shape, err);
    for (int64_t number = 0; code == 0 && number < shape.problems; number++)
        if (order_problem(&shape, task, number, &again) != 0) break;
    blasd_distance_room_release(&again.room);
    blasd_distance_problem_release(&again.problem);
    return code;
}
