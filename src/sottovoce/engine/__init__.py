"""Engines run jobs round by round: the same trajectories from the same draws, at different speeds and places."""

from sottovoce.engine.job import ENGINES, Engine, Job, Randomness, check_engine, choose, one_by_one, work

__all__ = ["ENGINES", "Engine", "Job", "Randomness", "check_engine", "choose", "one_by_one", "work"]
