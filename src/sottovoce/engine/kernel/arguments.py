"""What the kernel is given: a run as named tuples of flat arrays, so that functions take five things, not fifty.

And how its functions are compiled. Only entry points are cached on disk: the cache of a caller does not notice that a
callee was edited. No function of the kernel allocates; so none needs to count references (`_nrt`), which costs
microseconds a round: each call would count every array that it is handed, atomically. None is called from C; so none
needs a wrapper for that (`no_cfunc_wrapper`), which takes time to compile; and what only others of the kernel call is
finished by them (`inside`).
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from sottovoce.engine.kernel import CYCLIC, FIXED, INJECTED, L2_BALL, MATRIX, POISSON, SEPARABLE
from sottovoce.engine.kernel.bundles import bundle
from sottovoce.engine.kernel.inside import UNFINISHED

njit: Any = numba.njit  # its types do not know of all of these
OUTSIDE = {"nogil": True, "_nrt": False, "no_cfunc_wrapper": True, "error_model": "numpy", "cache": True}
INSIDE = {**OUTSIDE, "no_cpython_wrapper": True, "cache": False, **UNFINISHED}
inlined = njit(inline="always", _nrt=False)
exact = njit(**INSIDE, fastmath=False)
"""Every rounding as in NumPy; it must be said, or Numba gives a function the liberties of its caller."""
LIBERTIES = {"reassoc", "contract", "nsz", "arcp"}
compiled = njit(**INSIDE, fastmath=LIBERTIES)
"""Sums may be reordered and products contracted, which is what lets loops vectorise; the other liberties of `fastmath`
(no infinities, no NaN) are not taken, because boxes may be unbounded on a side."""
folded = njit(**INSIDE, fastmath=LIBERTIES, forceinline=True)
"""As `compiled`, for what is done for every record: to hand `Data` over to a function takes longer than a short row."""
fast = njit(**INSIDE, fastmath=True)

NONE = np.int64(0)
"""Where something is counted from: of a literal 0 Numba would make a type of its own, and compile everything twice."""
BLOCK = 1024
"""Counters made at a time: two stretches of as many normals."""
LANES = 64
"""Counters come in multiples of this, so that all are made by the same vectorised loop: one that is left over would be
rounded in another way, and take ten times as long."""
BATCH = 256
"""Rows of a batch that are gone through together."""
SOME = 32
"""Dense rows that are gone through together where there are several outputs, at the most."""
FEW = 32
"""Records of a CSR batch that is scattered after mixing, not before."""

# Of rounds that are looked at ahead (`wake`): these change speed, and no number that comes out.
LARGE = 1 << 25
"""Bytes of state above which a block of rounds is gone through in parts: what a cache of all cores holds."""
CACHE = 1 << 22
"""Bytes of state that a part may have: they must come back from a cache before the block is over."""
SPOTS = 512
"""Active nodes that a block may have: more visits for one trip from memory, but more coordinates touched."""
TOUCHED = 4
"""Of so many coordinates one may be touched in a block: they are gone through twice."""
LINE = 64
"""Bytes of memory that are read together."""
PHASE = 16
"""Rounds of a block whose touched coordinates are needed equally long: with fewer, copies are out of order."""
COLUMNS = 64
"""Coordinates of all nodes that go through a block of edges together: the nearest cache holds them (`near`)."""
DRAWN = 128
"""Counters whose normals are drawn at a time for a whole block of edges, a multiple of both COLUMNS and LANES."""
EDGE, NUMBERS = 5, 6
"""What is written down of an edge of such a block, for all runs and for each."""
REVISITS = 3
"""Visits to a node in a block, on average, from which on it pays."""


@bundle
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
    weights: Any
    """Of rows; empty where all count the same."""
    offsets: Any
    order: Any
    """Empty where places are rows."""
    starts: Any
    """Empty where units are places."""


@bundle
class Plan(NamedTuple):
    """The schedule; weights[corners[p]:] is pattern p, row by row, group after group."""

    starts: Any
    active: Any
    pattern: Any
    weights: Any
    corners: Any
    groups: Any
    """Into how many groups of equal size the active nodes of a pattern fall, that do not hear each other."""
    flat: Any
    """Whether all weights of a pattern are the same, to rounding: everybody gets the mean."""
    widest: int
    speakers: int
    """How many of a round's active nodes take a gradient, the first ones."""
    averaging: int
    bound: float
    """The radius of clipped differences, or how many values are trimmed at each end."""


