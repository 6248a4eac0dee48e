"""scikit-learn's estimators, fitted by the service of `blasd.default`; their parameters and attributes are
scikit-learn's. Needs scikit-learn 1.2 or later (`pip install blasd[sklearn]`).

    from blasd.sklearn import LinearRegression
    LinearRegression().fit(X, y).predict(X)
"""
from __future__ import annotations

import inspect
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib.externals.loky.backend import reduction
from scipy.linalg import LinAlgWarning
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .arrays import Array, JobWarning
from .default import Inheritance, client, for_worker
from .errors import InvalidInput
from .results import Result
from .spatial.distance import arguments_of

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


def _fixed(estimator: Any, **only: tuple[Any, ...]) -> None:
    """Refuses what scikit-learn can do and the service cannot, in place of another answer."""
    for name, values in only.items():
        value = getattr(estimator, name)
        if not any(value is one or (isinstance(one, str) and value == one) for one in values):
            raise ValueError(f"The '{name}' parameter of {type(estimator).__name__} must be "
                             f"{' or '.join(map(repr, values))} here. Got {value!r} instead.")


reduction.register(Inheritance, for_worker)  # joblib has a pickler of its own


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """Takes the default client along to the worker processes that fit it, as those of GridSearchCV(…, n_jobs=2)."""

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {**state, "_inheritance": Inheritance()}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__({name: value for name, value in state.items() if name != "_inheritance"})


# what scikit-learn warns with, by the service's code
_KINDS: dict[str, type[Warning]] = {"not_converged": ConvergenceWarning, "diverged": ConvergenceWarning,
                                    "ill_conditioned": LinAlgWarning}


class _Linear(MultiOutputMixin, RegressorMixin, _Estimator):  # type: ignore[misc]
    """Fits by a regression job; the subclasses say its parameters."""

    _method = "ols"
    _flat_column = False  # whether coef_ has one dimension where y is a column, as scikit-learn's has
    fit_intercept: bool

    def _params(self) -> dict[str, Any]:
        return {}

    def _regress(self, X: Array, y: Array, weight: Array | None, params: dict[str, Any]) -> Result:
        fit: Result = client().regression(X, y, weight, **params)
        return fit

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
            fit = self._regress(X, y, weight, params)
        codes = dict(zip(fit.warnings, fit.warning_codes))
        for text in caught:
            if issubclass(text.category, JobWarning):
                warnings.warn(str(text.message), _KINDS.get(codes.get(str(text.message), ""), JobWarning), stacklevel=2)
            else:
                warnings.warn_explicit(text.message, text.category, text.filename, text.lineno)
        self.coef_ = fit["coef"][0] if column and self._flat_column else fit["coef"]
        self.intercept_: Any
        self.intercept_ = fit["intercept"][()]
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
    """Ordinary least squares. copy_X, tol and n_jobs change nothing; positive can only be False. Attributes: coef_,
    intercept_, rank_, singular_, n_features_in_, feature_names_in_."""

    def __init__(self, *, fit_intercept: bool = True, copy_X: bool = True, tol: float = 1e-6, n_jobs: int | None = None,
                 positive: bool = False) -> None:
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.tol = tol
        self.n_jobs = n_jobs
        self.positive = positive

    def _params(self) -> dict[str, Any]:
        _fixed(self, positive=(False,))
        return {}

    def _regress(self, X: Array, y: Array, weight: Array | None, params: dict[str, Any]) -> Result:
        if not self.fit_intercept:
            return super()._regress(X, y, weight, params)
        # rank and singular values are those of the centred points in scikit-learn, and so is the least of several solutions
        x_mean = np.average(X, axis=0, weights=weight).astype(X.dtype)
        y_mean = np.average(y, axis=0, weights=weight).astype(X.dtype)
        fit = super()._regress(X - x_mean, y - y_mean, weight, {**params, "fit_intercept": False})
        fit["intercept"] = np.asarray(y_mean - fit["coef"] @ x_mean)
        return fit

    def _learn(self, fit: Result) -> None:
        self.rank_ = int(fit["rank"])
        self.singular_ = fit["singular_values"]


class Ridge(_Linear):
    """|y - Xb|^2 + alpha |b|^2, in closed form whatever solver, max_iter, tol and random_state say; positive can only be
    False. Attributes: coef_, intercept_, n_iter_ (None: there are no iterations), solver_."""

    _method = "ridge"
    _flat_column = True

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True, copy_X: bool = True, max_iter: int | None = None,
                 tol: float = 1e-4, solver: str = "auto", positive: bool = False, random_state: Any = None) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state

    def _params(self) -> dict[str, Any]:
        _fixed(self, positive=(False,), solver=("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga"))
        _number(self, "alpha", Real, 0)
        if self.max_iter is not None:
            _number(self, "max_iter", Integral, 1)
        return {"alpha": float(self.alpha)}

    def _learn(self, fit: Result) -> None:
        self.n_iter_, self.solver_ = None, "blasd"


