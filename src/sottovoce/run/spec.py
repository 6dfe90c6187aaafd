"""A run, written down: everything that changes its mathematics, as frozen values.

Four parts, one for each package that uses them. A field takes a value, such as `l2(5e-4)` or `Edges(2)`, or its
text in the notation of `sottovoce.registry`; it holds the value, so that a wrong text is an error where it is written
and two spellings of one run are one `Spec`. ``str()`` of the values makes a spec JSON, readable in a saved result.
Settings that change only speed or evaluation are no part of it: see `Execution`.
"""

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sottovoce import limits
from sottovoce._renamed import old_attributes
from sottovoce.algorithm.dual_averaging import PRIMALS
from sottovoce.algorithm.method import ALL, COUNTED, SEQUENCES, Counted, Sequence, constant, inverse_sqrt, linear
from sottovoce.algorithm.methods import METHODS, MethodChoice
from sottovoce.display import Shown
from sottovoce.errors import SpecError
from sottovoce.features import ADDITIVE_OR_LINEAR, LINEAR, Features
from sottovoce.network.activation import ACTIVATIONS, Activation, Edges
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.dropouts import DROPOUTS, NO_DROPOUTS, Dropouts
from sottovoce.network.graphs import GRAPHS, Family
from sottovoce.network.mixing import GOSSIP, METROPOLIS, WEIGHTS, Averaging, Rule
from sottovoce.privacy.accounting import check_delta
from sottovoce.privacy.calibration import NOISES, Noise, NoNoise
from sottovoce.privacy.distribution import DISTRIBUTIONS, Distribution
from sottovoce.privacy.inference import INFERENCES, MAX_SHARE_WITH_INFERENCE, Inference
from sottovoce.privacy.one_shot import BALANCES, MAX_SHARE, MOMENTS, QUANTILES, Balance, Moments, OneShot, Quantiles
from sottovoce.privacy.release import ADVERSARIES, LAWS, Adversary, GaussianChoice, MechanismChoice, Transcript
from sottovoce.privacy.sampling import SAMPLINGS, Fixed, Sampling
from sottovoce.problem import objective
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByNode, Weights
from sottovoce.problem.regularizers import DISTANCES, REGULARIZERS, Distance, Euclidean, Regularizer, l2
from sottovoce.registry import Field

ON_VIOLATION = ("raise", "clip")
ONE_SHOT = ("moments", "quantiles", "distribution", "balance", "inference")
"""Fields of a `PrivacySpec` that are one-shot releases, in the order in which they are made."""