@bundle
class Steps(NamedTuple):
    """a_t, γ_t, s_t = ιA_t of rounds 1 … T, and the prefix sums of `LazySum`; axis 0: distinct sequences."""

    push: Any
    """The factor on c_i ζ_i in a message: a_t, or −η_t in descent."""
    a: Any
    gamma: Any
    s: Any
    A: Any
    P: Any
    Q: Any
    which: Any
    """(R,) the sequences of each variant."""


@bundle
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
    """Whether x stands still while a node sleeps: primal='as_written', and descent."""
    descent: bool
    """x = z, and h comes in by its proximal map after mixing."""
    after: bool
    """Whether ζ_i joins after mixing."""
    loss: int
    parameter: float
    clip: Any
    outputs: int


@bundle
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
    pairs: bool
    """Whether all nodes share secrets with all, so that they have noise that is gone from the sum of c_i ζ_i."""
    shared: Any
    """(R, n) ρ/c_i, the factor on that noise at each node; or empty."""
    level: bool
    """Whether it is of one size at all nodes, and so gone from every mean of messages."""
    injected: Any
    """(places, m) noise, or empty."""
    records: Any
    starts: Any
    """records[starts[p]:starts[p + 1]] are the injected picks of place p; `every[p]` stands for all."""
    every: Any


@bundle
class Near(NamedTuple):
    """What blocks of edges need that are gone through in the nearest cache."""

    z: Any
    """(n + 1, COLUMNS) places."""
    total: Any
    """(n, COLUMNS) of nodes."""
    normals: Any
    """(spots, 2, DRAWN) cosines and sines."""
    edges: Any
    """(edges, EDGE) two nodes, where they find their z, and where they leave it."""
    numbers: Any
    """(R, edges, NUMBERS) factors on either z in the average, on either's normals, and on either z in its sum."""
    heard: Any
    pulled: Any
    """Of spots: whether noise is added in any run, and which of the block's records is its first."""
    spots: Any
    ends: Any
    """Of records: whose it is, and where its row ends."""
    next: Any
    columns: Any
    """(2, records) the next entry on either side, and its column."""
    pulls: Any
    """(R, records) what it pulls, times its weight in the average."""
    place: Any
    awake: Any
    """(n,) where a node's z is in the end, and the nodes that are active in the block."""
    shared: Any
    free: Any
    """(n + 1,) how many have their z at a place, and the places where nobody has."""
    entries: Any
    """(records, 4) stretches of their rows: the edge, the record, first and last entry."""


@bundle
class Tiles(NamedTuple):
    """What rounds need that are looked at ahead and gone through in parts."""

    stretch: int
    """Counters that go through a block of rounds together."""
    least: int
    """Active nodes that a block must have, or it does not pay."""
    marked: Any
    """(m,) in which phase of the block, from 1 on, a coordinate is touched last; 0 where it is not, and in between."""
    touched: Any
    seats: Any
    """Those that are, in order, and where they stand among the copies."""
    where: Any
    """(m,) where a touched coordinate stands among the copies, those needed longest first."""
    places: Any
    """Of phases, and of what every round needs: where the next one stands."""
    counters: Any
    turns: Any
    """What the normals of the copies are made from."""
    needed: Any
    """How many of the copies a round of the block, or a later one, needs."""
    next: Any
    """(spots, FEW, 2) the next entry of a row to be gone through with everything, on either side."""
    z: Any
    """The copies, flat."""
    edges: bool
    """Whether all rounds are edges whose nodes end with the same z, of which x is a multiple."""
    near: Near
    """For these; else nothing in it."""


