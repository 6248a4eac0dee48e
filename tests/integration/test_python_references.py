"""What the Python client's jobs refer to, and what they leave at the service: slices, and outputs by name."""
import blasd
import numpy as np
import pytest

RNG = np.random.default_rng(31)


def test_slices_by_any_kind_of_integer(client):
    """NumPy's integers come of np.searchsorted, np.argmax and the like; a bound that is no integer fails here."""
    x = RNG.standard_normal((12, 3))
    tensor = client.tensors.put(x)
    part = tensor[np.int64(3):np.int64(9), :np.uint8(2):np.int16(1)]
    assert part.as_input()["slice"] == [[3, 9], [None, 2]]
    np.testing.assert_array_equal(client.matmul(part, np.eye(2)), x[3:9, :2])
    with client.graph() as graph:
        step = graph.matmul(tensor, np.eye(3))
        first = graph.matmul(step[:np.int32(10)], np.eye(3))
    np.testing.assert_allclose(first.value, x[:10])
    for wrong in (slice(0.5, 2), slice("1", None), slice(np.int64(-1), None), slice(None, None, 2), slice(None, None, 1.5), 3, slice(np.array([1, 2]), None)):
        with pytest.raises(blasd.InvalidInput, match="slice"):
            tensor[wrong]


def test_the_shape_of_a_file_by_any_kind_of_integer():
    assert blasd.URL("http://h/x", dtype="float64", shape=np.array([2, 3])).as_input()["shape"] == [2, 3]
    assert all(type(n) is int for n in blasd.URL("http://h/x", dtype="float64", shape=np.array([2, 3])).as_input()["shape"])


def test_one_output_by_its_name(client):
    """A string is one name, not as many as it has letters."""
    x, y = RNG.standard_normal((9, 2)), RNG.standard_normal(9)
    fit = client.regression(x, y, keep="coef")
    assert list(fit.tensors) == ["coef"] and "coef" not in fit and "intercept" in fit
    np.testing.assert_array_equal(client.tensors.get(fit.tensors["coef"]), client.regression(x, y)["coef"])
    assert list(client.regression(x, y, results="intercept")) == ["intercept"]
    assert list(client.submit("matmul", a=x, b=np.eye(2), keep="c", results="c").result()) == ["c"]


@pytest.mark.parametrize("wrong", [{"put": "http://127.0.0.1/c.npy"}, {"labels": "project=thesis"}, {"keep": 3}, {"keep": [1]}, {"results": [None]}])
def test_options_of_the_wrong_kind(client, wrong):
    with pytest.raises(blasd.InputError) as caught:
        client.run("matmul", a=np.eye(2), b=np.eye(2), **wrong)
    assert caught.value.field == next(iter(wrong)) and caught.value.code == "invalid_field"


def test_an_output_that_is_not_made_cannot_be_kept(client):
    x, y = RNG.standard_normal((9, 2)), RNG.standard_normal(9)
    with pytest.raises(blasd.InvalidInput) as caught:
        client.regression(x, y, keep=["coef", "error_bound"])
    assert caught.value.field == "keep.error_bound" and "does not make" in caught.value.detail
    assert set(client.regression(x, y, certify=True, keep=["coef", "error_bound"]).tensors) == {"coef", "error_bound"}
