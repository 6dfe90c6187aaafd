"""The planner as a page: from a handful of public numbers to what a plan would give, what it sends, and how to run it.

The answers are the command's: the same `choose`, the same exact cost, the same accountant. No data is needed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from sottovoce.errors import SpecError
from sottovoce.pages.server import Page
from sottovoce.planner import PublicInputs, choose
from sottovoce.planner.cost import plan_cost
from sottovoce.planner.predict import SPREAD
from sottovoce.planner.trust import offers, read_trust
from sottovoce.privacy import ADVERSARIES, Theorem1, compare
from sottovoce.privacy.events import ADJACENCY

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Of the curve of accuracy against ε."""
MAX_VALUES = {"nodes": 100_000, "records": 10**9, "features": 10**6}
"""More than anybody has; so that a page cannot ask for a year's work."""
PAPER = {"iota": 0.1, "delta0": 0.01, "passes": 3}
"""The paper's experiments: two nodes of twenty awake, its δ₀, three passes over the data."""


@dataclass(frozen=True)
class Question:
    """What the page's controls say.

    Attributes
    ----------
    records : of each node
    trust : 'nobody', 'majority', 'center', or a number of nodes that may collude
    max_bytes : at most so many, of all nodes together; 0 for as many as it takes
    """

    nodes: int = 20
    records: int = 1000
    features: int = 50
    epsilon: float = 1.0
    delta: float = 1e-5
    trust: str = "nobody"
    max_bytes: float = 0.0

    def __post_init__(self) -> None:
        """Numbers that no plan has are errors."""
        for name, most in MAX_VALUES.items():
            if not 1 <= getattr(self, name) <= most:
                raise SpecError(f"{name} goes from 1 to {most:,}, not {getattr(self, name):,}")
        if not (0 < self.epsilon <= 1000 and 0 < self.delta < 1 and 0 <= self.max_bytes < math.inf):
            raise SpecError("ε is over 0 and at most 1000, δ between 0 and 1, and bytes are not negative")

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> "Question":
        """From the fields of an address."""
        unknown = set(fields) - set(cls.__dataclass_fields__)
        if unknown:
            raise SpecError(f"the planner's page has no field '{min(unknown)}'")
        try:
            whole = {k: int(v) for k, v in fields.items() if k in MAX_VALUES}
            real = {k: float(v) for k, v in fields.items() if k in ("epsilon", "delta", "max_bytes")}
        except ValueError:
            raise SpecError("nodes, records and features are whole numbers, and ε, δ and bytes are numbers") from None
        return cls(**whole, **real, trust=fields.get("trust", "nobody"))  # type: ignore[arg-type]

    @property
    def inputs(self) -> PublicInputs:
        """What the planner may know."""
        central = self.trust in ("center", "centre")
        sizes = (self.nodes * self.records,) if central else (self.records,) * self.nodes
        watching = read_trust(self.trust).adversary(len(sizes))
        return PublicInputs(
            sizes,
            self.features,
            self.epsilon,
            self.delta,
            adversary=watching,
            max_bytes=self.max_bytes or None,
            private_scaling=True,
            free=("loss", "penalty"),
        )

    @property
    def command(self) -> str:
        """What prints the same plan."""
        inputs = self.inputs
        bytes_ = f" --max-bytes {self.max_bytes:g}" if self.max_bytes else ""
        return (
            f"sottovoce plan --nodes {inputs.n} --records {inputs.sizes[0]} --features {self.features} "
            f"--epsilon {self.epsilon:g} --delta {self.delta:g} --trust {self.trust}{bytes_}"
        )

    @property
    def python(self) -> str:
        """The lines that train with it."""
        trust = self.trust if self.trust.isdigit() else repr(self.trust)
        return (
            "from sottovoce import PrivateClassifier\n\n"
            f"model = PrivateClassifier(epsilon={self.epsilon:g}, delta={self.delta:g}, trust={trust},\n"
            "                          row_norm=1.0, classes=[False, True])\n"
            "model.fit(X, y, nodes=owners)  # rows of length 1 at most: see PublicScaler\n"
            "print(model.privacy_.paragraph())"
        )


