/* Elements that rules make, made on the device: core/rule_element.h with a thread for each block of
 * random parts or for each element. Read next: async_batch.c, who calls this. */
#include <cmath>
#include <cstring>

#include "kernels/cuda/gpu.h"

extern "C" {
#include "core/rule_element.h"
#include "kernels/cuda/device.h"
}

#define THREADS 256
#define BLOCKS_MOST 4096

#define EACH(i, count)                                                                             \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                  \
         i += (int64_t)gridDim.x * blockDim.x)

/* The halves, which are both uint16_t in memory. */
struct rule_float16 {
    uint16_t bits;
};
struct rule_bfloat16 {
    uint16_t bits;
};
struct rule_bool {
    uint8_t byte;
};

static __device__ void put(double x, double *to) {
    *to = x;
}
static __device__ void put(double x, float *to) {
    *to = (float)x;
}
static __device__ void put(double x, rule_float16 *to) {
    to->bits = blasd_float16_write(blasd_float_round_odd(x));
}
static __device__ void put(double x, rule_bfloat16 *to) {
    to->bits = blasd_bfloat16_write(blasd_float_round_odd(x));
}
static __device__ void put(double x, rule_bool *to) {
    to->byte = x != 0;
}
/* Integers: what the rule makes was seen to be in their range, rounded down. */
template <class T> static __device__ void put(double x, T *to) {
    *to = (T)floor(x);
}

static __global__ void __launch_bounds__(THREADS)
    rule_full(struct blasd_rule rule, int size, int64_t n, unsigned char *out) {
    EACH(i, n * size) out[i] = rule.value[i % size];
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    rule_numbers(struct blasd_rule rule, int part, int parts, int64_t row, int64_t elements,
                 T *out) {
    EACH(i, elements * parts)
    put(blasd_rule_number(&rule, (enum blasd_dtype)part, parts, row, elements, i), out + i);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    rule_random(struct blasd_rule rule, int part, int64_t n, T *out) {
    int each = blasd_rule_block_parts((enum blasd_dtype)part);
    EACH(block, (n + each - 1) / each) {
        double made[4];
        blasd_rule_block(&rule, (enum blasd_dtype)part, (uint64_t)block, made);
        for (int i = 0; i < each && block * each + i < n; i++) put(made[i], out + block * each + i);
    }
}

static dim3 blocks_of(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST));
}

/* What the launches of one tensor have in common. */
struct making {
    struct blasd_gpu_stream *stream;
    const struct blasd_rule *rule;
    const struct blasd_tensor *tensor;
    enum blasd_dtype part;
    int parts;
    int64_t n; /* parts of all elements */
};

template <class T> static int numbers(const making &m, void *to, struct blasd_err *err) {
    int64_t row = m.tensor->rank > 0 ? m.tensor->shape[m.tensor->rank - 1] : 1;
    return blasd_launch(rule_numbers<T>, blocks_of(m.n), dim3(THREADS), 0, m.stream, err, *m.rule,
                        (int)m.part, m.parts, row, m.n / m.parts, (T *)to);
}

template <class T> static int floating(const making &m, void *to, struct blasd_err *err) {
    if (m.rule->kind != BLASD_RULE_UNIFORM && m.rule->kind != BLASD_RULE_NORMAL)
        return numbers<T>(m, to, err);
    return blasd_launch(rule_random<T>, blocks_of((m.n + 1) / 2), dim3(THREADS), 0, m.stream, err,
                        *m.rule, (int)m.part, m.n, (T *)to);
}

extern "C" int blasd_cuda_make(struct blasd_gpu_stream *stream, const struct blasd_rule *rule,
                               const struct blasd_tensor *tensor, void *to, struct blasd_err *err) {
    int parts = blasd_dtype_parts(tensor->dtype), size = (int)blasd_dtype_size(tensor->dtype);
    int64_t elements = blasd_tensor_elements(tensor);
    making m = {stream, rule, tensor, blasd_dtype_part(tensor->dtype), parts, elements * parts};
    if (elements == 0) return 0;
    if (rule->kind == BLASD_RULE_FULL)
        return blasd_launch(rule_full, blocks_of(elements * size), dim3(THREADS), 0, stream, err,
                            *rule, size, elements, (unsigned char *)to);
    switch (m.part) {
    case BLASD_float64: return floating<double>(m, to, err);
    case BLASD_float32: return floating<float>(m, to, err);
    case BLASD_float16: return floating<rule_float16>(m, to, err);
    case BLASD_bfloat16: return floating<rule_bfloat16>(m, to, err);
    case BLASD_int64: return numbers<int64_t>(m, to, err);
    case BLASD_int32: return numbers<int32_t>(m, to, err);
    case BLASD_int16: return numbers<int16_t>(m, to, err);
    case BLASD_int8: return numbers<int8_t>(m, to, err);
    case BLASD_uint64: return numbers<uint64_t>(m, to, err);
    case BLASD_uint32: return numbers<uint32_t>(m, to, err);
    case BLASD_uint16: return numbers<uint16_t>(m, to, err);
    case BLASD_uint8: return numbers<uint8_t>(m, to, err);
    default: return numbers<rule_bool>(m, to, err);
    }
}
