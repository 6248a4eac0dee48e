/* The table of limits: defaults, the environment and --limit. */
#include "base/limits.h"

#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct blasd_limit_info infos[] = {
#define X(name, preset, least, most, unit, meaning) {#name, preset, least, most, unit, meaning},
    BLASD_LIMITS(X)
#undef X
};

static const size_t offsets[] = {
#define X(name, preset, least, most, unit, meaning) offsetof(struct blasd_limits, name),
    BLASD_LIMITS(X)
#undef X
};

#define COUNT ((int)(sizeof infos / sizeof *infos))

/* Limits that were there once. */
static const struct {
    const char *name, *advice;
} removed[] = {
    {"shared_regions", "clients on the same machine use Body-File, whose limit is body_bytes"},
    {"events_kept", "events are not kept, and a client that comes again lists the jobs"},
};

static uint64_t *slot(struct blasd_limits *limits, int i) {
    return (uint64_t *)(void *)((char *)limits + offsets[i]);
}

void blasd_limits_init(struct blasd_limits *limits) {
    for (int i = 0; i < COUNT; i++) *slot(limits, i) = infos[i].preset;
}

uint64_t blasd_limits_get(const struct blasd_limits *limits, int i) {
    return *(const uint64_t *)(const void *)((const char *)limits + offsets[i]);
}

const struct blasd_limit_info *blasd_limits_info(int i) {
    return i >= 0 && i < COUNT ? &infos[i] : NULL;
}

static int unit_shift(const char *suffix) {
    static const char letters[] = "KMGT";
    const char *at;
    if (suffix[0] == '\0') return 0;
    at = strchr(letters, toupper((unsigned char)suffix[0]));
    if (at == NULL || suffix[1] != '\0') return -1;
    return 10 * ((int)(at - letters) + 1);
}

static int set_value(struct blasd_limits *limits, int i, const char *text, struct blasd_err *err) {
    char *end;
    unsigned long long value;
    int shift;
    errno = 0;
    value = strtoull(text, &end, 10);
    shift = unit_shift(end);
    if (!isdigit((unsigned char)text[0]) || errno != 0 || shift < 0 || value > UINT64_MAX >> shift)
        return blasd_fail(err, BLASD_E_invalid_parameter, infos[i].name,
                          "'%.40s' is not a whole number, with K, M, G or T at most", text);
    value <<= shift;
    if ((value < infos[i].least || value > infos[i].most) && value != infos[i].preset)
        return blasd_fail(
            err, BLASD_E_invalid_parameter, infos[i].name, "%llu is outside %llu to %llu %s", value,
            (unsigned long long)infos[i].least, (unsigned long long)infos[i].most, infos[i].unit);
    *slot(limits, i) = value;
    return 0;
}

int blasd_limits_set(struct blasd_limits *limits, const char *assignment, struct blasd_err *err) {
    const char *equals = strchr(assignment, '=');
    size_t len = equals == NULL ? 0 : (size_t)(equals - assignment);
    for (int i = 0; len > 0 && i < COUNT; i++)
        if (strlen(infos[i].name) == len && strncmp(infos[i].name, assignment, len) == 0)
            return set_value(limits, i, equals + 1, err);
    for (size_t i = 0; len > 0 && i < sizeof removed / sizeof *removed; i++)
        if (strlen(removed[i].name) == len && strncmp(removed[i].name, assignment, len) == 0)
            return blasd_fail(err, BLASD_E_invalid_parameter, removed[i].name,
                              "the limit was removed: %s", removed[i].advice);
    return blasd_fail(err, BLASD_E_invalid_parameter, "limit",
                      "'%.60s' is not name=value with the name of a limit", assignment);
}

int blasd_limits_from_env(struct blasd_limits *limits, struct blasd_err *err) {
    for (int i = 0; i < COUNT; i++) {
        char name[64] = "BLASD_";
        const char *value;
        for (size_t n = 0; n <= strlen(infos[i].name); n++)
            name[6 + n] = (char)toupper((unsigned char)infos[i].name[n]);
        value = getenv(name);
        if (value != NULL && value[0] != '\0' && set_value(limits, i, value, err) != 0) return -1;
    }
    return 0;
}
