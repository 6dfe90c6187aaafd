"""The arguments of the kernel, as named tuples of flat arrays: its functions take five things, not fifty."""

from typing import Any, NamedTuple

import numpy as np

from sottovoce.engine.noise import BLOCK

FEW = 32
"""Records of a CSR batch that is scattered after mixing, not before."""


class Data(NamedTuple):
    """Everybody's records, flat; the arrays of the other storage are empty."""

    sparse: bool
    X: Any
    values: Any
    indices: Any
    indptr: Any
    intercept: float
    y: Any
    norms: Any
    offsets: Any
    order: Any
    """Empty where places are rows."""
    starts: Any
    """Empty where units are places."""


class Plan(NamedTuple):
    """The schedule; weights[corners[p]:] is pattern p, row by row."""

    starts: Any
    active: Any
    pattern: Any
    weights: Any
    corners: Any
    widest: int


class Steps(NamedTuple):
    """a_t, γ_t, s_t = ιA_t of rounds 1 … T, and the prefix sums of `LazySum`; axis 0: distinct sequences."""

    a: Any
    gamma: Any
    s: Any
    A: Any
    P: Any
    Q: Any
    which: Any
    """(R,) the sequences of each variant."""


class Model(NamedTuple):
    """The regulariser, the distance and the loss; arrays have one number a variant."""

    kind: int
    phi: Any
    mu: Any
    lo: Any
    hi: Any
    radius: Any
    curvature: float
    centre: Any
    """x₀, or empty."""
    closed: bool
    """Whether the lazy sums have a closed form."""
    frozen: bool
    """primal='as_written'."""
    loss: int
    parameter: float
    clip: Any
    outputs: int


class Noise(NamedTuple):
    """Where draws come from: counters (two words a purpose), or arrays for the rounds at hand."""

    sampler: int
    batch: Any
    gap_scale: Any
    noise_key: Any
    records_key: Any
    sigma: Any
    """(R, n) σ_i."""
    noisy: Any
    """(n,) whether any run has counted noise at the node."""
    scale: Any
    """(R, n) c_i."""
    injected: Any
    """(places, m) noise, or empty."""
    records: Any
    starts: Any
    """records[starts[p]:starts[p + 1]] are the injected picks of place p; `every[p]` stands for all."""
    every: Any


class Scratch(NamedTuple):
    """Working memory of one call."""

    x: Any
    y: Any
    g: Any
    records: Any
    taken: Any
    words: Any
    normals: Any
    mixed: Any
    rows: Any
    """(widest, FEW) rows glanced at by each active node, and `count` how many."""
    count: Any
    pull: Any
    """(R, widest, FEW) what each of them pulls, a_t c_i/b included."""
    pending: Any
    """Whether the rounds slept are still to be summed up."""
    weight: Any
    """(R, widest) factor on −z of the rounds slept, where that is all there is to it; else 0."""
    loud: Any
    """(R, widest) factor on a unit normal, a_t c_i σ_i."""
    slopes: Any
    """(rows, K) of one unit, where units have several rows or models several outputs."""
    mean: Any
    kept: Any
    """(m,) the mean of one unit on its way, where units have several rows; zero in between."""


def make_scratch(R: int, m: int, widest: int, most: int, rows: int = 1, outputs: int = 1) -> Scratch:
    """For R runs in m dimensions, at most `widest` active nodes, `most` units a node and `rows` rows a unit."""
    return Scratch(
        x=np.empty(m),
        y=np.empty(m),
        g=np.empty(m),
        records=np.empty(most, np.int64),
        taken=np.zeros(most, np.bool_),
        words=np.empty(2 * BLOCK, np.uint32),
        normals=np.zeros(4 * BLOCK, np.float32),
        mixed=np.empty((widest, BLOCK)),
        rows=np.zeros((widest, FEW), np.int64),
        count=np.zeros(widest, np.int64),
        pull=np.zeros((R, widest, FEW)),
        pending=np.zeros(widest, np.bool_),
        weight=np.zeros((R, widest)),
        loud=np.zeros((R, widest)),
        slopes=np.zeros((rows, outputs)),
        mean=np.zeros(m if rows > 1 else 0),
        kept=np.zeros(m if rows > 1 else 0),
    )
