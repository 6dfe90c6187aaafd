"""A run written down, built, run and kept: `Spec` in, `Result` out."""

from sottovoce.run.build import Prepared, Public, prepare
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import History, Observation, Result
from sottovoce.run.solve import simulate
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec

__all__ = [
    "PRESETS",
    "AlgorithmSpec",
    "Execution",
    "History",
    "NetworkSpec",
    "Observation",
    "Prepared",
    "PrivacySpec",
    "ProblemSpec",
    "Public",
    "Result",
    "Spec",
    "prepare",
    "simulate",
]
