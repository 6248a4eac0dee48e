/* Rules: which tensors they make, and the elements on the host. Compiled without fused products and
 * sums, see rule_element.h. */
#include "core/rule_element.h"

#include "base/err.h"
#include "core/job.h"
#include "core/wanted.h"

#include <math.h>

#define PARTS 256                   /* made at a time: a multiple of what any block makes */
#define FILL (INT64_C(128) * PARTS) /* elements between two questions: a millisecond at most */

/* ---- storing numbers as a dtype ---- */

/* An integer's range; what is beyond is cut to it. */
static double least_of(enum blasd_dtype dtype) {
    if (blasd_dtype_kind(dtype) != 'i') return 0;
    return -ldexp(1.0, (int)blasd_dtype_size(dtype) * 8 - 1);
}

/* The largest double that the integer dtype holds. */
static double most_of(enum blasd_dtype dtype) {
    int bits = (int)blasd_dtype_size(dtype) * 8 - (blasd_dtype_kind(dtype) == 'i');
    return bits < 53 ? ldexp(1.0, bits) - 1 : nextafter(ldexp(1.0, bits), 0);
}

#define STORE_EACH(TYPE, VALUE)                                                                    \
    do {                                                                                           \
        TYPE *to = (TYPE *)out;                                                                    \
        for (int i = 0; i < n; i++) to[i] = (TYPE)(VALUE);                                         \
    } while (0)

static void store_integers(enum blasd_dtype dtype, double *from, int n, void *out) {
    double least = least_of(dtype), most = most_of(dtype);
    for (int i = 0; i < n; i++) {
        double whole = floor(from[i]);
        from[i] = whole < least ? least : whole > most ? most : whole;
    }
    switch (dtype) {
    case BLASD_int64: STORE_EACH(int64_t, from[i]); break;
    case BLASD_int32: STORE_EACH(int32_t, from[i]); break;
    case BLASD_int16: STORE_EACH(int16_t, from[i]); break;
    case BLASD_int8: STORE_EACH(int8_t, from[i]); break;
    case BLASD_uint64: STORE_EACH(uint64_t, from[i]); break;
    case BLASD_uint32: STORE_EACH(uint32_t, from[i]); break;
    case BLASD_uint16: STORE_EACH(uint16_t, from[i]); break;
    default: STORE_EACH(uint8_t, from[i]); break;
    }
}

static void store(enum blasd_dtype part, double *from, int n, void *out) {
    switch (part) {
    case BLASD_float64: STORE_EACH(double, from[i]); break;
    case BLASD_float32: STORE_EACH(float, from[i]); break;
    case BLASD_float16:
        STORE_EACH(uint16_t, blasd_float16_write(blasd_float_round_odd(from[i])));
        break;
    case BLASD_bfloat16:
        STORE_EACH(uint16_t, blasd_bfloat16_write(blasd_float_round_odd(from[i])));
        break;
    case BLASD_bool: STORE_EACH(uint8_t, from[i] != 0); break;
    default: store_integers(part, from, n, out); break;
    }
}

/* The number as the dtype holds it. */
static double rounded(enum blasd_dtype part, double x) {
    uint16_t half;
    switch (part) {
    case BLASD_float32: return (double)(float)x;
    case BLASD_float16: store(part, &x, 1, &half); return (double)blasd_float16_read(half);
    case BLASD_bfloat16: store(part, &x, 1, &half); return (double)blasd_bfloat16_read(half);
    default: return x;
    }
}

/* ---- making elements ---- */

static void make_random(const struct blasd_rule *rule, enum blasd_dtype part, int64_t first,
                        int64_t n, unsigned char *out) {
    size_t size = blasd_dtype_size(part);
    int each = blasd_rule_block_parts(part), skip = (int)(first % each);
    uint64_t block = (uint64_t)(first / each);
    double room[PARTS];
    while (n > 0) {
        int64_t want = n + skip < PARTS ? n + skip : PARTS;
        int count = (int)(want - skip);
        for (int at = 0; at < (int)want; at += each)
            blasd_rule_block(rule, part, block++, room + at);
        store(part, room + skip, count, out);
        out += (size_t)count * size;
        n -= count;
        skip = 0;
    }
}

