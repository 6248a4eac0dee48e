/* The table of metrics. */
#include "base/metric_table.h"

static const struct blasd_metric_info infos[] = {
#define X(name, type, labels, scope, meaning) {#name, #type, labels, #scope, meaning},
    BLASD_METRICS(X)
#undef X
};

const struct blasd_metric_info *blasd_metric_info(enum blasd_metric metric) {
    return &infos[metric];
}