@dataclass(frozen=True)
class ProblemSpec:
    """eq. (1): which loss, which h, how nodes are weighed, and the public bound of a row."""

    loss: Field[Loss] = Field(LOSSES, LOSSES.make("hinge"))
    """l, the loss of one record."""
    h: Field[Regularizer] = Field(REGULARIZERS, l2(5e-4))
    """h, the regularizer."""
    weights: Field[Weights] = Field(objective.WEIGHTS, ByNode())
    """Whether nodes count equally or by their records."""
    intercept: float = 0.0
    """B, the constant value of the intercept's column; 0 for no intercept."""
    row_norm: float = 1.0
    """R, the public bound on ‖c‖, without the intercept's column."""
    on_violation: str = "raise"
    """What to do about a row over the bound: 'raise', or 'clip' its subgradients."""
    outputs: int = 1
    """K: with 2 or more, targets are class numbers 0 … K − 1 and each class has weights of its own."""
    features: Field[Features] = Field(ADDITIVE_OR_LINEAR, LINEAR)
    """The public map of columns that rows went through: 'linear' for none, or functions of numeric columns."""

    def __post_init__(self) -> None:
        """Bounds that are bounds."""
        if not 0 <= self.intercept < math.inf:
            raise SpecError(f"the intercept's column needs a value over 0 (or 0 for none), not {self.intercept}")
        if not 0 < self.row_norm < math.inf:
            raise SpecError(f"the public bound of a row must be finite and over 0, not {self.row_norm}")
        limits.check_length("the public bound of a row", self.row_norm)
        limits.check_length("the value of the intercept's column", self.intercept, zero=True)
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
    """Links between nodes."""
    activation: Field[Activation] = Field(ACTIVATIONS, Edges(1))
    """Which nodes speak in a round."""
    weights: Field[Rule] = Field(WEIGHTS, METROPOLIS)
    """W, the mixing weights of the links of a round."""
    every: int = 1
    """Nodes mix in every so many-th round only, and step alone in between."""
    correct: bool = False
    """Whether to weigh nodes by ῑ/ι_i where the scheme activates them unevenly."""
    dropouts: Field[Dropouts] = Field(DROPOUTS, NO_DROPOUTS)
    """Which nodes a simulation loses: 'none', 'random(count)' or 'at(node, round, node, round, …)'."""
    averaging: Field[Averaging] = Field(AVERAGINGS, GOSSIP)
    """What is done with the messages of a round: 'gossip', 'gossip(k)', 'exact', 'clipped(radius)' or 'trimmed(f)'."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """Which algorithm, with which step sizes; the paper's by default."""

    rounds: int
    """T, the number of rounds."""
    method: Field[MethodChoice] = Field(METHODS, METHODS.make("dual_averaging"))
    """The algorithm: what a node does in a round."""
    a: Field[Sequence] = Field(SEQUENCES, linear(1))
    """a_t: the weights of the running average and, in dual averaging, of the subgradients."""
    gamma: Field[Sequence] = Field(SEQUENCES, constant(20))
    """γ_t of dual averaging."""
    eta: Field[Sequence] = Field(SEQUENCES, inverse_sqrt(1))
    """η_t of descent methods."""
    distance: Field[Distance] = Field(DISTANCES, Euclidean())
    """d; 'euclidean(x₀, …)' has a center."""
    primal: str = "recompute"
    """x of a node that sleeps: 'recompute' from z, or 'as_written', the last one."""
    curvature: float = 0.0
    """μ_f, a strong convexity of the loss that dual averaging may use."""
    counted: Field[Counted] = Field(COUNTED, ALL)
    """Which rounds count in the model that is put out: 'all', as in the paper, or 'tail(share)', the last ones."""

    def __post_init__(self) -> None:
        """Rounds are counted, and x of a sleeping node is one of two."""
        if not isinstance(self.rounds, int) or self.rounds < 1:
            raise SpecError(f"a run needs a whole number of rounds, at least one round, not {self.rounds!r}")
        limits.check_count("the number of rounds", self.rounds, limits.ROUNDS)
        if self.primal not in PRIMALS:
            raise SpecError(f"x of a sleeping node is '{PRIMALS[0]}' or '{PRIMALS[1]}', not {self.primal!r}")


@dataclass(frozen=True)
class PrivacySpec:
    """The noise and clipping of a node's releases, and the adversary."""

    sampling: Field[Sampling] = Field(SAMPLINGS, Fixed(1))
    """Which records a node uses in a round."""
    noise: Field[Noise] = Field(NOISES, NoNoise())
    """'private(ε)': as much as a true (ε, δ) needs; 'gaussian(σ)'; 'theorem1(ε, δ₀)', the paper's; or 'none'."""
    law: Field[MechanismChoice] = Field(LAWS, GaussianChoice())
    """How the noise is made: 'gaussian', 'laplace', 'pairs(ratio, node, …)' with a coalition of nodes, or 'tree'."""
    delta: float = 1e-5
    """δ of the guarantee, and of the statement in any case."""
    clip: float | None = None
    """L; by default the loss's slope bound times the public bound of a row."""
    adversary: Field[Adversary] = Field(ADVERSARIES, Transcript())
    """Against whom the guarantee holds."""
    moments: Field[Moments] = Field(MOMENTS, Moments())
    """The private scaling before the first round: 'none' or 'moments(length, center, scale, power)'."""
    quantiles: Field[Quantiles] = Field(QUANTILES, Quantiles())
    """What is released of a regression's targets, within [−1, 1], before the first round: 'none' or 'quantiles(share)'.
    Loss and regularizer then speak of targets in units of half the range that is found."""
    distribution: Field[Distribution] = Field(DISTRIBUTIONS, Distribution())
    """What is released of the columns of an additive model before the first round: 'none' or 'distribution(share,
    columns, mean, others)'."""
    may_lose: int = 0
    """How many nodes may be lost while the others go on: their releases that are made anew are accounted."""
    balance: Field[Balance] = Field(BALANCES, Balance())
    """What is released of two classes' scores after the last round, for the constant term: 'none', 'balance(share,
    prior, weight)' or, where no prior is known, 'balance(share)'."""
    inference: Field[Inference] = Field(INFERENCES, Inference())
    """What is released after the last round for confidence intervals: 'none' or 'inference(share, scale, longest)'."""

    def __post_init__(self) -> None:
        """A δ and a clip that mean something, and at most one release before the first round."""
        check_delta(self.delta)
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise SpecError(f"the clip must be finite and over 0, not {self.clip}")
        if self.clip is not None:
            limits.check_length("the clip", self.clip)
        if not isinstance(self.may_lose, int) or isinstance(self.may_lose, bool) or self.may_lose < 0:
            raise SpecError(f"how many nodes may be lost is a whole number, 0 or more, not {self.may_lose!r}")
        first = [release for release in self.one_shot if not release.after_rounds]
        if len(first) > 1:
            raise SpecError(
                f"a run releases '{first[0]}' or '{first[1]}' before the first round, not both; leave one of them out"
            )
        last = [release for release in self.one_shot if release.after_rounds]
        if len(last) > 1:
            raise SpecError(
                f"a run releases '{last[0]}' or '{last[1]}' after the last round, not both; leave one of them out"
            )
        kinds = {release.targets: release for release in self.one_shot if release.targets is not None}
        if len(kinds) > 1:
            real, binary = kinds["real"], kinds["binary"]
            raise SpecError(
                f"'{real}' is of a regression's targets and '{binary}' of two classes, and no run has both; leave one "
                "of them out"
            )
        most = MAX_SHARE_WITH_INFERENCE if self.inference else MAX_SHARE
        if self.shares > most:
            release = " and ".join(f"'{release}'" for release in self.one_shot)
            raise SpecError(
                f"{release} take {self.shares:g} of the budget together, and {most:g} is the most; make one "
                "of the shares smaller"
            )

    @property
    def one_shot(self) -> tuple[OneShot, ...]:
        """All one-shot releases, in the order in which they are made."""
        found = ((getattr(self, name), getattr(type(self), name)) for name in ONE_SHOT)
        return tuple(release for release, nothing in found if release != nothing)

    @property
    def pre_release(self) -> OneShot | None:
        """What is released of all records once, before the first round."""
        return next((release for release in self.one_shot if not release.after_rounds), None)

    @property
    def post_release(self) -> OneShot | None:
        """What is released of all records once, after the last round."""
        return next((release for release in self.one_shot if release.after_rounds), None)

    @property
    def shares(self) -> float:
        """What part of the budget the one-shot releases take together."""
        return math.fsum(release.total for release in self.one_shot)


