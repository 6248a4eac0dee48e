"""What goes in and comes out of the Python client: arrays of every kind, references, options, results that are written to."""
import array
import ast
import ctypes
import subprocess
import warnings

import blasd
import numpy as np
import pandas
import pytest
import scipy.sparse
from callers import OWN, program
from service import ROOT

RNG = np.random.default_rng(12)


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_written_to(client, sharing):
    small, large = np.eye(3), np.eye(500)
    for one in (client, blasd.Client(sharing.url, share=True)):
        for a in (small, large, small.astype("f2"), small > 0):
            c = one.matmul(a, a)
            assert c.flags.writeable and c.flags.aligned
            c += 1
            assert c[0, 0] == 2 and c[0, 1] == 1
        d = one.distance(large, output="topk", k=2)
        d["index"][0, 0], d["d"][0, 0] = 7, 7.5
        job = one.submit("matmul", a=large, b=large)
        c = job.result(60)["c"]
        c[...] = 5
        assert np.array_equal(job.result(60)["c"], large), "the service's own is as it was"
    assert one.matmul(np.zeros((0, 3)), np.ones((3, 2))).flags.writeable


def test_large_results_are_not_copied(client):
    """What is received is what the array lies in: nothing of its size is made beside it."""
    code = ("import blasd, numpy as np, resource, sys; c = blasd.Client(sys.argv[1])\n"
            "a = np.ones((1, 6000)); c.matmul(a, a.T)\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; r = c.matmul(a.T, a)\n"
            "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / r.nbytes)")
    assert float(program(code, client.url).stdout) < 1.5


# --- inputs that are no plain arrays -----------------------------------------------------------------------------------


def refusal(client, a, b=None):
    with pytest.raises((TypeError, ValueError)) as caught:
        client.matmul(a, np.ones((2, 2)) if b is None else b)
    return str(caught.value)


def test_masked_arrays(client, sharing):
    masked = np.ma.array([[1.0, 2], [3, 4]], mask=[[0, 1], [0, 1]])
    for form in (masked, [masked[0], masked[1]], (list(masked[0]), [3.0, 4.0]), np.ma.array([[1, 2], [3, 4]], mask=True)):
        assert "a: " in refusal(client, form) and "mask" in refusal(client, form) and "filled" in refusal(client, form)
    for whole in (np.ma.array([[1.0, 2], [3, 4]]), np.ma.array([[1.0, 2], [3, 4]], mask=[[0, 0], [0, 0]])):
        assert client.matmul(whole, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    shared = blasd.Client(sharing.url, share=True)
    assert "mask" in refusal(shared, np.ma.array(np.ones((500, 500)), mask=np.eye(500)), np.ones((500, 500)))
    assert "sparse" in refusal(shared, scipy.sparse.eye(500), np.ones((500, 500)))


def test_pandas_missing_values(client):
    whole = pandas.DataFrame({"u": [1.0, 2.0], "v": [3, 4]})
    assert client.matmul(whole, np.eye(2)).tolist() == [[1, 3], [2, 4]]
    assert client.matmul(whole.T, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(np.eye(2), whole["u"]).tolist() == [1, 2]
    for dtype in ("Int64", "UInt8", "Int16", "Float32", "boolean"):
        column = pandas.Series([1, 0], dtype=dtype)
        assert client.matmul(np.eye(2), column).tolist() == [1, 0]
        assert client.matmul(np.eye(2), column.array).tolist() == [1, 0]
        assert client.matmul(pandas.DataFrame({"u": column, "v": [0.5, 2]}), np.eye(2)).tolist() == [[1, 0.5], [0, 2]]
        missing = pandas.Series([1, None], dtype=dtype)
        for form in (missing, missing.array, pandas.DataFrame({"u": [1.0, 2], "v": missing})):
            text = refusal(client, form)
            assert "a: " in text and "1 missing value" in text and "fillna" in text and "dropna" in text
        assert "v" in refusal(client, pandas.DataFrame({"u": [1.0, 2], "v": missing}))
    for form in (pandas.Series([1, pandas.NA]), pandas.Series([1, None], dtype=object), [[1, pandas.NA], [2, 3]],
                 pandas.DataFrame({"u": [1, pandas.NA], "v": [1, 2]}), np.array([[1, None], [2, 3]]), [[1, None], [2, 3]],
                 pandas.Series(["1", "2"]), pandas.Series(["x", None], dtype="category")):
        assert "a: " in refusal(client, form)
    for dates in (pandas.Series(pandas.to_datetime(["2020-01-01", None])), pandas.to_timedelta([1, None]),
                  pandas.DataFrame({"u": pandas.to_datetime(["2020-01-01", "2020-01-02"])}), np.array(["NaT"], "M8[s]")):
        assert "a: " in refusal(client, dates)
    assert np.isnan(client.matmul(pandas.Series([np.nan, 1.0]), np.eye(2))).all(), "a float's NaN is a value"


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(OnlyDlpack):
    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise BufferError("that is on a device")


class CudaArray:
    __cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f8", "data": (4096, False), "version": 3}


class Nulls:
    """As a column of Arrow or polars: __array__ makes NaN of what is missing."""
    null_count = 1

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.0, np.nan], [2, 3]])


