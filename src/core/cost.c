/* Predicting from measured points: between two of them along the straight line in logarithms, below
 * the first as it, above the last at its rate; the least that may be, at that of what it is above
 * the first, for a curve that ends where starting a call is all may say nothing of larger work. */
#include "core/cost.h"

#include <math.h>
#include <string.h>

#define MOST 1e300    /* what a product of a user's lengths is taken to be at most */
#define MOST_S 1e15   /* seconds; an answer, not a time to wait */
#define SLOWEST 1e-12 /* of points: no clock tells less */
#define NEAR 2.0      /* a size within this factor of a point is that point */
#define EARLY 0.25    /* weight of the newest job that might end early */
#define EARLY_LEAST (1.0 / 1024)
#define EARLY_S 1e-3 /* shorter ones are mostly overhead */

const char *const blasd_cost_precision_names[] = {"float64", "float32"};

bool blasd_cost_known(const struct blasd_cost *cost) {
    return cost->copy_bytes_s > 0 && blasd_cost_launch_s(cost) > 0;
}

bool blasd_cost_add(struct blasd_cost_curve *curve, double flops, double alone_s, double each_s) {
    double last = curve->count > 0 ? curve->points[curve->count - 1].flops : 0;
    if (curve->count >= BLASD_COST_POINTS || !(flops > last) || !(flops <= MOST) ||
        !(alone_s >= SLOWEST) || !(alone_s <= MOST_S) || !(each_s >= SLOWEST) ||
        !(each_s <= MOST_S))
        return false;
    curve->points[curve->count++] =
        (struct blasd_cost_point){flops, alone_s, each_s < alone_s ? each_s : alone_s};
    curve->measured = curve->count;
    return true;
}

/* Not negative, not infinite, no NaN. */
static double tame(double value, double most) {
    if (!(value > 0)) return 0;
    return value < most ? value : most;
}

void blasd_cost_work(const struct blasd_plan *plan, int op, struct blasd_cost_work *ret) {
    enum blasd_dtype dtype = plan->input_dtype[0];
    ret->op = op;
    ret->precision = blasd_dtype_size(dtype) >= 8 && dtype != BLASD_complex64 ? BLASD_COST_FLOAT64
                                                                              : BLASD_COST_FLOAT32;
    ret->flops = plan->flops;
    ret->items = plan->items;
    ret->made_bytes = (double)plan->made_bytes;
    ret->out_bytes = (double)plan->output_bytes;
    ret->bytes = (double)(plan->input_bytes - plan->made_bytes) + ret->out_bytes;
    ret->ends_early = plan->flops_least > 0 && plan->flops_least < plan->flops;
    ret->least = false;
}

/* Where `flops` lies on the curve: the seconds of one alone and of each further one. */
static void read_curve(const struct blasd_cost_curve *curve, double flops, bool least,
                       double *alone, double *each) {
    const struct blasd_cost_point *a = curve->points, *b = a, *last = a + curve->count - 1;
    double along = 0, beyond = flops > last->flops ? flops / last->flops : 1;
    if (least && beyond > 1) {
        double rise = (last->alone_s - a->alone_s) / last->alone_s, reach = last->flops - a->flops;
        beyond = rise > 0 ? 1 + rise * (flops - last->flops) / reach : 1;
    }
    for (; b < last && b->flops < flops; b++) a = b;
    if (b->flops < flops) a = b; /* beyond them all */
    if (a < b) along = log(flops / a->flops) / log(b->flops / a->flops);
    *alone = a->alone_s * pow(b->alone_s / a->alone_s, along) * beyond;
    *each = a->each_s * pow(b->each_s / a->each_s, along) * beyond;
}

double blasd_cost_move_s(const struct blasd_cost *cost, double in_bytes, double out_bytes,
                         double *upload_s, double *download_s) {
    bool apart = cost->upload_bytes_s > 0 && cost->download_bytes_s > 0;
    *upload_s = apart ? tame(in_bytes, MOST) / cost->upload_bytes_s : 0;
    *download_s = apart ? tame(out_bytes, MOST) / cost->download_bytes_s : 0;
    return apart ? *upload_s + *download_s : tame(in_bytes + out_bytes, MOST) / cost->copy_bytes_s;
}

bool blasd_cost_predict(const struct blasd_cost *cost, const struct blasd_cost_work *work,
                        struct blasd_cost_guess *ret) {
    const struct blasd_cost_curve *curve;
    double items = tame(work->items, MOST), flops = tame(work->flops, MOST), alone, each, move;
    if (work->op < 0 || work->op >= BLASD_OPS_MOST || !(cost->copy_bytes_s > 0)) return false;
    curve = &cost->curves[work->op][work->precision];
    /* half the truth is better than none: the other precision is at most some times faster */
    if (curve->count == 0) curve = &cost->curves[work->op][!work->precision];
    if (curve->count == 0) return false;
    if (items < 1) items = 1;
    read_curve(curve, flops / items, work->least, &alone, &each);
    if (work->ends_early && cost->early[work->op] > 0) {
        alone *= cost->early[work->op];
        each *= cost->early[work->op];
    }
    move = blasd_cost_move_s(cost, work->bytes - work->out_bytes, work->out_bytes, &ret->upload_s,
                             &ret->download_s) +
           tame(work->made_bytes, MOST) / BLASD_COST_MADE_BYTES_S;
    ret->alone_s = tame(alone + (items - 1) * each + move + BLASD_COST_JOB_S, MOST_S);
    ret->share_s = tame(items * each + move + BLASD_COST_JOB_S, MOST_S);
    return true;
}