static void make_numbers(const struct blasd_rule *rule, const struct blasd_tensor *tensor,
                         enum blasd_dtype part, int64_t first, int64_t n, unsigned char *out) {
    size_t size = blasd_dtype_size(part);
    int64_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    int64_t all = blasd_tensor_elements(tensor);
    int parts = blasd_dtype_parts(tensor->dtype);
    double room[PARTS];
    while (n > 0) {
        int count = n < PARTS ? (int)n : PARTS;
        for (int i = 0; i < count; i++)
            room[i] = blasd_rule_number(rule, part, parts, row, all, first + i);
        store(part, room, count, out);
        out += (size_t)count * size;
        first += count;
        n -= count;
    }
}

static void make_full(const struct blasd_rule *rule, size_t size, int64_t n, unsigned char *out) {
    unsigned char room[PARTS * BLASD_RULE_VALUE_BYTES];
    for (int i = 0; i < PARTS; i++) memcpy(room + (size_t)i * size, rule->value, size);
    for (int64_t i = 0; i < n; i += PARTS)
        memcpy(out + (size_t)i * size, room, (size_t)(n - i < PARTS ? n - i : PARTS) * size);
}

void blasd_rule_make(const struct blasd_rule *rule, const struct blasd_tensor *tensor,
                     int64_t first, int64_t n, void *out) {
    enum blasd_dtype part = blasd_dtype_part(tensor->dtype);
    int parts = blasd_dtype_parts(tensor->dtype);
    if (rule->kind == BLASD_RULE_FULL) {
        make_full(rule, blasd_dtype_size(tensor->dtype), n, out);
    } else if (rule->kind == BLASD_RULE_UNIFORM || rule->kind == BLASD_RULE_NORMAL) {
        make_random(rule, part, first * parts, n * parts, out);
    } else {
        make_numbers(rule, tensor, part, first * parts, n * parts, out);
    }
}

void blasd_rule_fill(const struct blasd_rule *rule, const struct blasd_tensor *tensor) {
    size_t size = blasd_dtype_size(tensor->dtype);
    int64_t n = blasd_tensor_elements(tensor);
    for (int64_t at = 0; at < n && blasd_wanted(); at += FILL)
        blasd_rule_make(rule, tensor, at, n - at < FILL ? n - at : FILL,
                        (unsigned char *)tensor->data + (size_t)at * size);
}

/* ---- what users ask for ---- */

static bool is_integer(enum blasd_dtype dtype) {
    return blasd_dtype_kind(dtype) == 'i' || blasd_dtype_kind(dtype) == 'u';
}

static int set_length(struct blasd_tensor *tensor, int rank, int64_t n, const char *field,
                      struct blasd_err *err) {
    int64_t shape[2] = {n, n};
    *tensor = blasd_tensor_make(tensor->dtype, rank, shape);
    return blasd_tensor_check(tensor, field, err);
}

int blasd_rule_eye(struct blasd_rule *rule, struct blasd_tensor *tensor, int64_t n,
                   const char *field, struct blasd_err *err) {
    *rule = (struct blasd_rule){.kind = BLASD_RULE_EYE};
    return set_length(tensor, 2, n, field, err);
}

int blasd_rule_random(struct blasd_rule *rule, const struct blasd_tensor *tensor,
                      enum blasd_rule_kind kind, uint64_t seed, const char *field,
                      struct blasd_err *err) {
    if (blasd_dtype_kind(blasd_dtype_part(tensor->dtype)) != 'f')
        return blasd_fail(err, BLASD_E_unsupported_dtype, field,
                          "random numbers have a floating or complex dtype, not %s",
                          blasd_dtype_name(tensor->dtype));
    *rule = (struct blasd_rule){.kind = kind, .seed = seed};
    return blasd_tensor_check(tensor, field, err);
}

/* Whether the numbers, from which a line is made, stay within its dtype. */
static int check_line(const struct blasd_tensor *tensor, const double *ends, int count,
                      const char *field, struct blasd_err *err) {
    enum blasd_dtype part = blasd_dtype_part(tensor->dtype);
    for (int i = 0; i < count; i++) {
        double x = is_integer(part) ? floor(ends[i]) : rounded(part, ends[i]);
        if (isfinite(x) && (!is_integer(part) || (x >= least_of(part) && x <= most_of(part))))
            continue;
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "its elements reach %g, which %s cannot hold", ends[i],
                          blasd_dtype_name(tensor->dtype));
    }
    return 0;
}

#define MOST_LENGTH 0x1p60

