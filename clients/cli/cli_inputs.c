/* Inputs that are no files: what the service has or makes, in the words of a command line. */
#include "clients/cli/cli.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WORDS 4

/* Each of these gives a new reference, or NULL where the words mean nothing. */

static json_t *number(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_number(value)) return value;
    json_decref(value);
    return NULL;
}

static json_t *whole(const char *digits, size_t len) {
    char text[20];
    if (len == 0 || len >= sizeof text || strspn(digits, "0123456789") < len) return NULL;
    memcpy(text, digits, len);
    text[len] = '\0';
    return json_integer(strtoll(text, NULL, 10));
}

/* "500x20" */
static json_t *shape(const char *text) {
    json_t *list = json_array();
    for (;; text++) {
        size_t len = strcspn(text, "x");
        if (json_array_append_new(list, whole(text, len)) != 0) {
            json_decref(list);
            return NULL;
        }
        text += len;
        if (*text == '\0') return list;
    }
}

/* "0:1000" or ":", where a bound that is not there is null. */
static json_t *bounds(const char *text, size_t len) {
    const char *colon = memchr(text, ':', len);
    size_t before = colon == NULL ? 0 : (size_t)(colon - text), after = len - before - 1;
    if (colon == NULL) return NULL;
    return json_pack("[o,o]", before == 0 ? json_null() : whole(text, before),
                     after == 0 ? json_null() : whole(colon + 1, after));
}

/* "[0:1000,:]" */
static json_t *part(const char *text) {
    size_t len = strlen(text);
    json_t *list = json_array();
    if (len < 3 || text[len - 1] != ']') goto wrong;
    for (text++; *text != '\0'; text++) {
        size_t one = strcspn(text, ",]");
        if (json_array_append_new(list, bounds(text, one)) != 0) goto wrong;
        text += one;
        if (*text == ']' && text[1] != '\0') goto wrong;
    }
    return list;
wrong:
    json_decref(list);
    return NULL;
}

/* "ID", or of a job "ID/OUTPUT", with a part. */
static json_t *reference(bool of_job, char *text) {
    char *bracket = strchr(text, '['), *slash = of_job ? strchr(text, '/') : NULL;
    json_t *slice = bracket == NULL ? NULL : part(bracket);
    if (bracket != NULL && slice == NULL) return NULL;
    if (bracket != NULL) *bracket = '\0';
    if (slash != NULL) *slash++ = '\0';
    if (of_job && slash == NULL) {
        json_decref(slice);
        return NULL;
    }
    return of_job ? json_pack("{s:s,s:s,s:o*}", "job", text, "output", slash, "slice", slice)
                  : json_pack("{s:s,s:o*}", "tensor", text, "slice", slice);
}

static json_t *eye(char **w) {
    return json_pack("{s:o}", "eye", whole(w[0], strlen(w[0])));
}
static json_t *full(char **w) {
    return json_pack("{s:o,s:o}", "full", shape(w[0]), "value", number(w[1]));
}
static json_t *arange(char **w) {
    return json_pack("{s:[o,o,o]}", "arange", number(w[0]), number(w[1]), number(w[2]));
}
static json_t *linspace(char **w) {
    return json_pack("{s:[o,o,o]}", "linspace", number(w[0]), number(w[1]), number(w[2]));
}
static json_t *at_random(char **w) {
    return json_pack("{s:s,s:o,s:o}", "random", w[0], "shape", shape(w[1]), "seed", number(w[2]));
}
static json_t *of_tensor(char **w) {
    return reference(false, w[0]);
}
static json_t *of_job(char **w) {
    return reference(true, w[0]);
}

static const struct kind {
    const char *name;
    int words; /* behind it, with colons between; 1: colons are its own */
    json_t *(*make)(char **words);
} kinds[] = {{"tensor", 1, of_tensor}, {"job", 1, of_job},    {"eye", 1, eye},
             {"full", 2, full},        {"arange", 3, arange}, {"linspace", 3, linspace},
             {"random", 3, at_random}};

static const struct kind *kind_of(const char *value) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t len = strlen(kinds[i].name);
        if (strncmp(value, kinds[i].name, len) == 0 && value[len] == ':') return &kinds[i];
    }
    return NULL;
}

bool cli_is_url(const char *value) {
    return strncmp(value, "https://", 8) == 0 || strncmp(value, "http://", 7) == 0;
}

bool cli_is_reference(const char *value) {
    return cli_is_url(value) || kind_of(value) != NULL;
}

json_t *cli_reference(const char *value) {
    const struct kind *kind = kind_of(value);
    if (kind == NULL) return json_pack("{s:s}", "url", value);
    char *text = strdup(value + strlen(kind->name) + 1), *words[MOST_WORDS] = {text};
    char *dtype = text == NULL ? NULL : strrchr(text, '@');
    json_t *made = NULL;
    int count = 1;
    if (text == NULL) return NULL;
    if (dtype != NULL) *dtype++ = '\0';
    for (char *at = text;
         kind->words > 1 && count < MOST_WORDS && (at = strchr(at, ':')) != NULL;) {
        *at++ = '\0';
        words[count++] = at;
    }
    if (count == kind->words) made = kind->make(words);
    if (made != NULL && dtype != NULL &&
        json_object_set_new(made, "dtype", json_string(dtype)) != 0) {
        json_decref(made);
        made = NULL;
    }
    free(text);
    return made;
}