bool blasd_cost_predict_steps(const struct blasd_cost *cost, const struct blasd_cost_step *steps,
                              int count, struct blasd_cost_guess *ret) {
    struct blasd_cost_guess all = {BLASD_COST_JOB_S, 0, 0, BLASD_COST_JOB_S}, one;
    if (count < 1) return false;
    for (int s = 0; s < count; s++) {
        if (!blasd_cost_predict(cost, &steps[s].work, &one)) return false;
        all.alone_s = tame(all.alone_s + one.alone_s - BLASD_COST_JOB_S, MOST_S);
        all.upload_s = tame(all.upload_s + one.upload_s, MOST_S);
        all.download_s = tame(all.download_s + one.download_s, MOST_S);
    }
    all.share_s = all.alone_s; /* its steps join no others */
    *ret = all;
    return true;
}

/* One problem of this size took `alone` seconds. What was measured stands. */
static void learn_point(struct blasd_cost_curve *curve, double flops, double alone,
                        double launch_s) {
    struct blasd_cost_point *point;
    int i = 0;
    if (curve->count == 0) blasd_cost_add(curve, 1, launch_s, launch_s);
    while (i < curve->count && curve->points[i].flops * NEAR < flops) i++;
    if (i < curve->measured) return;
    point = &curve->points[i];
    if (i < curve->count && point->flops < flops * NEAR) {
        alone *= point->flops / flops;
        if (alone < point->alone_s) point->alone_s = point->each_s = alone;
    } else if (curve->count < BLASD_COST_POINTS) {
        memmove(point + 1, point, (size_t)(curve->count++ - i) * sizeof *point);
        *point = (struct blasd_cost_point){flops, alone, alone};
    }
}

void blasd_cost_learn(struct blasd_cost *cost, const struct blasd_cost_work *work, double seconds) {
    struct blasd_cost_work all = *work;
    struct blasd_cost_guess guess;
    double flops = tame(work->flops, MOST), share, move, up, down;
    if (!blasd_cost_known(cost) || work->op < 0 || work->op >= BLASD_OPS_MOST) return;
    if (work->ends_early) {
        double *early = &cost->early[work->op];
        all.ends_early = false;
        all.made_bytes = 0; /* the call is told by what it computed */
        if (!blasd_cost_predict(cost, &all, &guess) || guess.alone_s < EARLY_S) return;
        share = seconds / guess.alone_s;
        if (!(share >= EARLY_LEAST)) share = EARLY_LEAST;
        if (share > 1) share = 1;
        *early = *early > 0 ? *early + (share - *early) * EARLY : share;
        return;
    }
    move = blasd_cost_move_s(cost, work->bytes - work->out_bytes, work->out_bytes, &up, &down);
    if (work->items <= 1 && flops > NEAR && seconds > move)
        learn_point(&cost->curves[work->op][work->precision], flops, seconds - move,
                    blasd_cost_launch_s(cost));
}

static void adopt_curve(struct blasd_cost_curve *curve, const struct blasd_cost_curve *learnt) {
    int measured = curve->measured;
    double known = curve->count > 0 ? curve->points[curve->count - 1].flops : 0;
    for (int i = 0; i < learnt->count; i++) {
        const struct blasd_cost_point *point = &learnt->points[i];
        if (point->flops >= NEAR * known)
            blasd_cost_add(curve, point->flops, point->alone_s, point->each_s);
    }
    curve->measured = measured;
}

void blasd_cost_adopt(struct blasd_cost *cost, const struct blasd_cost *learnt) {
    for (int op = 0; op < BLASD_OPS_MOST; op++) {
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++)
            adopt_curve(&cost->curves[op][p], &learnt->curves[op][p]);
        if (learnt->early[op] > 0) cost->early[op] = learnt->early[op];
    }
}

double blasd_cost_launch_s(const struct blasd_cost *cost) {
    double least = 0;
    for (int op = 0; op < BLASD_OPS_MOST; op++)
        for (int p = 0; p < BLASD_COST_PRECISIONS; p++) {
            const struct blasd_cost_curve *curve = &cost->curves[op][p];
            if (curve->count > 0 && (least == 0 || curve->points[0].alone_s < least))
                least = curve->points[0].alone_s;
        }
    return least;
}

double blasd_cost_best_rate(const struct blasd_cost *cost, enum blasd_cost_precision precision) {
    double best = 0;
    for (int op = 0; op < BLASD_OPS_MOST; op++) {
        const struct blasd_cost_curve *curve = &cost->curves[op][precision];
        for (int i = 0; i < curve->count; i++) {
            double rate = curve->points[i].flops / curve->points[i].alone_s;
            if (rate > best) best = rate;
        }
    }
    return best;
}
