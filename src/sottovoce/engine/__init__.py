"""Engines run jobs round by round: the same trajectories from the same draws, at different speeds and places."""

from sottovoce.engine.job import (
    ENGINES,
    Device,
    Engine,
    Job,
    Randomness,
    check_engine,
    choose,
    engine_named,
    one_by_one,
    work,
)

__all__ = [
    "ENGINES",
    "Device",
    "Engine",
    "Job",
    "Randomness",
    "check_engine",
    "choose",
    "engine_named",
    "one_by_one",
    "work",
]
