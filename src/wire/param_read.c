/* Parameters: types and ranges as the operation's descriptor states them. */
#include "wire/param_read.h"

#include "base/text.h"
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

/* A value that was sent, and what it looks like in a message. */
struct sent {
    enum { NUMBER, TRUTH, WORD, OTHER } kind;
    double number; /* of a truth 0 or 1 */
    bool whole;    /* it is `integer` */
    int64_t integer;
    char word[BLASD_JSON_WORD];
    const char *shown;
};

/* Reads the number at `p`; one past it, or NULL where there is none. */
static const char *look_at_number(const char *p, const char *end, struct sent *sent) {
    sent->kind = NUMBER;
    sent->whole = blasd_json_whole(p, end, &sent->integer);
    return blasd_number_read(p, end, &sent->number);
}

static int take(const struct blasd_param *param, const struct sent *sent, struct blasd_value *ret,
                struct blasd_err *err) {
    double number = sent->number;
    bool numeric = sent->kind == NUMBER;
    *ret = (struct blasd_value){.given = true};
    switch (param->kind) {
    case BLASD_PARAM_BOOL:
        ret->b = number == 1;
        if (sent->kind == TRUTH || (numeric && (number == 0 || number == 1))) return 0;
        break;
    case BLASD_PARAM_INT:
        ret->i = sent->integer;
        if (numeric && sent->whole && blasd_param_allows(param, number)) return 0;
        break;
    case BLASD_PARAM_FLOAT:
        numeric = numeric || (sent->kind == WORD && special(sent->word, &number));
        ret->f = number;
        if (numeric && blasd_param_allows(param, number)) return 0;
        break;
    case BLASD_PARAM_CHOICE:
        for (int i = 0; sent->kind == WORD && param->choices[i] != NULL; i++) {
            ret->choice = i;
            if (strcmp(param->choices[i], sent->word) == 0) return 0;
        }
        break;
    }
    return refuse(param, sent->shown, err);
}

int blasd_param_read_json(const struct blasd_param *param, const struct blasd_json_text *text,
                          const char *p, struct blasd_value *ret, const char **next,
                          struct blasd_err *err) {
    char clean[BLASD_SANITIZED_MAX], shown[BLASD_SANITIZED_MAX + 2];
    struct sent sent = {.kind = OTHER, .shown = shown};
    int rc = blasd_json_check(text, p, 2, next, err);
    if (rc != 0) return rc;
    if (*p == '"') {
        sent.kind = WORD;
        if ((rc = blasd_json_word(text, p, sent.word, next, err)) != 0) return rc;
        snprintf(shown, sizeof shown, "\"%s\"",
                 blasd_sanitize(clean, sent.word, strlen(sent.word)));
        return take(param, &sent, ret, err);
    }
    if (*p == 't' || *p == 'f') {
        sent.kind = TRUTH;
        sent.number = *p == 't';
    } else if (*p == '[' || *p == '{' || *p == 'n') {
        sent.shown = *p == '['   ? "a list"
                     : *p == '{' ? "an object"
                                 : "null (leave it out for its default)";
        return take(param, &sent, ret, err);
    } else {
        look_at_number(p, text->end, &sent);
    }
    blasd_sanitize(shown, p, (size_t)(*next - p));
    return take(param, &sent, ret, err);
}

int blasd_param_read_text(const struct blasd_param *param, const char *text,
                          struct blasd_value *ret, struct blasd_err *err) {
    static const char *const words[] = {"false", "False", "0", "true", "True", "1"};
    char clean[BLASD_SANITIZED_MAX], shown[BLASD_SANITIZED_MAX + 2];
    struct sent sent = {.shown = shown};
    const char *end = text + strlen(text);
    snprintf(shown, sizeof shown, "'%s'", blasd_sanitize(clean, text, strlen(text)));
    if (look_at_number(text, end, &sent) != end || !isfinite(sent.number)) {
        sent.kind = WORD;
        sent.number = 0;
        blasd_text_join(sent.word, sizeof sent.word, text, NULL, NULL);
    }
    for (size_t i = 0; param->kind == BLASD_PARAM_BOOL && i < 6; i++)
        if (strcmp(text, words[i]) == 0) {
            sent.kind = TRUTH;
            sent.number = i >= 3;
        }
    if (param->kind == BLASD_PARAM_BOOL && sent.kind == NUMBER) sent.kind = OTHER; /* 1.0 */
    if (param->kind == BLASD_PARAM_CHOICE && sent.kind == NUMBER) sent.kind = OTHER;
    return take(param, &sent, ret, err);
}