class ElasticNet(_Linear):
    """|y - Xb|^2 / (2n) + alpha l1_ratio |b|_1 + alpha (1 - l1_ratio) |b|^2 / 2 by coordinate descent. tol: the duality
    gap at which to stop, against the squares of y. precompute, copy_X, random_state and selection change nothing;
    warm_start and positive can only be False. Attributes: coef_, sparse_coef_, intercept_, n_iter_, dual_gap_."""

    _method = "elastic_net"
    _flat_column = True

    def __init__(self, alpha: float = 1.0, *, l1_ratio: float = 0.5, fit_intercept: bool = True, precompute: Any = False,
                 max_iter: int = 1000, copy_X: bool = True, tol: float = 1e-4, warm_start: bool = False,
                 positive: bool = False, random_state: Any = None, selection: str = "cyclic") -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection

    @property
    def sparse_coef_(self) -> Any:
        """coef_ as a sparse matrix of SciPy's."""
        from scipy.sparse import csr_matrix
        return csr_matrix(self.coef_)

    def _params(self) -> dict[str, Any]:
        _fixed(self, warm_start=(False,), positive=(False,), selection=("cyclic", "random"))
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
        self.dual_gap_ = gap.item() if gap.size == 1 else gap
        self.n_iter_ = sweeps.item() if sweeps.size == 1 else sweeps.tolist()


class Lasso(ElasticNet):
    """|y - Xb|^2 / (2n) + alpha |b|_1. See ElasticNet."""

    _method = "lasso"

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True, precompute: Any = False, copy_X: bool = True,
                 max_iter: int = 1000, tol: float = 1e-4, warm_start: bool = False, positive: bool = False,
                 random_state: Any = None, selection: str = "cyclic") -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, precompute=precompute, copy_X=copy_X, max_iter=max_iter, tol=tol,
                         warm_start=warm_start, positive=positive, random_state=random_state, selection=selection)


class GradientDescentRegressor(_Linear):
    """Least squares by `max_iter` steps of gradient descent over all rows, from 0: b -= learning_rate * gradient of the
    mean squared error. Scale X, or choose a small learning_rate; a ConvergenceWarning tells of a fit that is not at its
    end. Attributes: coef_, intercept_, n_iter_."""

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
        if not fit["converged"].all() and "diverged" not in fit.warning_codes:
            warnings.warn("gradient descent did not converge: the gradient is more than 1e-6 of what it was at the start. "
                          "Raise max_iter or learning_rate, or scale X", ConvergenceWarning, stacklevel=3)


_METRICS = {"minkowski", "euclidean", "l2", "l1", "manhattan", "cityblock", "chebyshev", "cosine", "sqeuclidean",
            "correlation", "canberra", "braycurtis", "hamming", "seuclidean", "mahalanobis", "jensenshannon", "jaccard",
            "dice", "rogerstanimoto", "russellrao", "sokalmichener", "sokalsneath", "yule"}
_OF_TRUTH_VALUES = {"jaccard", "dice", "rogerstanimoto", "russellrao", "sokalmichener", "sokalsneath", "yule"}


class _Metric:
    """A metric as scikit-learn has it. `options` are those that it has for the points `X`: a seuclidean or mahalanobis that
    was given none takes the variances of these points, whatever they are compared with."""

    def __init__(self, name: Any, options: dict[str, Any], X: Array) -> None:
        if name not in _METRICS:
            raise ValueError(f"metric {name!r} is not one of {', '.join(sorted(_METRICS))}")
        self.name = name
        self.options = {key: value for key, value in options.items() if value is not None}
        if name == "seuclidean" and "V" not in self.options:
            self.options["V"] = _variances(X)
        elif name == "mahalanobis" and "VI" not in self.options:
            self.options["VI"] = _inverse(self.options.pop("V", None), X)
        self.arguments = arguments_of(name, self.options)

    def empty(self, X: Array) -> Array:
        """Which points have no direction for a cosine, because all that counts of them is 0."""
        if self.name != "cosine":
            return np.zeros(len(X), bool)
        counts = np.asarray(self.options.get("w", np.ones(X.shape[1]))) != 0
        return np.asarray(np.count_nonzero(X[:, counts], axis=1) == 0)

    def distance(self, X: Array, Y: Array | None, **params: Any) -> Any:
        """The job's answer. Y: None for the points of X among themselves, none of them empty."""
        arguments = dict(self.arguments)
        if self.name in _OF_TRUTH_VALUES:
            X, Y = X.astype(bool), None if Y is None else Y.astype(bool)
        elif Y is not None and (self.empty(X).any() or self.empty(Y).any()):
            # at right angles to all of the other side, which is scikit-learn's distance of 1: each side has a column of its own
            X, Y = (np.column_stack([side, *(self.empty(side) * (at == own) for at in (0, 1))]).astype(side.dtype)
                    for own, side in enumerate((X, Y)))
            if "w" in arguments:
                arguments["w"] = np.append(arguments["w"], [1, 1])
        return client().distance(X, Y, **arguments, **params)


