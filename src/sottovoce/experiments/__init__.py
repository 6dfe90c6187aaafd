"""Experiments over many runs: sweeps, every algorithm to compare with, comparisons, the paper."""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.experiments.baselines import BASELINES, Baseline, make_baseline
from sottovoce.experiments.compare.ranking import Line, draw_ranking, summarize
from sottovoce.experiments.compare.study import Study
from sottovoce.experiments.compare.study import compare as run_study
from sottovoce.experiments.data import Dataset, load, split
from sottovoce.experiments.inputs import BaselineInputs, stepped
from sottovoce.experiments.table import load_rows, save_rows
from sottovoce.experiments.wall_clock import wall_clock

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineInputs",
    "Dataset",
    "Line",
    "Study",
    "draw_ranking",
    "load",
    "load_rows",
    "make_baseline",
    "run_study",
    "save_rows",
    "split",
    "stepped",
    "summarize",
    "wall_clock",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
