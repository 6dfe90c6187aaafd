"""A run written down, built, run and kept: `Spec` in, `Result` out."""

from sottovoce.run.build import Prepared, prepare
from sottovoce.run.plan import Plan, Public, Request, plan_public
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import History, Observation, Result
from sottovoce.run.solve import Run, RunOptions, run_batch
from sottovoce.run.spec import AlgorithmSpec, Execution, NetworkSpec, PrivacySpec, ProblemSpec, Spec

__all__ = [
    "PRESETS",
    "AlgorithmSpec",
    "Execution",
    "History",
    "NetworkSpec",
    "Observation",
    "Plan",
    "Prepared",
    "PrivacySpec",
    "ProblemSpec",
    "Public",
    "Request",
    "Result",
    "Run",
    "RunOptions",
    "Spec",
    "plan_public",
    "prepare",
    "run_batch",
]
