"""Noise that pairs of nodes cancel between them: nearly a trusted center's accuracy, without a center.

In every round in which node i speaks, with c_i the public factor that its release is multiplied by afterwards,

    c_i ζ_i = c_i ĝ_i + c_i σ_i ξ_i + Σ_j s_ij ρ_ij η_ij        η_ij known to i and j alone, s_ij = −s_ji = ±1

over the j that speak in the same round and share a secret with i. The pair part is divided by c_i before the factor is
applied, so that it is gone from Σ c_i ζ_i, and only the own noises are left there. (Mechanism: Allouah et al. 2024.)

*The account.* The adversary sees every message and all that a coalition K of at most k nodes knows, whose seeds are
therefore taken out. What is left of the noise of the honest nodes H that speak in a round has, in every coordinate,

    Σ_H = diag(c_i² σ_i²) + the Laplacian of their pairs, weighted by ρ_ij²

and to a record of node i the run is the composition of its rounds as Gaussian releases of ĝ_i with the deviation
σ̂_i = 1/(c_i √[Σ_H⁻¹]_ii): at most, and exactly so if the others' batches are known. (The proof is in docs/privacy.md.)
1/[Σ_H⁻¹]_ii is the effective conductance from i to the ground, in a network whose nodes are grounded by c²σ² and linked
by ρ². A node that joins K is deleted, which lowers it (Rayleigh): the worst coalitions have k members. Which ones they
are, and what they leave: `coalitions`. Very many nodes, whose secrets are shared by chance: `graph_seed`.

*Lost nodes.* Where up to f nodes may be lost, the others make the round in flight anew, in a new epoch: with fresh
draws, and with all noise multiplied by the public factor √((1 + r²h)/(1 + r²(h − e))), e the nodes that are gone, h =
n − k. Then σ̂ is in every epoch what it was, and a node makes T + f releases at most. (The theorem is in
docs/privacy.md.)

*Draws.* Where all share with all, one normal per node is enough instead of one per pair. ρ√a(η_i − the mean of η over
the a nodes that speak) has the covariance of all pairs' noises together, ρ²·Laplacian. One process may draw so; real
nodes draw real pairs (`Pairs.with_peers`).
"""

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy.coalitions import Mask, complete, conductances, connected, in_pieces, joint_noise, levels_of
from sottovoce.privacy.events import CyclicEvent, Event, GaussianEvent, Levels, canceled, sheltered
from sottovoce.privacy.random_secret_graph import FAILS, least_noise_left, linked, throw
from sottovoce.privacy.release import (
    SHORT,
    Attendance,
    Epochs,
    MechanismContext,
    NoiseTerm,
    Scales,
    SecretPairs,
    SharedNoise,
    rounded_up,
)
from sottovoce.registry import Chosen, write
from sottovoce.streams import Streams

CUTS = ("refused", "priced")
WORK = 1e9
"""Operations that going through all coalitions may take."""
ROOM = 1e7
"""Numbers that may be kept of it, where each takes only few."""
ROWS = 1 << 20
"""Numbers of pairs' noises that are drawn at a time."""
SPARE = 1.0 + 2.0**-15
"""What a secure release has of its own noise, so that its pairs' noise may be rounded."""
SAME = 1e-9
"""How far c_iσ_i may be apart, relatively, to count as equal."""
FACTOR_BITS = 17
"""Bits of a factor that is multiplied by another number of up to 9 bits, and is still exact then."""


# --- the choice