def _warn_of_truth_values(metric: str, *points: Any) -> None:
    if metric in _OF_TRUTH_VALUES and any(one is not None and getattr(one, "dtype", None) != bool for one in points):
        warnings.warn(f"Data was converted to boolean for metric {metric}", DataConversionWarning, stacklevel=3)


def _variances(X: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of one point
        variances: Array = np.var(X, axis=0, ddof=1, dtype=np.float64)
    if not (variances > 0).all():
        raise ValueError(f"column {int(np.argmin(variances > 0))} of X has no variance: leave it out, or give V")
    return variances


def _inverse(V: Any, X: Array) -> Array:
    """The inverse of V or, without it, of the covariance of X."""
    if V is None and len(X) < 2:
        raise ValueError("one point has no covariance: give VI")
    V = np.atleast_2d(np.cov(X, rowvar=False, dtype=np.float64) if V is None else V)
    if np.linalg.matrix_rank(V, hermitian=True) < len(V):
        raise ValueError("the covariance has no inverse: leave out columns that depend on others, or give VI")
    inverse: Array = np.linalg.inv(V)
    return inverse


_ORDERS = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}


class NearestNeighbors(_Estimator):
    """The nearest of the fitted points, by comparing with all of them whatever `algorithm` says; leaf_size and n_jobs
    change nothing. Attributes: n_features_in_, feature_names_in_, n_samples_fit_, effective_metric_, effective_metric_params_."""

    def __init__(self, *, n_neighbors: int = 5, radius: float = 1.0, algorithm: str = "auto", leaf_size: int = 30,
                 metric: str = "minkowski", p: float = 2, metric_params: dict[str, Any] | None = None,
                 n_jobs: int | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.n_jobs = n_jobs
        self.metric = metric
        self.p = p
        self.metric_params = metric_params

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Keeps the points to compare with. y is not used."""
        self._fit_X = _validate(self, X, dtype=[np.float64, np.float32], order="C")
        _fixed(self, algorithm=("auto", "brute", "ball_tree", "kd_tree"))
        _number(self, "n_neighbors", Integral, 1)
        _number(self, "radius", Real, 0)
        options = dict(self.metric_params or {})
        if self.metric == "minkowski":
            options.setdefault("p", self.p)
        _warn_of_truth_values(self.metric, X)
        self._compared = _Metric(self.metric, options, self._fit_X)
        options.update(self._compared.options)
        self.effective_metric_, self.effective_metric_params_ = self.metric, options
        if self.metric == "minkowski":  # as scikit-learn has them: by the name of that order, where it has one
            options.setdefault("w", None)
            named = None if options["w"] is not None else _ORDERS.get(options["p"])
            if named is not None:
                self.effective_metric_ = named
                del options["p"], options["w"]
        self.n_samples_fit_ = len(self._fit_X)
        return self

    def _ask(self, X: Any, **params: Any) -> Result:
        result: Result
        if X is None or X is self._fit_X:
            result = self._compared.distance(self._fit_X, X, **params)
        else:
            X = _validate(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
            result = self._compared.distance(X, self._fit_X, **params)
        return result

    def _asked(self, X: Any) -> Any:
        """None where the service compares the fitted points among themselves, and leaves out the point itself. Empty ones it
        cannot: then all are asked about as others are, and the point itself is left out here."""
        return self._fit_X if X is None and self._compared.empty(self._fit_X).any() else X

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
        asked = self._asked(X)
        own = asked is not X
        result = self._ask(asked, output="topk", k=int(count) + own)
        d, index = result["d"], result["index"]
        if own:
            others = index != np.arange(len(index))[:, None]
            others[others.all(axis=1), -1] = False  # the point itself is further away than those
            d, index = d[others].reshape(-1, count), index[others].reshape(-1, count)
        return (d, index) if return_distance else index

    def radius_neighbors(self, X: Any = None, radius: float | None = None, return_distance: bool = True,
                         sort_results: bool = False) -> Any:
        """Arrays, for each point, of the distances and indices of those within the radius; sorted where asked for."""
        check_is_fitted(self)
        asked: dict[str, Any] = {"output": "within", "radius": float(self.radius if radius is None else radius)}
        points = self._asked(X)
        try:
            result = self._ask(points, **asked)
        except InvalidInput as error:  # more pairs than there is room for if nothing is said: it tells how many there are
            if error.field != "params.max_pairs" or error.least is None:
                raise
            result = self._ask(points, max_pairs=error.least, **asked)
        splits = result["row_splits"]
        distances, indices = np.empty(len(splits) - 1, object), np.empty(len(splits) - 1, object)
        for i in range(len(splits) - 1):
            d, index = result["d"][splits[i]:splits[i + 1]], result["index"][splits[i]:splits[i + 1]]
            if points is not X:
                d, index = d[index != i], index[index != i]
            if sort_results:
                order = np.argsort(d, kind="stable")
                d, index = d[order], index[order]
            distances[i], indices[i] = d, index
        return (distances, indices) if return_distance else indices

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:
        """The k nearest as a sparse matrix (n, n_samples_fit_) of SciPy's: of ones, or with mode="distance" of distances."""
        _mode(mode)
        d, index = self.kneighbors(X, n_neighbors)
        return self._graph(d.ravel(), index.ravel(), np.arange(0, index.size + 1, index.shape[1]), mode)

    def radius_neighbors_graph(self, X: Any = None, radius: float | None = None, mode: str = "connectivity",
                               sort_results: bool = False) -> Any:
        """Those within the radius as a sparse matrix, as kneighbors_graph has it."""
        _mode(mode)
        d, index = self.radius_neighbors(X, radius, sort_results=sort_results)
        splits = np.concatenate([[0], np.cumsum([len(one) for one in index])])
        return self._graph(np.concatenate(list(d)), np.concatenate(list(index)), splits, mode)

    def _graph(self, d: Array, index: Array, splits: Array, mode: str) -> Any:
        from scipy.sparse import csr_matrix
        return csr_matrix((d if mode == "distance" else np.ones(len(d)), index, splits), (len(splits) - 1, self.n_samples_fit_))


def _mode(mode: Any) -> None:
    if mode not in ("connectivity", "distance"):
        raise ValueError(f"mode must be 'connectivity' or 'distance', not {mode!r}")


def _finite_option(given: dict[str, Any]) -> dict[str, Any]:
    """What force_all_finite or, as scikit-learn calls it from 1.6 on, ensure_all_finite says, in the words of check_array here."""
    from sklearn.utils import check_array
    named = {name: given.pop(name) for name in ("force_all_finite", "ensure_all_finite") if name in given}
    if len(named) > 1:
        raise ValueError("force_all_finite and ensure_all_finite are one parameter: give one of them, not both")
    value = next(iter(named.values()), True)
    if not (isinstance(value, (bool, np.bool_)) or value == "allow-nan"):
        raise ValueError(f"{next(iter(named))} must be True, False or 'allow-nan', not {value!r}")
    ours = "ensure_all_finite" if "ensure_all_finite" in inspect.signature(check_array).parameters else "force_all_finite"
    return {ours: value}


def pairwise_distances(X: Any, Y: Any = None, metric: str = "euclidean", *, n_jobs: int | None = None, **kwds: Any) -> Array:
    """As sklearn.metrics.pairwise_distances, for metrics by name: (n, n) of X alone, or (n, m) from X to Y. n_jobs changes
    nothing. ensure_all_finite, or as it was called before force_all_finite: True refuses NaN and infinities, "allow-nan"
    infinities alone, False nothing."""
    from sklearn.utils import check_array
    finite = _finite_option(kwds)
    alone = Y is None or Y is X
    _warn_of_truth_values(metric, X, Y)
    X = check_array(X, dtype=[np.float64, np.float32], **finite)
    Y = None if alone else check_array(Y, dtype=[np.float64, np.float32], **finite)
    if not alone and not {"seuclidean": {"V"}, "mahalanobis": {"V", "VI"}}.get(metric, {""}) & {"", *kwds}:
        raise ValueError(f"The '{'V' if metric == 'seuclidean' else 'VI'}' parameter is required for the {metric} metric when Y is passed.")
    compared = _Metric(metric, kwds, X)
    distances: Array = compared.distance(X, X if compared.empty(X).any() and alone else Y)
    if alone:
        np.fill_diagonal(distances, 0)  # whatever a cosine of zeros, or russellrao, says of a point and itself
    return distances
