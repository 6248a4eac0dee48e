/* Nested lists of numbers. One element at a time, each with the brackets and the comma around it,
 * straight into the caller's room while that has room for the longest of them. */
#include "wire/json_elements.h"

#include "core/half.h"
#include "wire/json_out.h"
#include "wire/number.h"

#include <string.h>

/* The longest element: every list opens, a number, every list closes, comma, every list opens. */
#define NUMBER_STEP (JSON_NUMBER_MOST + 1)
#define STEP_MOST (3 * (BLASD_MAX_RANK + 1) + JSON_NUMBER_MOST + 1)
_Static_assert(STEP_MOST <= sizeof((struct json_elements *)0)->spill, "the spill holds a step");

/* A tensor of shape (1000000000, 0) has no elements and a billion empty lists. Above this many it
 * is written as [], for its shape stands beside it. */
#define HOLLOW_MOST 65536

int64_t json_elements_weight(const struct blasd_tensor *tensor) {
    int64_t n = 1;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] == 0) return n;
        n *= tensor->shape[i];
    }
    return n * blasd_dtype_parts(tensor->dtype);
}

void json_elements_init(struct json_elements *writer, const struct blasd_tensor *tensor,
                        const void *data) {
    enum blasd_dtype part = blasd_dtype_part(tensor->dtype);
    *writer = (struct json_elements){.data = data, .dtype = part, .size = blasd_dtype_size(part)};
    writer->left = json_elements_weight(tensor);
    while (writer->rank < tensor->rank && tensor->shape[writer->rank] != 0) {
        writer->shape[writer->rank] = tensor->shape[writer->rank];
        writer->rank++;
    }
    writer->hollow = writer->rank < tensor->rank;
    if (!writer->hollow && part != tensor->dtype) writer->shape[writer->rank++] = 2;
    if (writer->hollow && writer->left > HOLLOW_MOST) {
        writer->rank = 0;
        writer->left = 1;
    }
}

static char *write_bool(char *p, unsigned char value) {
    size_t len = value != 0 ? 4 : 5;
    memcpy(p, value != 0 ? "true" : "false", len);
    return p + len;
}

#define CASE(name, type, call)                                                                     \
    case BLASD_##name: {                                                                           \
        type x;                                                                                    \
        memcpy(&x, at, sizeof x);                                                                  \
        return call;                                                                               \
    }

static inline char *write_element(enum blasd_dtype dtype, const unsigned char *at, char *p) {
    switch (dtype) {
        CASE(float64, double, json_write_double(p, x))
        CASE(float32, float, json_write_float(p, x))
        CASE(float16, uint16_t, json_write_float(p, blasd_float16_read(x)))
        CASE(bfloat16, uint16_t, json_write_float(p, blasd_bfloat16_read(x)))
        CASE(int64, int64_t, blasd_number_write_int(p, x))
        CASE(int32, int32_t, blasd_number_write_int(p, x))
        CASE(int16, int16_t, blasd_number_write_int(p, x))
        CASE(int8, int8_t, blasd_number_write_int(p, x))
        CASE(uint64, uint64_t, blasd_number_write_uint(p, x))
        CASE(uint32, uint32_t, blasd_number_write_uint(p, x))
        CASE(uint16, uint16_t, blasd_number_write_uint(p, x))
        CASE(uint8, uint8_t, blasd_number_write_uint(p, x))
        CASE(bool, unsigned char, write_bool(p, x))
    default: break;
    }
    return p;
}

static char *brackets(char *p, char bracket, int n) {
    for (int i = 0; i < n; i++) *p++ = bracket;
    return p;
}

/* Steps to the next element: closes the lists that end, and opens as many. */
static char *step(struct json_elements *w, char *p) {
    int closed = 0;
    while (closed < w->rank) {
        int axis = w->rank - 1 - closed;
        if (++w->index[axis] < w->shape[axis]) break;
        w->index[axis] = 0;
        closed++;
    }
    p = brackets(p, ']', closed);
    if (--w->left == 0) return p;
    *p++ = ',';
    return brackets(p, '[', closed);
}

/* Writes elements of one row that have none of the brackets behind them, each with its comma and
 * NUMBER_STEP bytes of room, as long as they are floats and doubles written by the quick way. */
static char *write_row(struct json_elements *w, char *p, const char *end) {
    int axis = w->rank - 1;
    size_t most = (size_t)(end - p) / NUMBER_STEP, n;
    int64_t inside = axis < 0 ? 0 : w->shape[axis] - w->index[axis] - 1;
    if (most > (uint64_t)inside) most = (size_t)inside;
    if (w->dtype == BLASD_float64)
        p = blasd_numbers_write(p, w->data, most, &n);
    else if (w->dtype == BLASD_float32)
        p = blasd_numbers_write_float(p, w->data, most, &n);
    else
        return p;
    w->data += n * w->size;
    w->index[axis] += (int64_t)n;
    w->left -= (int64_t)n;
    return p;
}

/* Writes one element and what stands around it: at most STEP_MOST bytes. */
static inline char *write_step(struct json_elements *w, char *p) {
    if (!w->begun) {
        p = brackets(p, '[', w->rank);
        w->begun = true;
    }
    if (w->hollow) {
        *p++ = '[';
        *p++ = ']';
    } else {
        p = write_element(w->dtype, w->data, p);
        w->data += w->size;
    }
    return step(w, p);
}

static char *drain(struct json_elements *w, char *p, const char *end) {
    size_t n = w->spill_len - w->spill_at, room = (size_t)(end - p);
    if (n > room) n = room;
    memcpy(p, w->spill + w->spill_at, n);
    w->spill_at += (unsigned)n;
    return p + n;
}

size_t json_elements_read(struct json_elements *writer, char *out, size_t max) {
    char *p = out, *end = out + max;
    for (;;) {
        p = drain(writer, p, end);
        while (writer->left > 0 && end - p >= STEP_MOST) {
            p = write_step(writer, p);
            if (writer->left > 0 && !writer->hollow) p = write_row(writer, p, end);
        }
        if (p == end || writer->left == 0) break;
        writer->spill_at = 0;
        writer->spill_len = (unsigned)(write_step(writer, writer->spill) - writer->spill);
    }
    return (size_t)(p - out);
}
