/* What of a product the range of its dtype has taken: sums that overflow, and products that vanish
 * before alpha makes them large. Knows no backend. Read next: matmul.h. */
#include "core/kernel.h"
#include "core/wanted.h"
#include "kernels/cpu/cpu.h"
#include "kernels/matmul/matmul.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Binary exponents of the smallest and the largest magnitude that is neither 0 nor without end. */
struct range {
    int least, most;
};

/* Converts `count` numbers from number `at` on. */
static void read_numbers(const struct blasd_tensor *tensor, int64_t at, int64_t count, double *to) {
    enum blasd_dtype dtype = blasd_dtype_part(tensor->dtype);
    struct blasd_tensor from = blasd_tensor_make(dtype, 1, &count);
    struct blasd_tensor room = blasd_tensor_make(BLASD_float64, 1, &count);
    from.data = (char *)tensor->data + (size_t)at * blasd_dtype_size(dtype);
    room.data = to;
    blasd_tensor_convert(&from, &room);
}

static struct range range_of(const struct blasd_tensor *tensor) {
    enum { PART = 1024 };
    int64_t n = blasd_tensor_elements(tensor) * blasd_dtype_parts(tensor->dtype), done = 0;
    double least = INFINITY, most = 0, room[PART];
    struct range range = {0, 0};
    for (int64_t at = 0; at < n && blasd_wanted_after(&done, PART); at += PART) {
        int64_t count = n - at < PART ? n - at : PART;
        read_numbers(tensor, at, count, room);
        for (int64_t i = 0; i < count; i++) {
            double size = fabs(room[i]);
            most = size > most && size <= DBL_MAX ? size : most;
            least = size < least && size > 0 ? size : least;
        }
    }
    if (most == 0) return range;
    frexp(least, &range.least);
    frexp(most, &range.most);
    return range;
}

/* Whether an element is finite. */
static bool is_finite(const struct blasd_tensor *tensor, int64_t at) {
    int parts = blasd_dtype_parts(tensor->dtype);
    double part[2] = {0, 0};
    read_numbers(tensor, at * parts, parts, part);
    return isfinite(part[0]) && isfinite(part[1]);
}

/* A flag for each row of a stack of matrices, or each column: whether it is finite. NULL: no
 * memory. */
static bool *finite_lines(const struct blasd_tensor *tensor,
                          const struct blasd_matmul_operand *operand, bool rows) {
    struct blasd_matmul_steps steps = blasd_matmul_steps(tensor, operand);
    int64_t lines = rows ? operand->rows : operand->columns, done = 0;
    int64_t each = rows ? operand->columns : operand->rows;
    int64_t matrices = 1;
    for (int d = 0; d < operand->batch_rank; d++) matrices *= operand->batch[d];
    bool *finite = blasd_cpu_alloc((size_t)(matrices * lines), sizeof *finite);
    if (finite != NULL) memset(finite, true, (size_t)(matrices * lines) * sizeof *finite);
    for (int64_t i = 0; finite != NULL && i < matrices * lines && blasd_wanted_after(&done, each);
         i++) {
        int64_t at = i / lines * steps.matrix + i % lines * (rows ? steps.row : steps.column);
        for (int64_t l = 0; finite[i] && l < each; l++)
            finite[i] = is_finite(tensor, at + l * (rows ? steps.column : steps.row));
    }
    return finite;
}

/* How many elements from number `first` of the result on, those of one product, are not finite,
 * though all that they are made of is. */
static int64_t count_beyond(const struct blasd_task *task, const struct blasd_matmul *mm,
                            int64_t first, const bool *rows, const bool *columns) {
    const struct blasd_tensor *out = &task->outputs[0], *c = &task->inputs[BLASD_MATMUL_C];
    int64_t beyond = 0, done = 0;
    for (int64_t at = 0; at < mm->m * mm->n && blasd_wanted_after(&done, 8); at++) {
        if (!rows[at / mm->n] || !columns[at % mm->n] || is_finite(out, first + at)) continue;
        beyond += !mm->add_c || is_finite(c, blasd_matmul_place_of_c(c, out, first + at));
    }
    return beyond;
}

