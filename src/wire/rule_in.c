/* Rules as users write them. */
#include "wire/rule_in.h"

#include "wire/json_list.h"
#include "wire/sanitize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum member { RANDOM, EYE, FULL, ARANGE, LINSPACE, SEED, VALUE, MEMBERS };
_Static_assert(MEMBERS == BLASD_RULE_MEMBERS, "a place for each");
static const char *const members[MEMBERS] = {"random",   "eye",  "full", "arange",
                                             "linspace", "seed", "value"};
#define RULES SEED /* those before it name a rule each */

/* What is being read. */
struct rule_text {
    const struct blasd_json_text *text;
    const struct blasd_rule_in *in;
    const char *field;
    int rank; /* of `shape`; -1: there is none */
    const int64_t *shape;
    bool plain;
    struct blasd_named_input *to;
    struct blasd_rule *rule; /* in `to` */
};

static int bad(const char *field, struct blasd_err *err, const char *what) {
    return blasd_fail(err, BLASD_E_invalid_tensor, field, "%s %s", field, what);
}

int blasd_rule_in_member(const struct blasd_json_text *text, struct blasd_rule_in *in,
                         const char *field, const char *name, const char *p, const char **next,
                         struct blasd_err *err) {
    int at = 0, rc;
    while (at < MEMBERS && strcmp(name, members[at]) != 0) at++;
    if (at == MEMBERS) return 0;
    if (in->at[at] != NULL)
        return blasd_fail(err, BLASD_E_invalid_tensor, field, "%s has %s twice", field, name);
    in->at[at] = p;
    rc = blasd_json_skip(text, p, next, err);
    return rc != 0 ? rc : 1;
}

bool blasd_rule_in_given(const struct blasd_rule_in *in) {
    for (int i = 0; i < MEMBERS; i++)
        if (in->at[i] != NULL) return true;
    return false;
}

/* The whole number at `p`, from 0 to `most`, with nothing behind it. */
static bool read_whole(const struct rule_text *t, const char *p, uint64_t most, uint64_t *ret) {
    const char *next;
    bool negative;
    if (blasd_number_read_int(p, t->text->end, &next, ret, &negative) != BLASD_INT_OK ||
        next == NULL || (negative && *ret > 0) || *ret > most)
        return false;
    next = blasd_json_space(next);
    return *next == ',' || *next == ']' || *next == '}';
}

/* The list of three numbers at `p`; *last is where the third one begins. */
static int read_three(const struct rule_text *t, const char *p, double numbers[3],
                      const char **last, struct blasd_err *err) {
    static const char wrong[] = "needs a list of three numbers: arange [start, stop, step], "
                                "linspace [start, stop, n]";
    if (*p != '[') return bad(t->field, err, wrong);
    for (int i = 0; i < 3; i++) {
        p = blasd_json_space(p + 1);
        *last = p;
        p = blasd_number_read(p, t->text->end, &numbers[i]);
        if (p == NULL || !isfinite(numbers[i])) return bad(t->field, err, wrong);
        p = blasd_json_space(p);
        if (*p != (i < 2 ? ',' : ']')) return bad(t->field, err, wrong);
    }
    return 0;
}

static int read_arange(const struct rule_text *t, struct blasd_err *err) {
    double numbers[3];
    const char *last;
    int rc = read_three(t, t->in->at[ARANGE], numbers, &last, err);
    if (rc != 0) return rc;
    return blasd_rule_arange(t->rule, &t->to->input.tensor, numbers[0], numbers[1], numbers[2],
                             t->field, err);
}

static int read_linspace(const struct rule_text *t, struct blasd_err *err) {
    double numbers[3];
    const char *last;
    uint64_t n;
    int rc = read_three(t, t->in->at[LINSPACE], numbers, &last, err);
    if (rc != 0) return rc;
    if (!read_whole(t, last, INT64_MAX, &n))
        return bad(t->field, err, "has a linspace whose number of elements is not an integer");
    return blasd_rule_linspace(t->rule, &t->to->input.tensor, numbers[0], numbers[1], (int64_t)n,
                               t->field, err);
}

static int read_eye(const struct rule_text *t, struct blasd_err *err) {
    uint64_t n;
    if (!read_whole(t, t->in->at[EYE], INT64_MAX, &n))
        return bad(t->field, err, "has an eye whose number of rows is not an integer");
    return blasd_rule_eye(t->rule, &t->to->input.tensor, (int64_t)n, t->field, err);
}

/* Takes the one element of "value". */
struct value_sink {
    struct blasd_sink base;
    unsigned char bytes[BLASD_RULE_VALUE_BYTES];
};

static int reserve_value(struct blasd_sink *base, uint64_t bytes, uint64_t *offset,
                         struct blasd_err *err) {
    (void)base;
    *offset = 0;
    if (bytes <= BLASD_RULE_VALUE_BYTES) return 0;
    return blasd_fail(err, BLASD_E_invalid_tensor, "", "value is one number");
}