def answer(question: Question) -> dict[str, Any]:
    """All that the page shows for a question.

    Examples
    --------
    >>> found = answer(Question(nodes=20, records=5000, features=100))
    >>> found["loss"] < found["loss_high"], found["paper"]["true"] > 100
    (True, True)
    """
    inputs = question.inputs
    choice = choose(inputs)
    exact = plan_cost(choice.spec, np.array(inputs.sizes), inputs.m, inputs.epsilon)
    curve = [(epsilon, choose(replace(inputs, epsilon=epsilon)).predicted) for epsilon in EPSILONS]
    return {
        "loss": choice.predicted,
        "loss_low": SPREAD[0] * choice.predicted,
        "loss_high": SPREAD[1] * choice.predicted,
        "curve": [[epsilon, loss, SPREAD[0] * loss, SPREAD[1] * loss] for epsilon, loss in curve],
        "sigma": exact.sigma,
        "rounds": exact.rounds,
        "sampling": exact.sampling,
        "activation": exact.activation,
        "messages": exact.messages,
        "bytes": exact.bytes,
        "notices": _notices(inputs.epsilon, inputs.delta),
        "adversary": str(inputs.adversary),
        "sees": inputs.adversary.sees,
        "adjacency": ADJACENCY,
        "epsilon": inputs.epsilon,
        "delta": inputs.delta,
        "trust": [{"trust": o.trust, "words": o.words, "loss": o.loss} for o in offers(inputs)] if inputs.n > 1 else [],
        "reasons": list(choice.reasons),
        "paper": _paper(question.epsilon, question.delta, question.records),
        "command": question.command,
        "python": question.python,
    }


def _notices(epsilon: float, delta: float) -> float:
    """Return the largest true-positive rate in percent at a 1 % false-positive rate, by (ε, δ) alone."""
    alarm = 0.01
    return 100 * min(delta + math.exp(min(epsilon, 7.0)) * alarm, 1 - math.exp(-epsilon) * (1 - delta - alarm), 1.0)


@lru_cache(maxsize=1024)
def _paper(epsilon: float, delta: float, records: int) -> dict[str, float]:
    """The paper's formula for the same ε (1 at the most, as it requests), and what its noise gives."""
    claimed = min(epsilon, 1.0)
    rounds = max(1, round(PAPER["passes"] * records / PAPER["iota"]))
    noise = Theorem1(claimed, PAPER["delta0"], PAPER["iota"], 1.0, records, rounds)
    truth = compare(noise, ADVERSARIES.read("transcript"), delta)
    return {"claimed": claimed, "true": truth.epsilon, "sigma": noise.sigma}


STATIC: dict[str, tuple[Any, ...]] = {
    "nodes": (5, 20, 100),
    "records": (200, 1000, 5000),
    "features": (10, 100, 1000),
    "epsilon": (0.2, 0.5, 1, 2, 5),
    "delta": (1e-5,),
    "max_bytes": (0,),
}
"""The places of the page that is opened from a site, where nobody answers; and whom one may trust there."""
STATIC_TRUST = ("nobody", "majority", "centre")


def static() -> str:
    """The page with all its answers in it, for a site."""
    answers = {}
    for places in product(*(range(len(values)) for values in STATIC.values())):
        chosen = {name: STATIC[name][place] for name, place in zip(STATIC, places, strict=True)}
        for trust in STATIC_TRUST:
            answers[" ".join((*map(str, places), trust))] = answer(Question(**chosen, trust=trust))
    start = {"nodes": 20, "records": 1000, "features": 100, "epsilon": 1, "delta": 1e-5, "max_bytes": 0}
    return page({"places": STATIC, "trust": STATIC_TRUST, "start": start, "answers": answers}).html


def page(known: dict[str, Any] | None = None) -> Page:
    """The planner's page: served, or with answers that are known already."""
    return Page("planner", "What would privacy cost?", lambda fields: answer(Question.read(fields)), known or {})
