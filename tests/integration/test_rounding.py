"""With rounding correct each element is the number of its dtype nearest to the exact result: whole numbers judge."""
import blasd
import numpy as np
import pytest
import rounding_cases as cases

CORRECT = {"rounding": "correct"}
# One SHA-256 for all results of a family: equal on each machine, with each compiler and BLAS, in each release.
GOLDEN = {
    "products": "66af0889ddd67184b1c456d3996532466a46c429359b8676c9e6ed1e592f2f91",
    "distances": "085ea5da4d78dc97e13ac71255c6d2b17875fdc66ad3060e8d80cab3ebf56c1f",
    "solutions": "e7f43c32694f684e5f5f0d30dadd679676aab4f4021d107cb01f731d3729d482",
    "fits": "0e2ec50c79b54d941c08186ce3d41113e34e39276b1b4e02f0cb41ebf099be2d",
}


@pytest.fixture
def client(service):
    return blasd.Client(service.url)


def test_products_are_the_nearest_numbers(client):
    wrong = elements = 0
    results = []
    for a, b, params, c in cases.products():
        inputs = {"a": a, "b": b} | ({} if c is None else {"c": c})
        got = client.run("matmul", params | CORRECT, **inputs)["c"]
        wish = cases.product_of(a, b, params, c, str(a.dtype))
        wrong += not cases.same(got, wish)
        elements += wish.size
        results.append(got)
    assert wrong == 0 and elements > 3000
    assert cases.digest(results) == GOLDEN["products"]


INF, NAN = float("inf"), float("nan")
SPECIAL = [  # a row, a column, alpha, c (None: none), the element
    ([1.0, INF], [1.0, 2.0], 1, None, INF), ([1.0, INF], [1.0, -2.0], 1, None, -INF),
    ([INF, INF], [1.0, -1.0], 1, None, NAN), ([0.0, 1.0], [INF, 1.0], 1, None, NAN),
    ([NAN, 1.0], [0.0, 1.0], 1, None, NAN), ([1e300, 1e300], [1e300, -1e300], 1, None, 0.0),
    ([1e300], [1e300], 1, None, INF), ([2.0**999], [2.0**999], 2.0**-999, None, 2.0**999),
    ([-0.0, -0.0], [1.0, 1.0], 1, None, -0.0), ([-0.0, 0.0], [1.0, 1.0], 1, None, 0.0),
    ([0.0, 0.0], [1.0, 1.0], -1, None, -0.0), ([1.0, 1.0], [1.0, -1.0], -1, None, 0.0), ([], [], 1, None, 0.0),
    ([], [], 1, -0.0, -0.0), ([INF], [1.0], 0, None, NAN), ([INF], [1.0], 1, -INF, NAN), ([1.0], [1.0], 1, INF, INF),
    ([1e-300], [-1e-300], 1, None, -0.0), ([1e308], [2.0], 1, -1e308, 1e308), ([5e-324], [0.5], 1, None, 0.0),
    ([5e-324], [0.5000000000000001], 1, None, 5e-324)]


@pytest.mark.parametrize("row, column, alpha, c, wish", SPECIAL)
def test_what_is_not_finite_and_zeros(client, row, column, alpha, c, wish):
    inputs = {"a": np.array(row, float)[None], "b": np.array(column, float)[:, None]}
    inputs |= {} if c is None else {"c": np.array(c)}
    got = client.run("matmul", {"alpha": alpha} | CORRECT, **inputs)["c"]
    assert got.shape == (1, 1)
    assert str(float(got[0, 0])) == str(wish)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("swap", [False, True])
def test_large_products(client, dtype, swap):
    random = np.random.default_rng(5)
    a, b = (random.standard_normal(s).astype(dtype) * np.exp2(random.integers(-30, 30, s)).astype(dtype)
            for s in ((150, 1100), (1100, 280)))
    params = CORRECT | ({"transpose_a": True} if swap else {})
    sent = {"a": np.ascontiguousarray(a.T), "b": np.asfortranarray(b)} if swap else {"a": a, "b": b}
    got = client.run("matmul", params, **sent)["c"]
    for i, j in random.integers(0, 150, (60, 2)):
        wish = cases.product_of(a[i:i + 1], b[:, j:j + 1], {}, None, dtype)
        assert cases.same(got[i:i + 1, j:j + 1], wish)