/* Of integers below 2^53, whose difference need not be: the quotient, rounded up. */
static int64_t whole_length(int64_t start, int64_t stop, int64_t step) {
    int64_t span = stop - start, quotient = span / step;
    if (span == 0 || (span > 0) != (step > 0)) return 0;
    return quotient + (span % step != 0);
}

/* As NumPy counts: the quotient, rounded up; a difference of which the quotient is lost still has
 * its first element. */
static int arange_length(enum blasd_dtype dtype, double start, double stop, double step,
                         int64_t *ret, const char *field, struct blasd_err *err) {
    double span = stop - start, quotient = span / step;
    if (is_integer(dtype)) {
        *ret = whole_length((int64_t)start, (int64_t)stop, (int64_t)step);
        return 0;
    }
    if (quotient == 0 && span != 0)
        quotient = signbit(quotient) ? 0 : 1;
    else
        quotient = ceil(quotient);
    if (!(quotient < MOST_LENGTH))
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "arange from %g to %g by %g has more elements than can be addressed",
                          start, stop, step);
    *ret = quotient > 0 ? (int64_t)quotient : 0;
    return 0;
}

static int check_whole(enum blasd_dtype dtype, const double *numbers, const char *field,
                       struct blasd_err *err) {
    for (int i = 0; is_integer(dtype) && i < 3; i++)
        if (floor(numbers[i]) != numbers[i] || fabs(numbers[i]) >= 0x1p53)
            return blasd_fail(
                err, BLASD_E_invalid_tensor, field,
                "arange of %s takes whole numbers of less than 2^53, and %.17g is not "
                "one: leave the dtype away for float64, or use linspace",
                blasd_dtype_name(dtype), numbers[i]);
    return 0;
}

int blasd_rule_arange(struct blasd_rule *rule, struct blasd_tensor *tensor, double start,
                      double stop, double step, const char *field, struct blasd_err *err) {
    enum blasd_dtype part = blasd_dtype_part(tensor->dtype);
    double first = rounded(part, start), next = rounded(part, start + step), ends[3];
    const double given[3] = {start, stop, step};
    int64_t n = 0;
    int rc;
    if (step == 0) return blasd_fail(err, BLASD_E_invalid_tensor, field, "the step of arange is 0");
    if (part == BLASD_bool)
        return blasd_fail(err, BLASD_E_unsupported_dtype, field, "arange makes no bool");
    if ((rc = check_whole(part, given, field, err)) != 0 ||
        (rc = arange_length(part, start, stop, step, &n, field, err)) != 0 ||
        (rc = set_length(tensor, 1, n, field, err)) != 0)
        return rc;
    *rule = (struct blasd_rule){.kind = BLASD_RULE_ARANGE};
    rule->line.start = first;
    rule->line.stop = next;
    rule->line.step = part == BLASD_float64 || is_integer(part)
                          ? next - first
                          : (double)((float)next - (float)first);
    if (n == 0) return 0;
    ends[0] = first;
    ends[1] = n > 1 ? next : first;
    ends[2] = n > 2 ? blasd_rule_arange_at(first, rule->line.step, next, part, n - 1) : first;
    return check_line(tensor, ends, 3, field, err);
}

int blasd_rule_linspace(struct blasd_rule *rule, struct blasd_tensor *tensor, double start,
                        double stop, int64_t n, const char *field, struct blasd_err *err) {
    double ends[2] = {start, n > 1 ? stop : start};
    int rc = set_length(tensor, 1, n, field, err);
    if (rc != 0) return rc;
    *rule = (struct blasd_rule){.kind = BLASD_RULE_LINSPACE};
    rule->line.start = start;
    rule->line.stop = stop;
    rule->line.step = n > 1 ? (stop - start) / (double)(n - 1) : 0;
    if (n > 0 && !isfinite(stop - start))
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "the difference of %g and %g is beyond float64", stop, start);
    return n == 0 ? 0 : check_line(tensor, ends, 2, field, err);
}

/* ---- looking at elements that are not there yet ---- */

#define LOOK_MOST (INT64_C(1) << 20) /* random elements that are made only to be looked at */

/* What a look at some elements finds: that of blasd_tensor_first_negative, with `zero_too`. */
static int64_t look_at(const struct blasd_input *input, int64_t first, int64_t n, bool zero_too) {
    _Alignas(64) unsigned char room[PARTS * BLASD_RULE_VALUE_BYTES];
    blasd_rule_make(&input->source.rule, &input->tensor, first, n, room);
    return blasd_tensor_first_negative(input->tensor.dtype, room, n, zero_too);
}