class NullsByCall(Nulls):
    def null_count(self):
        return 2


def test_other_kinds_of_arrays(client):
    a = np.array([[1.0, 2], [3, 4]])
    assert client.matmul(OnlyDlpack(a), np.eye(2)).tolist() == a.tolist()
    assert client.matmul(OnlyDlpack(a.astype("f4")), np.eye(2, dtype="f4")).dtype == np.float32
    for form, words in ((OnDevice(a), "device"), (CudaArray(), "GPU"), (Nulls(), "1 missing"), (NullsByCall(), "2 missing"),
                        (scipy.sparse.eye(2), "toarray"), (scipy.sparse.csr_matrix(a), "sparse"),
                        ((x for x in a), "generator"), ({1: 2}, "dict"), ([2**70], "object"), ("abc", "dtype"),
                        ([[1, 2], [3]], ""), (np.array([b"a"]), "dtype"), (a.astype(np.clongdouble), "complex256"), (object(), "object"),
                        (a.astype(np.longdouble), "float128"), ([OnDevice(a)], ""), ([scipy.sparse.eye(2)], "")):
        text = refusal(client, form)
        assert text.startswith("inputs.a: ") and words in text, text
    with pytest.raises(TypeError, match="a: 1 missing value"):
        client.run("matmul", a=None, b=np.eye(2))


