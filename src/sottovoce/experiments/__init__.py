"""Experiments over many runs: sweeps, every algorithm to compare with, comparisons, the paper."""
