"""Secure draws: ζ_i is an exact sum with all its noises, rounded once, as the theorem of docs/secure.md has it.

An engine requests draws and gradients as always. Here the two cannot be had apart: what is released of the records of a
round is (Σ clip_L(∂l) + noises), rounded to a public grid, over the batch size. So the gradient that a method is given
is the finished ζ_i, and the noise that it adds to it is zero; no method is any the wiser. Where a method multiplies ĝ_i
by a public gain before noise is added, it multiplies ζ_i, and the noise within is so much larger.

Grids come from public numbers alone: the largest node's units, the clip and the bound of a row. Records are put on
their grid when they are first requested, once, and kept in float32; a row over the bound is brought to it, by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from sottovoce._types import Array, IntArray, Matrix
from sottovoce.algorithm.method import Gradient, Method, Speaks
from sottovoce.engine.native import LOSSES
from sottovoce.extension import AVAILABLE
from sottovoce.matrices import is_sparse
from sottovoce.privacy.release import NoiseTerm, Release, rounded_up
from sottovoce.privacy.sampling import Cyclic, Fixed, Full, Poisson, Sampling
from sottovoce.privacy.statistics import Products
from sottovoce.problem.losses import IEEE_SLOPES, LOGISTIC, SOFTMAX, Joint
from sottovoce.problem.objective import Problem, PublicProblem
from sottovoce.problem.shards import Shards
from sottovoce.secure import noise, sampling
from sottovoce.secure.functions import logistic_slope, softmax_slope
from sottovoce.secure.generator import Generator, Purpose
from sottovoce.secure.grids import GridRows, Grids, choose_grids, on_grid
from sottovoce.secure.noise import SOURCES, Layer, Noise, Same, release_grid
from sottovoce.secure.products import ProductSums, product_grids
from sottovoce.secure.sums import Slope, clipped_sum

WORDS = 1 << 20
"""Words for choosing records that are requested at a time."""
COPIED = 1 << 31
"""Bytes of records that are put in order, at the most."""
LAWS = {law.name.lower(): law for law in noise.NoiseKind}
"""Noise terms by the names that laws have for them."""

Records = Callable[[Sampling, Generator, IntArray, IntArray, IntArray, bool], list[IntArray | None]]
"""(sampling, generator, nodes, rounds, sizes, compiled) -> the records of each pair (node, round); None for all."""


def _poisson(
    how: Sampling, key: Generator, nodes: IntArray, t: IntArray, sizes: IntArray, compiled: bool
) -> list[IntArray | None]:
    batches = np.array([how.batch(q) for q in sizes.tolist()], dtype=np.int64)
    return [*sampling.poisson(key, nodes, t, sizes, batches, compiled)]


def _fixed(
    how: Sampling, key: Generator, nodes: IntArray, t: IntArray, sizes: IntArray, compiled: bool
) -> list[IntArray | None]:
    return [*sampling.fixed(key, nodes, t, sizes, how.batch(int(sizes.min())))]


def _undrawn(
    how: Sampling, key: Generator, nodes: IntArray, t: IntArray, sizes: IntArray, compiled: bool
) -> list[IntArray | None]:
    """Where there is no chance in it."""
    if isinstance(how, Full):
        return [None] * len(t)
    return [how.draw(_no_uniforms, q, round_) for q, round_ in zip(sizes.tolist(), t.tolist(), strict=True)]


def _no_uniforms(first: int, count: int) -> Array:
    raise AssertionError("records in a fixed order are not drawn")


SAMPLERS: Mapping[type, Records] = {
    Poisson: _poisson,
    Fixed: _fixed,
    Full: _undrawn,
    Cyclic: _undrawn,
    Products: _undrawn,
}
"""How records are drawn, so that their law is exactly the one that is accounted."""


def slope_of(joint: Joint) -> Slope | None:
    """The slope as the same bits in every place of every batch; None where that is not known of its formula."""
    formula, parameter = joint.loss.slope_formula, joint.loss.parameter
    if formula is SOFTMAX.slope_formula:
        return softmax_slope
    if formula is LOGISTIC.slope_formula:
        single: Slope = logistic_slope
    elif formula in IEEE_SLOPES:

        def single(u: Array, y: Array) -> Array:
            return np.asarray(formula(u, y, parameter))

    else:
        return None
    return (lambda u, y: single(u, joint.signs(y))) if joint.one_vs_rest else single


def hindrance(problem: PublicProblem | Problem, method: Method, release: Release) -> str | None:
    """Why a run cannot be a secure one, in a clause; None where it can."""
    released, how, law = method.released, release.sampling, release.law
    products = isinstance(how, Products)
    if not released.iterates and not products:
        return "its noise goes with a minimizer, which is no exact sum"
    if not released.at_once:
        return "its noise is added after a proximal map, whose result is no exact sum"
    if not products and slope_of(problem.joint) is None:
        return f"the slope of loss '{problem.loss.name}' is not known to be the same bits in every place of a batch"
    if type(how) not in SAMPLERS:
        return f"there is no exact way to draw records by '{how}'"
    if law.unit not in LAWS:
        return f"there is no exact noise of the law '{law.unit}'"
    if law.secrets and getattr(law, "busiest", 0) > SOURCES[LAWS[law.unit]]:
        return f"a node shares noise with {SOURCES[LAWS[law.unit]]} others or more"
    return None


def refusal(problem: PublicProblem | Problem, method: Method, release: Release) -> str | None:
    """The same as one line, for those who may do without."""
    why = hindrance(problem, method, release)
    if why is None:
        return None
    return (
        f"this run cannot be made secure: {why}; give secure=False (--no-secure), and its statement says what is not "
        "hardened, or a seed, which makes it a simulation"
    )


@dataclass(frozen=True, eq=False)
class ExactSums:
    """The clipped sums over the records of nodes 0 … n − 1, without an error.

    Attributes
    ----------
    problem : the records, in memory as they came
    clip : L
    bound, intercept : R and B, public
    largest : the largest number of units that a node may have, public
    compiled : whether native loops make them: the same bits, sooner
    """

    problem: Problem
    clip: float
    bound: float
    intercept: float
    largest: int
    compiled: bool = False

    @cached_property
    def grids(self) -> Grids:
        """From public numbers."""
        return choose_grids(self.largest, self.clip, self.bound, self.intercept)

    @cached_property
    def shards(self) -> Shards:
        """The records as they are read: node after node in memory, where compiled loops read them again and again."""
        shards = self.problem.shards
        if not self.compiled or shards.order is None or _bytes(shards.X) > COPIED:
            return shards
        weights = None if shards.weights is None else shards.weights[shards.order]
        return replace(shards, X=shards.X[shards.order], y=shards.y[shards.order], order=None, weights=weights)

    @cached_property
    def rows(self) -> GridRows:
        """The records on their grid."""
        found = on_grid(self.shards.X, self.grids, over="clip")
        self.__dict__["shards"] = replace(self.shards, X=found.X)  # what they were made of may go
        return found

    @cached_property
    def slope(self) -> Slope:
        """Of the loss, or losses."""
        found = slope_of(self.problem.joint)
        assert found is not None  # refused before
        return found

    def total(self, node: int, x: Array, records: IntArray | None) -> IntArray:
        """Σ clip_L(∂l) at x over these units of a node, in units of the sums' grid."""
        rows, shards, outputs = self.rows, self.shards, self.problem.outputs
        if records is not None and len(records) == 0:
            return np.zeros(len(x), dtype=np.int64)
        model = x if outputs == 1 else x.reshape(outputs, -1)
        mine, counts = shards.rows(node, records), shards.counts(node, records)
        return clipped_sum(rows, model, shards.y, self.slope, mine, counts, shards.weights).ravel()

    def totals(self, nodes: IntArray, x: Array, records: Sequence[IntArray | None]) -> IntArray:
        """Of several pairs (node, round)."""
        if not self.compiled:
            return _each(self, nodes, x, records)
        from sottovoce.engine.exact import clipped_sums  # an installation may be without the extension

        rows = self.rows
        return clipped_sums(rows, self.shards, self.problem.joint, nodes, x, records)


