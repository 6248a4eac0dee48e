/* Tensor bytes on their way to the sink. */
#include "wire/landing.h"

#include "base/text.h"

#include "wire/echo.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian in memory");

#define SLICE_BYTES ((size_t)16384)

/* How elements are judged, eight bytes at a time: ((word & mask) + add) & flag is not 0 where one
 * of the elements in the word is at fault. For floating types: the bits of the exponent are all
 * ones exactly where adding one to them carries into the place of the sign. */
struct blasd_scan {
    uint64_t mask, add, flag;
};

#define REPEAT2(x) ((uint64_t)(x) << 32 | (uint64_t)(x))
#define REPEAT4(x) REPEAT2((uint64_t)(x) << 16 | (uint64_t)(x))

static const struct blasd_scan scans[BLASD_DTYPE_COUNT] = {
    [BLASD_float64] = {UINT64_C(0x7ff0000000000000), UINT64_C(0x0010000000000000),
                       UINT64_C(0x8000000000000000)},
    [BLASD_float32] = {REPEAT2(0x7f800000), REPEAT2(0x00800000), REPEAT2(0x80000000)},
    [BLASD_float16] = {REPEAT4(0x7c00), REPEAT4(0x0400), REPEAT4(0x8000)},
    [BLASD_bfloat16] = {REPEAT4(0x7f80), REPEAT4(0x0080), REPEAT4(0x8000)},
    [BLASD_bool] = {REPEAT4(0xfefe), 0, REPEAT4(0xfefe)},
};

static const char *field_of(char field[64], const char *name, size_t len) {
    char shown[BLASD_ECHO_MAX];
    blasd_text_join(field, 64, "inputs.", blasd_echo(shown, name, len), NULL);
    return field;
}

int blasd_arrivals_add(struct blasd_arrivals *arrivals, const char *name, size_t len,
                       struct blasd_arrival **ret, struct blasd_err *err) {
    struct blasd_arrival *item;
    char field[64];
    bool plain = len > 0 && len < BLASD_NAME_MAX;
    for (size_t i = 0; plain && i < len; i++) plain = name[i] > ' ' && name[i] < 0x7f;
    if (!plain)
        return blasd_fail(err, BLASD_E_unknown_input, field_of(field, name, len),
                          "no operation has an input of this name: names are 1 to %d letters, "
                          "digits and _",
                          BLASD_NAME_MAX - 1);
    for (int i = 0; i < arrivals->count; i++)
        if (strlen(arrivals->items[i].name) == len &&
            memcmp(arrivals->items[i].name, name, len) == 0)
            return blasd_fail(err, BLASD_E_invalid_field, field_of(field, name, len),
                              "the tensor is given twice");
    if (arrivals->count == BLASD_ARRIVALS_MAX)
        return blasd_fail(err, BLASD_E_unknown_input, field_of(field, name, len),
                          "this is tensor number %d, and no operation takes more than %d",
                          BLASD_ARRIVALS_MAX + 1, BLASD_MAX_INPUTS);
    item = &arrivals->items[arrivals->count++];
    memset(item, 0, sizeof *item);
    memcpy(item->name, name, len);
    blasd_input_init(&item->input);
    *ret = item;
    return 0;
}

int blasd_landing_begin(struct blasd_landing *landing, struct blasd_sink *sink,
                        struct blasd_arrival *to, uint64_t bytes, bool look, bool swap,
                        struct blasd_err *err) {
    enum blasd_dtype part = blasd_dtype_part(to->input.tensor.dtype);
    const struct blasd_scan *by = &scans[part];
    int rc;
    *landing = (struct blasd_landing){.sink = sink, .to = to, .left = bytes};
    landing->size = (unsigned)blasd_dtype_size(part);
    landing->parts = blasd_dtype_parts(to->input.tensor.dtype);
    landing->by = look && by->mask != 0 ? by : NULL;
    landing->values = blasd_ops_values(to->name);
    to->input.all_zero = (landing->values & BLASD_VALUES_NOT_ALL_ZERO) != 0 && bytes > 0;
    landing->swap = swap && landing->size > 1;
    if ((rc = sink->reserve(sink, bytes, &landing->offset, err)) != 0) return rc;
    to->input.source =
        (struct blasd_source){BLASD_SOURCE_PAYLOAD, .offset = landing->offset, .bytes = bytes};
    return 0;
}

static uint64_t load(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Compiled for wider registers too, of which the loader picks: twice as fast with AVX2. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) /* it would trip over the resolver */
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif

/* Bytes at the start of `p` that hold no element at fault, in whole blocks of `words`. */
__attribute__((always_inline)) static inline size_t scan_words(const struct blasd_scan *by,
                                                               const unsigned char *p, size_t bytes,
                                                               const size_t words) {
    const size_t block = words * sizeof(uint64_t);
    const uint64_t mask = by->mask, add = by->add, flag = by->flag;
    size_t at = 0;
    for (; bytes - at >= block; at += block) {
        uint64_t seen = 0;
        for (size_t i = 0; i < words; i++) seen |= (load(p + at + 8 * i) & mask) + add;
        if ((seen & flag) != 0) break;
    }
    return at;
}

/* The same, in large blocks as far as they go, for each costs as much again to decide on as to look
 * at 64 bytes of it, and small ones behind them. */
WITH_AVX2 static size_t scan_blocks(const struct blasd_scan *by, const unsigned char *p,
                                    size_t bytes) {
    size_t at = scan_words(by, p, bytes, 128);
    return at + scan_words(by, p + at, bytes - at, 16);
}

