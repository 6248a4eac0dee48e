"""Many fits in one request: row_splits in every form, and labels and frames from Python, beside a job a group."""
import asyncio
import base64
import json

import blasd
import numpy as np
import pytest
from service import TYPES, until, wait_for

RNG = np.random.default_rng(45)
SIZES = [12, 3, 0, 30, 1, 5, 17]
SPLITS = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)
X = RNG.standard_normal((SPLITS[-1], 2))
Y = X @ [1.0, -2.0] + RNG.standard_normal(len(X))


@pytest.fixture
def client(service):
    return blasd.Client(service.url)


def alone(service, x, y, params=None):
    return service.run("regression", {"x": x, "y": y}, params, form="safetensors", device="cpu")[0]


def assert_groups(service, fit, x=X, y=Y, splits=SPLITS, params=None):
    """The outputs of groups beside those of jobs of their own."""
    for g, (start, end) in enumerate(zip(splits, splits[1:])):
        if start == end:
            assert fit["info"][g] == -1 and np.isnan(fit["coef"][g]).all()
            continue
        for name, value in alone(service, x[start:end], y[start:end], params).items():
            got = fit[name][start:end] if name in ("residuals", "fitted") else fit[name][g]
            if name == "singular_values":
                assert np.isnan(got[len(value):]).all()
                got = got[:len(value)]
            assert np.array_equal(got, value, equal_nan=True), (g, name)


