"""Algorithm 1 and every algorithm that it is compared with, each a pure step; step sizes; Theorem 2."""

from sottovoce.algorithm.descent import Descent
from sottovoce.algorithm.dual_averaging import DualAveraging
from sottovoce.algorithm.method import SEQUENCES, Method, Round, State, constant, linear
from sottovoce.algorithm.methods import METHODS

__all__ = [
    "METHODS",
    "SEQUENCES",
    "Descent",
    "DualAveraging",
    "Method",
    "Round",
    "State",
    "constant",
    "linear",
]
