"""Experiments over many runs: sweeps, every algorithm to compare with, comparisons, the paper."""

from sottovoce.experiments.sweep import sweep

__all__ = ["sweep"]
