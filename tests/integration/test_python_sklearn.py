"""blasd.sklearn beside scikit-learn: its metrics and their options, its shapes, its worker processes."""
import copy
import multiprocessing
import pickle
import warnings

import blasd
import blasd.default
import blasd.linalg
import numpy as np
import pytest
from service import ROOT, Service
from test_tenants import keys

pytest.importorskip("sklearn")
import blasd.sklearn as ours
import sklearn.linear_model as theirs
import sklearn.metrics
import sklearn.neighbors
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_validate

RNG = np.random.default_rng(77)
X = RNG.standard_normal((40, 4)) * [1, 5, 0.1, 2]
QUERY = RNG.standard_normal((3, 4))
OPTIONS = {"seuclidean": {"V": np.var(X, axis=0, ddof=1)}, "mahalanobis": {"VI": np.linalg.inv(np.cov(X, rowvar=False))}}


def own(metric, points=X, **options):
    return ours.NearestNeighbors(n_neighbors=3, metric=metric, **options).fit(points)


@pytest.mark.parametrize("metric", OPTIONS)
def test_variances_are_those_of_the_fitted_points(default, metric):
    """Whatever is asked about: one far query more does not change the neighbours of the others."""
    fitted, given = own(metric), own(metric, metric_params=OPTIONS[metric])
    wish = sklearn.neighbors.NearestNeighbors(n_neighbors=3, algorithm="brute", metric=metric, metric_params=OPTIONS[metric]).fit(X)
    for query in (QUERY, np.vstack([QUERY, [[1e4, 0, 0, 0]]]), QUERY[:1], None):
        for one in (fitted, given):
            for mine, other in zip(one.kneighbors(query), wish.kneighbors(query)):
                assert np.allclose(mine, other)
    assert np.allclose(ours.pairwise_distances(X, metric=metric), sklearn.metrics.pairwise_distances(X, metric=metric))
    assert np.allclose(ours.pairwise_distances(QUERY, X, metric=metric, **OPTIONS[metric]),
                       sklearn.metrics.pairwise_distances(QUERY, X, metric=metric, **OPTIONS[metric]))
    with pytest.raises(ValueError, match="required for the .* metric when Y is passed"):
        ours.pairwise_distances(QUERY, X, metric=metric)
    for points in (X[:1], np.column_stack([X, np.ones(40)])):
        with pytest.raises(ValueError, match="give VI?"):
            own(metric, points)


def test_mahalanobis_of_a_covariance(default):
    V = np.cov(X, rowvar=False)
    assert np.allclose(own("mahalanobis", metric_params={"V": V}).kneighbors(QUERY)[0], own("mahalanobis").kneighbors(QUERY)[0])


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("left, right", [([0, 7], [1, 7, 20]), ([], [5]), ([2], []), ([0, 1, 2], range(40))])
def test_cosine_of_rows_of_zeros(default, left, right, dtype):
    points, query = X.astype(dtype), QUERY.astype(dtype)
    query = np.vstack([query, points[:6]])
    points[list(right)] = 0
    query[list(left)] = 0
    for pair in ((query, points), (query, None), (points, None)):
        assert np.allclose(ours.pairwise_distances(*pair, metric="cosine"), sklearn.metrics.pairwise_distances(*pair, metric="cosine"), atol=1e-5)
    mine = own("cosine", points)
    for asked in (query, None):
        full = sklearn.metrics.pairwise_distances(points if asked is None else asked, points, metric="cosine")
        if asked is None:
            np.fill_diagonal(full, np.inf)
        d, index = mine.kneighbors(asked)
        assert np.allclose(d, np.sort(full, axis=1)[:, :3], atol=1e-5) and np.allclose(np.take_along_axis(full, index, 1), d, atol=1e-5)
        for row, (near, at) in enumerate(zip(*mine.radius_neighbors(asked, 1.0 + 1e-5))):
            assert sorted(at) == np.flatnonzero(full[row] <= 1.0 + 1e-5).tolist() and np.allclose(near, full[row, at], atol=1e-5)


