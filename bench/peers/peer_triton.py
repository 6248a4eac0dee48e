"""Triton Inference Server through nvidia-pytriton: matmul on NumPy with dynamic batching.

    peer_triton.py [--batch N] [--delay-us N]     prints `ready http://127.0.0.1:PORT` and serves until SIGTERM

Models `matmul64` (float64, for JSON) and `matmul32` (float32, for the binary extension); operands of one shape are
batched by Triton and multiplied in one call.
"""
import argparse
import signal
import socket
import threading

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


@batch
def multiply(a, b):
    return {"c": np.matmul(a, b)}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def bind(triton, name, dtype, options):
    def shape(port):
        return Tensor(name=port, dtype=dtype, shape=(-1, -1))
    triton.bind(model_name=name, infer_func=multiply, inputs=[shape("a"), shape("b")], outputs=[shape("c")],
                config=ModelConfig(max_batch_size=options.batch, batcher=DynamicBatcher(
                    max_queue_delay_microseconds=options.delay_us)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--delay-us", type=int, default=0)
    options = parser.parse_args()
    http, grpc, metrics = free_ports(3)
    config = TritonConfig(http_port=http, http_address="127.0.0.1", grpc_port=grpc, grpc_address="127.0.0.1",
                          metrics_port=metrics, metrics_address="127.0.0.1", http_thread_count=8, log_verbose=0)
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    with Triton(config=config) as triton:
        bind(triton, "matmul64", np.float64, options)
        bind(triton, "matmul32", np.float32, options)
        triton.run()
        print(f"ready http://127.0.0.1:{http}", flush=True)
        end.wait()


if __name__ == "__main__":
    main()