/* The first element of a line that is negative (or 0); -1: none. A line does not turn. */
static int64_t look_along(const struct blasd_input *input, int64_t n, bool zero_too) {
    int64_t low = 0, high = n - 1; /* of a line that falls: none at low, one at high */
    if (look_at(input, 0, 1, zero_too) >= 0) return 0;
    if (look_at(input, n - 1, 1, zero_too) < 0) return -1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (look_at(input, middle, 1, zero_too) >= 0)
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* The same of bools, which are 0 where the line they are made of is, and turn there: it is looked
 * along, so that it falls. */
static int64_t look_along_bools(const struct blasd_input *input, int64_t n, bool zero_too) {
    struct blasd_input line = *input;
    struct blasd_rule *rule = &line.source.rule;
    int64_t at;
    if (!zero_too) return -1;
    line.tensor.dtype = BLASD_float64;
    if (rule->line.start < 0) {
        rule->line.start = -rule->line.start;
        rule->line.step = -rule->line.step;
        rule->line.stop = -rule->line.stop;
    }
    at = look_along(&line, n, true);
    return at >= 0 && look_at(input, at, 1, true) >= 0 ? at : -1;
}

static int64_t look_through(const struct blasd_input *input, int64_t n, bool zero_too) {
    for (int64_t first = 0; first < n; first += PARTS) {
        int64_t at = look_at(input, first, n - first < PARTS ? n - first : PARTS, zero_too);
        if (at >= 0) return first + at;
    }
    return -1;
}

static int64_t first_negative(const struct blasd_input *input, int64_t n, bool zero_too) {
    enum blasd_rule_kind kind = input->source.rule.kind;
    int64_t row = input->tensor.rank > 0 ? input->tensor.shape[input->tensor.rank - 1] : 1;
    switch (kind) {
    case BLASD_RULE_FULL: return look_at(input, 0, 1, zero_too);
    case BLASD_RULE_EYE: return zero_too && row > 1 ? 1 : -1;
    case BLASD_RULE_UNIFORM: return zero_too ? look_through(input, n, true) : -1;
    case BLASD_RULE_NORMAL: return look_through(input, n, zero_too);
    default:
        return input->tensor.dtype == BLASD_bool ? look_along_bools(input, n, zero_too)
                                                 : look_along(input, n, zero_too);
    }
}

/* What does not turn is 0 where its ends are; random numbers are soon another. */
static bool all_zero(const struct blasd_input *input, int64_t n, bool random) {
    _Alignas(16) unsigned char room[BLASD_RULE_VALUE_BYTES];
    for (int64_t i = 0; i < n; i = random || i == n - 1 ? i + 1 : n - 1) {
        blasd_rule_make(&input->source.rule, &input->tensor, i, 1, room);
        if (!blasd_tensor_all_zero(input->tensor.dtype, room, 1)) return false;
    }
    return true;
}

int blasd_rule_look(struct blasd_input *input, unsigned values, const char *field,
                    struct blasd_err *err) {
    const struct blasd_rule *rule = &input->source.rule;
    int64_t n = blasd_tensor_elements(&input->tensor);
    bool random = rule->kind == BLASD_RULE_UNIFORM || rule->kind == BLASD_RULE_NORMAL;
    if (n == 0) return 0;
    if (rule->kind == BLASD_RULE_FULL)
        input->first_nonfinite = blasd_tensor_first_nonfinite(input->tensor.dtype, rule->value, 1);
    if ((values & BLASD_VALUES_POSITIVE) != 0 && random && n > LOOK_MOST)
        return blasd_fail(err, BLASD_E_out_of_range, field,
                          "its elements must all be greater than 0, which is looked at of no more "
                          "than %lld random ones: send them",
                          (long long)LOOK_MOST);
    if ((values & (BLASD_VALUES_POSITIVE | BLASD_VALUES_NOT_NEGATIVE)) != 0)
        input->first_negative = first_negative(input, n, false);
    if ((values & BLASD_VALUES_POSITIVE) != 0)
        input->first_not_positive = first_negative(input, n, true);
    if ((values & BLASD_VALUES_NOT_ALL_ZERO) != 0) input->all_zero = all_zero(input, n, random);
    return 0;
}