@pytest.mark.parametrize("metric", ["dice", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath", "yule"])
def test_metrics_of_truth_values_make_them_of_numbers(default, metric):
    numbers = np.round(RNG.standard_normal((12, 9)) * 0.8) * 3
    numbers[:, 0] = 2
    with pytest.warns(DataConversionWarning):
        mine = ours.pairwise_distances(numbers, metric=metric)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataConversionWarning)
        truth = ours.pairwise_distances(numbers != 0, metric=metric)
    assert np.array_equal(mine, truth)
    assert np.allclose(truth, sklearn.metrics.pairwise_distances(numbers != 0, metric=metric))
    with pytest.warns(DataConversionWarning):
        one = own(metric, numbers)
    beside = ours.pairwise_distances(numbers[:4] != 0, numbers != 0, metric=metric)
    assert np.allclose(one.kneighbors(numbers[:4] * 7)[0], np.sort(beside, axis=1)[:, :3])


def test_intercepts_are_numpys(default):
    y = X @ np.ones(4) + 1
    for kind in ("LinearRegression", "Ridge", "Lasso", "ElasticNet"):
        for target in (y, y[:, None], np.column_stack([y, y])):
            mine, other = getattr(ours, kind)().fit(X, target).intercept_, getattr(theirs, kind)().fit(X, target).intercept_
            assert mine.shape == other.shape and mine.dtype == other.dtype, kind


# --- worker processes -------------------------------------------------------------------------------------------------


def search(**options):
    return GridSearchCV(ours.Ridge(), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise", **options).fit(X, X @ np.ones(4)).cv_results_


SEARCHES = {
    "grid": lambda: search(n_jobs=2),
    "scores": lambda: cross_validate(ours.Lasso(0.1), X, X @ np.ones(4), n_jobs=2, cv=2, error_score="raise", return_estimator=True),
    "ensemble": lambda: BaggingRegressor(ours.LinearRegression(), 4, n_jobs=2).fit(X, X @ np.ones(4)),
    "spawned": lambda: spawned(ours.NearestNeighbors().fit(X))}


def spawned(estimator):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(estimator.kneighbors, (QUERY,))


@pytest.mark.parametrize("way", SEARCHES)
def test_worker_processes_use_the_client_that_was_set(tmp_path, service, monkeypatch, way):
    """Its key too, and the next one after another was set, though joblib keeps its workers."""
    monkeypatch.setenv("BLASD_URL", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "clients" / "python"))
    file, secrets = keys(tmp_path, ann={"tenant": "ann"})
    guarded = Service(tmp_path / "service", "--keys", file).start()
    try:
        for client in (blasd.Client(service.url), blasd.Client(guarded.url, api_key=secrets["ann"])):
            blasd.default.set_client(client)
            SEARCHES[way]()
            assert blasd.default.client() is client
    finally:
        blasd.default.set_client(None)
        guarded.stop()


def test_functions_in_new_processes_use_the_service_that_was_set(default, service, monkeypatch):
    monkeypatch.setenv("BLASD_URL", "http://127.0.0.1:9")  # nobody is there
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "clients" / "python"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(blasd.linalg.matmul, (np.eye(2), np.eye(2))).tolist() == [[1, 0], [0, 1]]
    blasd.default.set_client(None)
    assert blasd.default.client().url == "http://127.0.0.1:9"


def test_other_pickles_name_no_service_and_no_key(monkeypatch):
    monkeypatch.setattr(blasd.default, "_client", blasd.Client("http://10.1.2.3:77", api_key="secret-key"))
    model = ours.Ridge(3.0)
    model.coef_ = np.ones(2)
    for text in (pickle.dumps(model), pickle.dumps([model], 0)):
        assert b"secret-key" not in text and b"10.1.2.3" not in text
        pickle.loads(text)
    assert copy.deepcopy(model).get_params() == model.get_params() and vars(copy.copy(model)).keys() == vars(model).keys()
