"""What every algorithm is to an engine: a state, one step of the active rows, and what it puts out; and its sequences.

A method is written once, as a pure function of the active rows' state, the draws and a `mix`: the reference engine
calls `step` on several rows with a matrix product for `mix`, a real node on its one row with an exchange over the
network. It examines the data through `gradient` alone, once a step, and what it gets is already clipped; all else that
it computes from must be public or already noised, because that one evaluation is what is accounted for.

The sequences that it steps by, a_t, γ_t and η_t, are arrays of length T: data, not callbacks. a_t = t with constant γ
is for a strongly convex h (Corollaries 1 and 3; the experiments take γ = 20), a_t = 1 with γ_t = γ√t for a merely
convex one (Corollaries 2 and 4; γ = 0.01).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import Array, IntArray
from sottovoce.errors import SpecError
from sottovoce.registry import Choices, Chosen


class State(NamedTuple):
    """What a node carries from one round to the next; axis 0 counts the nodes held here."""

    z: Array
    """(rows, m) what is sent and mixed: the dual variables z_i of dual averaging, the models x_i of descent methods."""
    total: Array
    """(rows, m) Σ_{τ<since} a_τ x_i^(τ)."""
    since: IntArray
    """(rows,) the first round whose x_i is not in `total` yet: one after the node's last active round."""
    memory: Array
    """(rows, k, m) what else a method remembers; k = 0 for most."""

    def at(self, rows: IntArray) -> "State":
        """The state of some rows, copied."""
        return State(self.z[rows], self.total[rows], self.since[rows], self.memory[rows])

    def copy(self) -> "State":
        """All of it, copied."""
        return State(self.z.copy(), self.total.copy(), self.since.copy(), self.memory.copy())

    def put(self, rows: IntArray, new: "State") -> None:
        """Write rows back, in place."""
        for part, values in zip(self, new, strict=True):
            part[rows] = values

    @classmethod
    def zeros(cls, rows: int, m: int, k: int = 0) -> "State":
        """Before round 1: nothing sent, nothing summed."""
        return cls(np.zeros((rows, m)), np.zeros((rows, m)), np.ones(rows, dtype=np.int64), np.zeros((rows, k, m)))


class Round(NamedTuple):
    """One round, as seen by the rows that were active in it."""

    x: Array
    """x_i^(t), where the gradients were taken."""
    zeta: Array
    """ζ_i = ĝ_i + ν_i, what was released."""
    message: Array
    """What was sent."""
    state: State


Gradient = Callable[[Array], Array]
"""x of the active rows -> their clipped stochastic subgradients, same shape; zero for a row that only listens."""
Mix = Callable[[Array], Array]
"""Messages of the active rows -> Σ_j w_ij s_j, or what else the averaging makes of them, for the same rows; crosses the
network, in one exchange or in several."""
Speaks = NDArray[np.bool_]
"""(rows,) whether a row takes a gradient in this round, or only listens and passes on."""


@dataclass(frozen=True, eq=False)
class Released:
    """How what a method releases differs from ĝ_i + ν_i, a clipped mean of subgradients and one vector of noise.

    Attributes
    ----------
    shape : (gain_t, spread_t) of gain_t ĝ_i + spread_t ν_i; None where both are 1 throughout
    at_once : whether ν_i is added to gain_t ĝ_i itself; else a map comes between the two, such as a prox
    iterates : whether it examines the data through clipped subgradients; a minimizer does not, and clips nothing
    reach : L of what is released, given the bound on one record's subgradient
    curvature : (βR², Nμ) of an objective whose linear term is perturbed: what its minimizer gives away besides,
        and then a round has a second vector of noise, for how well the minimizer is known
    weight : κ, where no subgradients are released but the products of each record's numbers, its target counted κ-fold
    columns : whether the columns are among these numbers, or only the constant and the target
    numbers : of how many numbers a release is; None where as many as the model has
    """

    shape: tuple[Array, Array] | None = None
    at_once: bool = True
    iterates: bool = True
    reach: Callable[[float], float] = lambda clip: clip
    curvature: tuple[float, float] | None = None
    weight: float | None = None
    columns: bool = True
    numbers: int | None = None


PLAIN = Released()
"""ζ_i = ĝ_i + ν_i."""


class Method(Protocol):
    """An algorithm, as engines use it."""

    synchronous: ClassVar[bool]
    """Whether nobody may sleep."""

    @property
    def T(self) -> int:
        """For how many rounds it is laid out."""

    @property
    def width(self) -> int:
        """How many vectors of length m cross a link for one message of a round."""

    @property
    def exchanges(self) -> int:
        """How often `step` calls `mix`: messages that must be answered sequentially within a round."""

    @property
    def released(self) -> Released:
        """What a round releases."""

    def stride(self, t: int) -> float:
        """How much one ζ_i weighs in a message of round t: the unit of what robust averaging calls far."""

    def start(self, rows: int, m: int) -> State:
        """The state before round 1."""

    def step(
        self, state: State, t: int, nodes: IntArray, speaks: Speaks, gradient: Gradient, noise: Array, mix: Mix
    ) -> Round:
        """One round for the active rows, which belong to the given nodes; `gradient` is called once."""

    def average(self, state: State, t: int) -> Array:
        """What each row puts out after round t."""

    def passes(self, state: State) -> float | None:
        """Passes over the data so far, where they are not rounds times batches; else None."""


