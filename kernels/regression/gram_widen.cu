/* Data that went up as float32, as the numbers that everything else works with. No bit is lost by
 * it, and half the bytes go over the bus. Read next: gram_memory.cu. */
#include "kernels/regression/gram.cuh"

#define THREADS 256
#define MOST_SPANS 1024 /* at once: a block takes several */

static __global__ void __launch_bounds__(THREADS)
    widen_spans(const struct gram_span *spans, int count) {
    for (int s = (int)blockIdx.y; s < count; s += (int)gridDim.y) {
        const struct gram_span span = spans[s];
        for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < span.count;
             i += (int64_t)gridDim.x * THREADS)
            span.to[i] = (double)span.from[i];
    }
}

int gram_widen(const struct gram_span *spans, int count, int64_t longest, int units,
               struct blasd_gpu_stream *stream, struct blasd_err *err) {
    int64_t blocks = (longest + THREADS - 1) / THREADS, most = (int64_t)units * 32;
    if (count == 0 || longest == 0) return 0;
    return blasd_launch(widen_spans,
                        dim3((unsigned)(blocks < most ? blocks : most),
                             (unsigned)(count < MOST_SPANS ? count : MOST_SPANS)),
                        dim3(THREADS), 0, stream, err, spans, count);
}
