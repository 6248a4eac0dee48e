"""Principal components, by a job of the operation svd."""
from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import sklearn.decomposition
from sklearn.utils.extmath import svd_flip

from ..arrays import Array
from ..default import client
from .base import Estimator, validate

_BY_U = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 5)  # whose largest element has the sign +


class PCA(Estimator, sklearn.decomposition.PCA):  # type: ignore[misc]
    """Principal components by the singular values of the centred points, whatever svd_solver, tol, iterated_power,
    n_oversamples, power_iteration_normalizer and random_state say. n_components: a number of them, a share of the variance
    between 0 and 1, or None for all; "mle" is refused. Attributes and signs are scikit-learn's."""

    def fit(self, X: Any, y: Any = None) -> PCA:
        """Finds the components of X (n, p). y is not used."""
        self._decompose(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """The points of X in its components' coordinates."""
        U, S = self._decompose(X)
        scaled: Array = U * (np.sqrt(self.n_samples_ - 1) if self.whiten else S)
        return scaled

    def _decompose(self, X: Any) -> tuple[Array, Array]:
        self._validate_params()
        X = validate(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.n_samples_, features = X.shape
        most = min(X.shape)
        wanted: Any = self._checked(most)
        self.mean_ = np.mean(X, axis=0)
        U, S, Vh = client().svd(X - self.mean_, full_matrices=False)
        U, Vh = svd_flip(U, Vh, u_based_decision=_BY_U)
        variances = S**2 / (self.n_samples_ - 1)
        total = variances.sum()
        shares = variances / total
        if isinstance(wanted, float):  # so many that their share is more than that
            wanted = int(np.searchsorted(np.cumsum(shares, dtype=np.float64), wanted, side="right")) + 1
            wanted = min(wanted, most)
        self.n_components_ = wanted
        self.components_ = Vh[:wanted]
        self.explained_variance_, self.explained_variance_ratio_ = variances[:wanted], shares[:wanted]
        self.singular_values_ = S[:wanted].copy()
        self.noise_variance_ = variances[wanted:].mean() if wanted < min(features, self.n_samples_) else 0.0
        return U[:, :wanted], self.singular_values_

    def _checked(self, most: int) -> int | float:
        """n_components, where it can be had of so many."""
        wanted: Any = self.n_components
        if wanted is None:
            return most
        whole = isinstance(wanted, Integral)
        if whole and 0 <= wanted <= most:
            return int(wanted)
        if not whole and isinstance(wanted, Real) and 0 < float(wanted) < 1:
            return float(wanted)
        raise ValueError(f"n_components={wanted!r} must be between 0 and min(n_samples, n_features)={most} with svd_solver='full', a share "
                         "between 0 and 1, or None")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.array_api_support = False
        return tags
