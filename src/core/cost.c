/* Predicting: between two points of a curve along the straight line in logarithms; below them as
 * the usual figures fall; above them at the rate of the last one, or at the usual rate where
 * starting a call was most of what that took.
 */
#include "core/cost.h"

#include <math.h>
#include <string.h>

#define MOST 1e300    /* what a product of a user's lengths is taken to be at most */
#define MOST_S 1e15   /* seconds; an answer, not a time to wait */
#define SLOWEST 1e-12 /* of points: no clock tells less */
#define FASTEST 20.0  /* no device is so many times as fast as is usual */
#define WORK 10.0     /* times what a call takes: such a job is hardly more than its work */
#define NEAR 2.0      /* a size within this factor of a point is that point */
#define EARLY 0.25    /* weight of the newest job that might end early */
#define EARLY_LEAST (1.0 / 1024)
#define EARLY_S 1e-3 /* shorter ones are mostly overhead */

const char *const blasd_cost_precision_names[] = {"float64", "float32"};

/* Of a core of a processor, and of a multiprocessor of a card: rather too slow than too fast, so
 * that what takes long is not taken for quick. Jobs soon tell. */
static const struct usual {
    double launch_s, flops_s[BLASD_COST_PRECISIONS], copy_bytes_s, way_bytes_s;
} processor = {2e-6, {1e10, 1e10}, 5e9, 0}, card = {20e-6, {5e10, 1e11}, 1e10, 1e10};

void blasd_cost_usual(enum blasd_device_class class, int units, struct blasd_cost *ret) {
    const struct usual *usual = class == BLASD_DEVICE_CUDA ? &card : &processor;
    *ret = (struct blasd_cost){.launch_s = usual->launch_s,
                               .copy_bytes_s = usual->copy_bytes_s,
                               .upload_bytes_s = usual->way_bytes_s,
                               .download_bytes_s = usual->way_bytes_s};
    for (int p = 0; p < BLASD_COST_PRECISIONS; p++)
        ret->flops_s[p] = usual->flops_s[p] * (units > 0 ? units : 1);
}

bool blasd_cost_known(const struct blasd_cost *cost) {
    return cost->copy_bytes_s > 0 && cost->launch_s > 0 && cost->flops_s[0] > 0 &&
           cost->flops_s[1] > 0;
}

bool blasd_cost_add(struct blasd_cost_curve *curve, double flops, double alone_s, double each_s) {
    double last = curve->count > 0 ? curve->points[curve->count - 1].flops : 0;
    if (curve->count >= BLASD_COST_POINTS || !(flops > last) || !(flops <= MOST) ||
        !(alone_s >= SLOWEST) || !(alone_s <= MOST_S) || !(each_s >= SLOWEST) ||
        !(each_s <= MOST_S))
        return false;
    curve->points[curve->count++] =
        (struct blasd_cost_point){flops, alone_s, each_s < alone_s ? each_s : alone_s};
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
    ret->flops = plan->flops * (plan->slower > 1 ? plan->slower : 1);
    ret->items = plan->items;
    ret->made_bytes = (double)plan->made_bytes;
    ret->out_bytes = (double)plan->output_bytes;
    ret->bytes = (double)(plan->input_bytes - plan->made_bytes) + ret->out_bytes;
    ret->ends_early = plan->flops_least > 0 && plan->flops_least < plan->flops;
    ret->least = false;
}

static double usual_s(const struct blasd_cost *cost, enum blasd_cost_precision precision,
                      double flops) {
    return cost->launch_s + flops / cost->flops_s[precision];
}

/* How many times as long as its nearest point a problem takes that is smaller or larger than all
 * points. */
