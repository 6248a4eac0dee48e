"""scikit-learn's estimators, fitted by the service of `blasd.default`; their parameters and attributes are
scikit-learn's. Needs scikit-learn 1.2 or later (`pip install blasd[sklearn]`).

    from blasd.sklearn import LinearRegression
    LinearRegression().fit(X, y).predict(X)
"""
from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .arrays import Array, JobWarning
from .default import client
from .results import Result

__all__ = ["ElasticNet", "GradientDescentRegressor", "Lasso", "LinearRegression", "NearestNeighbors", "Ridge",
           "pairwise_distances"]


def _validate(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """scikit-learn's own checks; where they stand depends on its version."""
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6
        return estimator._validate_data(X, y, **options)
    return validate_data(estimator, X, y, **options)


def _number(estimator: Any, name: str, kind: Any, low: float, strict: bool = False) -> None:
    value = getattr(estimator, name)
    wrong = not isinstance(value, kind) or isinstance(value, bool) or value < low or (strict and value == low)
    if wrong:
        raise ValueError(f"The '{name}' parameter of {type(estimator).__name__} must be "
                         f"{'an int' if kind is Integral else 'a float'} {'above' if strict else 'of at least'} {low}. "
                         f"Got {value!r} instead.")


class _Linear(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fits by a regression job; the subclasses say its parameters."""

    _method = "ols"
    fit_intercept: bool

    def _params(self) -> dict[str, Any]:
        return {}

    def _learn(self, fit: Result) -> None:
        pass

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the model; y of one target (n) or more (n, t). Returns the estimator."""
        X, y = _validate(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=X.dtype)
        column = y.ndim == 2 and y.shape[1] == 1
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        params: dict[str, Any] = {"method": self._method, "fit_intercept": bool(self.fit_intercept), **self._params()}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", JobWarning)
            fit = client().regression(X, y, weight, **params)
        for text in caught:
            if issubclass(text.category, JobWarning):
                kind = ConvergenceWarning if any(word in str(text.message) for word in ("converge", "diverge", "sweeps")) \
                    else JobWarning
                warnings.warn(str(text.message), kind, stacklevel=2)
            else:
                warnings.warn_explicit(text.message, text.category, text.filename, text.lineno)
        self.coef_ = fit["coef"]
        self.intercept_: Any
        self.intercept_ = fit["intercept"] if fit["intercept"].ndim else float(fit["intercept"])
        if not self.fit_intercept:
            self.intercept_ = 0.0
        elif column:
            self.intercept_ = np.reshape(self.intercept_, 1)
        self._learn(fit)
        return self

    def predict(self, X: Any) -> Array:
        """The values that the model gives for the rows of X."""
        check_is_fitted(self)
        X = _validate(self, X, reset=False, dtype=[np.float64, np.float32])
        predicted: Array = X @ self.coef_.T + self.intercept_
        return predicted


class LinearRegression(_Linear):
    """Ordinary least squares. Attributes: coef_, intercept_, rank_, singular_, n_features_in_, feature_names_in_."""

    def __init__(self, *, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept

    def _learn(self, fit: Result) -> None:
        self.rank_ = int(fit["rank"]) - (1 if self.fit_intercept else 0)
        self.singular_ = fit["singular_values"]


class Ridge(_Linear):
    """|y - Xb|^2 + alpha |b|^2. Attributes: coef_, intercept_, n_iter_ (None), solver_."""

    _method = "ridge"

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def _params(self) -> dict[str, Any]:
        _number(self, "alpha", Real, 0)
        return {"alpha": float(self.alpha)}

    def _learn(self, fit: Result) -> None:
        self.n_iter_, self.solver_ = None, "blasd"


class ElasticNet(_Linear):
    """|y - Xb|^2 / (2n) + alpha l1_ratio |b|_1 + alpha (1 - l1_ratio) |b|^2 / 2 by coordinate descent. tol: the duality
    gap at which to stop, against the squares of y. Attributes: coef_, intercept_, n_iter_, dual_gap_."""

    _method = "elastic_net"

    def __init__(self, alpha: float = 1.0, *, l1_ratio: float = 0.5, fit_intercept: bool = True, max_iter: int = 1000,
                 tol: float = 1e-4) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def _params(self) -> dict[str, Any]:
        _number(self, "alpha", Real, 0)
        _number(self, "max_iter", Integral, 1)
        _number(self, "tol", Real, 0)
        params = {"alpha": float(self.alpha), "max_iter": int(self.max_iter), "tol": float(self.tol)}
        if self._method == "elastic_net":
            _number(self, "l1_ratio", Real, 0)
            params["l1_ratio"] = float(self.l1_ratio)
        return params

    def _learn(self, fit: Result) -> None:
        gap, sweeps = fit["dual_gap"], fit["n_iter"]
        # scikit-learn's: for one target a number, for more an array (dual_gap_) and a list (n_iter_)
        self.dual_gap_ = float(gap) if gap.ndim == 0 or gap.size == 1 else gap
        self.n_iter_ = int(sweeps) if sweeps.ndim == 0 or sweeps.size == 1 else sweeps.tolist()


class Lasso(ElasticNet):
    """|y - Xb|^2 / (2n) + alpha |b|_1. See ElasticNet."""

    _method = "lasso"

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True, max_iter: int = 1000, tol: float = 1e-4) -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, max_iter=max_iter, tol=tol)


class GradientDescentRegressor(_Linear):
    """Least squares by `max_iter` steps of gradient descent over all rows, from 0: b -= learning_rate * gradient of the
    mean squared error. Scale X, or choose a small learning_rate. Attributes: coef_, intercept_, n_iter_."""

    _method = "gd"

    def __init__(self, *, learning_rate: float = 0.01, max_iter: int = 1000, fit_intercept: bool = True) -> None:
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept

    def _params(self) -> dict[str, Any]:
        _number(self, "learning_rate", Real, 0, strict=True)
        _number(self, "max_iter", Integral, 1)
        return {"learning_rate": float(self.learning_rate), "iterations": int(self.max_iter)}

    def _learn(self, fit: Result) -> None:
        self.n_iter_ = int(self.max_iter)


_METRICS = {"minkowski", "euclidean", "l2", "l1", "manhattan", "cityblock", "chebyshev", "cosine", "sqeuclidean",
            "correlation", "canberra", "braycurtis", "hamming", "seuclidean", "mahalanobis", "jensenshannon", "jaccard",
            "dice", "rogerstanimoto", "russellrao", "sokalmichener", "sokalsneath", "yule"}
_ALIASES = {"l2": "euclidean", "l1": "cityblock", "manhattan": "cityblock"}


def _metric(name: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A metric with its options as inputs and parameters of a distance job."""
    if name not in _METRICS:
        raise ValueError(f"metric {name!r} is not one of {', '.join(sorted(_METRICS))}")
    metric = _ALIASES.get(name, name)
    inputs = {key: options[key] for key in ("w", "V", "VI") if options.get(key) is not None}
    params: dict[str, Any] = {"metric": metric}
    if metric == "minkowski":
        params["p"] = float(options.get("p", 2))
    return inputs, params


class NearestNeighbors(BaseEstimator):  # type: ignore[misc]
    """The nearest of the fitted points, by comparing with all of them (algorithm "brute"). Attributes:
    n_features_in_, feature_names_in_, n_samples_fit_, effective_metric_, effective_metric_params_."""

    def __init__(self, *, n_neighbors: int = 5, radius: float = 1.0, metric: str = "minkowski", p: float = 2,
                 metric_params: dict[str, Any] | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.metric = metric
        self.p = p
        self.metric_params = metric_params

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Keeps the points to compare with. y is not used."""
        self._fit_X = _validate(self, X, dtype=[np.float64, np.float32], order="C")
        _number(self, "n_neighbors", Integral, 1)
        _number(self, "radius", Real, 0)
        options = dict(self.metric_params or {})
        if self.metric == "minkowski":
            options.setdefault("p", self.p)
        self._inputs, self._job = _metric(self.metric, options)
        self.effective_metric_ = self._job["metric"]
        self.effective_metric_params_ = {key: value for key, value in self._job.items() if key != "metric"}
        self.n_samples_fit_ = len(self._fit_X)
        return self

    def _ask(self, X: Any, **params: Any) -> Result:
        check_is_fitted(self)
        if X is None:  # of the fitted points among themselves, none its own neighbour
            result: Result = client().distance(self._fit_X, **self._inputs, **self._job, **params)
        else:
            X = _validate(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
            result = client().distance(X, self._fit_X, **self._inputs, **self._job, **params)
        return result

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Distances (n, k) and indices (n, k) of the k nearest, the nearest first; of the fitted points where X is
        None."""
        check_is_fitted(self)
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        if not isinstance(count, Integral):
            raise TypeError(f"n_neighbors does not take {type(count)} value, enter integer value")
        if count <= 0:
            raise ValueError(f"Expected n_neighbors > 0. Got {count}")
        most = self.n_samples_fit_ - (X is None)
        if count > most:
            sign = "<" if X is None else "<="
            samples = self.n_samples_fit_ if X is None else np.shape(X)[0]
            raise ValueError(f"Expected n_neighbors {sign} n_samples_fit, but n_neighbors = {count}, "
                             f"n_samples_fit = {self.n_samples_fit_}, n_samples = {samples}")
        result = self._ask(X, output="topk", k=int(count))
        return (result["d"], result["index"]) if return_distance else result["index"]

    def radius_neighbors(self, X: Any = None, radius: float | None = None, return_distance: bool = True,
                         sort_results: bool = False) -> Any:
        """Arrays, for each point, of the distances and indices of those within the radius; sorted where asked for."""
        check_is_fitted(self)
        rows = self.n_samples_fit_ if X is None else np.shape(X)[0]
        result = self._ask(X, output="within", radius=float(self.radius if radius is None else radius),
                           max_pairs=int(rows) * self.n_samples_fit_)
        splits = result["row_splits"]
        distances, indices = np.empty(len(splits) - 1, object), np.empty(len(splits) - 1, object)
        for i in range(len(splits) - 1):
            d, index = result["d"][splits[i]:splits[i + 1]], result["index"][splits[i]:splits[i + 1]]
            if sort_results:
                order = np.argsort(d, kind="stable")
                d, index = d[order], index[order]
            distances[i], indices[i] = d, index
        return (distances, indices) if return_distance else indices


def pairwise_distances(X: Any, Y: Any = None, metric: str = "euclidean", **options: Any) -> Array:
    """As sklearn.metrics.pairwise_distances, for metrics by name: (n, n) of X alone, or (n, m) from X to Y."""
    from sklearn.utils import check_array
    X = check_array(X, dtype=[np.float64, np.float32])
    Y = None if Y is None else check_array(Y, dtype=[np.float64, np.float32])
    inputs, params = _metric(metric, options)
    distances: Array = client().distance(X, Y, **inputs, **params)
    return distances
