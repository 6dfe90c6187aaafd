"""A run, written down: everything that changes its mathematics, as frozen values.

Four parts, one for each folder that they speak to. A field takes a value, such as `l2(5e-4)` or `Edges(2)`, or its
text in the notation of `sottovoce.notation`; it holds the value, so that a wrong text is an error where it is written
and two spellings of one run are one `Spec`. ``str()`` of the values makes a spec JSON, readable in a saved result. What
changes only speed or what is watched is no part of it: see `Execution`.
"""

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sottovoce import within
from sottovoce.algorithm.dual_averaging import PRIMALS
from sottovoce.algorithm.method import ALL, COUNTED, SEQUENCES, Counted, Sequence, constant, inverse_sqrt, linear
from sottovoce.algorithm.methods import METHODS, MethodChoice
from sottovoce.errors import SpecError
from sottovoce.network.activation import ACTIVATIONS, Activation, Edges
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import GRAPHS, Family
from sottovoce.network.mixing import GOSSIP, METROPOLIS, WEIGHTS, Averaging, Rule
from sottovoce.notation import Field
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.balance import BALANCES, NO_BALANCE, Balance
from sottovoce.privacy.calibration import NOISES, Noise, NoNoise
from sottovoce.privacy.moments import MOMENTS, MOST, NO_MOMENTS, Moments
from sottovoce.privacy.quantiles import NO_QUANTILES, QUANTILES, Quantiles
from sottovoce.privacy.release import ADVERSARIES, LAWS, Adversary, GaussianLaw, LawChoice, Transcript
from sottovoce.privacy.sampling import SAMPLINGS, Fixed, Sampling
from sottovoce.problem import objective
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByNode, Weights
from sottovoce.problem.regularisers import DISTANCES, REGULARISERS, Distance, Euclidean, Regulariser, l2

ON_VIOLATION = ("raise", "clip")


@dataclass(frozen=True)
class ProblemSpec:
    """eq. (1): which loss, which h, how nodes are weighed, and the public bound of a row."""

    loss: Field[Loss] = Field(LOSSES, LOSSES.make("hinge"))
    h: Field[Regulariser] = Field(REGULARISERS, l2(5e-4))
    weights: Field[Weights] = Field(objective.WEIGHTS, ByNode())
    intercept: float = 0.0
    """B, the constant value of the intercept's column; 0 for no intercept."""
    row_norm: float = 1.0
    """R, the public bound on ‖c‖, without the intercept's column."""
    on_violation: str = "raise"
    """What to do about a row over the bound: 'raise', or 'clip' its subgradients."""
    outputs: int = 1
    """K: with 2 or more, targets are class numbers 0 … K − 1 and each class has weights of its own."""

    def __post_init__(self) -> None:
        """Bounds that are bounds."""
        if not 0 <= self.intercept < math.inf:
            raise SpecError(f"the intercept's column needs a value over 0 (or 0 for none), not {self.intercept}")
        if not 0 < self.row_norm < math.inf:
            raise SpecError(f"the public bound of a row must be finite and over 0, not {self.row_norm}")
        within.check_length("the public bound of a row", self.row_norm)
        within.check_length("the value of the intercept's column", self.intercept, zero=True)
        if self.on_violation not in ON_VIOLATION:
            raise SpecError(f"on_violation must be 'raise' or 'clip', not {self.on_violation!r}")

    @property
    def row_bound(self) -> float:
        """√(R² + B²), the public bound of a row with the intercept's column."""
        return math.hypot(self.row_norm, self.intercept)


@dataclass(frozen=True)
class NetworkSpec:
    """Who is linked with whom, and who speaks in a round."""

    graph: Field[Family] = Field(GRAPHS, GRAPHS.make("complete"))
    activation: Field[Activation] = Field(ACTIVATIONS, Edges(1))
    weights: Field[Rule] = Field(WEIGHTS, METROPOLIS)
    every: int = 1
    """Nodes mix in every so many-th round only, and step alone in between."""
    correct: bool = False
    """Whether to weigh nodes by ῑ/ι_i where the scheme activates them unevenly."""
    averaging: Field[Averaging] = Field(AVERAGINGS, GOSSIP)
    """What is done with the messages of a round: 'gossip', 'gossip(k)', 'exact', 'clipped(radius)' or 'trimmed(f)'."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """Which algorithm, with which step sizes; the paper's by default."""

    rounds: int
    method: Field[MethodChoice] = Field(METHODS, METHODS.make("dual_averaging"))
    a: Field[Sequence] = Field(SEQUENCES, linear(1))
    """a_t: the weights of the running average and, in dual averaging, of the subgradients."""
    gamma: Field[Sequence] = Field(SEQUENCES, constant(20))
    """γ_t of dual averaging."""
    eta: Field[Sequence] = Field(SEQUENCES, inverse_sqrt(1))
    """η_t of descent methods."""
    distance: Field[Distance] = Field(DISTANCES, Euclidean())
    """d; 'euclidean(x₀, …)' has a centre."""
    primal: str = "recompute"
    curvature: float = 0.0
    counted: Field[Counted] = Field(COUNTED, ALL)
    """Which rounds count in the model that is put out: 'all', as in the paper, or 'tail(share)', the last ones."""

    def __post_init__(self) -> None:
        """Rounds are counted, and x of a sleeping node is one of two."""
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise SpecError(f"a run needs a whole number of rounds, at least one round, not {self.rounds!r}")
        within.check_count("the number of rounds", self.rounds, within.ROUNDS)
        if self.primal not in PRIMALS:
            raise SpecError(f"x of a sleeping node is '{PRIMALS[0]}' or '{PRIMALS[1]}', not {self.primal!r}")


