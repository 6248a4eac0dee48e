/* Claims as JSON: {"tenant":"t","role":"user","ops":["matmul"],"limits":{"jobs":100,…}}. */
#include "auth/claims.h"

#include "auth/key.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_MOST (INT64_C(1) << 53) /* more is no whole number to others who read JSON */

/* The limits that are numbers. */
static const struct {
    const char *name;
    size_t at;
    int64_t most;
} numbers[] = {
    {"jobs", offsetof(struct blasd_identity, principal.quotas.jobs), NUMBER_MOST},
    {"bytes", offsetof(struct blasd_identity, principal.quotas.bytes), NUMBER_MOST},
    {"stored_bytes", offsetof(struct blasd_identity, principal.quotas.stored_bytes), NUMBER_MOST},
    {"jobs_per_s", offsetof(struct blasd_identity, jobs_per_s), 1000000},
    {"job_s", offsetof(struct blasd_identity, job_s), UINT16_MAX},
};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static int wrong(struct blasd_err *err, const char *member, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_field, member, "'%s' is %s", member, what);
}

static int read_priority(const json_t *value, struct blasd_identity *caller,
                         struct blasd_err *err) {
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && i < BLASD_PRIORITY_COUNT; i++)
        if (strcmp(blasd_priority_names[i], text) == 0) {
            caller->ceiling = (enum blasd_priority)i;
            return 0;
        }
    return wrong(err, "limits.priority", "\"high\", \"normal\" or \"low\"");
}

static int read_limit(const char *name, const json_t *value, struct blasd_identity *caller,
                      struct blasd_err *err) {
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : 0;
    int64_t most = strcmp(name, "weight") == 0 ? BLASD_WEIGHT_MOST : 0;
    size_t i = 0;
    if (strcmp(name, "priority") == 0) return read_priority(value, caller, err);
    while (i < NUMBERS && strcmp(numbers[i].name, name) != 0) i++;
    if (i < NUMBERS) most = numbers[i].most;
    if (most == 0)
        return blasd_fail(err, BLASD_E_invalid_field, "limits", "no limit is called '%.40s'", name);
    if (number < 1 || number > most)
        return blasd_fail(err, BLASD_E_invalid_field, "limits",
                          "the limit '%.40s' is a whole number from 1 to %" PRId64, name, most);
    if (i < NUMBERS)
        memcpy((char *)caller + numbers[i].at, &(uint64_t){(uint64_t)number}, sizeof(uint64_t));
    else
        caller->principal.weight = (unsigned)number;
    return 0;
}

static int read_ops(const json_t *list, struct blasd_identity *caller, struct blasd_err *err) {
    size_t i;
    json_t *name;
    if (!json_is_array(list)) return wrong(err, "ops", "a list of operations");
    caller->ops = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, name) {
        /* one that this build does not have covers nothing */
        const struct blasd_op *op =
            json_is_string(name) ? blasd_op_find(json_string_value(name)) : NULL;
        if (!json_is_string(name)) return wrong(err, "ops", "a list of operations");
        if (op != NULL) caller->ops |= UINT32_C(1) << blasd_op_position(op);
    }
    return 0;
}

int auth_claims_read(const json_t *object, struct blasd_identity *caller, struct blasd_err *err) {
    const json_t *tenant = json_object_get(object, "tenant"),
                 *role = json_object_get(object, "role"), *ops = json_object_get(object, "ops"),
                 *limits = json_object_get(object, "limits");
    const char *name;
    json_t *value;
    if (tenant != NULL &&
        (!json_is_string(tenant) ||
         !blasd_key_name_valid(json_string_value(tenant), sizeof caller->principal.tenant)))
        return wrong(err, "tenant",
                     "a name of up to 31 letters, digits, '.', '_' and '-', and not anonymous");
    if (tenant != NULL)
        snprintf(caller->principal.tenant, sizeof caller->principal.tenant, "%s",
                 json_string_value(tenant));
    if (role != NULL &&
        (!json_is_string(role) || !blasd_role_find(json_string_value(role), &caller->role)))
        return wrong(err, "role", "\"admin\", \"user\", \"read\" or \"metrics\"");
    if (ops != NULL && read_ops(ops, caller, err) != 0) return -(int)err->code;
    if (limits != NULL && !json_is_object(limits)) return wrong(err, "limits", "an object");
    if (caller->principal.weight == 0) caller->principal.weight = 1;
    json_object_foreach((json_t *)(uintptr_t)limits, name, value) {
        int rc = read_limit(name, value, caller, err);
        if (rc != 0) return rc;
    }
    return 0;
}

static json_t *list_ops(uint32_t ops) {
    json_t *list = json_array();
    for (int i = 0; blasd_ops[i] != NULL; i++)
        if ((ops >> i & 1) != 0) json_array_append_new(list, json_string(blasd_ops[i]->name));
    return list;
}

int auth_claims_write(const struct blasd_identity *caller, json_t *object) {
    json_t *limits = json_object();
    int failed = limits == NULL;
    for (size_t i = 0; i < NUMBERS; i++) {
        uint64_t number;
        memcpy(&number, (const char *)caller + numbers[i].at, sizeof number);
        if (number != 0)
            failed |=
                json_object_set_new(limits, numbers[i].name, json_integer((json_int_t)number));
    }
    if (caller->principal.weight > 1)
        failed |= json_object_set_new(limits, "weight", json_integer(caller->principal.weight));
    if (caller->ceiling != BLASD_PRIORITY_HIGH)
        failed |= json_object_set_new(limits, "priority",
                                      json_string(blasd_priority_names[caller->ceiling]));
    failed |= json_object_set_new(object, "tenant", json_string(caller->principal.tenant));
    failed |= json_object_set_new(object, "role", json_string(blasd_role_names[caller->role]));
    if (caller->ops != BLASD_IDENTITY_ALL_OPS)
        failed |= json_object_set_new(object, "ops", list_ops(caller->ops));
    if (json_object_size(limits) > 0) failed |= json_object_set(object, "limits", limits);
    json_decref(limits);
    return failed == 0 ? 0 : -1;
}

int auth_claims_only(const json_t *object, const char *const *known, struct blasd_err *err) {
    static const char *const claims[] = {"tenant", "role", "ops", "limits", NULL};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool found = false;
        for (int i = 0; claims[i] != NULL; i++) found |= strcmp(claims[i], name) == 0;
        for (int i = 0; known[i] != NULL; i++) found |= strcmp(known[i], name) == 0;
        if (!found)
            return blasd_fail(err, BLASD_E_unknown_field, name, "'%.40s' is not known here", name);
    }
    return 0;
}
