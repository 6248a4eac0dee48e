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
import sklearn.decomposition
import sklearn.linear_model as theirs
import sklearn.metrics
import sklearn.neighbors
from scipy.linalg import LinAlgWarning
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

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


@pytest.mark.full
def test_scikit_learns_own_checks(client, default):
    """Its check_estimator, with nothing excused but what it skips itself, and its estimators' answers."""
    for estimator in (ours.LinearRegression(), ours.Ridge(), ours.Lasso(), ours.ElasticNet(),
                      ours.GradientDescentRegressor(), ours.NearestNeighbors(), ours.PCA(), ours.RidgeCV(), ours.KNeighborsClassifier(),
                      ours.KNeighborsRegressor()):
        check_estimator(estimator)
    X = RNG.standard_normal((60, 4))
    for y in (X @ [1, 2, 3, 0] + 1, X @ RNG.standard_normal((4, 3))):
        for mine, other, names in ((ours.LinearRegression(), theirs.LinearRegression(), ["rank_"]),
                                   (ours.Ridge(2.0), theirs.Ridge(2.0), []),
                                   (ours.Lasso(0.1, tol=1e-9), theirs.Lasso(0.1, tol=1e-9), ["dual_gap_", "n_iter_"]),
                                   (ours.ElasticNet(0.1, tol=1e-9), theirs.ElasticNet(0.1, tol=1e-9), ["n_iter_"])):
            mine.fit(X, y), other.fit(X, y)
            assert np.allclose(mine.coef_, other.coef_, atol=1e-6) and np.shape(mine.coef_) == np.shape(other.coef_)
            assert np.allclose(mine.intercept_, other.intercept_, atol=1e-6)
            assert np.shape(mine.intercept_) == np.shape(other.intercept_) and mine.n_features_in_ == 4
            assert np.allclose(mine.predict(X), other.predict(X), atol=1e-5)
            for name in names:
                assert np.shape(getattr(mine, name)) == np.shape(getattr(other, name)), name
            assert getattr(mine, "rank_", None) == getattr(other, "rank_", None)
    mine, other = ours.NearestNeighbors(n_neighbors=3).fit(X), sklearn.neighbors.NearestNeighbors(n_neighbors=3).fit(X)
    for query in (X[:5], None):
        for a, b in zip(mine.kneighbors(query), other.kneighbors(query)):
            assert np.allclose(a, b)
        for a, b in zip(mine.radius_neighbors(query, 1.5, sort_results=True)[1],
                        other.radius_neighbors(query, 1.5, sort_results=True)[1]):
            assert np.array_equal(a, b)
    many = RNG.standard_normal((2000, 2))
    for radius, most in ((0.01, 64 * 2000), (10.0, 2000 * 2000)):  # as few as there are take no room for all; and all
        mine, other = ours.NearestNeighbors(radius=radius).fit(many), sklearn.neighbors.NearestNeighbors(radius=radius).fit(many)
        for a, b in zip(mine.radius_neighbors(return_distance=False), other.radius_neighbors(return_distance=False)):
            assert sorted(a) == sorted(b)
        newest = max(client.jobs(op="distance"), key=lambda job: job.document["created_at"])
        assert newest.document["outputs"]["index"]["shape"] <= [most]
    assert np.allclose(ours.pairwise_distances(X, metric="l1"), sklearn.metrics.pairwise_distances(X, metric="l1"))


def test_pairwise_distances_by_either_name_for_finite(default):
    """force_all_finite before scikit-learn 1.6, ensure_all_finite from then on: both with any version, as it reads them."""
    X, nan, inf = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 3)), RNG.standard_normal((6, 3))
    nan[2, 1], inf[1, 1] = np.nan, np.inf
    wish = sklearn.metrics.pairwise_distances(X)
    for name in ("force_all_finite", "ensure_all_finite"):
        for value in (True, False, "allow-nan"):
            assert np.allclose(ours.pairwise_distances(X, **{name: value}), wish, atol=1e-12)
        for value, bad in ((True, nan), (True, inf), ("allow-nan", inf)):
            for points in ((bad, None), (X, bad)):
                with pytest.raises(ValueError, match="Input.* contains|NaN or infinity|[Ii]nfinity"):
                    ours.pairwise_distances(*points, **{name: value})
        for value, bad, row in ((False, nan, 2), ("allow-nan", nan, 2), (False, inf, 1)):
            distances = ours.pairwise_distances(bad, **{name: value})
            others = np.delete(np.arange(6), row)
            assert not np.isfinite(distances[row, others]).any() and not np.isfinite(distances[others, row]).any()
            assert np.allclose(distances[np.ix_(others, others)], sklearn.metrics.pairwise_distances(bad[others]), atol=1e-12)
        with pytest.raises(ValueError, match="allow-nan"):
            ours.pairwise_distances(X, **{name: "allow-inf"})
    with pytest.raises(ValueError, match="both"):
        ours.pairwise_distances(X, force_all_finite=True, ensure_all_finite=True)


