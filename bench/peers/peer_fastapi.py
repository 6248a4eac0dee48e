"""FastAPI with NumPy in the handler, as lean as it goes: async, no pydantic, uvloop, httptools, raw bodies.

    peer_fastapi.py [--processes N] [--json orjson|stdlib]      prints `ready http://127.0.0.1:PORT`

Each process has a listening socket of its own (SO_REUSEPORT), so that connections spread.

    POST /json      {"op": …, "inputs": {…}} -> {"c": …}, {"x": …}, {"d": …} or {"coef": …, "intercept": …}
    POST /binary?op=matmul|solve&dtype=float32&shapes=64x64,64x64    raw arrays -> the raw result
"""
import argparse
import asyncio
import json
import os
import signal
import socket
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI(openapi_url=None)
read_json, write_json = json.loads, lambda value: json.dumps(value, separators=(",", ":")).encode()


def plain(arrays):
    return {name: value.tolist() for name, value in arrays.items()}


def matmul(inputs):
    return {"c": np.matmul(np.array(inputs["a"], float), np.array(inputs["b"], float))}


def solve(inputs):
    return {"x": np.linalg.solve(np.array(inputs["a"], float), np.array(inputs["b"], float))}


def distance(inputs):
    x = np.array(inputs["x"], float)
    difference = x[:, None, :] - x[None, :, :]
    return {"d": np.einsum("ijk,ijk->ij", difference, difference)}


def regression(inputs):
    x, y = np.array(inputs["x"], float), np.array(inputs["y"], float)
    mean_x, mean_y = x.mean(axis=0), y.mean()
    coef = np.linalg.lstsq(x - mean_x, y - mean_y, rcond=None)[0]
    return {"coef": coef, "intercept": np.asarray(mean_y - mean_x @ coef)}


OPERATIONS = {"matmul": matmul, "solve": solve, "distance": distance, "regression": regression}


@app.post("/json")
async def json_job(request: Request):
    job = read_json(await request.body())
    return Response(write_json(OPERATIONS[job["op"]](job["inputs"])), media_type="application/json")


@app.post("/binary")
async def binary_job(request: Request):
    query = request.query_params
    body, dtype, at, arrays = await request.body(), np.dtype(query["dtype"]), 0, []
    for text in query["shapes"].split(","):
        shape = [int(n) for n in text.split("x")]
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(body, dtype, count, at).reshape(shape))
        at += count * dtype.itemsize
    result = np.matmul(*arrays) if query["op"] == "matmul" else np.linalg.solve(*arrays)
    return Response(memoryview(np.ascontiguousarray(result)).cast("B"), media_type="application/octet-stream")


def listen(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def serve(listener):
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="warning",
                            timeout_keep_alive=120, backlog=2048, lifespan="off")
    asyncio.set_event_loop_policy(__import__("uvloop").EventLoopPolicy())
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def main():
    global read_json, write_json
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", choices=["orjson", "stdlib"], default="orjson")
    options = parser.parse_args()
    if options.json == "orjson":
        import orjson
        read_json = orjson.loads
        write_json = lambda arrays: orjson.dumps(arrays, option=orjson.OPT_SERIALIZE_NUMPY)  # noqa: E731
    else:
        write_json = lambda arrays: json.dumps(plain(arrays), separators=(",", ":")).encode()  # noqa: E731
    listeners = [listen(0)]
    port = listeners[0].getsockname()[1]
    listeners += [listen(port) for _ in range(options.processes - 1)]
    for listener in listeners:
        listener.listen(2048)
    children = []
    for mine in listeners[1:]:
        pid = os.fork()
        if pid == 0:
            for other in listeners:
                if other is not mine:
                    other.close()
            serve(mine)
            sys.exit(0)
        children.append(pid)
    for other in listeners[1:]:
        other.close()
    print(f"ready http://127.0.0.1:{port}", flush=True)
    serve(listeners[0])
    for pid in children:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