@bundle
class Scratch(NamedTuple):
    """Working memory of one call. An active node has a spot: its place in the round, or in the rounds looked at."""

    x: Any
    y: Any
    g: Any
    records: Any
    taken: Any
    words: Any
    normals: Any
    mixed: Any
    counters: Any
    """0, 1, 2, …: each makes two normals."""
    where: Any
    """0, 1, 2, …: coordinates where they are in z."""
    glances: bool
    """Whether slopes of a few rows can be had without making x."""
    ahead: bool
    """Whether rounds are looked at ahead of time: as a rule they are of few records, which the kernel draws itself."""
    before: Any
    """The last round for which a spot's running sum is complete."""
    keys: Any
    """(spots, 2) of the noise."""
    pair_keys: Any
    """(spots, 2) of the noise that is shared, and the sum of all that is drawn of it for part of the coordinates."""
    sums: Any
    wide: Any
    """(widest, m) what messages become, where a coordinate cannot be averaged by itself; else empty."""
    heard: Any
    """(widest,) values of one coordinate."""
    rows: Any
    """(spots, FEW) rows glanced at, and `count` how many."""
    count: Any
    pull: Any
    """(R, spots, FEW) what each of them pulls, push·c_i/b included."""
    pending: Any
    """Whether the rounds slept are still to be summed up."""
    weight: Any
    """(R, spots) factor on −z of the rounds slept, where that is all there is to it; else 0."""
    loud: Any
    """(R, spots) factor on a unit normal, push·c_i σ_i."""
    held: Any
    """(R, widest, m) push·c_i ĝ_i of whole rows, where it joins after mixing; else empty."""
    block: Any
    pulls: Any
    about: Any
    """(BATCH,) rows that are gone through together, what each of them pulls, and what is known of it."""
    slopes: Any
    """(rows, K) of one unit, where units have several rows or models several outputs."""
    shares: Any
    """(K, SOME) of rows that are gone through together, where models have several outputs."""
    mean: Any
    kept: Any
    """(m,) the mean of one unit on its way, where units have several rows; zero in between."""
    tiles: Tiles | None


class Kind(NamedTuple):
    """What kind of a run it is: what of the kernel it needs. The rest is None, and is not even compiled.

    That is for the time that compiling takes, and for nothing else: with everything in it the kernel runs any job.
    """

    few: bool | None
    """Whether a round may be of few records at a node, which are glanced at; otherwise batches are summed up."""
    tiles: Tiles | None
    """For rounds that are looked at ahead and gone through in parts."""
    robust: bool | None
    """Whether messages are averaged so that liars are bounded."""
    pairs: bool | None
    """Whether all nodes share secrets with all."""
    joint: bool | None
    """Whether a record is more than a row and a slope: several rows or several outputs."""
    bent: bool | None
    """Whether x(z) is more than a multiple of z, or the proximal step more than a division."""


class Part(NamedTuple):
    """What is worked on at a time: coordinates first … and half + first …, `size` of each."""

    first: int
    size: int
    half: int
    copies: bool
    """Whether they are copies of touched coordinates: without sums, and without a second half."""
    later: bool
    """Whether slopes are known already, from a pass over copies."""
    known: int
    """Spots of the rounds that were looked at together."""