def test_fits_that_did_not_converge_say_so_as_scikit_learns_do(default):
    X = RNG.standard_normal((60, 4))
    y = X @ np.ones(4)
    with pytest.warns(LinAlgWarning, match="float32"):
        ours.LinearRegression().fit(np.c_[X[:, 0], X[:, 0] + 5e-5 * X[:, 1]].astype("float32"), RNG.standard_normal(60))
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ours.GradientDescentRegressor(max_iter=3).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="diverged") as caught:
        ours.GradientDescentRegressor(learning_rate=10, max_iter=50).fit(X, y)
    assert sum(issubclass(one.category, ConvergenceWarning) for one in caught) == 1
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ours.Lasso(alpha=1e-6, max_iter=1, tol=0).fit(np.vander(np.linspace(0, 1, 60), 12), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.GradientDescentRegressor(learning_rate=0.1, max_iter=2000).fit(X, y)
        ours.Lasso(alpha=0.1).fit(X, y)


def test_neighbours_within_a_radius_and_scikit_learns_names(default):
    x = np.zeros((300, 2))
    for options in ({}, {"p": 1}, {"p": 3}, {"p": np.inf}, {"metric": "l2"}, {"metric": "seuclidean", "metric_params": {"V": [1.0, 2.0]}}):
        mine, other = ours.NearestNeighbors(**options).fit(x), sklearn.neighbors.NearestNeighbors(algorithm="brute", **options).fit(x)
        assert mine.effective_metric_ == other.effective_metric_, options
        assert mine.effective_metric_params_ == other.effective_metric_params_
    found = ours.NearestNeighbors(radius=1.0).fit(x).radius_neighbors(return_distance=False)
    assert [len(one) for one in found] == [299] * 300


# --- components, classes, ridges ----------------------------------------------------------------------------------------


def agree(mine, other, names, atol=1e-8):
    for name in names:
        a, b = getattr(mine, name), getattr(other, name)
        assert np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype, name
        assert np.allclose(np.asarray(a, float), np.asarray(b, float), atol=atol), name


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(40, 4), (5, 9)])
@pytest.mark.parametrize("options", [{}, {"n_components": 2}, {"n_components": 0.7}, {"n_components": 3, "whiten": True}, {"n_components": 0}])
def test_principal_components(default, options, shape, dtype):
    points = (RNG.standard_normal(shape) * np.arange(1, shape[1] + 1) + 7).astype(dtype)
    mine, other = (kind(svd_solver="full", **options).fit(points) for kind in (ours.PCA, sklearn.decomposition.PCA))
    atol = 1e-8 if dtype == "f8" else 1e-3
    sure = other.singular_values_ > 1e-3 * points.std()  # the others' components are any that are left
    assert np.allclose(mine.components_[sure], other.components_[sure], atol=atol)
    agree(mine, other, ["explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "n_components_",
                        "n_samples_", "n_features_in_"], atol)
    assert np.isclose(mine.noise_variance_, other.noise_variance_, atol=atol)
    told = points[:3]
    assert np.allclose(mine.transform(told)[:, sure], other.transform(told)[:, sure], atol=10 * atol)
    assert np.allclose(mine.fit_transform(points), mine.transform(points), atol=10 * atol)
    if sure.all():
        assert np.allclose(mine.inverse_transform(mine.transform(told)), other.inverse_transform(other.transform(told)), atol=10 * atol)
    if shape == (40, 4) and options:
        assert np.isclose(mine.score(points), other.score(points), atol=100 * atol)


