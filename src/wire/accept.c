/* Which format a client takes: the Accept headers of RFC 9110, section 12.5.1. */
#include "wire/answer.h"

#include <string.h>
#include <strings.h>

const char *blasd_format_type(enum blasd_format format) {
    static const char *const types[BLASD_FORMATS] = {
        "application/json", "application/x-safetensors", "application/x-npy"};
    return types[format];
}

/* How well a range of the header fits a format: the more exact one wins. */
enum fit { FIT_NOT, FIT_ANY, FIT_TYPE, FIT_EXACT };

struct text {
    const char *at;
    size_t len;
};

static bool space(char c) {
    return c == ' ' || c == '\t';
}

static struct text trim(struct text t) {
    while (t.len > 0 && space(t.at[0])) t.at++, t.len--;
    while (t.len > 0 && space(t.at[t.len - 1])) t.len--;
    return t;
}

static bool is(struct text t, const char *word) {
    return strlen(word) == t.len && strncasecmp(word, t.at, t.len) == 0;
}

/* Cuts what stands before the next `mark` outside of quotes off the front of `rest`. */
static struct text cut(struct text *rest, char mark) {
    struct text piece = {.at = rest->at};
    bool quoted = false;
    size_t i = 0;
    for (; i < rest->len; i++) {
        if (rest->at[i] == '"')
            quoted = !quoted;
        else if (quoted && rest->at[i] == '\\' && i + 1 < rest->len)
            i++;
        else if (!quoted && rest->at[i] == mark)
            break;
    }
    piece.len = i;
    if (i < rest->len) i++;
    rest->at += i;
    rest->len -= i;
    return trim(piece);
}

/* Reads "0", "1", "0.25", at most three digits after the point, into thousandths; -1 otherwise. */
static int read_q(struct text t) {
    int q, place = 100;
    if (t.len == 0 || t.len > 5 || (t.at[0] != '0' && t.at[0] != '1')) return -1;
    q = (t.at[0] - '0') * 1000;
    if (t.len > 1 && t.at[1] != '.') return -1;
    for (size_t i = 2; i < t.len; i++, place /= 10) {
        if (t.at[i] < '0' || t.at[i] > '9') return -1;
        q += (t.at[i] - '0') * place;
    }
    return q <= 1000 ? q : -1;
}

/* The weight among a range's parameters: 1000 where there is none, -1 where one is malformed. */
static int range_q(struct text params) {
    int q = 1000;
    while (params.len > 0) {
        struct text param = cut(&params, ';');
        struct text name = cut(&param, '=');
        if (!is(name, "q")) continue;
        q = read_q(trim(param));
        if (q < 0) return -1;
    }
    return q;
}

static enum fit range_fit(struct text range, enum blasd_format format) {
    if (is(range, "*/*")) return FIT_ANY;
    if (is(range, "application/*")) return FIT_TYPE;
    if (is(range, blasd_format_type(format))) return FIT_EXACT;
    if (format == BLASD_FORMAT_SAFETENSORS && is(range, "application/octet-stream"))
        return FIT_EXACT;
    return FIT_NOT;
}

static void read_range(struct text range, struct blasd_accept *accept) {
    struct text type = cut(&range, ';');
    int q = range_q(range);
    if (q < 0) return;
    for (int i = 0; i < BLASD_FORMATS; i++) {
        int fit = (int)range_fit(type, (enum blasd_format)i);
        if (fit == FIT_NOT || fit < accept->of[i].fit) continue;
        if (fit == accept->of[i].fit && q <= accept->of[i].q) continue;
        accept->of[i].fit = fit;
        accept->of[i].q = q;
    }
}

void blasd_accept_add(struct blasd_accept *accept, const char *value) {
    struct text rest = trim((struct text){.at = value, .len = strlen(value)});
    if (rest.len > 0) accept->given = true;
    while (rest.len > 0) read_range(cut(&rest, ','), accept);
}

bool blasd_accept_choose(const struct blasd_accept *accept, bool allow_npy,
                         enum blasd_format *ret) {
    int best = -1;
    *ret = BLASD_FORMAT_JSON;
    if (!accept->given) return true;
    /* the highest weight; among equals what was named most exactly; then JSON */
    for (int i = 0; i < BLASD_FORMATS; i++) {
        int fit = accept->of[i].fit, q = accept->of[i].q;
        if (fit == FIT_NOT || q == 0 || (i == BLASD_FORMAT_NPY && !allow_npy)) continue;
        if (best >= 0 &&
            (q < accept->of[best].q || (q == accept->of[best].q && fit <= accept->of[best].fit)))
            continue;
        best = i;
    }
    if (best < 0) return false;
    *ret = (enum blasd_format)best;
    return true;
}

bool blasd_accept_other(struct blasd_accept *accept, enum blasd_format *format) {
    accept->of[*format].q = 0;
    return blasd_accept_choose(accept, true, format);
}