@dataclass(frozen=True)
class PrivacySpec:
    """What a node lets out in an active round, and who is watching."""

    sampling: Field[Sampling] = Field(SAMPLINGS, Fixed(1))
    noise: Field[Noise] = Field(NOISES, NoNoise())
    """'private(ε)': as much as a true (ε, δ) needs; 'gaussian(σ)'; 'theorem1(ε, δ₀)', the paper's; or 'none'."""
    law: Field[LawChoice] = Field(LAWS, GaussianLaw())
    """How the noise is made: 'gaussian', 'laplace', 'pairs(ratio, node, …)' with a coalition of nodes, or 'tree'."""
    delta: float = 1e-5
    """δ of the guarantee, and of the statement in any case."""
    clip: float | None = None
    """L; by default the loss's slope bound times the public bound of a row."""
    adversary: Field[Adversary] = Field(ADVERSARIES, Transcript())
    moments: Field[Moments] = Field(MOMENTS, NO_MOMENTS)
    """What is let out of the data's shape before the first round: 'none' or 'moments(length, centre, scale, power)'."""
    quantiles: Field[Quantiles] = Field(QUANTILES, NO_QUANTILES)
    """What is let out of a regression's targets, within [−1, 1], before the first round: 'none' or 'quantiles(share)'.
    Loss and regulariser then speak of targets in units of half the range that is found."""
    balance: Field[Balance] = Field(BALANCES, NO_BALANCE)
    """What is let out of two classes' scores after the last round, for the constant term: 'none' or 'balance(share,
    prior, weight)'."""

    def __post_init__(self) -> None:
        """A δ and a clip that mean something, and one look before the first round."""
        check_delta(self.delta)
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise SpecError(f"the clip must be finite and over 0, not {self.clip}")
        if self.clip is not None:
            within.check_length("the clip", self.clip)
        if self.moments != NO_MOMENTS and self.quantiles != NO_QUANTILES:
            raise SpecError(
                f"a run lets out '{self.moments}' of its rows or '{self.quantiles}' of its targets before the first "
                "round, not both; leave one of them out"
            )
        if self.quantiles != NO_QUANTILES and self.balance != NO_BALANCE:
            raise SpecError(
                f"'{self.quantiles}' is of a regression's targets and '{self.balance}' of two classes, and no run has "
                "both; leave one of them out"
            )
        if self.balance != NO_BALANCE and self.shares > MOST:
            raise SpecError(
                f"'{self.moments}' and '{self.balance}' take {self.shares:g} of the budget together, and {MOST:g} is "
                "the most; make one of the shares smaller"
            )

    @property
    def once(self) -> Moments | Quantiles | None:
        """What is let out of all records once, before the first round."""
        if self.moments != NO_MOMENTS:
            return self.moments
        return None if self.quantiles == NO_QUANTILES else self.quantiles

    @property
    def looks(self) -> tuple[Moments | Quantiles | Balance, ...]:
        """All that is let out of all records once, before the first round or after the last."""
        first = () if self.once is None else (self.once,)
        return first if self.balance == NO_BALANCE else (*first, self.balance)

    @property
    def shares(self) -> float:
        """What of the budget that takes together."""
        return math.fsum(look.total for look in self.looks)