static double outside(const struct blasd_cost *cost, const struct blasd_cost_curve *curve,
                      enum blasd_cost_precision precision, double flops, bool least) {
    const struct blasd_cost_point *first = curve->points, *last = first + curve->count - 1;
    double rate = cost->flops_s[precision];
    if (flops < first->flops)
        return usual_s(cost, precision, flops) / usual_s(cost, precision, first->flops);
    if (flops <= last->flops) return 1;
    if (last->flops > WORK * cost->launch_s * rate) rate = last->flops / last->alone_s;
    return 1 + (flops - last->flops) / (least ? rate * FASTEST : rate) / last->alone_s;
}

/* Where `flops` lies on the curve: the seconds of one alone and of each further one. */
static void read_curve(const struct blasd_cost *cost, const struct blasd_cost_curve *curve,
                       enum blasd_cost_precision precision, double flops, bool least, double *alone,
                       double *each) {
    const struct blasd_cost_point *a = curve->points, *b = a, *last = a + curve->count - 1;
    double along = 0, beyond;
    if (curve->count == 0) {
        *alone = usual_s(cost, precision, flops) / (least ? FASTEST : 1);
        *each = fmax(flops / cost->flops_s[precision] / (least ? FASTEST : 1), SLOWEST);
        return;
    }
    beyond = outside(cost, curve, precision, flops, least);
    for (; b < last && b->flops < flops; b++) a = b;
    if (b->flops < flops) a = b; /* beyond them all */
    if (a < b) along = log(flops / a->flops) / log(b->flops / a->flops);
    if (!(along > 0)) along = 0;
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
    enum blasd_cost_precision precision = work->precision;
    double items = tame(work->items, MOST), flops = tame(work->flops, MOST), alone, each, move;
    if (work->op < 0 || work->op >= BLASD_OPS_MOST || !blasd_cost_known(cost)) return false;
    /* half the truth is better than none: the other precision is at most some times faster */
    if (cost->curves[work->op][precision].count == 0 &&
        cost->curves[work->op][!precision].count > 0)
        precision = !precision;
    curve = &cost->curves[work->op][precision];
    if (items < 1) items = 1;
    read_curve(cost, curve, precision, flops / items, work->least, &alone, &each);
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

/* One problem of this size took `alone` seconds, each further one `each`. */
static void learn_point(struct blasd_cost_curve *curve, double flops, double alone, double each) {
    struct blasd_cost_point *point;
    int i = 0;
    while (i < curve->count && curve->points[i].flops * NEAR < flops) i++;
    point = &curve->points[i];
    if (i < curve->count && point->flops < flops * NEAR) {
        double scale = point->flops / flops;
        point->alone_s = fmin(point->alone_s, alone * scale);
        point->each_s = fmin(fmin(point->each_s, each * scale), point->alone_s);
    } else if (curve->count < BLASD_COST_POINTS) {
        memmove(point + 1, point, (size_t)(curve->count++ - i) * sizeof *point);
        *point = (struct blasd_cost_point){flops, alone, fmin(each, alone)};
    }
}

void blasd_cost_learn(struct blasd_cost *cost, const struct blasd_cost_work *work, double seconds) {
    struct blasd_cost_work all = *work;
    struct blasd_cost_guess guess;
    double items = fmax(tame(work->items, MOST), 1), flops = tame(work->flops, MOST) / items;
    double share, move, up, down, rest;
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
    /* where it lies in caches, moving costs less than its share */
    rest = fmin(fmax(seconds - move, seconds / 20), MOST_S);
    if (flops >= 1 && rest >= SLOWEST * items)
        learn_point(&cost->curves[work->op][work->precision], flops,
                    items > 1 ? rest / items + cost->launch_s : rest, rest / items);
}

double blasd_cost_best_rate(const struct blasd_cost *cost, int op,
                            enum blasd_cost_precision precision) {
    const struct blasd_cost_curve *curve = &cost->curves[op][precision];
    double best = 0;
    for (int i = 0; i < curve->count; i++)
        best = fmax(best, curve->points[i].flops / curve->points[i].alone_s);
    return best;
}