/* Warns of elements that are not finite, though all that they are made of is. */
static void judge_overflow(struct blasd_task *task, const struct blasd_matmul *mm) {
    const struct blasd_tensor *out = &task->outputs[0];
    const struct blasd_tensor *a = &task->inputs[BLASD_MATMUL_A], *b = a + 1;
    int64_t beyond = 0;
    bool *rows, *columns;
    struct blasd_walk walk;
    blasd_task_make_inputs(task);
    rows = finite_lines(a, &mm->a, true);
    columns = finite_lines(b, &mm->b, false);
    if (rows == NULL || columns == NULL)
        blasd_fail(&task->err, BLASD_E_out_of_memory, "", "no memory to look for overflow");
    blasd_walk_init(&walk, mm->batch_rank, mm->batch);
    blasd_walk_operand(&walk, 0, mm->a.batch_rank, mm->a.batch);
    blasd_walk_operand(&walk, 1, mm->b.batch_rank, mm->b.batch);
    for (int64_t i = 0; rows != NULL && columns != NULL && i < mm->batch_count; i++) {
        beyond += count_beyond(task, mm, i * mm->m * mm->n, rows + walk.offset[0] * mm->m,
                               columns + walk.offset[1] * mm->n);
        blasd_walk_next(&walk);
    }
    free(rows);
    free(columns);
    if (beyond > 0 && blasd_wanted())
        blasd_task_warn(task, BLASD_W_overflow,
                        "%lld elements, or sums on the way to them, are beyond the range of %s",
                        (long long)beyond, blasd_dtype_name(out->dtype));
}

/* The dtype in which sums are made. */
static enum blasd_dtype sum_of(const struct blasd_task *task) {
    enum blasd_dtype part = blasd_dtype_part(task->outputs[0].dtype);
    return part == BLASD_float64 ? part : BLASD_float32;
}

/* Whether no sum of products leaves the range: then the result needs no look. */
static bool is_short_of_the_end(struct blasd_task *task, const struct blasd_matmul *mm) {
    int most = sum_of(task) == BLASD_float32 ? FLT_MAX_EXP : DBL_MAX_EXP, terms;
    blasd_task_make_inputs(task);
    frexp((double)mm->k, &terms);
    return range_of(&task->inputs[BLASD_MATMUL_A]).most +
               range_of(&task->inputs[BLASD_MATMUL_B]).most + terms + 1 <
           most - 1;
}

/* Whether an element is so small that products which vanished may be missing from it. */
static bool is_near_nothing(const struct blasd_task *task, const struct blasd_matmul *mm) {
    enum { PART = 1024 };
    const struct blasd_tensor *out = &task->outputs[0], *c = &task->inputs[BLASD_MATMUL_C];
    int parts = blasd_dtype_parts(out->dtype);
    int64_t n = blasd_tensor_elements(out) * parts, done = 0;
    double tiny = sum_of(task) == BLASD_float32 ? (double)FLT_MIN : DBL_MIN, room[PART];
    tiny *= fabs(mm->alpha) * (double)mm->k * parts;
    for (int64_t at = 0; at < n && blasd_wanted_after(&done, PART); at += PART) {
        int64_t count = n - at < PART ? n - at : PART;
        read_numbers(out, at, count, room);
        for (int64_t i = 0; i < count; i++) {
            double added = 0;
            if (!(fabs(room[i]) < tiny)) continue;
            if (mm->add_c)
                read_numbers(
                    c, blasd_matmul_place_of_c(c, out, (at + i) / parts) * parts + (at + i) % parts,
                    1, &added);
            if (fabs(mm->beta * added) < tiny) return true;
        }
    }
    return false;
}

/* Warns where alpha makes products large of which some may have vanished. */
static void judge_underflow(struct blasd_task *task, const struct blasd_matmul *mm) {
    int least = sum_of(task) == BLASD_float32 ? FLT_MIN_EXP : DBL_MIN_EXP;
    if (mm->k == 0 || fabs(mm->alpha) <= 1) return;
    if (mm->add_c) blasd_task_make_inputs(task);
    if (!is_near_nothing(task, mm)) return;
    blasd_task_make_inputs(task);
    if (range_of(&task->inputs[BLASD_MATMUL_A]).least +
            range_of(&task->inputs[BLASD_MATMUL_B]).least >
        least)
        return;
    if (blasd_wanted())
        blasd_task_warn(task, BLASD_W_underflow,
                        "products below the range of %s vanish before alpha multiplies them",
                        blasd_dtype_name(sum_of(task)));
}

void blasd_matmul_judge_range(struct blasd_task *task, const struct blasd_matmul *mm) {
    const struct blasd_tensor *out = &task->outputs[0];
    bool plain = fabs(mm->alpha) <= 1 && !mm->add_c;
    /* of a result larger than its factors these say it sooner */
    if (plain && blasd_dtype_size(out->dtype) > 2 &&
        (double)mm->m * (double)mm->n > (double)(mm->m + mm->n) * (double)mm->k &&
        is_short_of_the_end(task, mm))
        return;
    if (blasd_tensor_first_nonfinite(out->dtype, out->data, blasd_tensor_elements(out)) >= 0)
        judge_overflow(task, mm);
    judge_underflow(task, mm);
}