def test_every_form_gives_the_same(service):
    told = {}
    tensors = {name: {"dtype": array.dtype.name, "shape": list(array.shape), "base64": base64.b64encode(array.tobytes()).decode()}
               for name, array in (("x", X), ("y", Y), ("row_splits", SPLITS))}
    as_json = json.dumps({"op": "regression", "inputs": {**tensors, "row_splits": SPLITS.tolist()}})
    answer = service.request("POST", "/jobs?wait=30", as_json, {"Content-Type": TYPES["json"], "Accept": TYPES["safetensors"]})
    told["json"] = answer.safetensors()[0]
    for form in ("safetensors", "multipart"):
        told[form], job = service.run("regression", {"x": X, "y": Y, "row_splits": SPLITS}, form=form)
        assert job["execution"]["warning_codes"].count("group_without_fit") == 1
    body = json.dumps({"inputs": [{"name": name, "shape": list(value.shape), "datatype": kind, "data": value.ravel().tolist()}
                                  for name, value, kind in (("x", X, "FP64"), ("y", Y, "FP64"), ("row_splits", SPLITS, "INT64"))]})
    answer = service.request("POST", "/v2/models/regression/infer", body)
    assert answer.status == 200, answer.body
    outputs = {one["name"]: np.reshape([np.nan if value is None or value == "NaN" else value for value in one["data"]], one["shape"])
               for one in answer.json()["outputs"] if one["name"] in ("coef", "info")}
    assert_groups(service, told["safetensors"])
    for form in ("json", "multipart"):
        assert all(np.array_equal(value, told[form][name], equal_nan=True) for name, value in told["safetensors"].items())
    assert np.array_equal(outputs["info"], told["json"]["info"])
    assert np.allclose(outputs["coef"].astype(float), told["json"]["coef"], equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("splits, code", [
    (np.array([0, 5, 3, len(X)]), "out_of_range"), (np.array([0, 2**63 - 1, -2**63, len(X)]), "out_of_range"), (np.array([0, len(X) + 1]), "out_of_range"),
    (np.array([1, len(X)]), "out_of_range"), (np.array([0, len(X) - 1]), "out_of_range"), (np.array([0]), "out_of_range"),
    (np.array([], np.int64), "invalid_shape"), (np.array([[0, len(X)]]), "invalid_shape"),
    (np.array([0.0, len(X)]), "unsupported_dtype")], ids=lambda v: v if isinstance(v, str) else "")
def test_wrong_splits_are_a_problem_that_names_them(service, splits, code):
    """Before anything is queued where they are in the body; stored ones end the job."""
    before = {job["id"] for job in service.list_jobs()}
    for form in ("safetensors", "multipart", "json"):
        sent = splits + 0.5 if form == "json" and splits.dtype == float else splits
        answer = service.post("regression", {"x": X, "y": Y, "row_splits": sent}, form=form)
        problem = answer.json()
        problem = problem.get("error") or problem
        assert answer.status in (400, 422) and problem["field"].startswith("inputs.row_splits"), (form, problem)
        assert problem["code"] == code or form == "json", (form, problem)
    assert {job["id"] for job in service.list_jobs()} <= before  # others may expire meanwhile
    with blasd.Client(service.url) as client, pytest.raises(blasd.Error) as caught:
        client.regression(X, Y, row_splits=client.tensors.put(splits))
    assert caught.value.code == code and caught.value.field == "inputs.row_splits"


def test_no_groups_of_no_rows_are_an_empty_answer(service):
    fit, job = service.run("regression", {"x": X[:0], "y": Y[:0], "row_splits": np.array([0])}, form="safetensors")
    assert fit["coef"].shape == (0, 2) and fit["info"].shape == (0,) and not job["execution"]["warnings"]


def test_a_dry_run_and_references(service, client):
    body = {"x": client.tensors.put(np.where(X == X[4, 0], np.nan, X)), "y": client.tensors.put(Y)}
    fit = client.regression(**body, row_splits=SPLITS)  # NaN in a stored tensor spoils its group alone
    assert fit["info"][0] == -2 and fit["info"][3] == 0
    with pytest.raises(blasd.Error) as caught:
        client.regression(**body)
    assert caught.value.code == "not_finite"
    answer = service.post("regression", {"x": X, "y": Y, "row_splits": SPLITS}, form="safetensors", query="&dry_run=1")
    told = answer.json()
    assert answer.status == 200 and told["flops"] > 0, told


def test_what_is_wrong_with_a_group_spoils_it_alone(service):
    x, y = X.copy(), Y.copy()
    x[3, 1], y[40] = np.nan, np.inf
    fit, job = service.run("regression", {"x": x, "y": y, "row_splits": SPLITS}, {"residuals": True}, form="safetensors")
    assert fit["info"].tolist()[:4] == [-2, 15, -1, -2]
    assert np.isnan(fit["residuals"][:12]).all() and np.isfinite(fit["residuals"][12:15]).all()
    texts = dict(zip(job["execution"]["warning_codes"], job["execution"]["warnings"]))
    assert texts["group_without_fit"].startswith("3 of 7 groups")


@pytest.mark.parametrize("method", ["ols", "ridge", "lasso", "elastic_net"])
def test_labels_from_python(service, client, method):
    labels = RNG.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    fit = client.regression(X, Y, by=labels, method=method, residuals=True, device="cpu")
    order = np.argsort([np.flatnonzero(labels == one)[0] for one in fit.groups])
    assert order.tolist() == list(range(len(fit.groups))) and set(fit.groups) == set(labels.tolist())
    for g, one in enumerate(fit.groups):
        own = alone(service, X[labels == one], Y[labels == one], {"method": method, "residuals": True})
        assert np.array_equal(fit["coef"][g], own["coef"]) and np.array_equal(fit["residuals"][labels == one], own["residuals"])


@pytest.mark.parametrize("labels", [
    ["b", "a", "b", "c"], np.array(["b", "a", "b", "c"]), [("x", 1), None, ("x", 1), 2.5],
    np.array(["2020-02-01", "2020-01-01", "2020-02-01", "2021-01-01"], "M8[D]"), [True, None, True, "no"],
    np.array([np.nan, 1.0, np.nan, 2.0])], ids=["str", "str array", "tuples", "dates", "objects", "nan"])
def test_labels_of_any_hashable_type(client, labels):
    many = [labels[i % 4] for i in range(40)]
    fit = client.regression(X[:40, :1], Y[:40], by=np.array(many) if isinstance(labels, np.ndarray) else many)
    assert len(fit.groups) == 3 and fit["n_iter" if "n_iter" in fit else "df_resid"].tolist() == [18, 8, 8]
    assert fit.groups[0] == labels[0] or labels[0] != labels[0]


def test_labels_in_flight_and_kept_outputs(service, client):
    labels = np.arange(len(X)) % 3

    async def fitted():
        async with blasd.AsyncClient(service.url) as there:
            return await there.regression(X, Y, by=labels)

    fit = asyncio.run(fitted())
    assert fit.groups == [0, 1, 2] and np.array_equal(fit["coef"], client.regression(X, Y, by=labels)["coef"])
    kept = client.regression(X, Y, by=labels, keep="coef")
    assert kept.groups == [0, 1, 2] and kept.tensors["coef"].shape == (3, 2)


def test_labels_that_are_none(client):
    for labels in ([[1]] * 4, [1, 2, 3], "abcd", 3):
        with pytest.raises(blasd.InputError) as caught:
            client.regression(X[:4], Y[:4], by=labels)
        assert caught.value.field == "by"


def test_frames(service, client):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sector": list("abcab" * 14)[:len(X)], "year": [2000 + i // 40 for i in range(len(X))],
                              "r": Y, "a": X[:, 0], "b": X[:, 1]})
    told = blasd.groupby(frame, "sector", y="r", x=["a", "b"], client=client, device="cpu")
    assert list(told.columns) == ["sector", "coef_intercept", "coef_a", "coef_b", "stderr_intercept", "stderr_a", "stderr_b",
                                  "t_intercept", "t_a", "t_b", "p_intercept", "p_a", "p_b", "r2", "n", "info"]
    for _, row in told.iterrows():
        part = frame[frame.sector == row.sector]
        own = alone(service, part[["a", "b"]].to_numpy(), part.r.to_numpy())
        assert row.n == len(part) and [row.coef_a, row.coef_b] == own["coef"].tolist()
        assert [row.stderr_intercept, row.p_b, row.r2] == [own["stderr"][0], own["pvalues"][2], own["r2"]]
    both = blasd.groupby(frame, ["sector", "year"], y="r", x="a", client=client, method="ridge", fit_intercept=False)
    assert list(both.columns) == ["sector", "year", "coef_intercept", "coef_a", "r2", "n", "info"] and len(both) == 6
    frame.loc[0, "a"] = None
    kept, dropped = (blasd.groupby(frame, "sector", y="r", x=["a"], client=client, missing=missing) for missing in ("none", "drop"))
    assert kept["info"].tolist() == [-2, 0, 0] and dropped["info"].tolist() == [0, 0, 0]
    assert dict(zip(dropped["sector"], dropped["n"])) == {**dict(zip(kept["sector"], kept["n"])), "a": kept["n"][0] - 1}
    with pytest.raises(blasd.InputError, match="no column"):
        blasd.groupby(frame, "sector", y="r", x=["c"], client=client)


