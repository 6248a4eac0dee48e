"""What only the service on a card can tell: rules made there, values that stay between the steps of a graph, large products in pieces and
whole, thousands of systems with many right-hand sides. The judge is the same computation on the CPU, or step by step."""

import blasd
import numpy as np
import pytest

RULES = {"normal": blasd.random.normal((257, 1025), seed=7), "normal in float32": blasd.random.normal((1025, 257), seed=8, dtype="float32"),
         "uniform": blasd.random.uniform((300, 300), seed=9), "arange": blasd.arange(1, 4001, 3), "linspace": blasd.linspace(-1, 1, 999)}


@pytest.mark.parametrize("name", RULES)
def test_what_rules_make_has_the_same_bits_there(client, name):
    rule = RULES[name]
    width = rule.shape[-1]
    assert np.array_equal(*[client.matmul(rule, np.eye(width, dtype=rule.dtype), device=device) for device in ("cpu", "cuda")])


def drawn(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
@pytest.mark.parametrize("m, k, n, transpose_b", [(4096, 1500, 4096, False), (5003, 2048, 3001, True), (9001, 1100, 700, False)])
def test_a_large_product_has_the_same_bits_in_pieces_and_where_it_stays(client, dtype, m, k, n, transpose_b):
    a, b = drawn((m, k), dtype, 1), drawn((n, k) if transpose_b else (k, n), dtype, 2)
    pieces = client.matmul(a, b, transpose_b=transpose_b, device="cuda")
    with client.graph(device="cuda") as g:
        whole = g.matmul(a, b, transpose_b=transpose_b)
        # a graph's value stays on the card while a step to come reads it
        after = g.matmul(whole, blasd.eye(n, dtype=dtype))
        g.results(whole, after)
    assert np.array_equal(pieces, np.asarray(whole.value))
    assert np.array_equal(pieces, np.asarray(after.value))
    right = a @ (b.T if transpose_b else b)
    bound = 8 * k * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b.T if transpose_b else b))
    assert np.all(np.abs(pieces - right) <= bound)


def test_a_power_iteration_as_a_graph_has_the_bits_of_its_steps(client):
    a = drawn((512, 512), "float64", 3) / 30
    x = drawn((512, 1), "float64", 4)
    with client.graph(device="cuda") as g:
        value = x
        for _ in range(30):
            value = g.matmul(a, value)
        g.results(value)
    step = x
    for _ in range(30):
        step = client.matmul(a, step, device="cuda")
    assert np.array_equal(np.asarray(value.value), step)


def test_operations_on_each_others_values_have_the_bits_of_their_steps(client):
    a = drawn((96, 96), "float64", 5)
    with client.graph(device="cuda") as g:
        gram = g.matmul(a, a, transpose_a=True)
        solved = g.solve(gram, a, assume_a="positive_definite")
        values = g.svd(solved)
        lower = g.cholesky(gram)
        g.results(gram, solved, values["S"], lower)
    one = client.matmul(a, a, transpose_a=True, device="cuda")
    two = client.solve(one, a, assume_a="positive_definite", device="cuda")
    assert np.array_equal(np.asarray(gram.value), one)
    assert np.array_equal(np.asarray(solved.value), two)
    assert np.array_equal(np.asarray(values["S"].value), client.svd(two, device="cuda").S)
    assert np.array_equal(np.asarray(lower.value), client.cholesky(one, device="cuda"))


def test_a_hundred_thousand_systems_with_forty_right_hand_sides(client):
    rng = np.random.default_rng(6)
    half = rng.standard_normal((100_000, 4, 4))
    a = half @ half.transpose(0, 2, 1) + np.eye(4)
    b = rng.standard_normal((100_000, 4, 40))
    x = client.solve(a, b, assume_a="positive_definite", device="cuda")
    assert np.all(np.abs(b - a @ x).max(axis=(1, 2)) <= 1e-12 * (np.abs(a).max(axis=(1, 2)) * np.abs(x).max(axis=(1, 2)) + np.abs(b).max(axis=(1, 2))))
