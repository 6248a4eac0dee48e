/* The table of errors and the one way to fill an error object. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct blasd_err_info table[BLASD_E_COUNT] = {
    [BLASD_OK] = {"ok", 200, false, "No error", ""},
#define X(name, status, retry, title, advice)                                                      \
    [BLASD_E_##name] = {#name, status, retry, title, advice},
    BLASD_ERRORS(X)
#undef X
};

int blasd_fail(struct blasd_err *err, enum blasd_code code, const char *field, const char *fmt,
               ...) {
    if (err != NULL) {
        va_list args;
        err->code = code;
        err->least = 0;
        snprintf(err->field, sizeof err->field, "%s", field == NULL ? "" : field);
        va_start(args, fmt);
        vsnprintf(err->detail, sizeof err->detail, fmt, args);
        va_end(args);
    }
    return -(int)code;
}

const struct blasd_err_info *blasd_err_info(enum blasd_code code) {
    if ((int)code < 0 || code >= BLASD_E_COUNT) return &table[BLASD_E_internal_error];
    return &table[code];
}

enum blasd_code blasd_err_code(const char *name) {
    for (int code = 1; code < BLASD_E_COUNT; code++)
        if (strcmp(table[code].name, name) == 0) return (enum blasd_code)code;
    return BLASD_E_internal_error;
}

int blasd_no_memory(struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_no_space, "", "memory has run out");
}
