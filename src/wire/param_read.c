/* Parameters: types and ranges as the operation's descriptor states them. */
#include "wire/param_read.h"

#include "wire/sanitize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "a number from 0 to 1": what the parameter takes, for a message. */
static const char *wanted(const struct blasd_param *param, char *text, size_t size) {
    const char *what = param->kind == BLASD_PARAM_INT ? "a whole number" : "a number";
    const char *above = param->exclusive_least ? "greater than" : "of at least";
    size_t len = 0;
    if (param->kind == BLASD_PARAM_BOOL) {
        snprintf(text, size, "true or false");
    } else if (param->kind == BLASD_PARAM_CHOICE) {
        text[0] = '\0';
        for (int i = 0; param->choices[i] != NULL; i++) {
            if (len + strlen(param->choices[i]) + sizeof " or \"\", ..." > size) {
                snprintf(text + len, size - len, ", ..."); /* GET /ops has them all */
                break;
            }
            len += (size_t)snprintf(text + len, size - len, "%s\"%s\"",
                                    i == 0                          ? ""
                                    : param->choices[i + 1] == NULL ? " or "
                                                                    : ", ",
                                    param->choices[i]);
        }
    } else if (!param->has_range) {
        snprintf(text, size, "%s", what);
    } else if (!(param->most < (double)INFINITY)) {
        snprintf(text, size, "%s %s %.12g", what, above, param->least);
    } else if (!(param->least > -(double)INFINITY)) {
        snprintf(text, size, "%s of at most %.12g", what, param->most);
    } else {
        snprintf(text, size, "%s %s %.12g and at most %.12g", what, above, param->least,
                 param->most);
    }
    return text;
}

static int refuse(const struct blasd_param *param, const char *shown, struct blasd_err *err) {
    char field[64], text[160];
    snprintf(field, sizeof field, "params.%s", param->name);
    return blasd_fail(err, BLASD_E_invalid_parameter, field, "%s must be %s, not %s", param->name,
                      wanted(param, text, sizeof text), shown);
}

/* The numbers that JSON has only words for. */
static bool special(const char *text, double *ret) {
    if (strcmp(text, "NaN") == 0)
        *ret = (double)NAN;
    else if (strcmp(text, "Infinity") == 0)
        *ret = (double)INFINITY;
    else if (strcmp(text, "-Infinity") == 0)
        *ret = -(double)INFINITY;
    else
        return false;
    return true;
}

static bool whole(double value) {
    return fabs(value) <= 0x1p53 && floor(value) == value;
}

/* What a JSON value looks like in a message. */
static const char *show(const json_t *value, char *text, size_t size) {
    char clean[BLASD_SANITIZED_MAX];
    switch (json_typeof(value)) {
    case JSON_OBJECT: snprintf(text, size, "an object"); break;
    case JSON_ARRAY: snprintf(text, size, "a list"); break;
    case JSON_STRING:
        snprintf(text, size, "\"%s\"",
                 blasd_sanitize(clean, json_string_value(value), json_string_length(value)));
        break;
    case JSON_INTEGER: snprintf(text, size, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: snprintf(text, size, "%.12g", json_real_value(value)); break;
    case JSON_NULL: snprintf(text, size, "null (leave it out for its default)"); break;
    default: snprintf(text, size, json_is_true(value) ? "true" : "false");
    }
    return text;
}

/* `shown` is what the user wrote. */
static int read_value(const struct blasd_param *param, const json_t *from, const char *shown,
                      struct blasd_value *ret, struct blasd_err *err) {
    double number = json_number_value(from);
    *ret = (struct blasd_value){.given = true};
    switch (param->kind) {
    case BLASD_PARAM_BOOL:
        if (!json_is_boolean(from) && !(json_is_integer(from) && (number == 0 || number == 1)))
            break;
        ret->b = json_is_true(from) || number == 1;
        return 0;
    case BLASD_PARAM_INT:
        if (!json_is_number(from) || (json_is_real(from) && !whole(number)) ||
            !blasd_param_allows(param, number))
            break;
        ret->i = json_is_integer(from) ? json_integer_value(from) : (int64_t)number;
        return 0;
    case BLASD_PARAM_FLOAT:
        if (!json_is_number(from) &&
            !(json_is_string(from) && special(json_string_value(from), &number)))
            break;
        if (!blasd_param_allows(param, number)) break;
        ret->f = number;
        return 0;
    case BLASD_PARAM_CHOICE:
        if (!json_is_string(from)) break;
        for (int i = 0; param->choices[i] != NULL; i++)
            if (strcmp(param->choices[i], json_string_value(from)) == 0) {
                ret->choice = i;
                return 0;
            }
        break;
    }
    return refuse(param, shown, err);
}

int blasd_param_read_value(const struct blasd_param *param, const json_t *from,
                           struct blasd_value *ret, struct blasd_err *err) {
    char shown[64];
    return read_value(param, from, show(from, shown, sizeof shown), ret, err);
}

/* What a text means where a value of that kind is wanted: new reference. */
static json_t *value_of(enum blasd_param_kind kind, const char *text) {
    static const char *const words[] = {"false", "False", "0", "true", "True", "1"};
    json_t *number = NULL;
    for (size_t i = 0; kind == BLASD_PARAM_BOOL && i < 6; i++)
        if (strcmp(text, words[i]) == 0) return json_boolean(i >= 3);
    if ((kind == BLASD_PARAM_INT || kind == BLASD_PARAM_FLOAT) && text[0] != '\0' &&
        text[strspn(text, "+-.0123456789eE")] == '\0')
        number = json_loads(text, JSON_DECODE_ANY, NULL);
    return number != NULL ? number : json_string(text);
}

int blasd_param_read_text(const struct blasd_param *param, const char *text,
                          struct blasd_value *ret, struct blasd_err *err) {
    char clean[BLASD_SANITIZED_MAX], shown[64];
    json_t *value = value_of(param->kind, text);
    int rc;
    snprintf(shown, sizeof shown, "'%s'", blasd_sanitize(clean, text, strlen(text)));
    rc = value == NULL ? refuse(param, shown, err) : read_value(param, value, shown, ret, err);
    json_decref(value);
    return rc;
}