def test_the_buffer_protocol(client):
    """What offers its memory, of the standard library and of Arrow."""
    flat = array.array("d", [1.0, 2, 3, 4])
    assert client.matmul(np.eye(4), flat).tolist() == [1, 2, 3, 4]
    assert client.matmul(memoryview(flat).cast("B").cast("d", (2, 2)), np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(((ctypes.c_float * 2) * 2)((1, 2), (3, 4)), np.eye(2, dtype="f4")).dtype == np.float32
    assert client.matmul(range(2), [[1.0, 0], [0, 1]]).tolist() == [0, 1]


ARRAYS = """
import sys
import numpy as np
import pyarrow
import polars
import blasd

with blasd.Client(sys.argv[1]) as client:
    column = pyarrow.array([1.0, 2.0])
    assert client.matmul(np.eye(2), column).tolist() == [1, 2]
    table = pyarrow.table({"u": [1.0, 3.0], "v": [2.0, 4.0]})
    assert client.matmul(table, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(pyarrow.Tensor.from_numpy(np.array([[1.0, 2.0]])), np.eye(2)).tolist() == [[1, 2]]
    frame = polars.DataFrame({"u": [1.0, 3.0], "v": [2.0, 4.0]})
    assert client.matmul(frame, np.eye(2)).tolist() == [[1, 2], [3, 4]]
    assert client.matmul(np.eye(2), frame["u"]).tolist() == [1, 3]
    for missing in (pyarrow.array([1.0, None]), polars.Series([1.0, None])):
        try:
            client.matmul(np.eye(2), missing)
            sys.exit(f"{type(missing)} was taken")
        except blasd.InputError as error:
            assert "1 missing value" in str(error), error
"""


def test_arrow_and_polars(venv, service):
    """As they come from PyPI."""
    done = subprocess.run([venv("arrays") / "bin/python", "-c", ARRAYS, service.url], capture_output=True, text=True, timeout=120,
                          env=OWN, check=False)
    assert done.returncode == 0, done.stderr


def test_ruff_and_mypy_have_no_finding(venv):
    """The newest of both; mypy strictly, as pyproject.toml says, and all of it is Python 3.9."""
    checks, folder = venv("checks") / "bin", ROOT / "clients/python"
    for words in ([checks / "ruff", "check", "--no-cache", "."], [checks / "mypy", "--cache-dir=/dev/null", "blasd"]):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
    assert (folder / "blasd/py.typed").exists()


# --- whole numbers ----------------------------------------------------------------------------------------------------

BIG = 2**53


def said(work):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [w for w in caught if w.category is blasd.JobWarning]


def test_integers_that_float64_cannot_hold(client, sharing):
    eye = np.eye(2)
    for one in (client, blasd.Client(sharing.url, share=True)):
        for a in (np.array([[1, BIG + 1], [2, 3]]), [[-BIG - 1, 1], [1, 1]], np.array([[2**64 - 1, 1], [1, 1]], "u8"),
                  [[BIG + 1, 0.5], [1, 1]], np.array([[1, BIG + 1], [2, 3]], ">i8"),
                  pandas.DataFrame({"u": [BIG + 1, 2], "v": [0.5, 1]}), [2**63 + 1, -1], [np.array([BIG + 1, 0]), [0.5, 1]]):
            found = said(lambda: one.matmul(a, eye))
            assert len(found) == 1 and "a" in str(found[0].message) and "2^53" in str(found[0].message)
            assert found[0].filename == __file__, "it points at the line that asked"
        for a in (np.array([[1, BIG], [2, 3]]), [[-BIG, 2**60], [0, 0]], np.array([[2**63, 1], [1, 1]], "u8"),
                  np.full((2, 2), 2**31 - 1, "i4"), [[BIG, 0.5], [1, 1]], np.array([[1e300, 1], [1, 1]])):
            assert not said(lambda: one.matmul(a, eye))
    assert said(lambda: client.distance([[BIG + 1, 2], [1, 2]]))
    assert said(lambda: client.submit("matmul", a=[[BIG + 1]], b=[[1.0]]).result(60))
    large = np.zeros((500, 500), "i8")
    large[499, 499] = BIG + 1
    assert said(lambda: blasd.Client(sharing.url, share=True).matmul(large, np.eye(500)))


def test_products_of_integers_that_float64_cannot_hold(client):
    for dtype in ("i8", "u8", "i4", "u4"):
        a = np.full((2, 2), 2**27, dtype)
        found = said(lambda: client.matmul(a, a))
        assert len(found) == 1 and "2^53" in str(found[0].message)
        assert not said(lambda: client.matmul(a // 2, a // 2))
        assert not said(lambda: client.matmul(a, a.astype("f8"))), "who sends floats expects floats"
        assert said(lambda: client.matmul(a // 2, a // 2, alpha=3))
        assert said(lambda: client.matmul(a // 2, a // 2, np.full((2, 2), 2**53, "i8")))
        assert not said(lambda: client.matmul(a, a, alpha=0.5))
    for dtype in ("i1", "u1", "i2", "u2", "?"):
        a = np.ones((200, 200), dtype) if dtype == "?" else np.full((200, 200), np.iinfo(dtype).max, dtype)
        assert not said(lambda: client.matmul(a, a))


def test_any_client_is_warned(service, client):
    for value, warned in ((BIG + 1, True), (BIG - 1, False)):
        texts = service.post("matmul", {"a": np.array([[value]]), "b": np.array([[1]])}).json()["execution"]["warnings"]
        assert any("2^53" in text for text in texts) == warned == bool(texts)
    found = said(lambda: client.solve(np.array([[1.0, 1], [1, 1 + 2**-52]]), np.array([1.0, 2])))
    assert found and "singular" in str(found[0].message), "others are shown, too"


def test_warnings_of_many_jobs_are_shown_where_their_results_are_taken(client):
    """Not in the thread that has them in flight; an input's come with the result, too."""
    jobs = [{"a": [[1.0, 1], [1, 1 + 2**-52]], "b": [1.0, 2]}, {"a": [[2**53 + 1, 0.5], [0, 1]], "b": [1.0, 1]}, {"a": np.eye(2), "b": np.ones(2)}]
    found = said(lambda: list(client.map("solve", jobs)))
    assert {w.filename for w in found} == {__file__} and any("singular" in str(w.message) for w in found)
    assert any("2^53" in str(w.message) for w in found)
    with warnings.catch_warnings():
        warnings.simplefilter("error", blasd.JobWarning)
        with pytest.raises(blasd.JobWarning, match="singular"):
            list(client.map("solve", jobs))


# --- references and options ---------------------------------------------------------------------------------------------


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
    file = blasd.URL("http://h/x", dtype="float64", shape=np.array([2, 3]))
    assert [(type(n), n) for n in file.as_input()["shape"]] == [(int, 2), (int, 3)]
    for wrong in (slice(0.5, 2), slice("1", None), slice(np.int64(-1), None), slice(None, None, 2), slice(None, None, 1.5), 3, slice(np.array([1, 2]), None)):
        with pytest.raises(blasd.InvalidInput, match="slice"):
            tensor[wrong]


def test_one_output_by_its_name(client):
    """A string is one name, not as many as it has letters."""
    x, y = RNG.standard_normal((9, 2)), RNG.standard_normal(9)
    fit = client.regression(x, y, keep="coef")
    assert list(fit.tensors) == ["coef"] and "coef" not in fit and "intercept" in fit
    np.testing.assert_array_equal(client.tensors.get(fit.tensors["coef"]), client.regression(x, y)["coef"])
    assert list(client.regression(x, y, results="intercept")) == ["intercept"]
    assert list(client.submit("matmul", a=x, b=np.eye(2), keep="c", results="c").result()) == ["c"]


@pytest.mark.parametrize("wrong", [{"labels": "project=thesis"}, {"keep": 3}, {"keep": [1]}, {"results": [None]}])
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
