/* The costs under a lock. */
#include "worker/estimate.h"

/* While nothing is known of an operation: rather too slow than too fast. */
#define NS_PER_FLOP 0.1
#define NS_PER_BYTE 0.5

void blasd_estimate_init(struct blasd_estimate *estimate) {
    *estimate = (struct blasd_estimate){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void blasd_estimate_set(struct blasd_estimate *estimate, const struct blasd_cost *cost) {
    pthread_mutex_lock(&estimate->lock);
    estimate->cost = *cost;
    pthread_mutex_unlock(&estimate->lock);
}

void blasd_estimate_get(struct blasd_estimate *estimate, struct blasd_cost *ret) {
    pthread_mutex_lock(&estimate->lock);
    *ret = estimate->cost;
    pthread_mutex_unlock(&estimate->lock);
}

double blasd_estimate_ns(struct blasd_estimate *estimate, const struct blasd_op *op,
                         const struct blasd_plan *plan) {
    struct blasd_cost_work work;
    struct blasd_cost_guess guess;
    bool known;
    blasd_cost_work(plan, blasd_op_position(op), &work);
    pthread_mutex_lock(&estimate->lock);
    known = blasd_cost_predict(&estimate->cost, &work, &guess);
    pthread_mutex_unlock(&estimate->lock);
    return known ? guess.alone_s * 1e9
                 : work.flops * NS_PER_FLOP +
                       (work.bytes + (double)plan->workspace_bytes) * NS_PER_BYTE;
}

void blasd_estimate_learn(struct blasd_estimate *estimate, const struct blasd_task *tasks,
                          int count, int64_t ns) {
    struct blasd_cost_work work, all = {.items = 0};
    for (int i = 0; i < count; i++) {
        blasd_cost_work(tasks[i].plan, blasd_op_position(tasks[i].job->op), &work);
        if (i == 0) all = work;
        all.flops += i > 0 ? work.flops : 0;
        all.bytes += i > 0 ? work.bytes : 0;
        all.items = i > 0 ? all.items + work.items : work.items;
    }
    pthread_mutex_lock(&estimate->lock);
    blasd_cost_learn(&estimate->cost, &all, (double)ns * 1e-9);
    pthread_mutex_unlock(&estimate->lock);
}
