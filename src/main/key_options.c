/* Reading the options of `blasd keys add`. */
#include "main/key_options.h"

#include "base/clock.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_TENANT = 1000,
    OPTION_ROLE,
    OPTION_OPS,
    OPTION_EXPIRES,
    OPTION_CERTIFICATE,
    OPTION_PRIORITY,
    OPTION_JOBS,
    OPTION_BYTES,
    OPTION_STORED,
    OPTION_RATE,
    OPTION_TIME,
    OPTION_WEIGHT
};

const struct option key_options[] = {{"file", required_argument, NULL, 'f'},
                                     {"help", no_argument, NULL, 'h'},
                                     {"tenant", required_argument, NULL, OPTION_TENANT},
                                     {"role", required_argument, NULL, OPTION_ROLE},
                                     {"ops", required_argument, NULL, OPTION_OPS},
                                     {"expires", required_argument, NULL, OPTION_EXPIRES},
                                     {"certificate", required_argument, NULL, OPTION_CERTIFICATE},
                                     {"max-priority", required_argument, NULL, OPTION_PRIORITY},
                                     {"max-jobs", required_argument, NULL, OPTION_JOBS},
                                     {"max-bytes", required_argument, NULL, OPTION_BYTES},
                                     {"max-stored-bytes", required_argument, NULL, OPTION_STORED},
                                     {"max-jobs-per-second", required_argument, NULL, OPTION_RATE},
                                     {"max-job-seconds", required_argument, NULL, OPTION_TIME},
                                     {"weight", required_argument, NULL, OPTION_WEIGHT},
                                     {NULL, 0, NULL, 0}};

const char key_options_usage[] =
    "  --tenant T             set the tenant of its jobs (NAME)\n"
    "  --role ROLE            set user (default), read, metrics or admin\n"
    "  --ops OP[,OP…]         allow these operations only\n"
    "  --expires WHEN         set the end: 2027-01-31, 2027-01-31T12:00:00Z, or 90d\n"
    "  --certificate NAME     accept a client certificate with this common name\n"
    "                         instead of a secret (see --tls-client-ca of `blasd up`)\n"
    "  --max-priority P       limit the priority: high (default), normal or low\n"
    "  --max-jobs N           limit the tenant's queued and running jobs\n"
    "  --max-bytes N          limit their inputs and outputs; K, M, G, T are accepted\n"
    "  --max-stored-bytes N   limit the tenant's stored results and tensors\n"
    "  --max-jobs-per-second N\n"
    "                         limit requests about jobs and tensors\n"
    "  --max-job-seconds N    limit the run time of a job\n"
    "  --weight N             set the tenant's share of the devices (1)\n";

static int wrong(struct blasd_err *err, const char *option, const char *value, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_field, option, "--%s '%.60s' is not %s", option, value,
                      what);
}

/* With K, M, G or T where `bytes`. */
static int number(const char *option, const char *text, bool bytes, uint64_t most, uint64_t *ret,
                  struct blasd_err *err) {
    static const char units[] = "KMGT";
    char *end;
    const char *unit;
    int shift = 0;
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 10);
    unit = bytes && *end != '\0' && end[1] == '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        end++;
    }
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || value < 1 ||
        value > most >> shift)
        return wrong(err, option, text,
                     bytes ? "a whole number of bytes, as 500M" : "a whole number in its range");
    *ret = (uint64_t)value << shift;
    return 0;
}

static int take_expires(struct blasd_auth_key *key, const char *value, struct blasd_err *err) {
    char *end;
    long days = strtol(value, &end, 10);
    if (end != value && strcmp(end, "d") == 0 && days > 0 && days < 100000)
        key->expires_s = blasd_clock_wall_us() / 1000000 + (int64_t)days * 86400;
    else if (!blasd_key_time(value, &key->expires_s))
        return wrong(err, "expires", value,
                     "a time as 2027-01-31 or 2027-01-31T12:00:00Z, or days as 90d");
    if (key->expires_s > blasd_clock_wall_us() / 1000000) return 0;
    return wrong(err, "expires", value, "in the future");
}

static int take_ops(struct blasd_identity *caller, const char *value, struct blasd_err *err) {
    char name[BLASD_NAME_MAX];
    caller->ops = 0;
    while (*value != '\0') {
        size_t len = strcspn(value, ",");
        const struct blasd_op *op;
        snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1),
                 value);
        op = blasd_op_find(name);
        if (op == NULL) return wrong(err, "ops", value, "a list of operations, as matmul,solve");
        caller->ops |= UINT32_C(1) << blasd_op_position(op);
        value += len;
        if (*value == ',') value++;
    }
    return caller->ops != 0 ? 0 : wrong(err, "ops", value, "a list of operations");
}

static int take_certificate(struct blasd_auth_key *key, const char *value, struct blasd_err *err) {
    json_t *text = json_string(value); /* as the file holds it */
    bool good = text != NULL;
    json_decref(text);
    if (!good) /* nor can a terminal show it */
        return blasd_fail(err, BLASD_E_invalid_field, "certificate",
                          "--certificate takes a common name in UTF-8");
    if (value[0] == '\0' || strlen(value) >= sizeof key->certificate)
        return wrong(err, "certificate", value, "a common name");
    snprintf(key->certificate, sizeof key->certificate, "%s", value);
    return 0;
}

static int take_priority(struct blasd_identity *caller, const char *value, struct blasd_err *err) {
    for (int i = 0; i < BLASD_PRIORITY_COUNT; i++)
        if (strcmp(blasd_priority_names[i], value) == 0) {
            caller->ceiling = (enum blasd_priority)i;
            return 0;
        }
    return wrong(err, "max-priority", value, "high, normal or low");
}

#define MANY (UINT64_C(1) << 53)

int key_option_take(struct blasd_auth_key *key, int option, const char *value,
                    struct blasd_err *err) {
    struct blasd_identity *caller = &key->caller;
    struct blasd_principal *principal = &caller->principal;
    uint64_t weight = 1;
    int rc;
    switch (option) {
    case OPTION_TENANT:
        if (!blasd_key_name_valid(value, sizeof principal->tenant))
            return wrong(err, "tenant", value, "up to 31 letters, digits, '.', '_' and '-'");
        snprintf(principal->tenant, sizeof principal->tenant, "%s", value);
        return 0;
    case OPTION_ROLE:
        if (blasd_role_find(value, &caller->role)) return 0;
        return wrong(err, "role", value, "admin, user, read or metrics");
    case OPTION_OPS: return take_ops(caller, value, err);
    case OPTION_EXPIRES: return take_expires(key, value, err);
    case OPTION_CERTIFICATE: return take_certificate(key, value, err);
    case OPTION_PRIORITY: return take_priority(caller, value, err);
    case OPTION_JOBS: return number("max-jobs", value, false, MANY, &principal->quotas.jobs, err);
    case OPTION_BYTES: return number("max-bytes", value, true, MANY, &principal->quotas.bytes, err);
    case OPTION_STORED:
        return number("max-stored-bytes", value, true, MANY, &principal->quotas.stored_bytes, err);
    case OPTION_RATE:
        return number("max-jobs-per-second", value, false, 1000000, &caller->jobs_per_s, err);
    case OPTION_TIME:
        return number("max-job-seconds", value, false, UINT16_MAX, &caller->job_s, err);
    default:
        rc = number("weight", value, false, BLASD_WEIGHT_MOST, &weight, err);
        principal->weight = (unsigned)weight;
        return rc;
    }
}
