/* The reader of plain safetensors headers. */
#include "wire/safetensors_plain.h"

#include <string.h>

#define DIGITS_MOST 15 /* fewer than could be too large for anybody */
#define STRINGS_MOST (2 * (SAFETENSORS_NOTES + BLASD_ARRIVALS_MAX))

/* A pass over the header. It ends at the first thing that is not plain. */
struct pass {
    char *at, *end;
    struct safetensors_plain *ret;
    char *quotes[STRINGS_MOST]; /* the closing ones of what *ret borrows */
    int quote_count;
};

static void skip_space(struct pass *pass) {
    while (pass->at < pass->end &&
           (*pass->at == ' ' || *pass->at == '\n' || *pass->at == '\r' || *pass->at == '\t'))
        pass->at++;
}

/* Steps over `c` and the spaces before it, if that is what comes. */
static bool take(struct pass *pass, char c) {
    skip_space(pass);
    if (pass->at == pass->end || *pass->at != c) return false;
    pass->at++;
    return true;
}

static bool take_string(struct pass *pass, const char **text, size_t *len) {
    if (!take(pass, '"')) return false;
    *text = pass->at;
    while (pass->at < pass->end && *pass->at >= ' ' && *pass->at <= '~' && *pass->at != '"' &&
           *pass->at != '\\')
        pass->at++;
    *len = (size_t)(pass->at - *text);
    return pass->at < pass->end && *pass->at++ == '"';
}

/* A string that *ret is to borrow. */
static bool keep_string(struct pass *pass, const char **text, size_t *len) {
    if (pass->quote_count == STRINGS_MOST || !take_string(pass, text, len)) return false;
    pass->quotes[pass->quote_count++] = pass->at - 1;
    return true;
}

static bool take_number(struct pass *pass, int64_t *ret) {
    const char *from;
    skip_space(pass);
    from = pass->at;
    for (*ret = 0; pass->at < pass->end && *pass->at >= '0' && *pass->at <= '9'; pass->at++) {
        if (pass->at - from == DIGITS_MOST) return false;
        *ret = 10 * *ret + (*pass->at - '0');
    }
    return pass->at > from && (*from != '0' || pass->at == from + 1);
}

/* A list of up to `most` numbers; *count of them came. */
static bool take_numbers(struct pass *pass, int64_t *numbers, int most, int *count) {
    *count = 0;
    if (!take(pass, '[')) return false;
    if (take(pass, ']')) return true;
    do {
        if (*count == most || !take_number(pass, &numbers[(*count)++])) return false;
    } while (take(pass, ','));
    return take(pass, ']');
}

enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };

static bool take_member(struct pass *pass, struct safetensors_tensor *tensor, int *member) {
    const char *name;
    size_t len;
    int64_t offsets[2];
    int count;
    if (!take_string(pass, &name, &len) || !take(pass, ':')) return false;
    if (len == 5 && memcmp(name, "dtype", len) == 0) {
        *member = DTYPE;
        return keep_string(pass, &tensor->dtype, &len);
    }
    if (len == 5 && memcmp(name, "shape", len) == 0) {
        *member = SHAPE;
        return take_numbers(pass, tensor->shape, BLASD_MAX_RANK, &tensor->rank);
    }
    if (len != 12 || memcmp(name, "data_offsets", len) != 0) return false;
    *member = OFFSETS;
    if (!take_numbers(pass, offsets, 2, &count) || count != 2) return false;
    tensor->begin = offsets[0];
    tensor->end = offsets[1];
    return true;
}

/* The object behind a tensor's name: each of three members once. */
static bool take_tensor(struct pass *pass, struct safetensors_tensor *tensor) {
    int seen = 0, member;
    if (!take(pass, '{')) return false;
    do {
        if (!take_member(pass, tensor, &member) || (seen & member) != 0) return false;
        seen |= member;
    } while (take(pass, ','));
    return seen == (DTYPE | SHAPE | OFFSETS) && take(pass, '}');
}

static bool take_notes(struct pass *pass) {
    struct safetensors_plain *ret = pass->ret;
    size_t len;
    if (!take(pass, '{')) return false;
    if (take(pass, '}')) return true;
    do {
        if (ret->notes == SAFETENSORS_NOTES ||
            !keep_string(pass, &ret->note[ret->notes].name, &len) || !take(pass, ':') ||
            !keep_string(pass, &ret->note[ret->notes].text, &len))
            return false;
        ret->notes++;
    } while (take(pass, ','));
    return take(pass, '}');
}

/* The next member of the header's object. */
static bool take_entry(struct pass *pass, bool first) {
    struct safetensors_plain *ret = pass->ret;
    struct safetensors_tensor *tensor = &ret->tensor[ret->tensors];
    const char *name;
    size_t len;
    if (ret->tensors == BLASD_ARRIVALS_MAX || !keep_string(pass, &name, &len)) return false;
    if (len == strlen(SAFETENSORS_METADATA) && memcmp(name, SAFETENSORS_METADATA, len) == 0)
        return first && take(pass, ':') && take_notes(pass);
    tensor->name = name;
    ret->tensors++;
    return take(pass, ':') && take_tensor(pass, tensor);
}

/* Whether a name is there twice, which jansson refuses. The strings end with zeros by now. */
static bool repeats(const struct safetensors_plain *ret) {
    for (int i = 1; i < ret->notes; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(ret->note[i].name, ret->note[k].name) == 0) return true;
    for (int i = 1; i < ret->tensors; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(ret->tensor[i].name, ret->tensor[k].name) == 0) return true;
    return false;
}

static bool take_header(struct pass *pass) {
    bool first = true;
    if (!take(pass, '{')) return false;
    do {
        if (!take_entry(pass, first)) return false;
        first = false;
    } while (take(pass, ','));
    if (!take(pass, '}')) return false;
    skip_space(pass);
    return pass->at == pass->end;
}

static void set_quotes(const struct pass *pass, char c) {
    for (int i = 0; i < pass->quote_count; i++) *pass->quotes[i] = c;
}

bool safetensors_plain_read(char *header, size_t len, struct safetensors_plain *ret) {
    struct pass pass = {.at = header, .end = header + len, .ret = ret};
    ret->notes = ret->tensors = 0;
    if (!take_header(&pass)) return false;
    set_quotes(&pass, '\0');
    if (!repeats(ret)) return true;
    set_quotes(&pass, '"');
    return false;
}
