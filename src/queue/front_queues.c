/* Which queue. Read next: front_sums.c. */
#include "queue/front_queues.h"

#include "queue/front_set.h"

#include <stdlib.h>
#include <string.h>

int blasd_front_queues_open(const struct blasd_queue_options *options, struct blasd_loop *loop,
                            const struct blasd_front_queue_hooks *hooks,
                            struct blasd_front_queues **ret, struct blasd_err *err) {
    struct blasd_front_queues *all = calloc(1, sizeof *all);
    struct blasd_queue_one one;
    int code = 0;
    *ret = NULL;
    if (all == NULL) return blasd_fail(err, BLASD_E_internal_error, "", "out of memory");
    all->options = *options;
    blasd_list_init(&all->questions);
    for (; code == 0 && all->count < blasd_queue_count(options); all->count += code == 0) {
        blasd_queue_one(options, all->count, &one);
        code = blasd_front_queue_open(&one.options, loop, hooks, &all->of[all->count], err);
        if (code == 0 && one.options.queues > 1)
            blasd_front_queue_served(all->of[all->count], &all->view);
    }
    if (code == 0)
        *ret = all;
    else
        blasd_front_queues_free(all);
    return code;
}

void blasd_front_queues_free(struct blasd_front_queues *all) {
    if (all == NULL) return;
    for (int i = 0; i < all->count; i++) blasd_front_queue_free(all->of[i]);
    front_sums_free(all);
    free(all);
}

void blasd_front_queues_flush(struct blasd_front_queues *all) {
    if (all->taken) all->turn = (all->turn + 1) % all->count;
    all->taken = false;
    for (int i = 0; i < all->count; i++) blasd_front_queue_flush(all->of[i]);
    (void)blasd_front_queues_view(all);
}

int blasd_front_queues_number(const struct blasd_front_queues *all, const char *id) {
    return all->count == 1 ? 0 : blasd_queue_of(&all->options, id);
}

struct blasd_front_queue *blasd_front_queues_of(const struct blasd_front_queues *all,
                                                const char *id) {
    return all->of[blasd_front_queues_number(all, id)];
}

/* Every front end must come to the same. */
static int home_of(const struct blasd_front_queues *all, const struct blasd_principal *principal) {
    const char *tenant = principal->tenant;
    if (all->count == 1) return 0;
    return (int)(blasd_hash_bytes(0, tenant, strlen(tenant)) % (uint64_t)all->count);
}

struct blasd_front_queue *blasd_front_queues_home(const struct blasd_front_queues *all,
                                                  const struct blasd_principal *principal) {
    return all->of[home_of(all, principal)];
}

bool blasd_front_queues_bound(const struct blasd_front_want *want) {
    const struct blasd_quotas *quotas = &want->principal->quotas;
    return want->keyed || quotas->jobs > 0 || quotas->bytes > 0 || quotas->stored_bytes > 0;
}

static bool has_room(const struct blasd_front_queues *all, int i,
                     const struct blasd_front_want *want) {
    const struct blasd_queue_view *view = blasd_front_queue_view(all->of[i]);
    return view->available && view->jobs + want->coming[i] < view->jobs_limit &&
           want->bytes <= view->bytes_limit && view->bytes <= view->bytes_limit - want->bytes &&
           (want->waited_for || view->kept < view->kept_limit);
}

struct blasd_front_queue *blasd_front_queues_choose(struct blasd_front_queues *all,
                                                    const struct blasd_front_want *want) {
    int home, first;
    if (all->count == 1) return all->of[0];
    home = home_of(all, want->principal);
    if (blasd_front_queues_bound(want)) return all->of[home];
    first = want->waited_for ? all->turn : home;
    for (int k = 0; k < all->count; k++) {
        int i = (first + k) % all->count;
        if (!has_room(all, i, want)) continue;
        if (want->waited_for) {
            all->turn = i;
            all->taken = true;
        }
        return all->of[i];
    }
    for (int k = 0; k < all->count; k++) /* one that says it is full rather than one that is away */
        if (blasd_front_queue_view(all->of[(first + k) % all->count])->available)
            return all->of[(first + k) % all->count];
    return all->of[first];
}

static void add_view(struct blasd_queue_view *sum, const struct blasd_queue_view *one) {
    sum->available |= one->available;
    sum->jobs += one->jobs;
    sum->bytes += one->bytes;
    sum->jobs_limit += one->jobs_limit;
    sum->bytes_limit += one->bytes_limit;
    sum->kept += one->kept;
    sum->kept_limit += one->kept_limit;
    if (!one->available) return;
    for (int c = 0; c < BLASD_DEVICE_CLASS_COUNT; c++)
        if (one->workers_of[c] > sum->workers_of[c]) sum->workers_of[c] = one->workers_of[c];
}

const struct blasd_queue_view *blasd_front_queues_view(struct blasd_front_queues *all) {
    struct blasd_queue_view *sum = &all->view;
    if (all->count == 1) return blasd_front_queue_view(all->of[0]);
    *sum = (struct blasd_queue_view){.trouble = blasd_front_queue_view(all->of[0])->trouble};
    for (int i = 0; i < all->count; i++) add_view(sum, blasd_front_queue_view(all->of[i]));
    for (int c = 0; c < BLASD_DEVICE_CLASS_COUNT; c++) sum->workers += sum->workers_of[c];
    return sum;
}

void blasd_front_queues_subscribe(struct blasd_front_queues *all, bool wanted) {
    for (int i = 0; i < all->count; i++) blasd_front_queue_subscribe(all->of[i], wanted);
}

void blasd_front_queues_tag(const struct blasd_front_queues *all,
                            const struct blasd_principal *principal,
                            char tag[BLASD_TENANT_TAG + 1]) {
    blasd_front_queue_tag(blasd_front_queues_home(all, principal), principal, tag);
}