def test_distances_are_the_nearest_numbers(client):
    elements, results = 0, []
    for x, y, metric in cases.points():
        inputs, wish = {"x": x} | ({} if y is None else {"y": y}), cases.distances_of(x, y, metric)
        got = client.run("distance", {"metric": metric} | CORRECT, **inputs)["d"]
        assert cases.same(got, wish), (metric, x, y)
        elements += wish.size
        results.append(got)
        if y is None and len(x) > 1:
            got = client.run("distance", {"metric": metric, "output": "condensed"} | CORRECT, x=x)["d"]
            assert cases.same(got, wish[np.triu_indices(len(x), 1)])
    assert elements > 2000
    assert cases.digest(results) == GOLDEN["distances"]


@pytest.mark.parametrize("metric", cases.METRICS)
def test_many_points(client, metric):
    random = np.random.default_rng(6)
    x, y = random.standard_normal((2, 130, 3)), random.standard_normal((2, 300, 3))
    y[0, 7] = x[0, 5]
    got = client.run("distance", {"metric": metric} | CORRECT, x=x, y=y)["d"]
    for s, i, j in [(0, 5, 7)] + [tuple(random.integers(0, most) for most in (2, 130, 300)) for _ in range(300)]:
        assert cases.same(got[s, i:i + 1, j:j + 1], cases.distances_of(x[s, i:i + 1], y[s, j:j + 1], metric))


@pytest.mark.parametrize("metric", cases.METRICS)
@pytest.mark.parametrize("far, wish", [([INF, 1], INF), ([-INF, 0], INF), ([NAN, 1], NAN), ([NAN, INF], NAN),
                                       ([0, 0], 0.0)])
def test_points_that_are_not_finite(client, metric, far, wish):
    x, y = np.array([far], float), np.array([[0.0, -0.0]])
    got = client.run("distance", {"metric": metric} | CORRECT, x=x, y=y)["d"]
    assert str(got[0, 0]) == str(wish)


def test_solutions_are_the_nearest_numbers(client):
    singular = elements = 0
    results = []
    for a, b in cases.systems():
        wish = cases.whole_solution(a, b)
        if wish is None:
            singular += 1
            with pytest.raises(blasd.SingularMatrix):
                client.run("solve", CORRECT, a=a, b=b)
            continue
        got = client.run("solve", CORRECT, a=a, b=b)
        assert got["unproven"] == 0
        wish = np.array([[cases.nearest(v, str(a.dtype)) for v in row] for row in wish], a.dtype)
        assert cases.same(got["x"], wish), (a, b, got["x"], wish)
        elements += wish.size
        results.append(got["x"])
    assert elements > 800 and singular > 0
    assert cases.digest(results) == GOLDEN["solutions"]


def test_systems_of_a_stack_and_large_ones(client):
    random = np.random.default_rng(7)
    a, b = random.integers(-2, 3, (60, 3, 3)).astype(float), random.standard_normal((3,))
    got = client.run("solve", CORRECT, a=a, b=b)
    for each, x, info in zip(a, got["x"], got["info"]):
        wish = cases.whole_solution(each, b[:, None])
        assert (wish is None) == (info > 0) == bool(np.isnan(x).all())
        assert wish is None or cases.same(x, np.array([cases.nearest(v) for v, in wish]))
    a = random.standard_normal((260, 260))
    x = random.integers(-9, 10, 260).astype(float)
    a = np.round(a * 2**20) / 2**20
    got = client.run("solve", CORRECT, a=a, b=a @ x)  # the right-hand side is exact
    assert cases.same(got["x"], x + 0.0) and got["unproven"] == 0


