/* Data that went up as float32, as the numbers that everything else works with. No bit is lost by
 * it, and half the bytes go over the bus. Read next: gram_memory.cu. */
#include "kernels/regression/gram_share.cuh"

#define THREADS 256
#define MOST_SPANS 1024 /* at once: a block takes several */

struct widen_in {
    const struct gram_span *spans;
    int count, blocks; /* blocks that share a span */
};

template <class... In> static __global__ void __launch_bounds__(THREADS) widen_spans(In... in) {
    const auto &share = gram_share(in...);
    int64_t blocks = share.args.blocks, first = share.block() % blocks * THREADS + threadIdx.x;
    for (int64_t s = share.block() / blocks; s < share.args.count; s += share.blocks() / blocks) {
        const struct gram_span span = share.args.spans[s];
        for (int64_t i = first; i < span.count; i += blocks * THREADS)
            span.to[i] = (double)span.from[i];
    }
}

int gram_widen(const struct gram_span *spans, int count, int64_t longest, int units,
               const struct gram_way *way, struct blasd_err *err) {
    int64_t blocks = (longest + THREADS - 1) / THREADS, most = (int64_t)units * 32;
    if (count == 0 || longest == 0) return 0;
    if (blocks > most) blocks = most;
    return gram_launch<struct widen_in>(way, STAGE_WIDEN, widen_spans, widen_spans,
                                        blocks * (count < MOST_SPANS ? count : MOST_SPANS), THREADS,
                                        0, {spans, count, (int)blocks}, err);
}
