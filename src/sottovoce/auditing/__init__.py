"""Attacks on one's own guarantee: `audit` says what ε a run has at least, beside what is stated that it has at most.

`bounds` turns counts into lower bounds, `worst` has the records that an attacker chooses, `stage` makes many real runs,
`scores` guesses, `attack` puts them together, `canaries` does it in a single run, `once` attacks releases beside the
rounds: the look at the shape of the data, counts of targets and of scores, statistics, evaluations, searches.
"""

from sottovoce.auditing.attack import Audit, audit, concluded
from sottovoce.auditing.bounds import Family, Rates, one_run_epsilon, one_run_scale, plain_epsilon, rates
from sottovoce.auditing.canaries import Canaries, OneRun
from sottovoce.auditing.once import attacked, audit_balance, audit_look, audit_statistics, audit_tally, audit_targets

__all__ = [
    "Audit",
    "Canaries",
    "Family",
    "OneRun",
    "Rates",
    "attacked",
    "audit",
    "audit_balance",
    "audit_look",
    "audit_statistics",
    "audit_tally",
    "audit_targets",
    "concluded",
    "one_run_epsilon",
    "one_run_scale",
    "plain_epsilon",
    "rates",
]
