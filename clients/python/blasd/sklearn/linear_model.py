"""Linear models, by jobs of the operation regression."""
from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ..arrays import Array, JobWarning
from ..default import client
from ..results import Result
from .base import Estimator, fixed, number, validate

# what scikit-learn warns with, by the service's code
_KINDS: dict[str, type[Warning]] = {"not_converged": ConvergenceWarning, "diverged": ConvergenceWarning,
                                    "ill_conditioned": LinAlgWarning}


class _Linear(MultiOutputMixin, RegressorMixin, Estimator):  # type: ignore[misc]
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
        X, y = validate(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
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
        X = validate(self, X, reset=False, dtype=[np.float64, np.float32])
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
        fixed(self, positive=(False,))
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
        fixed(self, positive=(False,), solver=("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga"))
        number(self, "alpha", Real, 0)
        if self.max_iter is not None:
            number(self, "max_iter", Integral, 1)
        return {"alpha": float(self.alpha)}

    def _learn(self, fit: Result) -> None:
        self.n_iter_, self.solver_ = None, "blasd"


class RidgeCV(_Linear):
    """Ridge with the alpha of `alphas` that leaves out one point after the other best or, where cv says so, that
    cross-validation finds. The singular values of the weighted, centred points, which all alphas share, and the fit are jobs.
    gcv_mode changes nothing; alpha_per_target and store_cv_results only without cv. Attributes: coef_, intercept_, alpha_,
    best_score_, cv_results_."""

    _method = "ridge"
    _flat_column = True

    def __init__(self, alphas: Any = (0.1, 1.0, 10.0), *, fit_intercept: bool = True, scoring: Any = None, cv: Any = None,
                 gcv_mode: str | None = None, store_cv_results: bool = False, alpha_per_target: bool = False) -> None:
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.scoring = scoring
        self.cv = cv
        self.gcv_mode = gcv_mode
        self.store_cv_results = store_cv_results
        self.alpha_per_target = alpha_per_target

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Finds alpha and fits the model; y of one target (n) or more (n, t). Returns the estimator."""
        alphas = np.atleast_1d(np.asarray(self.alphas, dtype=np.float64))
        if alphas.ndim != 1 or not len(alphas) or not (alphas > (0 if self.cv is None else -1e-300)).all():
            raise ValueError(f"alphas must be numbers above 0. Got {self.alphas!r} instead.")
        fixed(self, gcv_mode=(None, "auto", "svd", "eigen"))
        checked, targets = validate(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        if self.cv is None:
            self._leave_one_out(checked, np.asarray(targets, checked.dtype), sample_weight, alphas)
        elif self.store_cv_results or self.alpha_per_target:
            raise ValueError("cv!=None and store_cv_results=True or alpha_per_target=True are incompatible")
        else:
            search = GridSearchCV(Ridge(fit_intercept=self.fit_intercept), {"alpha": alphas.tolist()}, cv=self.cv, scoring=self.scoring)
            search.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
            self._found(search.best_params_["alpha"], search.best_score_)
        return super().fit(X, y, sample_weight)

    def _leave_one_out(self, X: Array, y: Array, sample_weight: Any, alphas: Array) -> None:
        weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=X.dtype))
        root, targets = np.sqrt(weight)[:, None], y.reshape(len(y), -1)
        left, right, ones = X, targets, np.zeros((len(X), 1))
        if self.fit_intercept:
            left, right = X - np.average(X, 0, weight), targets - np.average(targets, 0, weight)
            ones = root**2 / weight.sum()
        left, right = left * root, right * root
        U, S, _ = client().svd(left, full_matrices=False)
        inner, squares = U.T @ right, S**2
        scores, errors = [], []
        for alpha in alphas:
            kept = squares / (squares + alpha)
            stays = 1 - (U**2 @ kept)[:, None] - ones  # of a residual, where its own point is left out
            error = (right - U @ (kept[:, None] * inner)) / stays
            errors.append(error**2 if self.scoring is None else targets - error / root)
            scores.append(self._scores(errors[-1], targets, weight if sample_weight is not None else None))
        alpha, score = alphas[np.argmax(scores, axis=0)], np.max(scores, axis=0)
        alone = not self.alpha_per_target
        self._found(float(np.ravel(alpha)[0]) if alone or targets.shape[1] == 1 else alpha,
                    float(np.ravel(score)[0]) if alone or y.ndim == 1 else score)
        if self.store_cv_results:
            stored = np.stack(errors, axis=-1)
            self.cv_results_ = stored[:, 0] if y.ndim == 1 else stored

    def _found(self, alpha: Any, score: Any) -> None:
        self.alpha_, self.best_score_ = alpha, score

    def _scores(self, told: Array, targets: Array, weight: Array | None) -> Any:
        """Of squared errors, or of predictions where there is a scoring: one score, or one for each target."""
        if self.scoring is None:
            return -told.mean(axis=0) if self.alpha_per_target else [-told.mean()]
        score = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        more = {} if weight is None else {"sample_weight": weight}
        pairs = zip(told.T, targets.T) if self.alpha_per_target else [(np.squeeze(told), np.squeeze(targets))]
        return [score(_Known(), predicted, true, **more) for predicted, true in pairs]

    def _regress(self, X: Array, y: Array, weight: Array | None, params: dict[str, Any]) -> Result:
        if np.ndim(self.alpha_) == 0:
            return super()._regress(X, y, weight, {**params, "alpha": float(self.alpha_)})
        fits = [super(RidgeCV, self)._regress(X, target, weight, {**params, "alpha": float(alpha)})
                for alpha, target in zip(self.alpha_, y.T)]
        fits[0].update({name: np.stack([fit[name] for fit in fits]) for name in ("coef", "intercept")})
        return fits[0]


class _Known(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """For scorers, which already have the predictions."""

    def predict(self, X: Array) -> Array:
        return X


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
        fixed(self, warm_start=(False,), positive=(False,), selection=("cyclic", "random"))
        number(self, "alpha", Real, 0)
        number(self, "max_iter", Integral, 1)
        number(self, "tol", Real, 0)
        params = {"alpha": float(self.alpha), "max_iter": int(self.max_iter), "tol": float(self.tol)}
        if self._method == "elastic_net":
            number(self, "l1_ratio", Real, 0)
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
        number(self, "learning_rate", Real, 0, strict=True)
        number(self, "max_iter", Integral, 1)
        return {"learning_rate": float(self.learning_rate), "iterations": int(self.max_iter)}

    def _learn(self, fit: Result) -> None:
        self.n_iter_ = int(self.max_iter)
        if not fit["converged"].all() and "diverged" not in fit.warning_codes:
            warnings.warn("gradient descent did not converge: the gradient is more than 1e-6 of its value at the start. Raise max_iter or learning_rate, or scale X", ConvergenceWarning, stacklevel=3)
