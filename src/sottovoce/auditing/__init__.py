"""Attacks on one's own guarantee: `audit` says what ε a run has at least, beside what is stated that it has at most.

`bounds` turns counts into lower bounds, `worst` has the records that an attacker chooses, `stage` makes many real runs,
`scores` guesses, `attack` puts them together, `canaries` does it in a single run, `once` attacks releases beside the
rounds: moments of the records, counts of targets and of scores, sums for intervals, statistics,
evaluations, searches.
"""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.auditing.attack import Audit, audit, concluded
from sottovoce.auditing.bounds import Family, Rates, one_run_epsilon, one_run_scale, plain_epsilon, rates
from sottovoce.auditing.canaries import Canaries, OneRun
from sottovoce.auditing.one_shot import (
    attacked,
    audit_columns,
    audit_inference,
    audit_pre_release,
    audit_private_threshold,
    audit_statistics,
    audit_tally,
    audit_target_range,
)

__all__ = [
    "Audit",
    "Canaries",
    "Family",
    "OneRun",
    "Rates",
    "attacked",
    "audit",
    "audit_columns",
    "audit_inference",
    "audit_pre_release",
    "audit_private_threshold",
    "audit_statistics",
    "audit_tally",
    "audit_target_range",
    "concluded",
    "one_run_epsilon",
    "one_run_scale",
    "plain_epsilon",
    "rates",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