@dataclass(frozen=True)
class PairsChoice:
    """Noise that pairs of nodes cancel between them, ρ = `ratio`·max c_jσ_j for each pair.

    Attributes
    ----------
    ratio : r
    coalition : nodes whose seeds count as known; of version 0.1, where 'secret_pairs' has no number
    graph : who shares a secret with whom; everybody with everybody if not given (in version 0.1: along the links)
    cut : what to do if k nodes can disconnect others: 'refused', or 'priced' (account for the noise that is left)
    peers : with how many others a node shares a secret, on average, where random bits decide with whom; 0 for no random
        bits
    graph_seed : the number, over 0, that public random bits are made from, drawn after it is settled which nodes
        collude
    fails : the chance, a part of δ, that the random bits leave too few secrets

    Examples
    --------
    >>> str(PairsChoice(10.0)), str(PairsChoice(3.0, cut="priced")), str(PairsChoice(100.0, peers=180.0, graph_seed=7))
    ('pairs(10)', 'pairs(3, cut=priced)', 'pairs(100, peers=180, coins=7)')
    """

    ratio: float
    coalition: tuple[int, ...] = ()
    graph: Chosen[int, Any] | None = None
    cut: str = CUTS[0]
    peers: float = 0.0
    graph_seed: int = 0
    fails: float = FAILS

    def __post_init__(self) -> None:
        """Each colluding node once, in order: two spellings of one choice are one value."""
        if (
            not 0 < self.ratio < math.inf
            or not all(isinstance(i, int) and i >= 0 for i in self.coalition)
            or self.cut not in CUTS
            or not 0 <= self.peers < math.inf
            or not (isinstance(self.graph_seed, int) and self.graph_seed >= 0)
            or not 0 < self.fails < 1
            or (self.peers and (self.graph is not None or self.coalition))
        ):
            raise SpecError(
                f"noise law '{self}' is malformed; write 'pairs(ratio)' with a ratio over 0, and 'graph=ring' for who "
                "shares secrets and 'cut=priced' for what k nodes may cut off, or 'peers=180, coins=7' for random "
                "peers, where these are needed (version 0.1: then the numbers of the colluding nodes)"
            )
        object.__setattr__(self, "coalition", tuple(sorted(set(self.coalition))))
        if self.graph is not None and self.graph.name == "complete":
            object.__setattr__(self, "graph", None)

    def __str__(self) -> str:
        """In a spec."""
        named = {} if self.graph is None else {"graph": str(self.graph)}
        named |= {} if self.cut == CUTS[0] else {"cut": self.cut}
        options: dict[str, float | str] = dict(named)
        options |= {"peers": self.peers} if self.peers else {}
        options |= {"coins": self.graph_seed} if self.graph_seed else {}
        options |= {"fails": self.fails} if self.fails != FAILS else {}
        return write("pairs", self.ratio, *self.coalition, **options)

    def on(self, of: MechanismContext) -> "Pairs":
        """For everybody's c_i and the schedule; where no k is named, as version 0.1 had it: along the links."""
        if of.shape is not None:
            raise SpecError(f"noise law '{self}' does not fit a method that has a schedule of its own for noise")
        n, watching = of.graph.n, of.adversary.among(of.graph.n)
        k = watching.k if isinstance(watching, SecretPairs) else None
        if not isinstance(k, int):
            if self.graph is not None or self.cut != CUTS[0] or self.peers:
                raise SpecError(f"noise law '{self}' needs to know how many nodes may collude; name 'secret_pairs(k)'")
            if max(self.coalition, default=0) >= n:
                raise SpecError(f"noise law '{self}' names a node that there is not: nodes are 0 to {n - 1}")
            return Pairs(n, float(self.ratio), of.graph.edges, coalition=self.coalition)
        if self.coalition:
            raise SpecError(
                f"noise law '{self}' names nodes that collude, but '{watching}' is any {k} of them; leave them out"
            )
        scale = np.ones(n) if of.scale is None else np.asarray(of.scale, dtype=np.float64)
        edges = None if self.graph is None else self.graph(n).edges
        chance = min(1.0, self.peers / max(n - 1, 1))
        law = Pairs(n, float(self.ratio), edges, scale, k, of.attendance)
        if 0 < chance < 1:
            if not self.graph_seed:
                raise SpecError(
                    f"noise law '{self}' has no seed for its random bits, so everyone knew in advance who shares with "
                    "whom, and k nodes could surround any other; draw a number once all nodes are known, and give it: "
                    "'coins=…'"
                )
            law = replace(law, chance=chance, graph_seed=self.graph_seed, fails=float(self.fails))
        law.check(self.cut == "priced")
        return law if of.may_lose == 0 else law.preparing(of.may_lose, of.epochs)


# --- the law


