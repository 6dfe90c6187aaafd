"""Gossip weights, from the links of one round to a doubly stochastic W; gossip by them; and how fast they mix: β.

Conventions: a rule takes the symmetric 0/1 adjacency (…, k, k) of the links *of this round* (any number of leading
axes: many rounds at once) and returns W of the same shape; z_i becomes Σ_j w_ij s_j. A node without a link in this
round has w_ii = 1. Doubly stochastic is what makes the average of all states exact and the objective unbiased. Adding
a rule is one row of `WEIGHTS`.

An `Averaging` stands on W and says three things about a round: what everybody ends up with (`mix`), who sends what to
whom, exchange after exchange (`exchanges`: the plan that a real node follows), and what that costs (`messages`,
`depth`). Gossip, here, is z ← Wz, k times for every gradient; `averaging` has the others.

β² = ρ(E[WᵀW] − 11ᵀ/n) is exact wherever the outcomes can be listed. On a complete graph no node is special, so that
E[WᵀW] is a multiple of the identity plus a constant and ρ = (E‖W‖_F² − 1)/(n − 1): one matching, or the samples that
hold one given link, are then enough. Elsewhere it is sampled, with an error bar. Frozen nodes cap the speed:
β² ≥ (n(1 − ι) + p − 1)/(n − 1) ≥ 1 − ι, where p = P(someone is active). And where a scheme wakes some nodes more often
than others, `correction` gives every node the same say again.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce._types import FLOAT_BYTES, Array, IntArray
from sottovoce.errors import NetworkError
from sottovoce.network.activation import LIMIT, Activation, Periodic
from sottovoce.network.graphs import DIRECTED, WIDE, Graph
from sottovoce.network.wide import LINKS, Wide, apart, of_links
from sottovoce.registry import Choices, Chosen, write

ROUNDING = 1e-12  # rows and columns of k weights sum to 1 up to k roundings; k is at most some thousands

Rule: TypeAlias = Chosen[Any, Array]
"""From the links of a round to W."""

Weights: TypeAlias = Array | Wide
"""W: a matrix, or what stands for one where there are very many nodes."""


def _rest_to_self(W: Array) -> Array:
    """Put what a row leaves over on its diagonal."""
    k = W.shape[-1]
    W[..., np.arange(k), np.arange(k)] = 1.0 - np.sum(W, axis=-1)
    return W


def _degrees(links: Any) -> tuple[Array, Array]:
    A = np.asarray(links, dtype=np.float64)
    if A.ndim == 2 and not np.array_equal(A, A.T):
        raise NetworkError(f"this graph {DIRECTED}")
    return A, np.sum(A, axis=-1)


def metropolis(links: Any) -> Array:
    """w_ij = 1/(1 + max(d_i, d_j)): needs no more than the degrees of the two ends.

    Examples
    --------
    >>> metropolis([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).round(3)
    array([[0.667, 0.333, 0.   ],
           [0.333, 0.333, 0.333],
           [0.   , 0.333, 0.667]])
    """
    A, d = _degrees(links)
    return _rest_to_self(A / (1.0 + np.maximum(d[..., :, None], d[..., None, :])))


def uniform(links: Any) -> Array:
    """w_ij = 1/(1 + d_i) for itself and every neighbor; only where linked nodes have equal degrees.

    Examples
    --------
    >>> uniform([[0, 1], [1, 0]])
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    A, d = _degrees(links)
    if np.any((A > 0) & (d[..., :, None] != d[..., None, :])):
        raise NetworkError(
            "uniform weights are doubly stochastic only where linked nodes have equally many links, and here some "
            "do not; use metropolis"
        )
    return _rest_to_self(A / (1.0 + d[..., :, None]))


def max_degree(links: Any) -> Array:
    """w_ij = 1/(1 + d_max), d_max the largest degree of the round.

    Examples
    --------
    >>> max_degree([[0, 1, 0], [1, 0, 1], [0, 1, 0]])[0].round(3)
    array([0.667, 0.333, 0.   ])
    """
    A, d = _degrees(links)
    return _rest_to_self(A / (1.0 + np.max(d, axis=-1, initial=0.0)[..., None, None]))


def lazy(links: Any) -> Array:
    """(I + Metropolis)/2: every eigenvalue is non-negative.

    Examples
    --------
    >>> lazy([[0, 1], [1, 0]])
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    W = metropolis(links)
    return 0.5 * (np.eye(W.shape[-1]) + W)


def alone(links: Any) -> Array:
    """The identity: every node keeps to itself, a reference that all gossip must beat.

    Examples
    --------
    >>> alone([[0, 1], [1, 0]])
    array([[1., 0.],
           [0., 1.]])
    """
    shape = _degrees(links)[0].shape
    return np.broadcast_to(np.eye(shape[-1]), shape).copy()


WEIGHTS = Choices.of_functions(
    "weight rule", {rule.__name__: rule for rule in (metropolis, uniform, max_degree, lazy, alone)}, NetworkError
)
"""Every rule by name."""
METROPOLIS: Rule = WEIGHTS.read("metropolis")
_FORMULAS = {rule: LINKS[rule.__name__] for rule in (metropolis, uniform, max_degree, lazy, alone)}


def wide(rule: Rule, n: int, ends: IntArray | None) -> Wide:
    """W of very many nodes, by a rule that is a formula of the degrees; `ends` are the linked places, None for all.

    Examples
    --------
    >>> path = wide(METROPOLIS, 3, np.array([[0, 1], [1, 2]])).listed()
    >>> bool(np.all(path == metropolis(np.eye(3, k=1) + np.eye(3, k=-1))))
    True
    """
    formula = _FORMULAS.get(rule.function)
    if formula is None:
        raise NetworkError(
            f"weights '{rule}' are known as a matrix only, and {n:,} nodes in one round are too many for one; use "
            f"metropolis, or at most {WIDE:,} nodes a round"
        )
    found = of_links(n, ends, formula)
    found.check()
    return found


def listed(W: Weights) -> Array:
    """As a matrix."""
    return W.listed() if isinstance(W, Wide) else W


def check_doubly_stochastic(W: Array) -> None:
    """Refuse a W, or a stack of them, whose entries are negative or whose rows or columns do not sum to 1.

    Examples
    --------
    >>> check_doubly_stochastic(np.full((2, 2), 0.5))
    >>> check_doubly_stochastic(np.array([[1.0, 0.0], [0.5, 0.5]]))
    Traceback (most recent call last):
    ...
    sottovoce.errors.NetworkError: column 0 of the weights sums to 1.5, but every column must sum to 1; ...
    """
    W = np.asarray(W, dtype=np.float64)
    if W.ndim < 2 or W.shape[-1] != W.shape[-2]:
        raise NetworkError(f"weights must be a square matrix, not an array of shape {W.shape}; give one row a node")
    if not np.all(np.isfinite(W)):
        raise NetworkError("the weights hold NaN or infinite values, but must lie between 0 and 1; fix them")
    if np.any(W < 0):
        raise NetworkError(f"a weight is {np.min(W):g}, but weights must not be negative; fix the rule")
    for kind, axis in (("row", -1), ("column", -2)):
        sums = np.sum(W, axis=axis)
        off = np.argwhere(np.abs(sums - 1.0) > ROUNDING * max(1, W.shape[-1]))
        if len(off):
            at = tuple(off[0])
            raise NetworkError(
                f"{kind} {at[-1]} of the weights sums to {sums[at]:.12g}, but every {kind} must sum to 1; "
                "use a doubly stochastic rule such as metropolis"
            )


# --- what is done with W


class Exchange(NamedTuple):
    """One exchange of a round, as one node sees it; what it holds is its message before the first."""

    to: tuple[int, ...]
    """Who gets what it holds."""
    heard: tuple[int, ...]
    """Whom it waits for."""
    row: Mapping[int, float]
    """Whose values it holds afterwards, and with which weight: of those heard, and its own."""

    def named(self, names: Sequence[int]) -> "Exchange":
        """The same, with names[p] for p."""
        to = tuple([names[p] for p in self.to])
        heard = to if self.heard is self.to else tuple([names[p] for p in self.heard])
        return Exchange(to, heard, {names[p]: w for p, w in self.row.items()})


class Averaging(ABC):
    """What is done with the messages of a round. Nodes are counted by their places in W."""

    linear: ClassVar[bool] = True
    """Whether it is a matrix, `weights`, that everybody's messages are multiplied by."""
    bears_gaps: ClassVar[bool] = True
    """Whether an edge may be left out of a round by both of its ends, and the sum of all states is still kept."""
    on_the_wire: ClassVar[bool] = True
    """Whether real nodes can do it: their messages hold numbers of eight bytes."""

    def check(self, graph: Graph, rule: str) -> None:
        """Refuse a graph, or a weight rule (its name), with which it makes no sense."""
        return

    def refuse(self, W: Weights) -> None:
        """Refuse weights with which it makes no sense."""
        return

    def weights(self, W: Weights) -> Weights:
        """The matrix that it comes to; of one that is not linear, where nothing is cut."""
        return W

    @abstractmethod
    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """What every node ends up with, (k, …) of messages (k, …), in the order in which nodes compute it.

        Parameters
        ----------
        W : of the round's links
        messages : a row for each place
        unit : how much one ζ weighs in a message of this round
        """

    @abstractmethod
    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """What a node does in a round, one exchange after the other; as many for all that are linked."""

    def combine(self, me: int, exchange: Exchange, mine: Array, heard: Mapping[int, Array], unit: float = 1.0) -> Array:
        """What a node holds after one of its exchanges, summed in the order of the nodes, so always the same bits.

        The weight of a peer that was not heard, because both ends left their edge out, goes to what it held itself.
        """
        row = dict(sorted(exchange.row.items()))
        for peer in [peer for peer in row if peer != me and peer not in heard]:
            row[me] = row.get(me, 0.0) + row.pop(peer)
        first, *others = [weight * (mine if peer == me else heard[peer]) for peer, weight in sorted(row.items())]
        for part in others:
            first += part
        return first

    def messages(self, W: Weights) -> int:
        """How many messages cross a link in a round."""
        return W.links if isinstance(W, Wide) else int(np.count_nonzero(W) - np.count_nonzero(np.diag(W)))

    def message_bytes(self, numbers: int) -> int:
        """How long a message of so many numbers is, without framing."""
        return numbers * FLOAT_BYTES

    def pace(self, second: float) -> float:
        """β of a round that is always the same, whose W has this second eigenvalue."""
        return second

    def depth(self, W: Weights) -> int:
        """How many exchanges of a round wait for the one before, the first included; 0 where nobody is linked."""
        return int(bool(linked(W).any()))


def linked(W: Weights) -> NDArray[np.bool_]:
    """(…, k) whether a node hears of anybody else."""
    if isinstance(W, Wide):
        return W.linked
    k = W.shape[-1]
    return np.any((W > 0) & ~np.eye(k, dtype=np.bool_), axis=-1)


def whole(value: float, least: int, what: str) -> None:
    """Refuse what is not counted."""
    if not isinstance(value, int) or value < least:
        raise NetworkError(f"{what} is a whole number, at least {least}, not {value!r}")


@dataclass(frozen=True)
class Gossip(Averaging):
    """k exchanges for every gradient.

    Examples
    --------
    >>> str(Gossip()), str(Gossip(3)), Gossip(2).weights(np.array([[0.75, 0.25], [0.25, 0.75]]))[0].tolist()
    ('gossip', 'gossip(3)', [0.625, 0.375])
    """

    k: int = 1

    def __post_init__(self) -> None:
        """Exchanges are counted."""
        whole(self.k, 1, "how often nodes gossip for a gradient")

    def __str__(self) -> str:
        return write("gossip", *([self.k] if self.k > 1 else []))

    def weights(self, W: Weights) -> Weights:
        """W^k."""
        if self.k == 1:
            return W
        if isinstance(W, Wide):
            raise NetworkError(f"the matrix of {self.k} exchanges between {W.n:,} nodes is too large to be made")
        return np.linalg.matrix_power(W, self.k)

    def pace(self, second: float) -> float:
        """As often as nodes gossip."""
        return float(second**self.k)

    def mix(self, W: Weights, messages: Array, unit: float = 1.0) -> Array:
        """W times the messages, k times."""
        for _ in range(self.k):
            messages = W @ messages
        return messages

    def exchanges(self, W: Weights, place: int) -> tuple[Exchange, ...]:
        """With all neighbors, k times; all of one's neighbors hear the same."""
        return (with_all(W, place),) * self.k if linked(W)[place] else ()

    def messages(self, W: Weights) -> int:
        """k over each link in each direction."""
        return self.k * super().messages(W)

    def depth(self, W: Weights) -> int:
        """k."""
        return self.k * super().depth(W)


def with_all(W: Weights, place: int) -> Exchange:
    """One exchange with all neighbors."""
    if isinstance(W, Wide):
        row = {int(p): float(w) for p, w in zip(*W.row(place), strict=True) if w > 0}
    else:
        row = {int(p): float(W[place, p]) for p in np.flatnonzero(W[place] > 0)}
    peers = tuple(p for p in sorted(row) if p != place)
    return Exchange(peers, peers, row)


GOSSIP = Gossip()
"""The paper's: one exchange."""


# --- β


NEGLIGIBLE = 1e-12  # eigenvalues this close to 0 or 1 are 0 or 1
FARTHEST = 5_000_000  # outcomes that are processed where sampled rounds would leave most nodes out
BATCHES = 20  # of sampled rounds: each is judged by the eigenvector that the others found


@dataclass(frozen=True)
class Mixing:
    """β, and how well it is known."""

    beta: float
    error: float
    """Standard error of β; 0 where it is exact."""
    exact: bool


def beta(
    graph: Graph,
    activation: Activation,
    rule: Rule,
    samples: int = 20_000,
    rng: np.random.Generator | None = None,
    averaging: Averaging = GOSSIP,
) -> Mixing:
    """β of a scheme: exact where its outcomes can be listed or symmetry helps, else from sampled rounds.

    Where the averaging is not linear, it is that of a run in which nothing is cut.

    Examples
    --------
    >>> from sottovoce.network.activation import Edges
    >>> from sottovoce.network.graphs import GRAPHS
    >>> mixing = beta(GRAPHS.read("complete")(20), Edges(2), METROPOLIS)
    >>> round(mixing.beta, 6), mixing.exact
    (0.948258, True)
    """
    activation.width(graph)
    averaging.check(graph, rule.name)
    if graph.n == 1 or rule.function is alone:  # nobody to agree with, or not meant to
        return Mixing(0.0 if graph.n == 1 else 1.0, 0.0, exact=True)
    if isinstance(activation, Periodic):
        return _period(graph, activation, rule, averaging)
    if activation.count(graph) == 1 and graph.n > WIDE:
        second = _second(graph, rule)
        return _found(averaging.pace(second) ** 2, 0.0, True, graph, activation, rule, samples)
    if samples < 2 * BATCHES:
        raise NetworkError(f"{samples} samples are too few for an error bar; take at least {2 * BATCHES}")
    outcomes = _listed(graph, activation)
    exact = outcomes is not None
    if outcomes is None and graph.n > WIDE and not graph.is_complete:
        raise NetworkError(
            f"how fast '{activation}' mixes the {graph.n:,} nodes of graph '{graph.name}' is out of reach; let "
            "everyone speak, one link a round (edges(1)), or take the complete graph"
        )
    if activation.width(graph) > WIDE:
        samples = 2 * BATCHES  # so many nodes are much the same in every round
    choice = activation.draw(graph, samples, rng or np.random.default_rng(0)) if outcomes is None else outcomes

    def weights(links: Any) -> Array:
        return listed(averaging.weights(rule(links)))

    if graph.is_complete:
        squares = (
            _wide_frobenius(graph, activation, rule, averaging, choice)
            if activation.width(graph) > WIDE
            else _frobenius(graph, activation, weights, choice)
        )
        each = (squares - 1.0) / (graph.n - 1)
        rho, error = float(np.mean(each)), 0.0 if exact else float(np.std(each, ddof=1)) / math.sqrt(len(each))
    elif graph.n > WIDE:
        rho, error = _sparse_top(graph, activation, weights, choice), 0.0
    elif exact:
        rho, error = _top(_second_moment(graph, activation, weights, choice))[0], 0.0
    else:
        rho, error = _crossed(
            np.stack([_second_moment(graph, activation, weights, b) for b in np.array_split(choice, BATCHES)])
        )
    return _found(rho, error, exact, graph, activation, rule, samples)


def _period(graph: Graph, activation: Periodic, rule: Rule, averaging: Averaging) -> Mixing:
    """‖W_p ⋯ W_1 − 11ᵀ/n‖^(1/p) of a sequence of graphs that comes again and again."""
    if graph.n > WIDE:
        raise NetworkError(
            f"how fast '{activation}' mixes {graph.n:,} nodes is out of reach; take at most {WIDE:,} nodes, or edges(1)"
        )
    outcomes, product = activation.outcomes(graph), np.eye(graph.n)
    for nodes, links in activation.spread(graph, outcomes):
        for who, on in zip(nodes, links, strict=True):
            active = who[who >= 0]
            W = np.asarray(listed(averaging.weights(rule(on[: len(active), : len(active)]))))
            check_doubly_stochastic(W)
            product[active] = W @ product[active]
    rate = float(np.linalg.norm(product - 1.0 / graph.n, 2)) ** (1.0 / len(outcomes))
    return _found(rate**2, 0.0, True, graph, activation, rule, 0)


def _found(
    rho: float, error: float, exact: bool, graph: Graph, activation: Activation, rule: Rule, samples: int
) -> Mixing:
    """β = √ρ, where nodes can agree at all."""
    if rho > 1.0 - NEGLIGIBLE and not exact:
        raise NetworkError(
            f"{samples} sampled rounds of '{activation}' do not mix graph '{graph.name}'; take more samples"
        )
    if rho > 1.0 - NEGLIGIBLE:
        raise NetworkError(
            f"'{activation}' with {rule} weights never mixes on graph '{graph.name}' (β = 1), so that the nodes "
            "cannot agree; choose more links or nodes a round, or a graph with more links"
        )
    value = math.sqrt(rho) if rho > NEGLIGIBLE else 0.0
    return Mixing(value, error / (2.0 * value) if value > 0 else math.sqrt(error), exact)


@lru_cache(maxsize=16)
def _second(graph: Graph, rule: Rule) -> float:
    """|λ₂| of everyone's W on a graph of very many nodes: it takes long to find, and a plan requests more than once."""
    return wide(rule, graph.n, None if graph.is_complete else graph.edges).second(graph.columns)


def _listed(graph: Graph, activation: Activation) -> IntArray | None:
    """Outcomes that stand for all of them, if they are few enough."""
    if graph.is_complete:
        return activation.typical(graph)
    count, most = activation.count(graph), LIMIT if graph.n <= WIDE else FARTHEST
    return activation.outcomes(graph) if count is not None and count <= most else None


def _second_moment(graph: Graph, activation: Activation, weights: Callable[[Any], Array], choice: IntArray) -> Array:
    """The mean of WᵀW − 11ᵀ/n over the given outcomes."""
    n, total = graph.n, np.zeros(graph.n**2)
    for nodes, links in activation.spread(graph, choice):
        W = weights(links)
        check_doubly_stochastic(W)
        change = W.transpose(0, 2, 1) @ W - np.eye(W.shape[-1])  # idle and absent nodes: none, W is the identity there
        at = np.maximum(nodes, 0)
        total += np.bincount((at[:, :, None] * n + at[:, None, :]).ravel(), change.ravel(), minlength=n * n)
    return np.eye(n) - 1.0 / n + total.reshape(n, n) / len(choice)


def _frobenius(graph: Graph, activation: Activation, weights: Callable[[Any], Array], choice: IntArray) -> Array:
    """‖W‖_F² of each outcome."""
    squares = []
    for _, links in activation.spread(graph, choice):
        W = weights(links)
        check_doubly_stochastic(W)
        squares.append(np.einsum("rij,rij->r", W, W) + (graph.n - W.shape[-1]))
    return np.concatenate(squares)


def _wide_frobenius(graph: Graph, activation: Activation, rule: Rule, averaging: Averaging, choice: IntArray) -> Array:
    """‖W‖_F² of each outcome of very many nodes on the complete graph."""
    squares = []
    for row in choice:
        nodes, ends = activation.spelled(graph, row)
        W = averaging.weights(wide(rule, len(nodes), ends))
        assert isinstance(W, Wide)
        squares.append(W.squares + (graph.n - len(nodes)))
    return np.array(squares)


def _sparse_top(graph: Graph, activation: Activation, weights: Callable[[Any], Array], choice: IntArray) -> float:
    """ρ of the mean of WᵀW − 11ᵀ/n over outcomes that each change few of very many nodes."""
    from scipy.sparse import coo_array  # only where there are so many nodes

    n, change = graph.n, coo_array((graph.n, graph.n)).tocsr()
    for nodes, links in activation.spread(graph, choice):
        W = weights(links)
        check_doubly_stochastic(W)
        entries = (W.transpose(0, 2, 1) @ W - np.eye(W.shape[-1])).ravel()
        at = np.maximum(nodes, 0)
        rows, columns = (np.broadcast_to(part, W.shape).ravel() for part in (at[:, :, None], at[:, None, :]))
        change = change + coo_array((entries / len(choice), (rows, columns)), shape=(n, n)).tocsr()
    widest = 2.0 * float(np.max(-change.diagonal(), initial=0.0))  # 1 − ρ is as small as a node is seldom active:
    return 1.0 - widest * (1.0 - apart(change / widest, 1.0))  # in units of that it is found to all digits


def _top(M: Array) -> tuple[float, Array]:
    """The largest eigenvalue and its vector; M is positive semidefinite, so it is ρ(M)."""
    values, vectors = np.linalg.eigh(M)
    return float(values[-1]), vectors[:, -1]


def _crossed(moments: Array) -> tuple[float, float]:
    """ρ of the mean moment, and its standard error, from the moments of independent batches.

    The largest eigenvalue of a mean is too large on average (it picks the luckiest direction); a batch seen along
    the direction that the other batches found is, on average, too small. Half-way is the estimate, and all that
    lies between the two counts as error.
    """
    mean, count = np.mean(moments, axis=0), len(moments)
    high = _top(mean)[0]
    if high > 1.0 - NEGLIGIBLE:  # the samples leave the graph in pieces: no estimate at all
        return high, 0.0
    unlucky = []
    for moment in moments:
        _, v = _top((count * mean - moment) / (count - 1))
        unlucky.append(float(v @ moment @ v))
    low, spread = float(np.mean(unlucky)), float(np.std(unlucky, ddof=1)) / math.sqrt(count)
    return 0.5 * (high + low), math.hypot(spread, high - low)


def uneven(iota: Array) -> bool:
    """Whether some nodes are active more often than others.

    Examples
    --------
    >>> uneven(np.array([0.1, 0.1])), uneven(np.array([0.1, 0.2]))
    (False, True)
    """
    return bool(np.ptp(iota) > NEGLIGIBLE * np.max(iota))


def correction(iota: Array) -> tuple[float, Array]:
    """p̄ and the factors p̄/p_i that, put on the noised gradients, give every node the same say.

    Examples
    --------
    >>> correction(np.array([0.25, 0.5, 0.75]))
    (0.5, array([2.        , 1.        , 0.66666667]))
    """
    idle = np.flatnonzero(iota <= 0)
    if idle.size:
        raise NetworkError(
            f"node {idle[0]} is never active, so that no factor can make up for it; choose another activation scheme"
        )
    mean = float(np.mean(iota))
    return mean, mean / iota


def activation_rate(graph: Graph, activation: Activation, correct: bool) -> tuple[float, Array]:
    """ι and the factor on each node's noised gradient: all ones where every node is equally likely to be active.

    Where they are not, the method would minimize an objective weighted by p_i: either the factors p̄/p_i fix that
    (`correct`), or it is an error.

    Examples
    --------
    >>> from sottovoce.network.activation import Edges
    >>> from sottovoce.network.graphs import GRAPHS
    >>> activation_rate(GRAPHS.read("path")(3), Edges(1), correct=True)
    (0.6666666666666666, array([1.33333333, 0.66666667, 1.33333333]))
    """
    iota = activation.iota(graph)
    if not uneven(iota):
        return float(iota[0]), np.ones(graph.n)
    if activation.tempered and not correct:
        factors, mean = iota**-0.5, float(np.mean(iota))
        return mean, factors * mean / float(np.mean(factors * iota))
    if not correct:
        raise NetworkError(
            f"'{activation}' on graph '{graph.name}' activates node {int(np.argmin(iota))} with probability "
            f"{np.min(iota):.3g} and node {int(np.argmax(iota))} with {np.max(iota):.3g}, which biases the objective "
            "towards the busier ones; allow the correction (--debias), or use nodes(k), everyone or a regular graph"
        )
    return correction(iota)
