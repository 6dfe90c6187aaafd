"""Whether a saved run says what its spec and its public numbers say: the plan is made again, without any record.

Everything that a statement rests on is public: the spec, who has how many records, who spoke how often. From these the
run is prepared once more, over records that hold nothing, with the schedule drawn again from its seed; then the σ that
``private(ε)`` needs, Theorem 1's claims, every node's event. A statement that tells of other events, of another δ or
adversary, or of secret noise where there was a seed, is found out, however well its own numbers fit together.

Where no seed of the schedule was kept (version 0.1, without a seed), K_i is taken from the public numbers and checked
against what the activation scheme can have drawn.

This is no signature: whoever writes a whole folder anew, spec and all, describes another run, and describes it rightly.
Taken on trust: that the run was made as its spec says (`secure` among it), what a unit is, how held-out records were
used.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy  # not its parts: they load when first used

from sottovoce._types import IntArray
from sottovoce.errors import PrivacyError, SottovoceError
from sottovoce.network.activation import Edges
from sottovoce.network.schedule import Schedule
from sottovoce.privacy.balance import NO_BALANCE
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.events import Event
from sottovoce.privacy.quantiles import NO_QUANTILES
from sottovoce.privacy.sampling import Cyclic
from sottovoce.privacy.statement import PERSON, PrivacyStatement, grouped_by_event, others_of
from sottovoce.problem.shards import Shards
from sottovoce.run.build import Prepared, Public, prepare, scheme_of
from sottovoce.run.spec import Spec

SEARCHED = 1e-3
"""By how much of itself a σ that was searched for may differ on another machine; other numbers by rounding only."""
UNLIKELY = 1e-9
"""Participations that a scheme would draw less often than this did not come from it."""
SIZES = ("n", "m", "records", "participations")
NUMBERS = ("edges", "iota", "lipschitz", "participations", "theorem1")


def verify(spec: Spec, public: Public, statement: PrivacyStatement, environment: Mapping[str, Any]) -> None:
    """Raise an error unless the statement is what this spec guarantees with these public numbers."""
    statement.verify()
    missing = [name for name in SIZES if name not in public]
    if missing:
        raise PrivacyError(f"the public numbers lack {', '.join(missing)}, without which there is nothing to verify")
    if statement.format > 1 and spec.seed is None and public.get("schedule_seed") is None:
        raise PrivacyError("the public numbers lack schedule_seed, which no run of this version leaves out")
    try:
        made = again(spec, public, people=statement.unit == PERSON.name)
    except (TypeError, ValueError, OverflowError) as error:
        raise PrivacyError(f"the public numbers are those of no run ({type(error).__name__})") from None
    except SottovoceError as error:
        if isinstance(error, PrivacyError):
            raise
        raise PrivacyError(f"this spec and these public numbers make no run: {error}") from None
    _check_range(spec, public)
    moved: Any = public.get("moved")
    if (moved is None) != (spec.privacy.balance == NO_BALANCE):
        raise PrivacyError("scores are moved if, and only if, a run lets out counts of them, not here")
    if moved is not None and not (isinstance(moved, float) and math.isfinite(moved)):
        raise PrivacyError(f"scores are moved by {_short(moved)}, and should be by one finite number")
    for name in NUMBERS:
        if name in public:
            _refuse_unless_alike(f"the public number {name}", public.get(name), made.public.get(name))
    claimed = made.claims[0].epsilon if made.claims else None
    _refuse_unless_alike("the statement's delta", statement.delta, spec.privacy.delta)
    _refuse_unless_alike("the statement's adversary", statement.adversary, str(made.job.release.adversary))
    _refuse_unless_alike("the statement's claimed", statement.claimed, claimed)
    _refuse_unless_alike("the statement's simulation", statement.simulation, spec.seed is not None)
    if statement.secure and statement.simulation:
        raise PrivacyError("the statement is of a secure run, but a seed was given: a simulation's noise is not secret")
    if statement.software and environment:
        ran = f"sottovoce {environment.get('sottovoce')}, {environment.get('machine')}"
        _refuse_unless_alike("the statement's software", statement.software, ran)
    _compare_events(statement, made, SEARCHED if isinstance(spec.privacy.noise, Private) else 1e-9)


def _check_range(spec: Spec, public: Public) -> None:
    """That a range of targets is told where their counts were let out, and nowhere else: they alone may tell it."""
    found: Any = public.get("targets")
    if (found is None) != (spec.privacy.quantiles == NO_QUANTILES):
        raise PrivacyError("a range of targets is told if, and only if, a run lets out their counts, not here")
    if found is not None and not (
        isinstance(found, list | tuple)
        and len(found) == 2
        and all(isinstance(end, float) for end in found)
        and -1 <= found[0] < found[1] <= 1
    ):
        raise PrivacyError(f"the range of targets is {_short(found)}, and should be two numbers within [−1, 1]")


def again(spec: Spec, public: Public, people: bool) -> Prepared:
    """The run, prepared from its public numbers: nothing of a plan depends on what records hold."""
    sizes, width = public["records"], int(public["m"])
    features, rest = divmod(width, spec.problem.outputs)
    features -= spec.problem.intercept > 0
    if public["n"] != len(sizes) or rest or features < 1 or min(sizes, default=0) < 1:
        raise PrivacyError(
            f"{public['n']} nodes with {sizes} records and models of {width} numbers are none of this spec's runs"
        )
    nothing = scipy.sparse.csr_array((sum(sizes), features), dtype=np.float64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    blank = Shards.of(nothing, np.ones(sum(sizes)), offsets, units=np.arange(sum(sizes)) if people else None)
    seed = spec.seed if spec.seed is not None else public.get("schedule_seed")
    if seed is not None:
        return prepare(spec.but(seed=seed), blank)
    return prepare(spec.but(seed=0), blank, _as_counted(spec, np.array(public["participations"])))


def _as_counted(spec: Spec, spoken: IntArray) -> Schedule:
    """A schedule with these participations, once they are seen to be possible ones; in which rounds is not known."""
    n, T = len(spoken), spec.algorithm.rounds
    scheme, graph = scheme_of(spec, n), spec.network.graph(n)
    chances = scheme.iota(graph)
    fixed = not isinstance(scheme, Edges) or scheme.k == 1  # links with a common node wake fewer
    tails = [min(float(scipy.special.bdtr(k, T, p)), float(scipy.special.bdtrc(k - 1, T, p)) if k else 1.0)
             if p < 1 else float(k == T) for k, p in zip(spoken.tolist(), chances.tolist(), strict=True)]  # fmt: skip
    possible = np.all((spoken >= 0) & (spoken <= T)) and (not fixed or int(spoken.sum()) == round(T * chances.sum()))
    if not possible or min(tails) < UNLIKELY / n:
        raise PrivacyError(
            f"'{scheme}' on this graph does not wake nodes {spoken.tolist()} times in {T} rounds: these participations "
            "are of another run"
        )
    if isinstance(spec.privacy.sampling, Cyclic) and np.any(chances < 1):
        raise PrivacyError(
            "records came in a fixed order, and neither a seed nor the schedule's was kept: which record was used how "
            "often cannot be told again; verify with the version that made the run"
        )
    counts = np.array([int(np.sum(spoken >= t)) for t in range(1, T + 1)])
    active = np.concatenate([np.flatnonzero(spoken >= t) for t in range(1, T + 1)]).astype(np.int32)
    widths, pattern = np.unique(counts, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Schedule(n, starts, active, pattern.astype(np.int32), tuple(np.eye(k) for k in widths.tolist()))


def _compare_events(statement: PrivacyStatement, made: Prepared, searched: float) -> None:
    """Every node's event, and which nodes are told together."""
    job = made.job
    sizes, schedule = job.problem.shards.sizes, job.schedule
    expected = grouped_by_event(job.release.events(sizes, schedule.participations(), schedule.turns))
    best = any(group.event.law in ("joint", "search") for group in statement.groups)  # one of several runs
    if statement.format > 1 and not best:
        delta, spoken = statement.delta, schedule.participations()
        expected = [*expected, *others_of(job.release, sizes, spoken, delta, schedule.turns)]
    stated = (*statement.groups, *statement.others)
    mine, theirs = [group.nodes for group in stated], [nodes for _, nodes in expected]
    _refuse_unless_alike("the statement's groups of nodes", mine, theirs)
    for group, (event, nodes) in zip(stated, expected, strict=True):
        said, true = _own(group.event, event).to_dict(), event.to_dict()
        names = said if statement.format == 1 else said | true  # version 0.1 wrote down less of an event
        for name in names:
            near = searched if name in ("sigma", "levels") else 1e-9
            what = f"the {name} of nodes {list(nodes)}"
            _refuse_unless_alike(what, said.get(name), true.get(name), near)


def _own(event: Event, true: Event) -> Event:
    """Of a search, or of several releases, the one that is this run's: the nearest in its noise."""
    several = getattr(event, "runs", None) or getattr(event, "releases", None) or (event,)
    alike = [one for one in several if type(one) is type(true)] or list(several)
    return min(alike, key=lambda one: (one.rounds != true.rounds, abs(one.sigma - true.sigma)))


def _refuse_unless_alike(what: str, mine: Any, theirs: Any, near: float = 1e-9) -> None:
    if not _alike(mine, theirs, near):
        raise PrivacyError(f"{what} is {_short(mine)}, but the spec and the public numbers give {_short(theirs)}")


def _alike(mine: Any, theirs: Any, near: float) -> bool:
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return mine.keys() == theirs.keys() and all(_alike(mine[k], theirs[k], near) for k in mine)
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(_alike(a, b, near) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or math.isclose(mine, theirs, rel_tol=near)
    return bool(mine == theirs)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