@pytest.mark.parametrize("wrong", ["mle", 5, -1, 1.5, "all"])
def test_components_that_cannot_be_had(default, wrong):
    with pytest.raises(ValueError, match="n_components"):
        ours.PCA(n_components=wrong).fit(X)


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: 1 / (1 + d)])
@pytest.mark.parametrize("options", [{}, {"p": 1}, {"metric": "cosine"}, {"metric": "minkowski", "metric_params": {"p": 3}}])
def test_predictions_of_neighbours(default, weights, options):
    k = {"n_neighbors": 5, "weights": weights, **options}
    labels = np.array(["c", "a", "b"])[np.arange(40) % 3]
    asked = np.vstack([QUERY, X[:2]])  # some at the very place of a point
    for target in (labels, np.column_stack([labels, labels[::-1]])):
        mine, other = (kind(**k).fit(X, target) for kind in (ours.KNeighborsClassifier, sklearn.neighbors.KNeighborsClassifier))
        assert np.array_equal(mine.classes_, other.classes_) and mine.outputs_2d_ == other.outputs_2d_
        for a, b in zip(np.atleast_2d(mine.predict_proba(asked)), np.atleast_2d(other.predict_proba(asked))):
            assert np.allclose(a, b)
        told, wish = mine.predict(asked), other.predict(asked)
        assert told.shape == wish.shape and told.dtype == wish.dtype and (weights == "uniform" or np.array_equal(told, wish))
    assert np.isclose(mine.fit(X, labels).score(X, labels), other.fit(X, labels).score(X, labels))
    for target in (X @ [1, 2, 3, 4], X[:, :2], (X[:, :1] > 0).astype(int)):
        mine, other = (kind(**k).fit(X, target) for kind in (ours.KNeighborsRegressor, sklearn.neighbors.KNeighborsRegressor))
        assert np.allclose(mine.predict(asked), other.predict(asked)) and mine.predict(asked).shape == other.predict(asked).shape
    assert mine.effective_metric_ == other.effective_metric_ and mine.kneighbors_graph().nnz == 5 * 40


def test_equal_shares_are_the_first_class(default):
    points, labels = np.array([[0.0], [2], [10]]), ["b", "a", "a"]
    for kind in (ours, sklearn.neighbors):
        assert kind.KNeighborsClassifier(2).fit(points, labels).predict([[1.0]]) == ["a"]
    with pytest.raises(ValueError, match="weights"):
        ours.KNeighborsRegressor(weights="near").fit(points, [1, 2, 3])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"alphas": [0.01, 1, 100], "store_cv_results": True}, {"alphas": 3.0}, {"cv": 4},
                                     {"alpha_per_target": True}, {"scoring": "neg_mean_absolute_error"}, {"cv": 3, "scoring": "r2"}])
def test_the_alpha_that_leaves_out_best(default, options, weighted):
    noise = RNG.standard_normal((40, 2))
    weight = RNG.random(40) + 0.1 if weighted else None
    if ({"store_cv_results", "alpha_per_target"} & set(options) or (weighted and "scoring" in options)) and sklearn.__version__ < "1.5":
        pytest.skip("an older scikit-learn has other names")
    for target in (X @ [1, 2, 3, 0] + 5 + 3 * noise[:, 0], np.column_stack([X[:, 0], X[:, 1] * 0.1]) + 4 * noise):
        if options.get("alpha_per_target") and target.ndim == 1:
            continue
        mine, other = (kind(**options).fit(X, target, weight) for kind in (ours.RidgeCV, theirs.RidgeCV))
        assert np.array_equal(mine.alpha_, other.alpha_) and np.allclose(mine.best_score_, other.best_score_)
        assert np.shape(mine.coef_) == np.shape(other.coef_) and np.allclose(mine.coef_, other.coef_)
        assert np.allclose(mine.intercept_, other.intercept_) and np.allclose(mine.predict(QUERY), other.predict(QUERY))
        assert "store_cv_results" not in options or np.allclose(mine.cv_results_, other.cv_results_)


@pytest.mark.parametrize("options", [{"alphas": [0.0]}, {"alphas": []}, {"cv": 3, "alpha_per_target": True}, {"gcv_mode": "guess"}])
def test_ridges_that_cannot_be_had(default, options):
    with pytest.raises(ValueError, match="alpha|gcv_mode"):
        ours.RidgeCV(**options).fit(X, X[:, 0])


# --- worker processes -------------------------------------------------------------------------------------------------


def search(**options):
    return GridSearchCV(ours.Ridge(), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise", **options).fit(X, X @ np.ones(4)).cv_results_


SEARCHES = {
    "grid": lambda: search(n_jobs=2),
    "scores": lambda: cross_validate(ours.Lasso(0.1), X, X @ np.ones(4), n_jobs=2, cv=2, error_score="raise", return_estimator=True),
    "ensemble": lambda: BaggingRegressor(ours.LinearRegression(), 4, n_jobs=2).fit(X, X @ np.ones(4)),
    "components": lambda: cross_validate(make_pipeline(ours.PCA(2), ours.KNeighborsClassifier(3)), X, X[:, 0] > 0, n_jobs=2, cv=2,
                                         error_score="raise"),
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
