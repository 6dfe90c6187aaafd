"""Algorithm 1 and every algorithm that it is compared with, each a pure step; step sizes; Theorem 2."""

from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import Method, State
from sottovoce.algorithm.methods import METHODS
from sottovoce.algorithm.stepsizes import SEQUENCES, constant, linear

__all__ = [
    "METHODS",
    "SEQUENCES",
    "Descent",
    "DualAveraging",
    "Method",
    "State",
    "constant",
    "linear",
]