static int write_value(struct blasd_sink *base, uint64_t offset, const void *bytes, size_t len,
                       struct blasd_err *err) {
    struct value_sink *sink = (struct value_sink *)base;
    if (offset > sizeof sink->bytes || len > sizeof sink->bytes - offset)
        return blasd_fail(err, BLASD_E_internal_error, "", "a value is longer than it was");
    memcpy(sink->bytes + offset, bytes, len);
    return 0;
}

static int read_full(const struct rule_text *t, struct blasd_err *err) {
    struct value_sink sink = {.base = {.reserve = reserve_value, .write = write_value}};
    struct blasd_named_input one = *t->to;
    struct blasd_json_shape found;
    int64_t lengths[BLASD_MAX_RANK];
    const char *next;
    int rank, rc;
    if (t->in->at[VALUE] == NULL) return bad(t->field, err, "has full, which also needs value");
    rc = blasd_json_lengths(t->text, t->in->at[FULL], t->field, &rank, lengths, &next, err);
    if (rc != 0) return rc;
    rc = blasd_json_list(t->text, t->in->at[VALUE], t->plain, &sink.base, &one, &found, &next, err);
    if (rc == 0) rc = blasd_json_member_end(t->text, next, err);
    if (rc != 0) return rc;
    if (found.rank != 0) return bad(t->field, err, "has a value that is not one number");
    *t->rule = (struct blasd_rule){.kind = BLASD_RULE_FULL};
    memcpy(t->rule->value, sink.bytes, sizeof sink.bytes);
    t->to->input.tensor = blasd_tensor_make(t->to->input.tensor.dtype, rank, lengths);
    return blasd_tensor_check(&t->to->input.tensor, t->field, err);
}

static int read_random(const struct rule_text *t, struct blasd_err *err) {
    char word[BLASD_JSON_WORD] = "", shown[BLASD_SANITIZED_MAX];
    enum blasd_rule_kind kind = BLASD_RULE_UNIFORM;
    const char *p = t->in->at[RANDOM], *next;
    uint64_t seed;
    int rc = *p == '"' ? blasd_json_word(t->text, p, word, &next, err) : 0;
    if (rc != 0) return rc;
    if (strcmp(word, "normal") == 0)
        kind = BLASD_RULE_NORMAL;
    else if (strcmp(word, "uniform") != 0)
        return blasd_fail(err, BLASD_E_invalid_tensor, t->field,
                          "random is \"uniform\" or \"normal\", not \"%s\"",
                          blasd_sanitize(shown, word, strlen(word)));
    if (t->in->at[SEED] == NULL || !read_whole(t, t->in->at[SEED], UINT64_MAX, &seed))
        return bad(t->field, err,
                   "has random, which also needs a seed, an integer from 0 to 2^64 - 1: the same "
                   "seed gives the same numbers");
    if (t->rank < 0) return bad(t->field, err, "has random, which also needs a shape");
    t->to->input.tensor = blasd_tensor_make(t->to->input.tensor.dtype, t->rank, t->shape);
    return blasd_rule_random(t->rule, &t->to->input.tensor, kind, seed, t->field, err);
}

/* Which rule it is; one that is said twice, or has members of another, is none. */
static int find_rule(const struct rule_text *t, int *ret, struct blasd_err *err) {
    *ret = RULES;
    for (int i = 0; i < RULES; i++) {
        if (t->in->at[i] == NULL) continue;
        if (*ret != RULES)
            return blasd_fail(err, BLASD_E_invalid_tensor, t->field, "%s has both %s and %s",
                              t->field, members[*ret], members[i]);
        *ret = i;
    }
    if (t->in->at[SEED] != NULL && *ret != RANDOM)
        return bad(t->field, err, "has a seed, which only random has");
    if (t->in->at[VALUE] != NULL && *ret != FULL)
        return bad(t->field, err, "has a value, which only full has");
    if (t->rank >= 0 && *ret != RANDOM)
        return blasd_fail(err, BLASD_E_invalid_tensor, t->field,
                          "%s has a shape and %s, which implies it", t->field, members[*ret]);
    return 0;
}

int blasd_rule_in_finish(const struct blasd_json_text *text, const struct blasd_rule_in *in,
                         const char *field, int rank, const int64_t *shape, bool plain,
                         struct blasd_named_input *to, struct blasd_err *err) {
    static int (*const readers[RULES])(const struct rule_text *t, struct blasd_err *err) = {
        read_random, read_eye, read_full, read_arange, read_linspace};
    struct rule_text t = {text, in, field, rank, shape, plain, to, &to->input.source.rule};
    int which, rc;
    if ((rc = find_rule(&t, &which, err)) != 0 || (rc = readers[which](&t, err)) != 0) return rc;
    to->input.source.kind = BLASD_SOURCE_RULE;
    return blasd_rule_look(&to->input, blasd_named_input_values(to), field, err);
}
