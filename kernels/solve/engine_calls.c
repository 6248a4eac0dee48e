/* What either precision of the engine calls: the watch, and the condition estimate.
 * Read next: engine_body.h. */
#include "core/wanted.h"
#include "kernels/solve/engine.h"
#include "kernels/solve/estimate.h"

bool blasd_engine_step(struct blasd_engine *e, double share) {
    double progress = e->from + (e->to - e->from) * share;
    return blasd_wanted_at(progress < e->to ? progress : e->to);
}

struct inverse {
    struct blasd_engine *engine;
    void (*apply)(struct blasd_engine *engine, double *v, bool transposed);
};

static bool apply_inverse(void *arg, double *v, bool transposed) {
    struct inverse *inverse = arg;
    inverse->apply(inverse->engine, v, transposed);
    return blasd_wanted();
}

double blasd_engine_norm_inverse(struct blasd_engine *e,
                                 void (*apply)(struct blasd_engine *engine, double *v,
                                               bool transposed)) {
    struct inverse inverse = {e, apply};
    return blasd_norm_inverse(e->n, e->v, e->sign, apply_inverse, &inverse);
}
