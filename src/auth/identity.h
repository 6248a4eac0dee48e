/* Who sent a request and what they may do: their tenant, role and scopes, and the limits of their
 * key. A plain value that each request carries, so that a key may change meanwhile.
 * Read next: auth.h, for how a request shows who sent it. */
#ifndef BLASD_AUTH_IDENTITY_H
#define BLASD_AUTH_IDENTITY_H

#include "core/job.h"
#include "core/principal.h"

#include <stdbool.h>
#include <stddef.h>

/* What a role may ask for is told by the table of routes (../http/routes.c). */
enum blasd_role {
    BLASD_ROLE_METRICS, /* how the service fares: metrics, health, devices */
    BLASD_ROLE_READ,    /* looks at its tenant's jobs */
    BLASD_ROLE_USER,    /* submits and cancels them too */
    BLASD_ROLE_ADMIN,   /* everything */
    BLASD_ROLE_COUNT
};
extern const char *const blasd_role_names[]; /* by role */
/* The role of that name; false: none. */
bool blasd_role_find(const char *name, enum blasd_role *role);
/* Whether a text may be the name of a key or a tenant: letters, digits, '.', '_' and '-',
 * and not who everybody is without keys: "anonymous", of whom no account is kept. */
bool blasd_key_name_valid(const char *text, size_t size);

#define BLASD_IDENTITY_NAME 64 /* bytes of a key's name with its zero */

struct blasd_identity {
    struct blasd_principal principal;
    char name[BLASD_IDENTITY_NAME]; /* of the key, for the log; "" where there are no keys */
    enum blasd_role role;
    uint32_t ops;                /* a bit for each position in blasd_ops that it may run */
    enum blasd_priority ceiling; /* the highest priority that its jobs may have */
    uint64_t job_s;              /* how long a job may compute, as blasd_job.most_s */
    uint64_t jobs_per_s;         /* jobs it may submit a second; 0: any number */
};
#define BLASD_IDENTITY_ALL_OPS UINT32_MAX
_Static_assert(BLASD_OPS_MOST <= 32, "a caller's operations are 32 bits");

/* Who everybody is where there are no keys: the tenant "anonymous", which may do everything. */
extern const struct blasd_identity blasd_identity_anyone;

/* Whether its key covers the operation, and the priority. 0, or forbidden. */
int blasd_identity_check_job(const struct blasd_identity *caller, const struct blasd_op *op,
                             enum blasd_priority priority, struct blasd_err *err);

#endif