/* Index of the first element at fault among `n`, or -1. */
static int64_t scan(const struct blasd_scan *by, const unsigned char *p, size_t n, unsigned size) {
    size_t bytes = n * size, at = scan_blocks(by, p, bytes);
    for (; at < bytes; at += size) {
        uint64_t word = 0;
        memcpy(&word, p + at, size);
        /* one element in the lowest place: the places above hold zeros and never carry */
        if ((((word & by->mask) + by->add) & by->flag) != 0) return (int64_t)(at / size);
    }
    return -1;
}

/* Looks for what some port of the tensor's name refuses. */
static void look_at_values(struct blasd_landing *landing, const unsigned char *p, int64_t n) {
    struct blasd_input *input = &landing->to->input;
    enum blasd_dtype dtype = blasd_dtype_part(input->tensor.dtype);
    bool signs = landing->parts == 1 &&
                 (landing->values & (BLASD_VALUES_NOT_NEGATIVE | BLASD_VALUES_POSITIVE)) != 0;
    int64_t at;
    if (signs && input->first_negative < 0 &&
        (at = blasd_tensor_first_negative(dtype, p, n, false)) >= 0)
        input->first_negative = landing->index + at;
    if (signs && (landing->values & BLASD_VALUES_POSITIVE) != 0 && input->first_not_positive < 0 &&
        (at = blasd_tensor_first_negative(dtype, p, n, true)) >= 0)
        input->first_not_positive = landing->index + at;
    if (input->all_zero) input->all_zero = blasd_tensor_all_zero(dtype, p, n);
}

static int look(struct blasd_landing *landing, const unsigned char *p, size_t n,
                struct blasd_err *err) {
    struct blasd_input *input = &landing->to->input;
    int64_t at = -1;
    if (landing->by != NULL && input->first_nonfinite < 0)
        at = scan(landing->by, p, n, landing->size);
    if (at >= 0 && input->tensor.dtype == BLASD_bool) {
        char field[64];
        snprintf(field, sizeof field, "inputs.%s", landing->to->name);
        return blasd_fail(err, BLASD_E_invalid_tensor, field,
                          "element %lld is the byte %u, and a bool is 0 or 1",
                          (long long)(landing->index + at), p[at]);
    }
    if (at >= 0) input->first_nonfinite = (landing->index + at) / landing->parts;
    if (landing->values != 0) look_at_values(landing, p, (int64_t)n);
    landing->index += (int64_t)n;
    return 0;
}

static bool looks(const struct blasd_landing *landing) {
    return landing->by != NULL || landing->values != 0;
}

/* Looks at a piece that may begin and end inside an element. */
static int look_across(struct blasd_landing *landing, const unsigned char *p, size_t len,
                       struct blasd_err *err) {
    size_t whole;
    int rc;
    while (landing->part_len > 0 && len > 0) {
        landing->part[landing->part_len++] = *p++;
        len--;
        if (landing->part_len < landing->size) continue;
        landing->part_len = 0;
        if ((rc = look(landing, landing->part, 1, err)) != 0) return rc;
    }
    whole = len / landing->size;
    if (whole > 0 && (rc = look(landing, p, whole, err)) != 0) return rc;
    for (size_t i = whole * landing->size; i < len; i++) landing->part[landing->part_len++] = p[i];
    return 0;
}

static void swap_elements(unsigned char *p, size_t n, unsigned size) {
    for (size_t i = 0; i < n; i++, p += size) {
        uint16_t two;
        uint32_t four;
        uint64_t eight;
        switch (size) {
        case 2:
            memcpy(&two, p, 2);
            two = __builtin_bswap16(two);
            memcpy(p, &two, 2);
            break;
        case 4:
            memcpy(&four, p, 4);
            four = __builtin_bswap32(four);
            memcpy(p, &four, 4);
            break;
        default:
            memcpy(&eight, p, 8);
            eight = __builtin_bswap64(eight);
            memcpy(p, &eight, 8);
        }
    }
}

/* Writes whole elements after turning them round; keeps the rest for the next piece. */
static int feed_swapped(struct blasd_landing *landing, const unsigned char *p, size_t len,
                        struct blasd_err *err) {
    unsigned char room[8192];
    int rc;
    while (len > 0) {
        size_t have = landing->part_len, take = sizeof room - have, n;
        if (take > len) take = len;
        memcpy(room, landing->part, have);
        memcpy(room + have, p, take);
        p += take;
        len -= take;
        n = (have + take) / landing->size;
        landing->part_len = (unsigned)(have + take - n * landing->size);
        memcpy(landing->part, room + n * landing->size, landing->part_len);
        if (n == 0) continue;
        swap_elements(room, n, landing->size);
        if (looks(landing) && (rc = look(landing, room, n, err)) != 0) return rc;
        rc = landing->sink->write(landing->sink, landing->offset, room, n * landing->size, err);
        if (rc != 0) return rc;
        landing->offset += n * landing->size;
    }
    return 0;
}

int blasd_landing_feed(struct blasd_landing *landing, const void *bytes, size_t len,
                       struct blasd_err *err) {
    int rc;
    if (len > landing->left)
        return blasd_fail(err, BLASD_E_internal_error, "", "more tensor bytes came than were due");
    landing->left -= len;
    if (len == 0) return 0;
    if (landing->swap) return feed_swapped(landing, bytes, len, err);
    /* a slice is still in the nearest cache when it is copied after it was looked at */
    for (const unsigned char *p = bytes, *end = p + len; p < end;) {
        size_t n = (size_t)(end - p) < SLICE_BYTES ? (size_t)(end - p) : SLICE_BYTES;
        if (looks(landing) && (rc = look_across(landing, p, n, err)) != 0) return rc;
        rc = landing->sink->write(landing->sink, landing->offset, p, n, err);
        if (rc != 0) return rc;
        landing->offset += n;
        p += n;
    }
    return 0;
}
