/* Who asks, as far as jobs and tensors go: the tenant whose they are, and what it may take up.
 * A plain value. Read next: ../auth/identity.h, for what a caller may do. */
#ifndef BLASD_CORE_PRINCIPAL_H
#define BLASD_CORE_PRINCIPAL_H

#include <stdint.h>

#define BLASD_TENANT_MAX 32 /* bytes of a tenant's name, of [A-Za-z0-9._-], with its zero */

#define BLASD_WEIGHT_MOST 1000

/* What a tenant may take up in all; 0: the service's own limits alone. */
struct blasd_quotas {
    uint64_t jobs, bytes;  /* queued or running, counted as queue_jobs and queue_bytes are */
    uint64_t stored_bytes; /* results and tensors that are kept */
};

struct blasd_principal {
    char tenant[BLASD_TENANT_MAX];
    unsigned weight; /* of its share of the devices beside other tenants'; 0: there are no keys, and
                        no account of it is kept */
    struct blasd_quotas quotas;
};

#endif