def test_fits_are_the_nearest_numbers(client):
    elements, results = 0, []
    for x, y, intercept in cases.fits():
        wish = cases.fit_of(x, y, intercept)
        if wish is None:
            continue
        dtype = str(x.dtype)
        coef = np.array([[cases.nearest(v, dtype) for v in line] for line in wish[0]], dtype)
        ssr, tss, r2 = (np.array([cases.nearest(v) for v in line]) for line in wish[1:])
        got = client.run("regression", {"fit_intercept": intercept} | CORRECT, x=x, y=y)
        assert got["unproven"] == 0
        assert cases.same(got["coef"], np.ascontiguousarray(coef[:, 1:] if intercept else coef)), (x, y)
        assert cases.same(got["intercept"], coef[:, 0] + 0 if intercept else np.zeros(len(coef), dtype))
        assert cases.same(got["ssr"], ssr) and cases.same(got["tss"], tss) and cases.same(got["r2"], r2)
        elements += coef.size + 3 * len(ssr)
        results += [got["coef"], got["intercept"], got["ssr"], got["tss"], got["r2"]]
        if not intercept:
            got = client.run("lstsq", CORRECT, a=x, b=y)
            rest = np.array([cases.nearest(v, dtype) for v in wish[1]], dtype)
            assert cases.same(got["x"], np.ascontiguousarray(coef.T)) and cases.same(got["residuals"], rest)
            assert got["unproven"] == 0
    assert elements > 300
    assert cases.digest(results) == GOLDEN["fits"]


def test_fits_of_less_than_full_rank(client):
    x = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [5.0, 10.0]])
    got = client.run("regression", CORRECT, x=x, y=np.arange(4.0))
    assert got["unproven"] == 6 and np.isnan(got["coef"]).all() and np.isnan(got["r2"])
    got = client.run("lstsq", CORRECT, a=np.stack([x, x + np.eye(4)[:, :2]]), b=np.arange(4.0))
    assert list(got["unproven"]) == [3, 0] and np.isnan(got["x"][0]).all() and not np.isnan(got["x"][1]).any()


@pytest.mark.parametrize("form", ["json", "safetensors", "multipart"])
def test_each_form_has_the_same_bits(service, client, form):
    random = np.random.default_rng(9)
    a, b = random.standard_normal((40, 30)), random.standard_normal((30, 20))
    wish = client.run("matmul", CORRECT, a=a, b=b)["c"]
    answer = service.post("matmul", {"a": a, "b": b}, CORRECT, form=form, accept="safetensors")
    assert cases.same(answer.safetensors()[0]["c"], wish)


def test_what_is_not_proven_is_said(client):
    a = np.ones((300, 300)) + np.diag(np.r_[0.0, np.full(299, 2.0**-60)])  # ones alone, to float64
    got = client.run("solve", CORRECT, a=a + np.random.default_rng(8).standard_normal((300, 1)), b=np.ones(300))
    assert got["unproven"] == 300 and np.isnan(got["x"]).all()


@pytest.mark.parametrize("params, inputs, word", [
    ({"metric": "minkowski"}, {"x": np.ones((2, 2))}, "sqeuclidean"),
    ({"output": "argmin"}, {"x": np.ones((2, 2))}, "condensed"),
    ({"method": "ridge"}, {"x": np.ones((3, 1)), "y": np.ones(3)}, "ridge"),
    ({"method": "ols"}, {"x": np.ones((3, 1)), "y": np.ones(3), "sample_weight": np.ones(3)}, "sample_weight"),
    ({"exact": True}, {"a": np.ones((2, 2), int), "b": np.ones((2, 2), int)}, "modulo"),
    ({}, {"a": np.ones((2, 2), "complex128"), "b": np.ones((2, 2))}, "complex128"),
    ({}, {"a": np.ones((2, 2)), "b": np.ones((2, 2), "int64")}, "int64")])
def test_what_is_refused(client, params, inputs, word):
    with pytest.raises(blasd.InvalidInput, match=word):
        op = "matmul" if "a" in inputs else "regression" if "method" in params else "distance"
        client.run(op, params | CORRECT, **inputs)