@dataclass(frozen=True)
class Spec:
    """All of a run but its data.

    Examples
    --------
    >>> spec = Spec(AlgorithmSpec(rounds=1000), seed=1)
    >>> Spec.from_json(spec.to_json()) == spec
    True
    >>> spec.but(problem__h="l2(5e-4)") == spec.but(problem__h="l2:0.0005") == spec
    True
    """

    algorithm: AlgorithmSpec
    problem: ProblemSpec = field(default_factory=ProblemSpec)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    privacy: PrivacySpec = field(default_factory=PrivacySpec)
    seed: int | None = None
    """An integer makes the run a reproducible simulation; None draws a secret key from the operating system."""

    def __post_init__(self) -> None:
        """A seed is a number."""
        if self.seed is not None and (isinstance(self.seed, bool) or not hasattr(self.seed, "__index__")):
            raise SpecError(f"a seed is a whole number that is not negative, not {self.seed!r}")

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries of plain values; choices in their notation."""
        return {name: _plain(getattr(self, name)) for name in PARTS} | {"seed": self.seed}

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Spec":
        """Read `to_dict` back, of this version or of 0.1; an unknown or a missing field is an error, not a default."""
        try:
            _same_fields(cls, data)
            parts = {name: _part(kind, data[name]) for name, kind in PARTS.items()}
            return cls(**parts, seed=data["seed"])
        except (TypeError, AttributeError, OverflowError):  # a list where a number should be, and the like
            raise SpecError("this is no spec of a run: a part of it is of another kind than it should be") from None

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """Read `to_json` back."""
        return cls.from_dict(json.loads(text))

    def but(self, **changes: Any) -> "Spec":
        """The same spec with some fields of its parts changed, named as part__field.

        Examples
        --------
        >>> str(Spec(AlgorithmSpec(rounds=10)).but(network__activation="everyone", seed=3).network.activation)
        'everyone'
        """
        new: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            part, _, name = key.partition("__")
            (parts.setdefault(part, {}) if name else new)[name or part] = value
        new |= {part: replace(getattr(self, part), **changed) for part, changed in parts.items()}
        return replace(self, **new)

    def same_but_noise(self, other: "Spec") -> bool:
        """Whether all is the same but for noise and seed, at the most.

        Examples
        --------
        >>> spec = Spec(AlgorithmSpec(rounds=10), seed=1)
        >>> others = spec.but(privacy__noise="gaussian(2)", seed=5), spec.but(privacy__clip=1.0)
        >>> [spec.same_but_noise(other) for other in others]
        [True, False]
        """
        parts = ((getattr(self, part), getattr(other, part)) for part in PARTS if part != "privacy")
        return all(mine == its for mine, its in parts) and all(
            getattr(self.privacy, f.name) == getattr(other.privacy, f.name)
            for f in fields(PrivacySpec)
            if f.name != "noise"
        )


PARTS: dict[str, Any] = {
    "algorithm": AlgorithmSpec,
    "problem": ProblemSpec,
    "network": NetworkSpec,
    "privacy": PrivacySpec,
}


@dataclass(frozen=True)
class Execution:
    """What may change speed and what is watched, but no result beyond rounding."""

    engine: str = "auto"
    """A name in `sottovoce.engine.ENGINES`; 'auto' compiles where that pays (its noise is float32: 3e-7 relative)."""
    observations: int | None = 40
    """At how many rounds the run is looked at (in simulation: this is outside the mechanism, and not private); None for
    never: then nothing of the data is seen but what the mechanism lets out, and the history stays empty."""
    runs: int = 1
    """Of about how many such runs this is one: with many, 'auto' compiles sooner, since the engine is loaded once."""


LATER = {"averaging", "counted", "moments", "quantiles", "balance"}
"""Fields that version 0.1 had not: left out where they say what it did, so that a run has one digest in both."""


def _plain(part: Any) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in fields(part)}
    values = {name: v for name, v in values.items() if name not in LATER or v != getattr(type(part), name)}
    if isinstance(part, AlgorithmSpec):  # a centre, long as it may be, is numbers beside the distance's name
        centre = part.distance.centre if isinstance(part.distance, Euclidean) else None
        values |= {"centre": None} if centre is None else {"distance": "euclidean", "centre": list(centre)}
    plain = (bool, int, float, str, list, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in values.items()}


def _same_fields(kind: Any, data: dict[str, Any]) -> None:
    expected = {f.name for f in fields(kind)}
    odd = ", ".join(sorted((set(data) ^ expected) - (LATER & expected)))
    if odd:
        raise SpecError(f"this {kind.__name__} does not fit this version of sottovoce: {odd} missing or unknown")


def _part(kind: Any, data: dict[str, Any]) -> Any:
    if kind is AlgorithmSpec and "centre" in data:
        data = dict(data)
        centre = data.pop("centre")
        data["distance"] = data["distance"] if centre is None else Euclidean(tuple(centre))
    _same_fields(kind, data)
    return kind(**data)
