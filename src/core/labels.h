/* The labels of a job: names with values that its owner gives it, to find it again by. They are one
 * text, "NAME=VALUE,NAME=VALUE", in the order of their names, so that equal labels are equal bytes;
 * "" where there are none. This is their form in a request's texts, in frames, in records and in
 * Redis, which looks for one by plain search: no character that separates anything is in a name or
 * a value. Read next: record.h. */
#ifndef BLASD_CORE_LABELS_H
#define BLASD_CORE_LABELS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define BLASD_LABELS_MAX 256     /* bytes of all of them, the zero included */
#define BLASD_LABELS_COUNT 16    /* labels of a job */
#define BLASD_LABEL_PART_MAX 63u /* characters of a name, and of a value */

/* One label, as parts of a text. */
struct blasd_label {
    const char *name, *value; /* borrowed */
    size_t name_len, value_len;
};

/* Puts one in its place. invalid_field where it is none, is there twice, or is one too many. */
int blasd_labels_add(char labels[BLASD_LABELS_MAX], const struct blasd_label *label,
                     struct blasd_err *err);
/* Takes labels as one text, in any order; `labels` is "" before it, and is not to be used where it
 * fails. */
int blasd_labels_read(char labels[BLASD_LABELS_MAX], const char *text, size_t len,
                      struct blasd_err *err);
/* Whether a stored text is one that blasd_labels_add makes. */
bool blasd_labels_valid(const char *labels);
/* Steps through labels: `*at` is the text, then where the next one begins; false at the end. */
bool blasd_labels_next(const char **at, struct blasd_label *ret);
/* Whether the text is what lists are narrowed by: "NAME=VALUE", or "NAME", any value. */
bool blasd_label_wanted_valid(const char *text);
/* Whether the labels have one that is wanted so. */
bool blasd_labels_have(const char *labels, const char *wanted);

#endif
