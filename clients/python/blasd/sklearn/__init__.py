"""scikit-learn's estimators, fitted by the service of `blasd.default`; their parameters and attributes are
scikit-learn's. Needs scikit-learn 1.2 or later (`pip install blasd[sklearn]`).

    from blasd.sklearn import LinearRegression
    LinearRegression().fit(X, y).predict(X)
"""
from .decomposition import PCA
from .linear_model import ElasticNet, GradientDescentRegressor, Lasso, LinearRegression, Ridge, RidgeCV
from .neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors, pairwise_distances

__all__ = ["PCA", "ElasticNet", "GradientDescentRegressor", "KNeighborsClassifier", "KNeighborsRegressor", "Lasso",
           "LinearRegression", "NearestNeighbors", "Ridge", "RidgeCV", "pairwise_distances"]