@old_attributes
@dataclass(frozen=True, repr=False)
class Spec(Shown):
    """All of a run but its data.

    Examples
    --------
    >>> spec = Spec(AlgorithmSpec(rounds=1000), seed=1)
    >>> Spec.from_json(spec.to_json()) == spec
    True
    >>> spec.replace(problem__h="l2(5e-4)") == spec.replace(problem__h="l2:0.0005") == spec
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

    def _entries(self) -> dict[str, str]:
        said = self.to_dict()
        seed = said.pop("seed")
        rows = {name: ", ".join(f"{key}={value}" for key, value in part.items()) for name, part in said.items()}
        return rows | {"seed": "none: the key is secret" if seed is None else f"{seed}: a simulation"}

    def __getstate__(self) -> dict[str, Any]:
        """Of a pickle: plain values, which skops takes too; formulas are found by their names again."""
        return self.to_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read `__getstate__` back."""
        vars(self).update(vars(Spec.from_dict(state)))

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

    def replace(self, **changes: Any) -> "Spec":
        """The same spec with some fields of its parts changed, named as part__field.

        Examples
        --------
        >>> str(Spec(AlgorithmSpec(rounds=10)).replace(network__activation="everyone", seed=3).network.activation)
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
        """Return whether the specs differ in noise and seed at most.

        Examples
        --------
        >>> spec = Spec(AlgorithmSpec(rounds=10), seed=1)
        >>> others = spec.replace(privacy__noise="gaussian(2)", seed=5), spec.replace(privacy__clip=1.0)
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
    """The number of rounds to evaluate, outside the mechanism and not private (for simulations). None evaluates no
    round: then only the mechanism's releases depend on the data, and the history stays empty."""
    runs: int = 1
    """Of about how many such runs this is one: with many, 'auto' compiles sooner, since the engine is loaded once."""


LATER = {"averaging", "counted", "dropouts", "features", "may_lose", *ONE_SHOT}
"""Fields that version 0.1 had not: left out where they say what it did, so that a run has one digest in both."""


def _plain(part: Any) -> dict[str, Any]:
    values = {f.name: getattr(part, f.name) for f in fields(part)}
    values = {name: v for name, v in values.items() if name not in LATER or v != getattr(type(part), name)}
    if isinstance(part, AlgorithmSpec):  # a center may be long: numbers beside the distance's name
        center = part.distance.center if isinstance(part.distance, Euclidean) else None
        values |= {"centre": None} if center is None else {"distance": "euclidean", "centre": list(center)}
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
        center = data.pop("centre")
        data["distance"] = data["distance"] if center is None else Euclidean(tuple(center))
    _same_fields(kind, data)
    return kind(**data)
