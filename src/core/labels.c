/* Labels of jobs: read, put in order, looked at. */
#include "core/labels.h"

#include <stdio.h>
#include <string.h>

#define NAME_MARKS "._-/"
#define VALUE_MARKS "._-/:@+"

/* How many of the `len` characters may stand in a name, or a value. */
static size_t span(const char *text, size_t len, const char *marks) {
    size_t n = 0;
    while (n < len &&
           ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'A' && text[n] <= 'Z') ||
            (text[n] >= 'a' && text[n] <= 'z') || (text[n] != '\0' && strchr(marks, text[n]))))
        n++;
    return n;
}

static bool name_good(const char *text, size_t len) {
    return len >= 1 && len <= BLASD_LABEL_PART_MAX && span(text, len, NAME_MARKS) == len;
}

static bool value_good(const char *text, size_t len) {
    return len <= BLASD_LABEL_PART_MAX && span(text, len, VALUE_MARKS) == len;
}

bool blasd_labels_next(const char **at, struct blasd_label *ret) {
    size_t len = strcspn(*at, ",");
    if (len == 0) return false;
    ret->name = *at;
    ret->name_len = strcspn(*at, "=,");
    ret->value = *at + ret->name_len + ((*at)[ret->name_len] == '=');
    ret->value_len = (size_t)(*at + len - ret->value);
    *at += len + ((*at)[len] == ',');
    return true;
}

/* Below 0, 0 or above: the order of two names. */
static int compare(const struct blasd_label *a, const struct blasd_label *b) {
    size_t shorter = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, shorter);
    return order != 0 ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static int refuse(const struct blasd_label *label, struct blasd_err *err) {
    if (!name_good(label->name, label->name_len))
        return blasd_fail(err, BLASD_E_invalid_field, "labels",
                          "a label's name is 1 to %u letters, digits and %s, and one is not",
                          BLASD_LABEL_PART_MAX, NAME_MARKS);
    return blasd_fail(err, BLASD_E_invalid_field, "labels",
                      "the value of the label '%.*s' is not up to %u letters, digits and %s",
                      (int)label->name_len, label->name, BLASD_LABEL_PART_MAX, VALUE_MARKS);
}

int blasd_labels_add(char labels[BLASD_LABELS_MAX], const struct blasd_label *label,
                     struct blasd_err *err) {
    size_t len = strlen(labels), more = label->name_len + 1 + label->value_len;
    const char *at = labels, *next = labels;
    struct blasd_label one;
    int count = 1, order = 1;
    char *to;
    if (!name_good(label->name, label->name_len) || !value_good(label->value, label->value_len))
        return refuse(label, err);
    for (; blasd_labels_next(&next, &one); count++) {
        if (order <= 0) continue;
        order = compare(&one, label) < 0 ? 1 : compare(&one, label) == 0 ? 0 : -1;
        if (order == 0)
            return blasd_fail(err, BLASD_E_invalid_field, "labels",
                              "the label '%.*s' is given twice", (int)label->name_len, label->name);
        if (order > 0) at = next;
    }
    if (count > BLASD_LABELS_COUNT || len + (len > 0) + more >= BLASD_LABELS_MAX)
        return blasd_fail(err, BLASD_E_invalid_field, "labels",
                          "a job has at most %d labels, with their names and values %d characters "
                          "together",
                          BLASD_LABELS_COUNT, BLASD_LABELS_MAX - 1);
    to = labels + (at - labels);
    if (*at == '\0') { /* behind all there are */
        if (len > 0) *to++ = ',';
        to[more] = '\0';
    } else {
        memmove(to + more + 1, to, len - (size_t)(to - labels) + 1);
        to[more] = ',';
    }
    memcpy(to, label->name, label->name_len);
    to[label->name_len] = '=';
    memcpy(to + label->name_len + 1, label->value, label->value_len);
    return 0;
}

int blasd_labels_read(char labels[BLASD_LABELS_MAX], const char *text, size_t len,
                      struct blasd_err *err) {
    const char *end = text + len;
    while (text < end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma == NULL ? end : comma;
        const char *equals = memchr(text, '=', (size_t)(stop - text));
        struct blasd_label label = {.name = text, .value = "", .name_len = (size_t)(stop - text)};
        int rc;
        if (equals != NULL) {
            label.name_len = (size_t)(equals - text);
            label.value = equals + 1;
            label.value_len = (size_t)(stop - label.value);
        }
        if ((rc = blasd_labels_add(labels, &label, err)) != 0) return rc;
        text = comma == NULL ? end : comma + 1;
    }
    return 0;
}

bool blasd_labels_valid(const char *labels) {
    char again[BLASD_LABELS_MAX] = "";
    struct blasd_err err;
    return blasd_labels_read(again, labels, strlen(labels), &err) == 0 &&
           strcmp(again, labels) == 0;
}

bool blasd_label_wanted_valid(const char *text) {
    size_t name = strcspn(text, "=");
    if (!name_good(text, name)) return false;
    return text[name] == '\0' || value_good(text + name + 1, strlen(text + name + 1));
}

bool blasd_labels_have(const char *labels, const char *wanted) {
    size_t name = strcspn(wanted, "=");
    struct blasd_label label;
    while (blasd_labels_next(&labels, &label))
        if (label.name_len == name && memcmp(label.name, wanted, name) == 0 &&
            (wanted[name] == '\0' ||
             (strlen(wanted + name + 1) == label.value_len &&
              memcmp(label.value, wanted + name + 1, label.value_len) == 0)))
            return true;
    return false;
}
