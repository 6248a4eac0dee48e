/* Predicts how long a device takes for a job: from usual figures of such devices, and from the jobs
 * that have ended there, which count for more.
 *
 * For each operation and precision there is a curve over the size of one problem (its operations):
 * how long one takes by itself, and how much longer the call gets with each further one. Its points
 * are jobs that ended. Between two points the time is read off the curve. Below and above them, and
 * without any, it follows the usual figures. What is moved is counted apart, so that jobs of any
 * shape can be told: at one rate, or at one for each way where the device tells how long it took.
 * Pure: knows nothing of devices, clocks or the queue. Read next: ../worker/active.c (which tells
 * it of jobs), ../http/placement.h (which asks it). */
#ifndef BLASD_CORE_COST_H
#define BLASD_CORE_COST_H

#include "core/job.h"

#define BLASD_COST_POINTS 16 /* of one curve */
/* What a worker spends on a job beside its kernel: claiming, reading, ending it among others. */
#define BLASD_COST_JOB_S 10e-6
/* Bytes of inputs that a processor makes by rules in a second; a device makes them at no price. */
#define BLASD_COST_MADE_BYTES_S 1e9

enum blasd_cost_precision { BLASD_COST_FLOAT64, BLASD_COST_FLOAT32, BLASD_COST_PRECISIONS };
extern const char *const blasd_cost_precision_names[]; /* float64 float32 */

struct blasd_cost_point {
    double flops;   /* of one problem, as in struct blasd_cost_work */
    double alone_s; /* one problem in a call of its own, without what moving its bytes takes */
    double each_s;  /* what each further one adds; at most alone_s */
};

struct blasd_cost_curve {
    int count;                                         /* 0: no such job has ended */
    struct blasd_cost_point points[BLASD_COST_POINTS]; /* flops rise from one to the next */
};

/* A plain value. Zeroed: nothing is known. */
struct blasd_cost {
    double launch_s;                         /* what a call takes that computes next to nothing */
    double flops_s[BLASD_COST_PRECISIONS];   /* the usual rate of such a device */
    double copy_bytes_s;                     /* inputs and outputs together; 0: nothing is known */
    double upload_bytes_s, download_bytes_s; /* to the device and back; 0: no phases of their own */
    struct blasd_cost_curve curves[BLASD_OPS_MOST]
                                  [BLASD_COST_PRECISIONS]; /* by blasd_op_position */
    /* By operation: what part of the time predicted for all iterations that may be made they take
     * as a rule, where they may end early; 0: not known. */
    double early[BLASD_OPS_MOST];
};

/* What of a job its time depends on. */
struct blasd_cost_work {
    int op; /* its position in blasd_ops */
    enum blasd_cost_precision precision;
    double flops; /* as many of a product take as long: see `slower` of struct blasd_op */
    double items, bytes;
    double out_bytes;  /* of these, what comes back */
    double made_bytes; /* not among `bytes` */
    bool ends_early;   /* it may: `flops` is the most */
    bool least;        /* what it takes at least, however fast the device is with larger work */
};

/* A step of a graph. */
struct blasd_cost_step {
    struct blasd_cost_work work;
    double flops_least; /* what is certain of the operations; 0: all */
    /* of work.bytes, and of its out_bytes, what a card does not move: values of steps stay there,
     * and what more steps read goes up for the first */
    double resident_in, resident_out;
};

struct blasd_cost_guess {
    double alone_s; /* from its start to its end on a device that has nothing else to do */
    double upload_s, download_s; /* of these, for inputs to get there and outputs to come back */
    double share_s; /* what it adds to the work of a device that is busy with jobs of its kind */
};

/* Figures that are usual for a device of this class with so many cores or multiprocessors; no curve
 * has a point yet. */
void blasd_cost_usual(enum blasd_device_class class, int units, struct blasd_cost *ret);
/* Whether there is anything to predict with. */
bool blasd_cost_known(const struct blasd_cost *cost);
/* Adds a point to the end of a curve. False where it has no place there: not finite, not positive,
 * not above the last one, or the curve is full. An each_s above alone_s is cut. */
bool blasd_cost_add(struct blasd_cost_curve *curve, double flops, double alone_s, double each_s);
void blasd_cost_work(const struct blasd_plan *plan, int op, struct blasd_cost_work *ret);
/* How long it takes to move so many bytes in and out; each way by itself where that is known, else
 * *upload_s and *download_s are 0. */
double blasd_cost_move_s(const struct blasd_cost *cost, double in_bytes, double out_bytes,
                         double *upload_s, double *download_s);
/* False where nothing is known of the device; *ret is then as it was. What comes out is finite and
 * positive whatever the work is. */
bool blasd_cost_predict(const struct blasd_cost *cost, const struct blasd_cost_work *work,
                        struct blasd_cost_guess *ret);

/* Of steps that one worker runs one after the other. False where one of them is not known, or there
 * are none; *ret is then as it was. */
bool blasd_cost_predict_steps(const struct blasd_cost *cost, const struct blasd_cost_step *steps,
                              int count, struct blasd_cost_guess *ret);

/* A call with nothing but this work took `seconds`. The least that a size ever took counts, for
 * others may have been in the way; of work that may end early the usual. Does nothing where nothing
 * is known of the device. */
void blasd_cost_learn(struct blasd_cost *cost, const struct blasd_cost_work *work, double seconds);

/* For people: the best rate of an operation, in operations a second. 0: no such job has ended. */
double blasd_cost_best_rate(const struct blasd_cost *cost, int op,
                            enum blasd_cost_precision precision);

#endif
