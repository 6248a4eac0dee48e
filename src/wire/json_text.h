/* What every reader of JSON here needs: spaces, strings, values to step over or to check, places
 * for errors. Knows nothing of tensors. Read next: json_list.h. */
#ifndef BLASD_WIRE_JSON_TEXT_H
#define BLASD_WIRE_JSON_TEXT_H

#include "base/buf.h"
#include "base/err.h"
#include "wire/number.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeros behind a text, so that readers may look ahead without comparing. */
#define BLASD_JSON_SLACK BLASD_NUMBER_SLACK

/* A whole JSON text. BLASD_JSON_SLACK zeros begin at `end`. */
struct blasd_json_text {
    const char *start, *end; /* borrowed */
    int depth_max;           /* the limit json_depth */
};

/* Fills `err` with malformed_json and the place of `at` as line, column and byte, counted from 1.
 * Returns a negative code. */
int blasd_json_fail(const struct blasd_json_text *text, const char *at, struct blasd_err *err,
                    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The first byte at or after `p` that is no space. */
static inline const char *blasd_json_space(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') p++;
    return p;
}

/* One past the closing quote of the string whose opening quote is at `p`, or NULL where it has
 * none. What is inside is not checked. */
const char *blasd_json_string_end(const char *p, const char *end);

/* Whether the value at `p` is a string without escapes, of printable ASCII alone; *next is then one
 * past its closing quote. */
bool blasd_json_plain(const char *p, const char *end, const char **next);
/* What the string at `p` says, into `to`, which becomes a buffer with a zero behind its bytes and
 * none among them; release it, whatever is returned. */
int blasd_json_inside(const struct blasd_json_text *text, const char *p, struct blasd_buf *to,
                      const char **next, struct blasd_err *err);

#define BLASD_JSON_WORD 72

/* Reads the string at `p`, a name or a word of ours, into `word`, with a zero at the end; a longer
 * one is cut to BLASD_JSON_WORD - 1 bytes, which is longer than any name there is. *next is one
 * past its closing quote. */
int blasd_json_word(const struct blasd_json_text *text, const char *p, char word[BLASD_JSON_WORD],
                    const char **next, struct blasd_err *err);

/* Steps over one value without checking what is inside. */
int blasd_json_skip(const struct blasd_json_text *text, const char *p, const char **next,
                    struct blasd_err *err);

/* Whether a member's value, which was stepped over before it was read, ends at `p`: what follows in
 * "data": 1 2 was taken for a part of it. */
int blasd_json_member_end(const struct blasd_json_text *text, const char *p, struct blasd_err *err);

/* Walks over the members of the object whose brace is at `p`. `member` is told a member's name, as
 * read and where its quote is, and where its value begins; it sets *next to one past the value. */
int blasd_json_members(const struct blasd_json_text *text, const char *p,
                       int (*member)(void *arg, const char *quote, const char *name,
                                     const char *value, const char **next, struct blasd_err *err),
                       void *arg, const char **next, struct blasd_err *err);

/* Some members of an object, by name. */
#define BLASD_JSON_PICK 8
struct blasd_json_pick {
    const struct blasd_json_text *text;
    const char *const *names;        /* at most BLASD_JSON_PICK, ended by a NULL */
    const char *at[BLASD_JSON_PICK]; /* where their values begin; NULL: not there */
    bool other;                      /* there is another one, the first of them is `name` */
    char name[BLASD_JSON_WORD];
};
/* Picks them from the object whose brace is at `p`, and steps over their values. Fails where one is
 * there twice. */
int blasd_json_members_pick(const char *p, struct blasd_json_pick *pick, const char **next,
                            struct blasd_err *err);

/* How many values that are no lists follow `p`, which lies `depth` lists deep just after a value,
 * before the outermost of those lists closes. Right wherever the text is valid. */
uint64_t blasd_json_leaves_after(const struct blasd_json_text *text, const char *p, int depth);

/* Calls `item` for each value of the list whose bracket is at `p`; it sets *next to one past the
 * value. */
int blasd_json_items(const struct blasd_json_text *text, const char *p,
                     int (*item)(void *arg, const char *value, const char **next,
                                 struct blasd_err *err),
                     void *arg, const char **next, struct blasd_err *err);

/* Checks the value at `p`, around which `depth` lists and objects are open, with all that is in it,
 * but for members that are there twice. *next is one past it. */
int blasd_json_check(const struct blasd_json_text *text, const char *p, int depth,
                     const char **next, struct blasd_err *err);
/* Whether a number begins at `p` that is whole, and an int64: 5, or up to 2^53 also 5.0 or 5e0. */
bool blasd_json_whole(const char *p, const char *end, int64_t *ret);

/* Makes `to` a copy of some bytes with zeros behind it, and `text` what it says; release it,
 * whatever is returned. */
int blasd_json_hold(struct blasd_buf *to, const char *from, size_t len, int depth_max,
                    struct blasd_json_text *text, struct blasd_err *err);
/* Fails where there is more than spaces behind `p`, which ends `what`. */
int blasd_json_end(const struct blasd_json_text *text, const char *p, const char *what,
                   struct blasd_err *err);

#endif
