"""Experiments over many runs: sweeps, every algorithm to compare with, comparisons, the paper."""

from sottovoce.experiments.baselines import BASELINES, Baseline, make_baseline
from sottovoce.experiments.compare.ranking import Line, summarise
from sottovoce.experiments.compare.study import Study
from sottovoce.experiments.compare.study import compare as run_study
from sottovoce.experiments.data import Dataset, load, split
from sottovoce.experiments.facts import Facts
from sottovoce.experiments.table import load_rows, save_rows

__all__ = [
    "BASELINES",
    "Baseline",
    "Dataset",
    "Facts",
    "Line",
    "Study",
    "load",
    "load_rows",
    "make_baseline",
    "run_study",
    "save_rows",
    "split",
    "summarise",
]