def _bytes(X: Matrix) -> int:
    return int(X.data.nbytes + X.indices.nbytes if is_sparse(X) else X.nbytes)


class Sums(Protocol):
    """Sums over records without an error."""

    @property
    def compiled(self) -> bool:
        """Whether native loops make them."""

    @property
    def grids(self) -> Grids:
        """On which they are."""

    def total(self, node: int, x: Array, records: IntArray | None) -> IntArray:
        """The sum at x over these units of a node, in units of the sums' grid."""

    def totals(self, nodes: IntArray, x: Array, records: Sequence[IntArray | None]) -> IntArray:
        """Those of several pairs (node, round), a row each."""


def _each(sums: Sums, nodes: IntArray, x: Array, records: Sequence[IntArray | None]) -> IntArray:
    """One by one."""
    return np.stack([sums.total(node, *pair) for node, *pair in zip(nodes.tolist(), x, records, strict=True)])


@dataclass(frozen=True, eq=False)
class ExactProducts:
    """The sums of products over the records of nodes 0 … n − 1, without an error.

    Attributes
    ----------
    problem : the records
    how : bounds, and the weight of the targets
    largest : the largest number of units that a node may have, public
    """

    problem: Problem
    how: Products
    largest: int
    compiled: ClassVar[bool] = False

    @cached_property
    def grids(self) -> Grids:
        """From public numbers."""
        return product_grids(self.largest, self.how.row_norm * self.how.columns, self.how.intercept, self.how.weight)

    @cached_property
    def sums(self) -> ProductSums:
        """Over the records on their grid."""
        shards = self.problem.shards
        X = shards.X if self.how.columns else shards.X[:, :0]
        return ProductSums(X, shards.y, self.grids, self.how.weight)

    def total(self, node: int, x: Array, records: IntArray | None) -> IntArray:
        """Of all units of a node, whatever x is."""
        shards = self.problem.shards
        rows, counts = shards.rows(node), shards.counts(node)
        return self.sums.total(np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows, counts)

    def totals(self, nodes: IntArray, x: Array, records: Sequence[IntArray | None]) -> IntArray:
        """Of several nodes."""
        return _each(self, nodes, x, records)


