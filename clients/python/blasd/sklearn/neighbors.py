"""Nearest neighbours and distances, by jobs of the operation distance."""
from __future__ import annotations

import inspect
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..arrays import Array
from ..default import client
from ..errors import InvalidInput
from ..results import Result
from ..spatial.distance import arguments_of
from .base import Estimator, fixed, number, validate

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


class _Neighbors(Estimator):
    """The parameters for points that are kept."""

    n_neighbors: int
    algorithm: str
    metric: str
    p: float
    metric_params: dict[str, Any] | None
    radius = 1.0

    def _keep(self, X: Array) -> None:
        fixed(self, algorithm=("auto", "brute", "ball_tree", "kd_tree"))
        number(self, "n_neighbors", Integral, 1)
        number(self, "radius", Real, 0)
        self._fit_X = X
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

    def _ask(self, X: Any, **params: Any) -> Result:
        result: Result
        if X is None or X is self._fit_X:
            result = self._compared.distance(self._fit_X, X, **params)
        else:
            X = validate(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
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


class NearestNeighbors(_Neighbors):
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
        self._keep(validate(self, X, dtype=[np.float64, np.float32], order="C"))
        return self


class _Predictor(_Neighbors):
    """What follows from the targets of the nearest."""

    def __init__(self, n_neighbors: int = 5, *, weights: Any = "uniform", algorithm: str = "auto", leaf_size: int = 30,
                 p: float = 2, metric: str = "minkowski", metric_params: dict[str, Any] | None = None,
                 n_jobs: int | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def _learn(self, X: Any, y: Any, **options: Any) -> Array:
        if not (callable(self.weights) or self.weights in ("uniform", "distance", None)):
            raise ValueError(f"The 'weights' parameter of {type(self).__name__} must be 'uniform', 'distance', None or a function. "
                             f"Got {self.weights!r} instead.")
        X, y = validate(self, X, y, dtype=[np.float64, np.float32], order="C", multi_output=True, **options)
        self._keep(X)
        return np.asarray(y)

    def _nearest(self, X: Any) -> tuple[Array, Array]:
        """Indices (n, k) of the nearest, and their weights."""
        d, index = self.kneighbors(X)
        if self.weights == "distance":
            with np.errstate(divide="ignore"):
                weights = 1 / d
            exact = np.isinf(weights)
            at_once = exact.any(axis=1)
            weights[at_once] = exact[at_once]  # what lies at the very place counts alone
        else:
            weights = np.ones_like(d) if self.weights in ("uniform", None) else np.asarray(self.weights(d))
        return index, weights


class KNeighborsClassifier(ClassifierMixin, _Predictor):  # type: ignore[misc]
    """The class that most of the nearest have, with their weights. Attributes: those of NearestNeighbors, classes_,
    outputs_2d_. See NearestNeighbors."""

    def fit(self, X: Any, y: Any) -> KNeighborsClassifier:
        """Keeps points and their classes, (n) or (n, outputs)."""
        y = self._learn(X, y)
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn("A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
                          "for example using ravel().", DataConversionWarning, stacklevel=2)
        check_classification_targets(y)
        self.outputs_2d_ = y.ndim == 2 and y.shape[1] > 1
        columns = y.reshape(len(y), -1)
        found = [np.unique(column, return_inverse=True) for column in columns.T]
        self.classes_: Any = [classes for classes, _ in found] if self.outputs_2d_ else found[0][0]
        self._y = np.column_stack([at for _, at in found])
        return self

    def _shares(self, X: Any) -> list[Array]:
        """For each output the share of each class in the weights of the nearest."""
        check_is_fitted(self)
        index, weights = self._nearest(X)
        total = weights.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            raise ValueError("All neighbors of some sample is getting zero weights. Please modify 'weights' to avoid this case if you "
                             "are using a user-defined function.")
        shares = []
        for column, classes in zip(self._y.T, self.classes_ if self.outputs_2d_ else [self.classes_]):
            one = np.zeros((len(index), len(classes)))
            np.add.at(one, (np.arange(len(index))[:, None], column[index]), weights)
            shares.append(one / total)
        return shares

    def predict_proba(self, X: Any) -> Any:
        """The share of each class, (n, classes), in the order of classes_; a list of them for several outputs."""
        shares = self._shares(X)
        return shares if self.outputs_2d_ else shares[0]

    def predict(self, X: Any) -> Array:
        """The class of each point of X; of equal shares the first in classes_."""
        shares = self._shares(X)
        found = [np.take(classes, np.argmax(one, axis=1))
                 for one, classes in zip(shares, self.classes_ if self.outputs_2d_ else [self.classes_])]
        predicted: Array = np.column_stack(found) if self.outputs_2d_ else found[0]
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"multilabel": True}


class KNeighborsRegressor(MultiOutputMixin, RegressorMixin, _Predictor):  # type: ignore[misc]
    """The mean of the nearest targets, with their weights. See NearestNeighbors."""

    def fit(self, X: Any, y: Any) -> KNeighborsRegressor:
        """Keeps points and their targets, (n) or (n, targets)."""
        self._y = self._learn(X, y, y_numeric=True)
        return self

    def predict(self, X: Any) -> Array:
        """The value for each point of X, (n) or (n, targets)."""
        check_is_fitted(self)
        index, weights = self._nearest(X)
        near = self._y[index]
        if near.ndim == 3:
            weights = weights[:, :, None]
        predicted: Array = (near * weights).sum(axis=1) / weights.sum(axis=1)
        return predicted


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