@dataclass(frozen=True, eq=False)
class StepSizes:
    """a_t > 0 and γ_t ≥ 0, both non-decreasing; element t − 1 belongs to round t.

    Attributes
    ----------
    a, gamma : a_t and γ_t
    counted : w_t, how much the x of each round counts in the average that is put out; a_t by default, as in the paper
    """

    a: Array
    gamma: Array
    counted: Array | None = None

    def __post_init__(self) -> None:
        """The conditions under which Lemma 6 and everything after it hold."""
        if len(self.a) != len(self.gamma) or len(self.a) == 0:
            raise SpecError(f"a_t and γ_t need one value a round, but have {len(self.a)} and {len(self.gamma)}")
        if not (np.all(self.a > 0) and np.all(np.diff(self.a) >= 0)):
            raise SpecError("the weights a_t must be positive and must not decrease")
        if not (np.all(self.gamma >= 0) and np.all(np.diff(self.gamma) >= 0)):
            raise SpecError("the parameters γ_t must not be negative and must not decrease")
        if len(self.w) != len(self.a) or not (np.all(self.w >= 0) and self.w[-1] > 0):
            raise SpecError("the weights of the average need one number a round, not negative, the last one over 0")

    @property
    def T(self) -> int:
        """Number of rounds."""
        return len(self.a)

    @cached_property
    def A(self) -> Array:
        """A_t = Σ_{τ≤t} a_τ, with A_0 = 0 in front: element t belongs to round t."""
        return prefix_sums(self.a)

    @property
    def w(self) -> Array:
        """w_t."""
        return self.a if self.counted is None else self.counted

    @cached_property
    def W(self) -> Array:
        """W_t = Σ_{τ≤t} w_τ, with W_0 = 0 in front."""
        return self.A if self.counted is None else prefix_sums(self.w)


def prefix_sums(values: Array) -> Array:
    """0, v_1, v_1 + v_2, …, summed in extended precision where the machine has it: a million terms lose no digit."""
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.longdouble).astype(np.float64)])


def _sequence(formula: Callable[..., Array]) -> Callable[..., Array]:
    """The formula over rounds 1 … T."""

    @wraps(formula)
    def over(rounds: int, **numbers: float) -> Array:
        if not isinstance(rounds, int) or rounds < 1:
            raise SpecError(f"a run needs a whole number of rounds, at least one round, not {rounds}")
        with np.errstate(over="ignore"):  # steps that are too large are refused where they are used
            return formula(np.arange(1, rounds + 1, dtype=np.float64), **numbers)

    return over


_FORMULAS: dict[str, Callable[..., Array]] = {
    "constant": lambda t, c=1.0: np.full_like(t, c),
    "linear": lambda t, c=1.0: c * t,
    "sqrt": lambda t, c=1.0: c * np.sqrt(t),
    "inverse_sqrt": lambda t, c=1.0: c / np.sqrt(t),
    "inverse": lambda t, c=1.0, t0=0.0: c / (t + t0),
    "geometric": lambda t, c=1.0, r=0.99: c * r ** (t - 1),
}

Sequence: TypeAlias = Chosen[int, Array]
"""From the number of rounds T to one value for each."""

SEQUENCES = Choices.of_functions("sequence", {name: _sequence(formula) for name, formula in _FORMULAS.items()})
"""Sequences over rounds 1 … T: constant(c); linear(c) = c·t; sqrt(c) = c√t; inverse_sqrt(c) = c/√t;
inverse(c, t₀) = c/(t + t₀); geometric(c, r) = c·rᵗ⁻¹.

Examples
--------
>>> SEQUENCES.read("linear(1)")(4)
array([1., 2., 3., 4.])
>>> SEQUENCES.read("inverse(6, 1)")(3)
array([3. , 2. , 1.5])
"""


def _tail(a: Array, share: float = 0.5) -> Array:
    if not 0 < share <= 1:
        raise SpecError(f"a tail is a share of the rounds, over 0 and at most 1, not {share}")
    first = len(a) - max(1, round(share * len(a)))
    return np.where(np.arange(len(a)) < first, 0.0, a)


Counted: TypeAlias = Chosen[Array, Array]
"""From a_t to w_t, how much the x of each round counts in what is put out."""

COUNTED = Choices.of_functions("counted rounds", {"all": lambda a: a, "tail": _tail})
"""all: as the paper has it, w_t = a_t; tail(share): the last rounds alone, the rest of the way is left out.

Examples
--------
>>> COUNTED.read("tail(0.5)")(np.ones(5))
array([0., 0., 0., 1., 1.])
"""
ALL: Counted = COUNTED.make("all")


def constant(c: float) -> Sequence:
    """c in every round."""
    return SEQUENCES.make("constant", c)


def linear(c: float) -> Sequence:
    """c·t in round t."""
    return SEQUENCES.make("linear", c)


def inverse_sqrt(c: float) -> Sequence:
    """c/√t in round t."""
    return SEQUENCES.make("inverse_sqrt", c)
