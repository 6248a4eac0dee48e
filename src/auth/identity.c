/* What a caller may do. */
#include "auth/identity.h"

#include "base/err.h"

const char *const blasd_role_names[] = {"metrics", "read", "user", "admin", NULL};

const struct blasd_identity blasd_identity_anyone = {.principal.tenant = "anonymous",
                                                     .role = BLASD_ROLE_ADMIN,
                                                     .ops = BLASD_IDENTITY_ALL_OPS,
                                                     .ceiling = BLASD_PRIORITY_HIGH};

int blasd_identity_check_job(const struct blasd_identity *caller, const struct blasd_op *op,
                             enum blasd_priority priority, struct blasd_err *err) {
    if ((caller->ops >> blasd_op_position(op) & 1) == 0)
        return blasd_fail(err, BLASD_E_forbidden, "op", "the key '%s' does not cover %s",
                          caller->name, op->name);
    if (priority < caller->ceiling)
        return blasd_fail(err, BLASD_E_forbidden, "priority",
                          "jobs of the key '%s' have the priority %s at most", caller->name,
                          blasd_priority_names[caller->ceiling]);
    return 0;
}
