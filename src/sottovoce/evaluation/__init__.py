"""Private evaluation: noisy tallies over held-out records, and what they say of a model. One code for all surfaces."""

from sottovoce.evaluation.private import Estimate, Evaluation, Held, Model, evaluate
from sottovoce.evaluation.tally import RIGHT, Part, Tally, seeded

__all__ = ["RIGHT", "Estimate", "Evaluation", "Held", "Model", "Part", "Tally", "evaluate", "seeded"]
