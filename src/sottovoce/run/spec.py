"""A run, written down: everything that changes its mathematics, as plain text and numbers.

Four parts, one for each folder that they speak to. Choices are written in the notation of `sottovoce.notation`, such
as ``l2(5e-4)`` or ``edges(2)``, so that a spec is JSON, hashable, comparable, and readable in a saved result. What
changes only speed or what is watched is no part of it: see `Execution`.
"""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sottovoce.errors import SpecError


@dataclass(frozen=True)
class ProblemSpec:
    """eq. (1): which loss, which h, how nodes are weighed, and the public bound of a row."""

    loss: str = "hinge"
    h: str = "l2(0.0005)"
    weights: str = "nodes"
    intercept: float = 0.0
    """B, the constant value of the intercept's column; 0 for no intercept."""
    row_norm: float = 1.0
    """R, the public bound on ‖c‖, without the intercept's column."""
    on_violation: str = "raise"
    """What to do about a row over the bound: 'raise', or 'clip' its subgradients."""
    outputs: int = 1
    """K: with 2 or more, targets are class numbers 0 … K − 1 and each class has weights of its own."""


@dataclass(frozen=True)
class NetworkSpec:
    """Who is linked with whom, and who speaks in a round."""

    graph: str = "complete"
    activation: str = "edges(1)"
    weights: str = "metropolis"
    every: int = 1
    """Nodes mix in every so many-th round only, and step alone in between."""
    correct: bool = False
    """Whether to weigh nodes by ῑ/ι_i where the scheme activates them unevenly."""


@dataclass(frozen=True)
class AlgorithmSpec:
    """Which algorithm, with which step sizes; the paper's by default."""

    rounds: int
    method: str = "dual_averaging"
    a: str = "linear(1)"
    """a_t: the weights of the running average and, in dual averaging, of the subgradients."""
    gamma: str = "constant(20)"
    """γ_t of dual averaging."""
    eta: str = "inverse_sqrt(1)"
    """η_t of descent methods."""
    distance: str = "euclidean"
    centre: tuple[float, ...] | None = None
    primal: str = "recompute"
    curvature: float = 0.0


@dataclass(frozen=True)
class PrivacySpec:
    """What a node lets out in an active round, and who is watching."""

    sampling: str = "one"
    noise: str = "none"
    """'private(ε)': as much as a true (ε, δ) needs; 'gaussian(σ)'; 'theorem1(ε, δ₀)', the paper's; or 'none'."""
    law: str = "gaussian"
    """How the noise is made: 'gaussian', 'laplace', 'pairs(ratio, node, …)' with a coalition of nodes, or 'tree'."""
    delta: float = 1e-5
    """δ of the guarantee, and of the statement in any case."""
    clip: float | None = None
    """L; by default the loss's slope bound times the public bound of a row."""
    adversary: str = "transcript"


@dataclass(frozen=True)
class Spec:
    """All of a run but its data.

    Examples
    --------
    >>> spec = Spec(AlgorithmSpec(rounds=1000), seed=1)
    >>> Spec.from_json(spec.to_json()) == spec
    True
    """

    algorithm: AlgorithmSpec
    problem: ProblemSpec = field(default_factory=ProblemSpec)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    privacy: PrivacySpec = field(default_factory=PrivacySpec)
    seed: int | None = None
    """An integer makes the run a reproducible simulation; None draws a secret key from the operating system."""

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries of plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Spec":
        """Read `to_dict` back; an unknown or a missing field is an error, not a default."""
        parts = {"algorithm": AlgorithmSpec, "problem": ProblemSpec, "network": NetworkSpec, "privacy": PrivacySpec}
        _same_fields(cls, data)
        values = {name: _part(kind, data[name]) for name, kind in parts.items()}
        return cls(**values, seed=data["seed"])

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """Read `to_json` back."""
        return cls.from_dict(json.loads(text))

    def but(self, **changes: Any) -> "Spec":
        """The same spec with some fields of its parts changed, named as part__field.

        Examples
        --------
        >>> Spec(AlgorithmSpec(rounds=10)).but(network__activation="everyone", seed=3).network.activation
        'everyone'
        """
        spec = self
        for key, value in changes.items():
            part, _, name = key.partition("__")
            spec = replace(spec, **{part: replace(getattr(spec, part), **{name: value}) if name else value})
        return spec


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


def _same_fields(kind: Any, data: dict[str, Any]) -> None:
    expected = {f.name for f in fields(kind)}
    if set(data) != expected:
        odd = ", ".join(sorted(set(data) ^ expected))
        raise SpecError(f"this {kind.__name__} does not fit this version of sottovoce: {odd} missing or unknown")


def _part(kind: Any, data: dict[str, Any]) -> Any:
    _same_fields(kind, data)
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})
