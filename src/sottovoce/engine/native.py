"""What the native loops know, and what they are given: a run as named tuples of flat arrays.

The extension `sottovoce._native` checks every index in these arrays once, when its `Records` and `Run` are made. This
module does not load it: the engines' table reads from here what the extension knows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.network.averaging import Clipped, Exact, Trimmed
from sottovoce.network.mixing import Gossip
from sottovoce.privacy.sampling import Cyclic, Fixed, Full, Poisson
from sottovoce.problem.losses import BUILT_IN, Loss
from sottovoce.problem.regularizers import L1Ball, L2Ball, Separable, Simplex

FIXED, POISSON, FULL, CYCLIC, INJECTED = range(5)
SAMPLERS: dict[type, int] = {Fixed: FIXED, Poisson: POISSON, Full: FULL, Cyclic: CYCLIC}
"""Where records come from; INJECTED are those of another generator."""

SEPARABLE, L2_BALL, L1_BALL, SIMPLEX, ENTROPY = range(5)
KINDS: dict[type, int] = {Separable: SEPARABLE, L2Ball: L2_BALL, L1Ball: L1_BALL, Simplex: SIMPLEX}
"""Kinds of steps, by the regularizer; the entropy's is ENTROPY, whatever the regularizer."""

MATRIX, CLIPPED, TRIMMED = range(3)
AVERAGINGS: dict[type, int] = {Gossip: MATRIX, Exact: MATRIX, Clipped: CLIPPED, Trimmed: TRIMMED}
"""How messages are averaged: by a matrix of the round, or robustly."""

_NAMES = (
    "hinge", "smoothed_hinge", "logistic", "squared_hinge", "squared", "huber", "absolute", "quantile", "softmax",
)  # fmt: skip
LOSSES: Mapping[str, Loss] = {name: BUILT_IN[name] for name in _NAMES}
"""The losses with native slopes, in the order of `enum Loss` (`src/native/job.hpp`); others run on NumPy."""


def code_of(loss: Loss) -> int:
    """The number of a loss in the native loops."""
    return _NAMES.index(loss.name)


class Plan(NamedTuple):
    """The schedule; weights[corners[p]:] is pattern p, row by row."""

    starts: NDArray[np.int64]
    active: NDArray[np.int32]
    pattern: NDArray[np.int32]
    weights: NDArray[np.float64]
    corners: NDArray[np.int64]
    flat: NDArray[np.bool_]
    """Whether all weights of a pattern are the same, to rounding: everybody gets the mean."""
    widest: int
    speakers: int
    """How many of a round's active nodes take a gradient, the first ones."""
    averaging: int
    bound: float
    """The radius of clipped differences, or how many values are trimmed at each end."""


class Steps(NamedTuple):
    """a_t, γ_t, s_t = ιA_t of rounds 1 … T, and the prefix sums of `LazySum`; axis 0: distinct sequences."""

    distinct: int
    push: NDArray[np.float64]
    """The factor on c_i ζ_i in a message: a_t, or −η_t in descent."""
    a: NDArray[np.float64]
    gamma: NDArray[np.float64]
    s: NDArray[np.float64]
    A: NDArray[np.float64]
    P: NDArray[np.float64]
    Q: NDArray[np.float64]
    which: NDArray[np.int64]
    """(R,) the sequences of each variant."""


class Model(NamedTuple):
    """The regularizer, the distance and the loss; arrays have one number a variant."""

    kind: int
    phi: NDArray[np.float64]
    mu: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    radius: NDArray[np.float64]
    curvature: float
    center: NDArray[np.float64]
    """x₀, or empty."""
    closed: bool
    """Whether the lazy sums have a closed form."""
    frozen: bool
    """Whether x stands still while a node sleeps: primal='as_written', and descent."""
    descent: bool
    """x = z, and h comes in by its proximal map after mixing."""
    after: bool
    """Whether ζ_i joins after mixing."""
    loss: int
    parameter: float
    clip: NDArray[np.float64]
    outputs: int


class Noise(NamedTuple):
    """Where draws come from: the keys of the counters, two words a purpose."""

    sampler: int
    batch: NDArray[np.int64]
    gap_scale: NDArray[np.float64]
    noise_key: NDArray[np.uint32]
    records_key: NDArray[np.uint32]
    sigma: NDArray[np.float64]
    """(R, n) σ_i."""
    noisy: NDArray[np.bool_]
    """(n,) whether any run has counted noise at the node."""
    scale: NDArray[np.float64]
    """(R, n) c_i."""
    pairs: bool
    """Whether all nodes share secrets with all, so that they have noise that is gone from the sum of c_i ζ_i."""
    shared: NDArray[np.float64]
    """(R, n) ρ/c_i, the factor on that noise at each node; or empty."""
    level: bool
    """Whether it is of one size at all nodes, and so gone from every mean of messages."""


class Injected(NamedTuple):
    """What another generator drew for the places (node, round) at hand."""

    noise: NDArray[np.float64]
    """(places, m)."""
    records: NDArray[np.int64]
    starts: NDArray[np.int64]
    """records[starts[p]:starts[p + 1]] are the picks of place p; `every[p]` stands for all."""
    every: NDArray[np.bool_]


class Links(NamedTuple):
    """W of very many nodes, as `network.wide.Wide` has it, and when and how often it mixes."""

    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    values: NDArray[np.float64]
    level: float
    mixes: NDArray[np.bool_]
    times: int


class SumsOf(NamedTuple):
    """The exact sums of pairs (node, round): rows' caps and lengths, the loss, grids, and whose units are summed."""

    caps: NDArray[np.float64]
    reach: NDArray[np.float64]
    loss: int
    parameter: float
    outputs: int
    step: int
    limit: int
    inverse: float
    whole: float
    length: float
    base: NDArray[np.int64]
    sizes: NDArray[np.int64]
    starts: NDArray[np.int64]
    picks: NDArray[np.int64]
