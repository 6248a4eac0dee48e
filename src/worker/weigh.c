/* One rate for each operation, moved a little by each batch large enough to tell it. */
#include "worker/weigh.h"

#define NS_PER_BYTE 0.5   /* of inputs, outputs and workspace: to be read, or made, once */
#define NS_PER_FLOP 0.1   /* until something has run: rather too slow than too fast */
#define LEAST_RATE 1e-4   /* ns a flop that are believed */
#define MOST_RATE 10.0    /* iterations that the plan does not foresee */
#define TELLING_FLOPS 4e6 /* smaller batches are mostly overhead */
#define WEIGHT 0.25       /* of the newest batch */

void blasd_weigher_init(struct blasd_weigher *weigher) {
    for (int i = 0; i < BLASD_OPS_MOST; i++) atomic_init(&weigher->ns_per_flop[i], NS_PER_FLOP);
}

static int place_of(const struct blasd_op *op) {
    int i = 0;
    while (i < BLASD_OPS_MOST - 1 && blasd_ops[i] != NULL && blasd_ops[i] != op) i++;
    return i;
}

double blasd_weigh(const struct blasd_weigher *weigher, const struct blasd_op *op, double flops,
                   double bytes) {
    return flops * atomic_load(&weigher->ns_per_flop[place_of(op)]) + bytes * NS_PER_BYTE;
}

void blasd_weigh_learn(struct blasd_weigher *weigher, const struct blasd_op *op, double flops,
                       double bytes, int64_t ns) {
    int place = place_of(op);
    double rate, before = atomic_load(&weigher->ns_per_flop[place]);
    if (!(flops >= TELLING_FLOPS)) return;
    /* work that memory bounds says nothing of the rate but that it is no lower than this */
    rate = ((double)ns - bytes * NS_PER_BYTE) / flops;
    if (!(rate >= LEAST_RATE)) rate = LEAST_RATE;
    if (rate > MOST_RATE) rate = MOST_RATE;
    atomic_store(&weigher->ns_per_flop[place], before + (rate - before) * WEIGHT);
}