class Frame(dict):
    """As much of a frame of polars as groupby asks of one."""

    columns = property(list)
    __len__ = dict.__len__


def test_other_frames(client):
    class Column(list):
        def to_numpy(self):
            return np.array(self)

        def __array__(self, dtype=None):
            return np.array(list(self), dtype)

    frame = Frame(k=Column([1, 2] * 20), r=Column(Y[:40]), a=Column([None, *X[1:40, 0]]))
    told = blasd.groupby(frame, "k", y="r", x=["a"], client=client)
    assert isinstance(told, Frame) and told["k"] == [1, 2] and told["info"].tolist() == [-2, 0]


def test_cancel_between_groups(make_service):
    service = make_service()
    n, groups = 400, 2000
    x, y = RNG.standard_normal((n * groups, 1)), RNG.standard_normal(n * groups)
    answer = service.post("regression", {"x": x, "y": y, "row_splits": np.arange(groups + 1) * n},
                          {"method": "gd", "iterations": 10**7, "learning_rate": 1e-9}, form="safetensors", wait=0, device="cpu")
    job = answer.json()
    assert answer.status == 202, job
    until(service, job["id"], ["running"])
    service.request("DELETE", f"/jobs/{job['id']}")
    wait_for(lambda: service.request("GET", f"/jobs/{job['id']}").json()["state"] == "cancelled", "it is cancelled")
    assert service.run("regression", {"x": X, "y": Y}, form="safetensors", device="cpu")[1]["state"] == "succeeded"


def test_jobs_of_many_clients_share_a_batch(service, client):
    """Splits of one length and others in it, side by side."""
    jobs = []
    for _ in range(12):
        cuts = np.sort(RNG.integers(0, len(X) + 1, 6))
        splits = np.concatenate([[0], cuts, [len(X)]])
        jobs.append((splits, client.submit("regression", x=X, y=Y, row_splits=splits, device="cpu")))
    for splits, job in jobs:
        fit = job.result()
        for g in np.flatnonzero(np.diff(splits))[:2]:
            own = alone(service, X[splits[g]:splits[g + 1]], Y[splits[g]:splits[g + 1]])
            assert np.array_equal(fit["coef"][g], own["coef"], equal_nan=True)
