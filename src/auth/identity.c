/* What a caller may do. */
#include "auth/identity.h"

#include "base/err.h"

#include <string.h>

const char *const blasd_role_names[] = {"metrics", "read", "user", "admin", NULL};

const struct blasd_identity blasd_identity_anyone = {.principal.tenant = "anonymous",
                                                     .role = BLASD_ROLE_ADMIN,
                                                     .ops = BLASD_IDENTITY_ALL_OPS,
                                                     .ceiling = BLASD_PRIORITY_HIGH};

bool blasd_role_find(const char *name, enum blasd_role *role) {
    for (int i = 0; i < BLASD_ROLE_COUNT; i++)
        if (strcmp(blasd_role_names[i], name) == 0) {
            *role = (enum blasd_role)i;
            return true;
        }
    return false;
}

bool blasd_key_name_valid(const char *text, size_t size) {
    size_t len = strlen(text);
    if (strcmp(text, blasd_identity_anyone.principal.tenant) == 0) return false;
    return len > 0 && len < size &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

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
