"""The demo's data: `make DIR` writes the inputs, `check DIR` checks the answers and prints the table."""
import json
import pathlib
import struct
import sys

import numpy as np


def safetensors(tensors, metadata):
    """A safetensors file as bytes: length, JSON header, data."""
    header, data = {"__metadata__": metadata}, b""
    for name, array in tensors.items():
        assert array.dtype == np.float32
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def line():
    """y = 3 - 2 x1 + 0.5 x2, without noise."""
    x = np.array([[1, 0], [2, 1], [3, 5], [4, 2], [5, 9], [6, 3]], float)
    return x, 3 + x @ [-2, 0.5]


def make(folder):
    rng = np.random.default_rng(7)
    a = rng.standard_normal((100, 100)) + 10 * np.eye(100)
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", a @ np.arange(1.0, 101.0))
    # the case that cancels in x2 - 2xy + y2 form: the points are 109 apart
    points = np.array([[512695], [512804]], np.float32)
    (folder / "distance.safetensors").write_bytes(safetensors({"x": points}, {"op": "distance"}))
    x, y = line()
    job = {"op": "regression", "inputs": {"x": x.tolist(), "y": y.tolist()}}
    (folder / "regression.json.in").write_text(json.dumps(job))


def close(got, expected, tolerance):
    return bool(np.max(np.abs(np.asarray(got) - expected)) <= tolerance)


def check(folder):
    def load(op):
        return json.loads((folder / f"{op}.json").read_text())

    def data(job, name):
        return np.array(job["outputs"][name]["data"], float)

    expected = {
        "matmul": lambda job: close(data(job, "c"), [[19, 22], [43, 50]], 0),
        "solve": lambda job: close(data(job, "x"), np.arange(1.0, 101.0), 1e-11),
        "distance": lambda job: close(data(job, "d"), [[0, 109], [109, 0]], 0),
        "regression": lambda job: close(data(job, "coef"), [-2, 0.5], 1e-13)
                      and close(data(job, "intercept"), 3, 1e-13),
    }
    parts = ["receive", "queue", "batch_wait", "upload", "compute", "download", "total"]
    print(f"{'operation':11}{'answer':9}{'device':8}{'method':18}" + "".join(f"{p:>11}" for p in parts) + "  (ms)")
    right = True
    for op, answer_is_right in expected.items():
        job = load(op)
        ok = job["state"] == "succeeded" and answer_is_right(job)
        right = right and ok
        times = "".join(f"{job['timing'][p + '_ms']:11.3f}" for p in parts)
        print(f"{op:11}{'right' if ok else 'WRONG':9}{job['execution']['device']:8}"
              f"{job['execution']['method'][:17]:18}{times}")
        if not ok:
            print(json.dumps(job, indent=2), file=sys.stderr)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
