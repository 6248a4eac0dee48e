"""Run with the newest NumPy, SciPy and scikit-learn, and with the system's: python science.py URL.

What is taken from them keeps their signatures, and scikit-learn's own checks pass with nothing excused but what they skip."""
import inspect
import sys
import warnings

import blasd
import blasd.default
import blasd.linalg
import blasd.sklearn
import blasd.spatial.distance
import numpy as np
import scipy.spatial.distance
import sklearn.decomposition
import sklearn.linear_model
import sklearn.metrics
import sklearn.neighbors
from sklearn.utils.estimator_checks import check_estimator


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


blasd.default.set_client(blasd.Client(sys.argv[1]))
if int(np.__version__.split(".")[0]) >= 2:
    for name in ("cholesky", "eigh", "eigvalsh", "inv", "lstsq", "qr", "solve", "svd", "svdvals", "det",
                 "norm", "pinv"):
        assert parameters(getattr(blasd.linalg, name)) == parameters(getattr(np.linalg, name)), name
for name in blasd.spatial.distance.__all__:
    assert parameters(getattr(blasd.spatial.distance, name)) == parameters(getattr(scipy.spatial.distance, name)), name

try:  # what scikit-learn's own tests excuse its estimators; before 1.6 check_estimator leaves it out itself, by name
    from sklearn.utils._test_common.instance_generator import PER_ESTIMATOR_XFAIL_CHECKS as OWN_EXCUSES
except ImportError:
    OWN_EXCUSES = {}
assert set(OWN_EXCUSES.get(sklearn.linear_model.Ridge, {})) <= {"check_non_transformer_estimators_n_iter"}
warnings.simplefilter("error", DeprecationWarning)
for name in set(blasd.sklearn.__all__) - {"pairwise_distances"}:
    mine = getattr(blasd.sklearn, name)
    other = next((getattr(of, name) for of in (sklearn.linear_model, sklearn.neighbors, sklearn.decomposition) if hasattr(of, name)), None)
    if other is not None:
        ours, theirs = inspect.signature(mine).parameters, inspect.signature(other).parameters
        assert set(theirs) - {"store_cv_values"} <= set(ours), name  # as RidgeCV called it before 1.5
        for key in set(ours) & set(theirs):
            assert (ours[key].kind, ours[key].default) == (theirs[key].kind, theirs[key].default), (name, key)
        ours, theirs = ({method for method in dir(kind) if not method.startswith("_")} for kind in (mine, other))
        assert theirs - ours <= {"path"}, name
    excused = OWN_EXCUSES.get(other, {})
    check_estimator(mine(), **({"expected_failed_checks": excused} if excused else {}))

rng = np.random.default_rng(3)
X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
for target in (y, y[:, None], rng.standard_normal((40, 2))):
    for kind in ("LinearRegression", "Ridge", "Lasso", "ElasticNet"):
        if kind == "Ridge" and target.shape == (40, 1) and tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
            continue  # an older one gives coef_ another dimension more
        mine, other = getattr(blasd.sklearn, kind)().fit(X, target), getattr(sklearn.linear_model, kind)().fit(X, target)
        for name in ("coef_", "intercept_", "n_iter_", "dual_gap_", "rank_", "singular_", "n_features_in_"):
            assert hasattr(mine, name) == hasattr(other, name), (kind, name)
            if hasattr(other, name) and getattr(other, name) is not None:
                assert np.shape(getattr(mine, name)) == np.shape(getattr(other, name)), (kind, name, target.shape)
for wide in (X, X[:3], np.c_[X, X[:, 0]]):
    for weight in (None, rng.random(len(wide))):
        for intercept in (True, False):
            mine, other = (kind(fit_intercept=intercept).fit(wide, y[:len(wide)], weight)
                           for kind in (blasd.sklearn.LinearRegression, sklearn.linear_model.LinearRegression))
            assert mine.rank_ == other.rank_ and np.allclose(mine.singular_, other.singular_, atol=1e-12)
            assert np.allclose(mine.coef_, other.coef_) and np.isclose(mine.intercept_, other.intercept_)
mine, other = blasd.sklearn.Lasso(0.1).fit(X, y), sklearn.linear_model.Lasso(0.1).fit(X, y)
assert np.allclose(mine.sparse_coef_.toarray(), other.sparse_coef_.toarray(), atol=1e-4)
blasd.sklearn.NearestNeighbors(algorithm="brute", n_jobs=2, leaf_size=9).fit(X).kneighbors(X)
mine, other = blasd.sklearn.NearestNeighbors(radius=1.5).fit(X), sklearn.neighbors.NearestNeighbors(radius=1.5).fit(X)
for mode in ("connectivity", "distance"):
    for query in (None, X[:7], X[:1] + 100):
        for call in ("kneighbors_graph", "radius_neighbors_graph"):
            a, b = (getattr(one, call)(query, mode=mode) for one in (mine, other))
            assert a.format == b.format == "csr" and a.shape == b.shape and a.dtype == b.dtype, (call, mode)
            assert np.allclose(a.toarray(), b.toarray()) and a.nnz == b.nnz, (call, mode)
assert mine.kneighbors_graph(n_neighbors=2).nnz == 2 * len(X)
assert mine.radius_neighbors_graph(radius=0.5).nnz == other.radius_neighbors_graph(radius=0.5).nnz
assert np.array_equal(blasd.sklearn.Ridge(max_iter=5).fit(X, y).coef_, blasd.sklearn.Ridge().fit(X, y).coef_)
for wrong in (lambda: blasd.sklearn.Lasso(positive=True).fit(X, y), lambda: blasd.sklearn.ElasticNet(warm_start=True).fit(X, y),
              lambda: blasd.sklearn.LinearRegression(positive=True).fit(X, y), lambda: blasd.sklearn.Ridge(solver="x").fit(X, y),
              lambda: blasd.sklearn.NearestNeighbors(algorithm="guess").fit(X), lambda: blasd.sklearn.Ridge(max_iter=0).fit(X, y),
              lambda: mine.kneighbors_graph(mode="guess"), lambda: mine.radius_neighbors_graph(mode="guess"),
              lambda: blasd.sklearn.NearestNeighbors(metric="euclidean", metric_params={"squared": True}).fit(X),
              lambda: blasd.sklearn.pairwise_distances(X, metric="euclidean", squared=True)):
    try:
        wrong()
    except (ValueError, TypeError) as error:
        assert any(word in str(error) for word in ("positive", "warm_start", "solver", "algorithm", "squared", "max_iter", "mode")), error
    else:
        sys.exit("what the service cannot do was taken")
assert np.allclose(blasd.sklearn.pairwise_distances(X, metric="euclidean", n_jobs=2), sklearn.metrics.pairwise_distances(X))
print("right")