def all_counters(m: int) -> NDArray[np.uint32]:
    """0, 1, 2, … of m coordinates, filled up to a multiple of LANES."""
    return np.arange(-(-((m + 1) // 2) // LANES) * LANES, dtype=np.uint32)


def make_scratch(data: Data, plan: Plan, model: Model, noise: Noise, shape: tuple[int, int, int]) -> Scratch:
    """For these runs, whose state has (R, n, m) numbers."""
    R, _, m = shape
    rows = int(np.diff(data.starts).max()) if len(data.starts) else 1
    most = int(np.diff(data.offsets).max())
    few = may_be_few(data, plan, model, noise)
    ahead = few and noise.sampler in (FIXED, POISSON, CYCLIC) and int(noise.batch.max()) <= most_of_few(data)
    ahead = ahead and not noise.pairs
    tiled = ahead and data.sparse and model.kind == SEPARABLE and 16 * math.prod(shape) > LARGE
    widest, spots = plan.widest, max(plan.widest, SPOTS if ahead else 0)
    return Scratch(
        x=np.empty(m),
        y=np.empty(m),
        g=np.empty(m),
        records=np.empty(most, np.int64),
        taken=np.zeros(most, np.bool_),
        words=np.empty(2 * BLOCK, np.uint32),
        normals=np.zeros(4 * BLOCK, np.float32),
        mixed=np.empty((1 if plan.flat.all() else widest, BLOCK)),
        counters=all_counters(m),
        where=np.arange(m, dtype=np.int32),
        glances=few,
        ahead=ahead,
        before=np.zeros(spots, np.int64),
        keys=np.zeros((spots, 2), np.uint32),
        pair_keys=np.zeros((spots if noise.pairs else 0, 2), np.uint32),
        sums=np.zeros(2 * BLOCK if noise.pairs else 0),
        wide=np.empty((widest, m) if plan.averaging != MATRIX else (0, 0)),
        heard=np.empty(widest),
        rows=np.zeros((spots, FEW), np.int64),
        count=np.zeros(spots, np.int64),
        pull=np.zeros((R, spots, FEW)),
        pending=np.zeros(spots, np.bool_),
        weight=np.zeros((R, spots)),
        loud=np.zeros((R, spots)),
        held=np.zeros((R, widest, m) if model.after else (0, 0, 0)),
        block=np.empty(BATCH, np.int64),
        pulls=np.empty(BATCH),
        about=np.empty(BATCH),
        slopes=np.zeros((rows, model.outputs)),
        shares=np.zeros((model.outputs, SOME)),
        mean=np.zeros(m if rows > 1 else 0),
        kept=np.zeros(m if rows > 1 else 0),
        tiles=_make_tiles(shape, _only_edges(plan, model)) if tiled else None,
    )


def kind_of(data: Data, plan: Plan, model: Model, noise: Noise, scratch: Scratch) -> Kind:
    """What of the kernel these runs need."""
    joint = model.outputs > 1 or len(data.starts) > 0
    bent = model.kind != SEPARABLE or len(model.centre) > 0 or not _is_free(model)
    wanted = may_be_few(data, plan, model, noise), plan.averaging != MATRIX, noise.pairs, joint, bent
    few, robust, pairs, *more = (True if each else None for each in wanted)
    return Kind(few, scratch.tiles, robust, pairs, *more)


def may_be_few(data: Data, plan: Plan, model: Model, noise: Noise) -> bool:
    """Whether some round may be of few records at some node, whose slopes can be had without making x.

    For that x(z) must have a closed form, a record be a row with one slope, and messages be averaged coordinate by
    coordinate.
    """
    closed = not len(model.centre) and model.curvature == 0 and (model.kind <= L2_BALL or model.descent)
    single = model.outputs == 1 and not len(data.starts)
    small = noise.sampler == INJECTED or int(noise.batch.min()) <= most_of_few(data)
    return closed and single and small and plan.averaging == MATRIX


def most_of_few(data: Data) -> int:
    """So many records are few."""
    return FEW if data.sparse else 1


def _only_edges(plan: Plan, model: Model) -> bool:
    """Whether two and two nodes end with the same z, of which x is a multiple, in every round."""
    pairs = np.array_equal(np.diff([*plan.corners, len(plan.weights)]), 4 * plan.groups)
    alike = pairs and bool(np.all(np.ptp(plan.weights.reshape(-1, 2, 2), axis=1) == 0.0))
    return alike and not model.descent and _is_free(model)


def _is_free(model: Model) -> bool:
    """Whether h has no corner and no bound."""
    return not model.phi.any() and bool(np.all(np.isneginf(model.lo)) and np.all(np.isposinf(model.hi)))


def in_lines(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros that begin where a line of memory does, and share none with anything else."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 2 * LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(dtype).reshape(shape)


def _make_near(R: int, n: int, spots: int) -> Near:
    return Near(
        z=in_lines((n + 1, COLUMNS), np.float64),
        total=in_lines((n, COLUMNS), np.float64),
        normals=in_lines((spots, 2, DRAWN), np.float32),
        edges=np.zeros((spots // 2, EDGE), np.int64),
        numbers=np.zeros((R, spots // 2, NUMBERS)),
        heard=np.zeros(spots, np.bool_),
        pulled=np.zeros(spots, np.int64),
        spots=np.zeros(spots * FEW, np.int64),
        ends=np.zeros(spots * FEW, np.int64),
        next=np.zeros((2, spots * FEW), np.int64),
        columns=np.zeros((2, spots * FEW), np.int64),
        pulls=np.zeros((R, spots * FEW)),
        place=np.zeros(n, np.int64),
        awake=np.zeros(n, np.int64),
        shared=np.zeros(n + 1, np.int64),
        free=np.zeros(n + 1, np.int64),
        entries=np.zeros((spots * FEW, 4), np.int64),
    )


def _make_tiles(shape: tuple[int, int, int], edges: bool) -> Tiles:
    R, n, m = shape
    room = m // TOUCHED
    return Tiles(
        stretch=max(LANES, min(BLOCK, CACHE // (32 * R * n)) // LANES * LANES),
        least=REVISITS * n,
        marked=np.zeros(m, np.uint8),
        touched=np.zeros(room + 1, np.int32),
        seats=np.zeros(room + 1, np.int32),
        where=np.zeros(m, np.int32),
        places=np.zeros(SPOTS // PHASE + 3, np.int64),
        counters=np.zeros(room + LANES, np.uint32),
        turns=np.zeros(room + LANES, np.uint32),
        needed=np.zeros(SPOTS, np.int64),
        next=np.zeros((SPOTS, FEW, 2), np.int64),
        z=np.empty(R * n * room),
        edges=edges,
        near=_make_near(R, n, SPOTS if edges else 0),
    )
