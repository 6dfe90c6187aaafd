"""Estimators in the manner of scikit-learn: private linear models, and scalers that learn nothing from the data."""

from sottovoce.estimators.classifier import PrivateClassifier
from sottovoce.estimators.encoder import PublicEncoder
from sottovoce.estimators.hazard import PrivateSurvival
from sottovoce.estimators.poisson import PrivatePoissonRegressor
from sottovoce.estimators.regressor import PrivateRegressor
from sottovoce.estimators.search import PrivateSearchCV
from sottovoce.estimators.settings import PlanOptions
from sottovoce.estimators.survival import PrivateKaplanMeier
from sottovoce.estimators.transformers import PublicProjection, PublicScaler, RowNormalizer

__all__ = [
    "PlanOptions",
    "PrivateClassifier",
    "PrivateKaplanMeier",
    "PrivatePoissonRegressor",
    "PrivateRegressor",
    "PrivateSearchCV",
    "PrivateSurvival",
    "PublicEncoder",
    "PublicProjection",
    "PublicScaler",
    "RowNormalizer",
]
