/* CUDA graphs behind library.h: what a stream was given, written down once and launched again.
 * Read next: library_cublas.cu. */
#include "kernels/cuda/library_cuda.h"

#include <new>

struct blasd_gpu_graph {
    cudaGraphExec_t raw;
};

#define CUDA(call, what)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) return blasd_gpu_cuda_status((int)status_, what, err);         \
    } while (0)

int blasd_gpu_capture_begin(struct blasd_gpu_stream *stream, struct blasd_err *err) {
    /* other threads of the process, NVML's and the pool's, may go on as they like */
    CUDA(cudaStreamBeginCapture(stream->raw, cudaStreamCaptureModeThreadLocal),
         "beginning a graph");
    return 0;
}

static int instantiate(cudaGraph_t raw, struct blasd_gpu_graph **ret, int *nodes,
                       struct blasd_err *err) {
    struct blasd_gpu_graph *graph;
    cudaGraphExec_t ready;
    size_t count = 0;
    CUDA(cudaGraphGetNodes(raw, nullptr, &count), "counting a graph's work");
    CUDA(cudaGraphInstantiateWithFlags(&ready, raw, 0), "making a graph");
    graph = new (std::nothrow) blasd_gpu_graph{ready};
    if (graph == nullptr) {
        (void)cudaGraphExecDestroy(ready);
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory for a graph");
    }
    *nodes = (int)count;
    *ret = graph;
    return 0;
}

int blasd_gpu_capture_end(struct blasd_gpu_stream *stream, struct blasd_gpu_graph **ret, int *nodes,
                          struct blasd_err *err) {
    cudaGraph_t raw = nullptr;
    int code;
    *ret = nullptr;
    *nodes = 0;
    CUDA(cudaStreamEndCapture(stream->raw, &raw), "ending a graph");
    code = instantiate(raw, ret, nodes, err);
    (void)cudaGraphDestroy(raw);
    return code;
}

int blasd_gpu_graph_launch(struct blasd_gpu_graph *graph, struct blasd_gpu_stream *stream,
                           struct blasd_err *err) {
    CUDA(cudaGraphLaunch(graph->raw, stream->raw), "launching a graph");
    return 0;
}

void blasd_gpu_graph_close(struct blasd_gpu_graph *graph) {
    if (graph == nullptr) return;
    (void)cudaGraphExecDestroy(graph->raw);
    delete graph;
}