class Left(NamedTuple):
    """What the worst coalition leaves of the noise of every node."""

    sigma: tuple[float, ...]
    """σ̂_i, the least of all rounds."""
    levels: tuple[Levels, ...]
    """The same for the rounds in which each node speaks; empty where everybody always speaks."""
    worst: tuple[Levels, ...]
    """Of the one coalition that is worst for Gaussian rounds; `levels` cost no less than any coalition's."""
    exact: bool
    """Whether some coalition leaves no more."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """σ_i ξ_i + (1/c_i) Σ_j ±ρ η_ij with η_ij = −η_ji a secret of two: in Σ c_i ζ_i only the ξ_i are left.

    Attributes
    ----------
    n : number of nodes
    ratio : ρ/max c_jσ_j
    edges : (E, 2) who shares a seed with whom; None for everybody with everybody
    scale : c_i; None for 1/σ_i, as in version 0.1
    k : how many nodes, whichever, give all they know to the adversary; None where they are named
    attendance : who speaks when; None for everybody, always
    coalition : the nodes that do so, where they are named
    uneven : (E,) what each pair's ρ is multiplied by, numbers of 9 bits at most, such as 1.25; None for 1
    chance : q, with which every two share a seed, where random bits decide; 0 for no random bits
    graph_seed, fails : what the random bits are made from, and the chance that they leave too few secrets
    may_lose : f, how many nodes may be lost
    raised_for : for how many colluding nodes noise is raised when nodes are lost
    epochs : who takes part when, in a simulation in which nodes are lost
    """

    n: int
    ratio: float
    edges: IntArray | None = None
    scale: Array | None = None
    k: int | None = None
    attendance: Attendance | None = None
    coalition: tuple[int, ...] = ()
    uneven: Array | None = None
    chance: float = 0.0
    graph_seed: int = 0
    fails: float = 0.0
    may_lose: int = 0
    raised_for: int = 0
    epochs: Epochs | None = None
    secrets: ClassVar[bool] = True
    unit: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        """Factors that a secure release can multiply by without rounding."""
        whole = None if self.uneven is None else np.frexp(self.uneven)[0] * 2.0 ** (SHORT - FACTOR_BITS)
        if whole is not None and not np.all((whole > 0) & (whole == np.floor(whole))):
            raise SpecError("the factors of single pairs must be over 0, and have 9 bits at most, as 0.5 or 1.25")

    def preparing(self, may_lose: int, epochs: Epochs | None = None) -> "Pairs":
        """The same noise, for a run that goes on without up to so many nodes."""
        k = self.k or 0
        if not self.whole or self.attendance is not None:
            raise PrivacyError(
                "a run with noise that pairs share goes on without a lost node only where all nodes share with all and "
                "speak in every round; use 'pairs(r)' without a graph and activation 'everyone', or may_lose=0"
            )
        if self.n - k - may_lose < 2:
            raise PrivacyError(
                f"of {self.n} nodes {k} may collude and {may_lose} be lost, and two honest ones must stay; let fewer "
                "be lost or collude"
            )
        law = replace(self, may_lose=may_lose, raised_for=k)
        if epochs is None:
            return law
        gone = self.n - epochs.members.sum(axis=1)
        return replace(law, epochs=epochs._replace(raised=np.sqrt([law.raise2(e) for e in gone.tolist()])))

    def raise2(self, gone: int) -> float:
        """By what the variance of all noise is multiplied once so many nodes are lost."""
        h, r2 = self.n - self.raised_for, self.ratio**2
        return (1.0 + r2 * h) / (1.0 + r2 * (h - gone))

    def against(self, k: int) -> "Pairs":
        """The same noise, and another number of nodes that collude: 0 is for outsiders."""
        return replace(self, k=k, coalition=())

    def worst(self, node: int, sigma: Scales = ()) -> tuple[int, ...]:
        """The k nodes that leave least of a node's noise, over all of its rounds; those named, where they are."""
        if self.k is None:
            return self.coalition
        if self.chance:
            raise PrivacyError(
                "the worst coalition is unknown if random bits choose the pairs after the coalition is fixed"
            )
        _, tau, _ = self._weights(sigma)
        if self.whole and self.attendance is None:
            stays = tau if self.epochs is None else tau * (1 + self.epochs.members[-1])
            loudest = [i for i in np.argsort(-stays, kind="stable").tolist() if i != node]
            return tuple(sorted(loudest[: self.k]))
        sets, counts = self._sets()
        if self._many(len(sets)):
            raise PrivacyError(
                f"which {self.k} of {self.n} nodes leave least cannot be determined: there are too many of them"
            )
        mine, best, found = sets[:, node], -1.0, self.coalition
        for coalitions, left in self._noise_left((tau / tau.max()) ** 2, self.ratio**2, sets):
            with np.errstate(divide="ignore"):
                cost = np.where(coalitions[:, node], -1.0, counts[mine] @ (1.0 / left[mine][:, :, node]))
            if cost.max() > best:
                best, found = float(cost.max()), tuple(np.flatnonzero(coalitions[int(np.argmax(cost))]).tolist())
        return found

    def copies(self, nodes: Sequence[int], times: int, coalition: Sequence[int] = ()) -> "Pairs":
        """Return the law of `times` copies of these nodes, copy r of node p at p·times + r, without coalition seeds.

        It is for running many copies of a run in one batch, to measure the noise that a coalition cannot remove.
        """
        place = {node: p for p, node in enumerate(nodes)}
        secret = [
            (e, place[i], place[j])
            for e, (i, j) in enumerate(self.pairs.tolist())
            if i in place and j in place and not {i, j} & set(coalition)
        ]
        kept = np.array(secret, dtype=np.int64).reshape(-1, 3)
        attendance = self.attendance
        if attendance is not None:
            here = self._here(np.arange(1, len(attendance.starts)))[:, list(nodes)]
            starts = np.concatenate([[0], np.cumsum(times * here.sum(axis=1))])
            attendance = Attendance(starts, (np.nonzero(here)[1][:, None] * times + np.arange(times)).ravel())
        epochs = self.epochs
        if epochs is not None:
            epochs = epochs._replace(members=np.repeat(epochs.members[:, list(nodes)], times, axis=1))
        return replace(
            self,
            n=times * len(nodes),
            edges=(kept[:, None, 1:] * times + np.arange(times)[None, :, None]).reshape(-1, 2),
            scale=None if self.scale is None else np.repeat(self.scale[list(nodes)], times),
            attendance=attendance,
            epochs=epochs,
            coalition=(),
            uneven=None if self.uneven is None else np.repeat(self.uneven[kept[:, 0]], times),
            chance=0.0,
        )

    def _sets(self) -> tuple[Mask, IntArray]:
        """The different sets of nodes that speak in a round, and in how many rounds each does."""
        if self.attendance is None:
            return np.ones((1, self.n), dtype=np.bool_), np.ones(1, dtype=np.int64)
        here = self._here(np.arange(1, len(self.attendance.starts)))
        _, first, counts = np.unique(np.packbits(here, axis=1), axis=0, return_index=True, return_counts=True)
        return here[first], counts

    @cached_property
    def pairs(self) -> IntArray:
        """(E, 2) who shares a seed with whom, the smaller number first."""
        if self.chance:
            return throw(self.n, self.chance, self.graph_seed)
        if self.edges is None:
            return np.stack(np.triu_indices(self.n, 1), axis=1)
        return np.sort(self.edges, axis=1)

    @cached_property
    def whole(self) -> bool:
        """Return whether all nodes share with all others, and equally."""
        if self.chance:
            return False
        return self.uneven is None and (self.edges is None or len(self.edges) == self.n * (self.n - 1) // 2)

    @cached_property
    def shares(self) -> Array:
        """(n, n) ρ_ij² over ρ²."""
        weights = np.zeros((self.n, self.n))
        weights[self.pairs[:, 0], self.pairs[:, 1]] = 1.0 if self.uneven is None else np.square(self.uneven)
        return weights + weights.T

    def check(self, cuts: bool) -> None:
        """Refuse what hides nobody, and, unless `cuts` are to be accounted, what k nodes can cut to pieces."""
        k = self.k or 0
        if self.n - k < 2:
            raise PrivacyError(
                f"noise that pairs of nodes share hides nothing where {k} of {self.n} nodes may collude: it takes two "
                "honest ones; use independent noise (law 'gaussian', adversary 'transcript'), or more nodes"
            )
        if self.chance:
            if self.attendance is not None:
                raise PrivacyError(
                    "if random bits decide who shares a secret, every node must be active in every round: else the "
                    "remaining noise is unknown; use activation 'everyone', or let all share with all"
                )
            linked(self.n - k, self.chance, self.fails)
            return
        if cuts or self.whole:
            return
        links, everybody = self.shares > 0, np.ones(self.n, dtype=np.bool_)
        cut: tuple[int, ...] = ()
        if not self._many(1):
            found = (some for some in self._coalitions() if in_pieces(links, _without(everybody, some)))
            cut = next(found, ())
        elif connected(np.ones(self.n), links.astype(np.float64), k) is None:
            raise PrivacyError(
                f"whether {k} nodes can cut others off from one another in this graph of secrets cannot be determined "
                "for so "
                f"many as {self.n}; let all share with all ('pairs(r)' without a graph), or take a denser graph"
            )
        if cut:
            raise PrivacyError(
                f"node{'s' * (k > 1)} {', '.join(map(str, cut))} can cut others off from one another in this graph of "
                "secrets, and leave little of their noise; let all share with all ('pairs(r)' without a graph), use a "
                "denser graph, or account for the noise that is left with 'cut=priced'"
            )

    def _coalitions(self) -> Iterator[tuple[int, ...]]:
        return itertools.combinations(range(self.n), self.k or 0)

    def _many(self, sets: int) -> bool:
        """Whether it would take too long to go through all coalitions."""
        times = math.comb(self.n, self.k or 0) * sets * self.n
        return times > ROOM if self.whole else times * self.n**2 > WORK

    # --- draws

    def _weights(self, sigma: Scales) -> tuple[Array, Array, float]:
        """c_i, c_iσ_i and ρ; without σ, for c_iσ_i = 1."""
        if not sigma:
            sigma = self.units(self.n)
        given = np.asarray(sigma, dtype=np.float64)
        if self.scale is None:
            with np.errstate(divide="ignore"):
                return 1.0 / given, (given > 0).astype(np.float64), self.ratio
        tau = self.scale * given
        if self.may_lose and float(np.ptp(tau)) > SAME * float(tau.max()):
            raise PrivacyError(
                "a run that may lose nodes needs the same c_iσ_i at every node, so that one factor raises the noise "
                "for all; use noise 'private(ε)' in place of 'gaussian(σ)', or may_lose=0"
            )
        return self.scale, tau, self.ratio * float(tau.max())

    def units(self, n: int) -> Scales:
        """c_iσ_i equally: then no coalition can take more than its share."""
        return (1.0,) * n if self.scale is None else tuple((1.0 / self.scale).tolist())

    def apart(self, sigma: Scales) -> Sequence[Hashable]:
        """What the worst coalition leaves of each node's noise; where it is named, who it is."""
        if self.k is None:
            return range(self.n)
        left = self.left(sigma)
        return left.sigma if not left.levels else list(zip(left.sigma, left.levels, left.worst, strict=True))

    def speaking(self, rounds: IntArray) -> Attendance:
        """Who speaks in each of these rounds."""
        if self.epochs is not None:
            here = self.epochs.members[self.epochs.of(rounds)]
            return Attendance(np.concatenate([[0], np.cumsum(here.sum(axis=1))]), np.nonzero(here)[1])
        if self.attendance is None:
            count = len(rounds)
            return Attendance(self.n * np.arange(count + 1), np.tile(np.arange(self.n), count))
        starts, nodes = self.attendance
        first, sizes = starts[rounds - 1], np.diff(starts)[rounds - 1]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(begins[-1]) - np.repeat(begins[:-1], sizes) + np.repeat(first, sizes)
        return Attendance(begins, nodes[places].astype(np.int64))

    def _here(self, rounds: IntArray) -> Mask:
        """(rounds, n) who speaks."""
        starts, nodes = self.speaking(rounds)
        here = np.zeros((len(rounds), self.n), dtype=np.bool_)
        here[np.repeat(np.arange(len(rounds)), np.diff(starts)), nodes] = True
        return here

    def draw(self, streams: Streams, nodes: IntArray, t: IntArray, m: int, sigma: Scales) -> Array:
        """Own normals, at the address (node, round); and what pairs share, divided by c_i.

        Where everybody shares with everybody, that is drawn together, a normal a node at the address (n + node, round);
        else pair e has one at (n + e, round), added at its first end, taken away at its second.
        """
        nodes, t = np.asarray(nodes, dtype=np.int64), np.asarray(t, dtype=np.int64)
        if not np.any(sigma):
            return np.zeros((len(nodes), m))
        own = np.take(sigma, nodes)[:, None] * streams.normals(nodes, t, m)
        shared = self._drawn_together(streams, nodes, t, m) if self.whole else self._by_pair(streams, nodes, t, m)
        made = own + self.parts(sigma)[nodes][:, None] * shared
        return made if self.epochs is None else self.share(t)[:, None] * made

    def parts(self, sigma: Scales) -> Array:
        """ρ/c_i of every node: what its noise term of a pair is multiplied by."""
        c, _, rho = self._weights(sigma)
        return np.asarray(rho / c)

    def _drawn_together(self, streams: Streams, nodes: IntArray, t: IntArray, m: int) -> Array:
        """√a(η_i − mean η): its covariance is a·I − 11ᵀ, the Laplacian of the complete graph on the a that speak."""
        rounds, which = np.unique(t, return_inverse=True)
        starts, members = self.speaking(rounds)
        sizes = np.diff(starts)
        drawn = streams.normals(self.n + members, np.repeat(rounds, sizes), m)
        sums = np.add.reduceat(drawn, starts[:-1], axis=0)
        root = np.sqrt(sizes)[which][:, None]
        return root * drawn[self._places(starts, members, which, nodes)] - sums[which] / root

    def _places(self, starts: IntArray, members: IntArray, which: IntArray, nodes: IntArray) -> IntArray:
        """Where each node is among those that speak in its round."""
        keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * self.n + members
        order = np.argsort(keys, kind="stable")
        wanted = which * self.n + nodes
        found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        if not np.array_equal(keys[found], wanted):
            raise PrivacyError("a node was to draw noise in a round in which the schedule does not activate it")
        return found

    def _by_pair(self, streams: Streams, nodes: IntArray, t: IntArray, m: int) -> Array:
        """One row a pair, with opposite signs at its two ends, added in the order of pairs."""
        total, (starts, links, others, signs) = np.zeros((len(nodes), m)), self._ends
        rounds, which = np.unique(t, return_inverse=True)
        here = self._here(rounds)
        counts = np.diff(starts)[nodes]
        rows = np.repeat(np.arange(len(nodes)), counts)
        places = np.arange(len(rows)) + np.repeat(starts[nodes] - np.cumsum(counts) + counts, counts)
        both = here[which[rows], nodes[rows]] & here[which[rows], others[places]]
        rows, places = rows[both], places[both]
        drawn, which_drawn = np.unique(np.stack([links[places], t[rows]]), axis=1, return_inverse=True)
        few = max(1, ROWS // max(m, 1))
        for first in range(0, drawn.shape[1], few):
            pair, when = drawn[:, first : first + few]
            shared = streams.normals(self.n + pair, when, m)
            shared *= 1.0 if self.uneven is None else self.uneven[pair][:, None]
            these = np.flatnonzero((which_drawn >= first) & (which_drawn < first + few))
            np.add.at(total, rows[these], signs[places[these]][:, None] * shared[which_drawn[these] - first])
        return total

    @cached_property
    def _ends(self) -> tuple[IntArray, IntArray, IntArray, Array]:
        """Where each node's pairs begin in the lists of: pairs, in order, who is at the other end, and its own sign."""
        ends = self.pairs.ravel()
        order = np.argsort(ends, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=self.n))])
        return starts, order // 2, self.pairs[:, ::-1].ravel()[order], np.where(order % 2, -1.0, 1.0)

    def share(self, t: IntArray) -> Array:
        """σ, and more once nodes are lost."""
        return np.ones(len(t)) if self.epochs is None else self.epochs.raised[self.epochs.of(t)]

    @property
    def busiest(self) -> int:
        """Return the largest number of noise terms in one release."""
        if self.whole:
            most = self.n if self.attendance is None else int(np.diff(self.attendance.starts).max(initial=0))
            return 1 + most
        return 1 + int(np.bincount(self.pairs.ravel(), minlength=self.n).max())

    def noise_terms(self, nodes: IntArray, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """A node's own, and what it shares, for a process that makes the noise of all.

        A release has (1 + 2⁻¹⁵)σ of its own noise, and what pairs share rounded up by no more than that, to so few bits
        that all products are exact and that the factors of each shared noise are exactly zero together.
        """
        nodes, t = np.asarray(nodes, dtype=np.int64), np.asarray(t, dtype=np.int64)
        own = NoiseTerm(np.arange(len(nodes)), nodes, t, np.full(len(nodes), SPARE))
        factors = self._factors(sigma)
        if not self.whole:
            return [own, *self._pair_terms(nodes, t, factors)]
        rounds, which = np.unique(t, return_inverse=True)
        starts, members = self.speaking(rounds)
        sizes = np.diff(starts)
        self._places(starts, members, which, nodes)
        rows = np.flatnonzero(sizes[which] > 1)
        a, mine = sizes[which[rows]], factors[nodes[rows]]
        off = rounded_up(mine / np.sqrt(a), FACTOR_BITS)
        sums = SharedNoise(members, np.repeat(rounds, sizes), starts, which[rows], -off)
        return [own, NoiseTerm(rows, nodes[rows], t[rows], a * off, shared=True, shared_terms=sums)]

    def _factors(self, sigma: Scales) -> Array:
        """ρ/(c_iσ_i) of every node: its part in a pair, in units of its own noise."""
        _, tau, rho = self._weights(sigma)
        if np.any(tau <= 0):
            raise PrivacyError("every node needs noise of its own where pairs of nodes share some; give all a σ over 0")
        return np.asarray(rho / tau)

    def _pair_terms(self, nodes: IntArray, t: IntArray, factors: Array) -> list[NoiseTerm]:
        """Of every node, one for each pair that it is in, the first of all nodes together, then the second."""
        mine: list[list[tuple[int, int, float]]] = [[] for _ in range(self.n)]
        for e, (i, j) in enumerate(self.pairs.tolist()):
            times = 1.0 if self.uneven is None else float(self.uneven[e])
            mine[i].append((e, j, times))
            mine[j].append((e, i, -times))
        rounds, which = np.unique(t, return_inverse=True)
        here, found, bits = self._here(rounds), [], SHORT if self.uneven is None else FACTOR_BITS
        for place in range(max(map(len, mine), default=0)):
            rows = np.array(
                [
                    row
                    for row, i in enumerate(nodes.tolist())
                    if place < len(mine[i]) and here[which[row], i] and here[which[row], mine[i][place][1]]
                ],
                dtype=np.int64,
            )
            if rows.size:
                links, _, signs = zip(*(mine[i][place] for i in nodes[rows].tolist()), strict=True)
                sizes = np.array(signs) * rounded_up(factors[nodes[rows]], bits)
                found.append(NoiseTerm(rows, np.array(links), t[rows], sizes, shared=True))
        return found

    def with_peers(self, node: int, t: IntArray, sigma: Scales = ()) -> list[NoiseTerm]:
        """Of one real node in these rounds: its own noise, and what it really shares with each peer.

        Source after source names its `peer`; the address, the pair's number and the round, is the same at both ends.
        """
        t = np.asarray(t, dtype=np.int64)
        bits = SHORT if self.uneven is None else FACTOR_BITS
        me, factor = np.full(len(t), node), float(rounded_up(self._factors(sigma)[node : node + 1], bits)[0])
        here = self._here(t)
        found = [NoiseTerm(np.arange(len(t)), me, t, np.full(len(t), SPARE))]
        for e in np.flatnonzero(np.any(self.pairs == node, axis=1)).tolist():
            first, second = self.pairs[e].tolist()
            rows = np.flatnonzero(here[:, first] & here[:, second])
            if rows.size:
                size = factor * (1.0 if self.uneven is None else float(self.uneven[e]))
                factors = np.full(rows.size, size if node == first else -size)
                peer = second if node == first else first
                found.append(NoiseTerm(rows, np.full(rows.size, e), t[rows], factors, shared=True, peer=peer))
        return found

    # --- the account

    def covariance(self, coalition: tuple[int, ...] | None = None, sigma: Scales = (), t: int | None = None) -> Array:
        """Of c_i times the noise, between the nodes, in each coordinate; the coalition's seeds are taken out.

        Those named are the law's own if none are given; of the nodes that speak in round t, if that is given.
        """
        _, tau, rho = self._weights(sigma)
        honest = _without(np.ones(self.n, dtype=np.bool_), self.coalition if coalition is None else coalition)
        more = 1.0
        if t is not None:
            honest &= self._here(np.array([t]))[0]
            more = float(self.share(np.array([t]))[0]) ** 2
        weights = rho**2 * self.shares * np.outer(honest, honest)
        return more * (np.diag(tau**2 + weights.sum(axis=0)) - weights)

    def event(self, node: int, plain: GaussianEvent, sigma: Scales = ()) -> Event:
        """The same participation with σ̂_i for σ_i, for the worst coalition."""
        if self.k is None:
            given = sigma or (plain.sigma,) * self.n
            matrix = self.covariance(sigma=given)
            off = -matrix * (1 - np.eye(self.n))
            left = float(conductances((np.diag(matrix) - off.sum(axis=0))[None], off[None])[0, node])
            return replace(plain, sigma=plain.sigma * math.sqrt(left), note=canceled(self.coalition))
        if not sigma:
            assert self.scale is not None
            sigma = tuple((plain.sigma * self.scale[node] / self.scale).tolist())
        left_of = self.left(sigma)
        inorder = isinstance(plain, CyclicEvent)  # which round uses which record does not matter here
        slack = self.fails if self.chance else 0.0
        note = sheltered(self.k, left_of.exact and not (inorder and self.attendance is not None), slack)
        levels, rounds = left_of.levels[node] if left_of.levels else (), plain.rounds
        if inorder or not levels:
            return replace(plain, sigma=left_of.sigma[node], note=note)
        planned = sum(count for _, count in levels)
        if plain.part.gaussian and rounds == planned:  # of fewer rounds another coalition may be the worst
            levels = left_of.worst[node]
        if rounds > planned:
            raise PrivacyError(f"node {node} is said to speak {rounds} times, more often than by the schedule")
        return replace(plain, note=note).leveled(levels).after(rounds)

    def left(self, sigma: Scales) -> Left:
        """σ̂_i of every node."""
        c, tau, _ = self._weights(sigma)
        top = float(tau.max())
        if top <= 0:
            return Left((0.0,) * self.n, (), (), True)
        relative = tuple((tau / top).tolist())
        known = self._known.get(relative)
        if known is None:
            known = self._known[relative] = self._relative(np.array(relative))
        unit = top / c
        least = tuple((unit * np.array(known.sigma)).tolist())
        levels, worst = (
            tuple(tuple((float(u * s), count) for s, count in mine) for u, mine in zip(unit, some, strict=False))
            for some in (known.levels, known.worst)
        )
        return Left(least, levels, worst, known.exact)

    @cached_property
    def _known(self) -> dict[tuple[float, ...], Left]:
        """What was found before: everything is linear in σ."""
        return {}

    def _relative(self, tau: Array) -> Left:
        """c_i σ̂_i where max c_jσ_j = 1."""
        d, rho2, k = tau**2, self.ratio**2, self.k or 0
        if self.attendance is None:
            if self.chance:
                bound = least_noise_left(d, rho2, self.chance, self.fails, k)
                return Left((math.sqrt(bound),) * self.n, (), (), False)
            if self.may_lose:
                return self._losing(k)
            if self.whole:
                return Left(tuple(np.sqrt(complete(d, rho2, k)).tolist()), (), (), True)
            if not self._many(1):
                least = np.full(self.n, math.inf)
                for coalitions, left in self._noise_left(d, rho2, self._sets()[0]):
                    honest = ~coalitions
                    least = np.minimum(least, np.where(honest, left[0], math.inf).min(axis=0))
                return Left(tuple(np.sqrt(least).tolist()), (), (), True)
            found = connected(d, rho2 * self.shares, k)
            if found is None:
                raise PrivacyError(
                    f"what the worst {k} of {self.n} nodes leave cannot be determined for this graph of secrets; let "
                    "all "
                    "share with all ('pairs(r)' without a graph), or take a denser graph"
                )
            return Left((math.sqrt(found),) * self.n, (), (), False)
        return self._by_round(d, rho2)

    def _losing(self, k: int) -> Left:
        """The least of all epochs that there may be: c_iσ_i are equal, so that only the number of lost nodes counts.

        Against the coalition that noise is raised for, and smaller ones, that is the first epoch's.
        """
        r2, n = self.ratio**2, self.n

        def left(gone: int) -> float:
            return self.raise2(gone) * (1.0 + r2 * max(n - gone - k, 1)) / (1.0 + r2)

        least = min(map(left, range(self.may_lose + 1)))
        return Left((math.sqrt(least),) * n, (), (), least == left(0))

    def _noise_left(self, d: Array, rho2: float, sets: Mask) -> Iterator[tuple[Mask, Array]]:
        """Some coalitions at a time: who is in them, (some, n), and what they leave, (sets, some, n)."""
        size = max(1, int(2e6 / (len(sets) * self.n * (1 if self.whole else self.n))))
        listed = self._coalitions()
        while some := list(itertools.islice(listed, size)):
            coalitions = np.zeros((len(some), self.n), dtype=np.bool_)
            if self.k:
                coalitions[np.arange(len(some))[:, None], np.array(some)] = True
            honest = sets[:, None, :] & ~coalitions
            if self.whole:
                yield coalitions, joint_noise(d, rho2, honest)
            else:
                flat = honest.reshape(-1, self.n)
                weights = rho2 * self.shares * flat[:, :, None] * flat[:, None, :]
                yield coalitions, conductances(np.where(flat, d, 1.0), weights).reshape(honest.shape)

    def _by_round(self, d: Array, rho2: float) -> Left:
        """One coalition over all rounds; where there are too many, at worst another one in every round."""
        sets, counts = self._sets()
        k = self.k or 0
        exact = not self._many(len(sets)) or k == 0
        if exact:
            blocks = list(self._noise_left(d, rho2, sets))
            coalitions = np.concatenate([some for some, _ in blocks])
            left = np.concatenate([left for _, left in blocks], axis=1)
        elif self.whole:
            order = np.argsort(-d, kind="stable")
            left = np.zeros((len(sets), 1, self.n))
            coalitions = np.zeros((1, self.n), dtype=np.bool_)
            for s, speaking in enumerate(sets):
                for i in np.flatnonzero(speaking).tolist():
                    gone = [j for j in order.tolist() if speaking[j] and j != i][:k]
                    left[s, 0, i] = joint_noise(d, rho2, _without(speaking, gone))[i]
        else:
            raise PrivacyError(
                f"what the worst {k} of {self.n} nodes leave of {len(sets):,} different sets of active nodes cannot be "
                "determined for this graph of secrets; let all share with all ('pairs(r)' without a graph), or let "
                "everybody "
                "speak in every round"
            )
        found = [
            levels_of(np.sqrt(left[sets[:, i]][:, ~coalitions[:, i], i]), counts[sets[:, i]]) for i in range(self.n)
        ]
        mine, worst = zip(*found, strict=True)
        floor = np.sqrt(complete(d, rho2, k)) if self.whole else np.sqrt(d)
        sigma = tuple(levels[0][0] if levels else float(alone) for levels, alone in zip(mine, floor, strict=True))
        return Left(sigma, tuple(mine), tuple(worst), exact)


def _without(nodes: Mask, some: tuple[int, ...] | list[int]) -> Mask:
    rest = nodes.copy()
    rest[list(some)] = False
    return rest
