"""The base of the estimators: scikit-learn's checks of inputs and parameters, and the client in worker processes."""
from __future__ import annotations

from numbers import Integral
from typing import Any

from joblib.externals.loky.backend import reduction
from sklearn.base import BaseEstimator

from ..default import Inheritance, for_worker


def validate(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """scikit-learn's own checks; where they stand depends on its version."""
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6
        return estimator._validate_data(X, y, **options)
    return validate_data(estimator, X, y, **options)


def number(estimator: Any, name: str, kind: Any, low: float, strict: bool = False) -> None:
    value = getattr(estimator, name)
    wrong = not isinstance(value, kind) or isinstance(value, bool) or value < low or (strict and value == low)
    if wrong:
        raise ValueError(f"The '{name}' parameter of {type(estimator).__name__} must be "
                         f"{'an int' if kind is Integral else 'a float'} {'above' if strict else 'of at least'} {low}. "
                         f"Got {value!r} instead.")


def fixed(estimator: Any, **only: tuple[Any, ...]) -> None:
    """Rejects options of scikit-learn that the service does not have."""
    for name, values in only.items():
        value = getattr(estimator, name)
        if not any(value is one or (isinstance(one, str) and value == one) for one in values):
            raise ValueError(f"The '{name}' parameter of {type(estimator).__name__} must be "
                             f"{' or '.join(map(repr, values))} here. Got {value!r} instead.")


reduction.register(Inheritance, for_worker)  # joblib has a pickler of its own


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Takes the default client along to the worker processes that fit it, as those of GridSearchCV(…, n_jobs=2)."""

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {**state, "_inheritance": Inheritance()}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__({name: value for name, value in state.items() if name != "_inheritance"})