def exact_sums(problem: Problem, release: Release, row_norm: float, intercept: float, largest: int) -> Sums:
    """The sums that a release is made of."""
    if isinstance(release.sampling, Products):
        return ExactProducts(problem, release.sampling, largest)
    compiled = AVAILABLE and problem.loss.name in LOSSES
    return ExactSums(problem, release.clip, row_norm, intercept, largest, compiled)


@dataclass(frozen=True, eq=False)
class SecureDraws:
    """The randomness of a secure run, and its releases.

    Attributes
    ----------
    release : what is released
    sums : over the records that are here
    keys : the generators of the run, one for each purpose
    sizes : q_i of every node of the run
    m : numbers in a release
    only : the node whose records are here, where they are not everybody's
    compiled : whether native loops make noise and batches: the same numbers, sooner
    """

    release: Release
    sums: Sums
    keys: Mapping[Purpose, Generator] = field(repr=False)
    sizes: IntArray
    m: int
    only: int | None = None
    compiled: bool = False

    @cached_property
    def batches(self) -> Array:
        """b of every node."""
        return np.array([self.release.sampling.batch(q) for q in self.sizes.tolist()], dtype=np.float64)

    def records(self, nodes: IntArray, t: IntArray) -> list[IntArray | None]:
        """Which records each pair (node, round) uses."""
        how, nodes, t = self.release.sampling, np.asarray(nodes), np.asarray(t)
        draw, key, step = SAMPLERS[type(how)], self.keys[Purpose.RECORDS], max(1, WORDS // int(self.batches.max()))
        found: list[IntArray | None] = []
        for first in range(0, len(nodes), step):
            some = slice(first, first + step)
            found += draw(how, key, nodes[some], t[some], self.sizes[nodes[some]], self.compiled)
        return found

    def noise(self, nodes: IntArray, t: IntArray) -> Array:
        """Nothing besides what is in the release already."""
        return np.zeros((len(nodes), self.m))

    def scales(self, nodes: IntArray, t: IntArray) -> Array:
        """What the noise of each pair's sum is multiplied by: bσ, or a little more."""
        return rounded_up(self.batches[nodes] * np.take(self.release.sigma, nodes) * self.release.law.share(t))

    def noise_terms(self, nodes: IntArray, t: IntArray) -> list[NoiseTerm]:
        """The noise terms of these pairs' releases."""
        return self.release.law.noise_terms(nodes, t, self.release.sigma)

    def generator(self, source: NoiseTerm) -> Generator:
        """Where a source's words come from."""
        return self.keys[Purpose.PAIRS if source.shared else Purpose.NOISE]

    def layer(self, source: NoiseTerm, scales: Array) -> Layer:
        """A source as the noise wants it, times every release's scale."""
        mine, sums = scales[source.rows], source.shared_terms
        same = None if sums is None else Same(sums.owners, sums.rounds, sums.starts, sums.which, sums.factors * mine)
        return Layer(self.generator(source), source.rows, source.owners, source.rounds, source.factors * mine, same)

    def drawn(self, nodes: IntArray, t: IntArray, speaks: Speaks) -> "SecureDrawn":
        """Records and noise of these pairs (node, round); a node that only listens has neither."""
        loud = np.flatnonzero(speaks)
        who, when = nodes[loud], t[loud]
        law, scales = self.release.law, self.scales(who, when)
        fine = self.sums.grids.sum
        known = {scale: release_grid(scale, fine) if scale > 0 else fine for scale in np.unique(scales).tolist()}
        layers = [self.layer(source, scales) for source in self.noise_terms(who, when)]
        grids = np.array([known[scale] for scale in scales.tolist()])
        made = Noise(self.m, grids, layers, LAWS[law.unit], self.compiled)
        records: list[IntArray | None] = [np.empty(0, dtype=np.int64)] * len(nodes)
        for place, some in zip(loud.tolist(), self.records(who, when), strict=True):
            records[place] = some
        rows = np.full(len(nodes), -1)
        rows[loud] = np.arange(len(loud))
        return SecureDrawn(self, nodes, records, rows, made)


class SecureDrawn(NamedTuple):
    """What was drawn for some pairs (node, round), ready to be added to their sums.

    Attributes
    ----------
    draws : whose
    nodes : of each pair
    records : which ones it uses
    rows : where its noise is; −1 for a node that only listens
    made : the noise of all that speak
    """

    draws: SecureDraws
    nodes: IntArray
    records: list[IntArray | None]
    rows: IntArray
    made: Noise

    @property
    def noise(self) -> Array:
        """What is left to be added to what `gradient` gives: nothing, not to be written to."""
        return np.broadcast_to(0.0, (len(self.nodes), self.draws.m))

    def at(self, places: slice) -> "SecureDrawn":
        """Of some of the pairs."""
        return self._replace(nodes=self.nodes[places], records=self.records[places], rows=self.rows[places])

    def gradient(self, problem: Problem, release: Release, nodes: IntArray) -> Gradient:
        """x of the pairs -> ζ_i: exact sums and all noises, rounded once, over b. The data is the draws' own."""
        return self.released

    def released(self, x: Array) -> Array:
        """ζ_i of the pairs at x; zero for a node that only listens."""
        draws, loud = self.draws, np.flatnonzero(self.rows >= 0)
        if not loud.size:
            return np.zeros((len(self.nodes), draws.m))
        everybody = len(loud) == len(self.nodes)
        who, rows, at = self.nodes[loud], self.rows[loud], (x if everybody else x[loud])
        here = np.zeros_like(who) if draws.only is not None else who
        sums = draws.sums.totals(here, at, [self.records[place] for place in loud.tolist()])
        zeta = self.made.released(sums, draws.sums.grids.sum, draws.batches[who], rows)
        if everybody:
            return zeta
        found = np.zeros((len(self.nodes), draws.m))
        found[loud] = zeta
        return found
