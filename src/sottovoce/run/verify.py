"""Check a saved run against its spec and its public numbers, by planning it again without any record.

Everything that a statement rests on is public: the spec, each node's number of records, each node's number of messages.
`verify` plans the run again from these (`run.plan`) and draws the schedule again from its seed. Then it computes the σ
that ``private(ε)`` needs, Theorem 1's claims and every node's event. It detects a statement with other events, with
another δ or adversary, or with secret noise where there was a seed, even if its own numbers are consistent.

This is no signature: anyone who rewrites a whole folder, spec included, describes another run, and correctly so. Not
checked: that the run followed its spec (`secure` included), what a unit is, how held-out records were used.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sottovoce.errors import PrivacyError, SottovoceError
from sottovoce.features import CELLS
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.events import Event
from sottovoce.privacy.statement import PERSON, PrivacyStatement, grouped_by_event, others_of
from sottovoce.run.plan import Plan, Public, Request, plan_public
from sottovoce.run.spec import Spec

SEARCHED = 1e-3
"""By how much of itself a σ that was searched for may differ on another machine; other numbers by rounding only."""
SIZES = ("n", "m", "records", "participations")
NUMBERS = ("edges", "iota", "lipschitz", "participations", "theorem1")


def verify(spec: Spec, public: Public, statement: PrivacyStatement, environment: Mapping[str, Any]) -> None:
    """Raise an error unless the statement is what this spec guarantees with these public numbers."""
    statement.verify()
    if not isinstance(public, Mapping):
        raise PrivacyError("the public numbers are no list of named numbers; give a saved run, as it was printed")
    missing = [name for name in SIZES if name not in public]
    if missing:
        raise PrivacyError(f"the public numbers lack {', '.join(missing)}, without which there is nothing to verify")
    if spec.seed is None and public.get("schedule_seed") is None:
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
    _check_moved(spec, public)
    _check_distribution(spec, public)
    _check_inference(made, public)
    for name in NUMBERS:
        if name in public:
            _check_equal(f"the public number {name}", public.get(name), made.public.get(name))
    _check_statement(statement, made, environment)
    _compare_events(statement, made, SEARCHED if isinstance(spec.privacy.noise, Private) else 1e-9)


def _check_statement(statement: PrivacyStatement, made: Plan, environment: Mapping[str, Any]) -> None:
    """All of it but its events."""
    spec = made.spec
    claimed = made.claims[0].epsilon if made.claims else None
    _check_equal("the statement's delta", statement.delta, spec.privacy.delta)
    _check_equal("the statement's adversary", statement.adversary, str(made.release.adversary))
    _check_equal("the statement's claimed", statement.claimed, claimed)
    _check_equal("the statement's simulation", statement.simulation, spec.seed is not None)
    _check_equal("the statement's features", statement.features, spec.problem.features.words)
    if statement.secure and statement.simulation:
        raise PrivacyError("the statement is of a secure run, but a seed was given: a simulation's noise is not secret")
    if statement.software and environment:
        ran = f"sottovoce {environment.get('sottovoce')}, {environment.get('machine')}"
        _check_equal("the statement's software", statement.software, ran)


def _check_moved(spec: Spec, public: Public) -> None:
    """Check that scores are moved if, and only if, counts of them were released."""
    moved: Any = public.get("moved")
    if (moved is None) == bool(spec.privacy.balance):
        raise PrivacyError("the result moves scores, but its run released no counts of them, or the reverse")
    if moved is not None and not (isinstance(moved, float) and math.isfinite(moved)):
        raise PrivacyError(f"scores are moved by {_short(moved)}; expected one finite number")


def _check_range(spec: Spec, public: Public) -> None:
    """Check that a range of targets is stated only if their counts were released."""
    found: Any = public.get("targets")
    if (found is None) == bool(spec.privacy.quantiles):
        raise PrivacyError(
            "the result states a target range, but its run released no counts of targets, or the reverse"
        )
    if found is not None and not (
        isinstance(found, list | tuple)
        and len(found) == 2
        and all(isinstance(end, float) for end in found)
        and -1 <= found[0] < found[1] <= 1
    ):
        raise PrivacyError(f"the range of targets is {_short(found)}, and should be two numbers within [−1, 1]")


def _check_distribution(spec: Spec, public: Public) -> None:
    """That distribution functions are given where columns were counted, and nowhere else."""
    found: Any = public.get("distribution")
    planned = spec.privacy.distribution
    if (found is None) == bool(planned):
        raise PrivacyError("distribution functions are given if, and only if, a run releases counts of its columns")
    if found is None:
        return
    try:
        values = np.array(found, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full((1, 1), np.nan)
    shaped = values.shape == (planned.columns, CELLS)
    if not shaped or not np.all((values >= 0) & (values <= 1)) or np.any(np.diff(values, axis=1) < 0):
        raise PrivacyError(
            f"distribution functions are {_short(found)}, and should be {CELLS} rising numbers from 0 to 1 for each of "
            f"{planned.columns} columns"
        )


def _check_inference(made: Plan, public: Public) -> None:
    """Check that sums for intervals are published only if released, with the noise that the plan gives them."""
    published: Any = public.get("inference")
    if (published is None) == bool(made.spec.privacy.inference):
        raise PrivacyError("the result states sums for intervals, but its run released none, or the reverse")
    if published is None:
        return
    from sottovoce.run.inference import replayed

    before, sizes = made.release.before, made.problem.sizes
    assert before is not None
    weights = sizes / sizes.sum()
    try:
        deviation = float(published["deviation"])
        replayed(made.spec, published, made.problem.features, int(sizes.sum()), made.problem.people)
    except SottovoceError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, np.linalg.LinAlgError) as error:
        raise PrivacyError(f"the released sums for intervals cannot be read ({type(error).__name__})") from None
    expected = float(np.linalg.norm(weights * np.array(before.sigma)))
    _check_equal("the noise in sums for intervals", deviation, expected, SEARCHED)


def again(spec: Spec, public: Public, people: bool) -> Plan:
    """The run's plan, made from its public numbers: nothing of a plan depends on what records hold."""
    sizes, width = public["records"], int(public["m"])
    features, rest = divmod(width, spec.problem.outputs)
    features -= spec.problem.intercept > 0
    counted = all(isinstance(size, int) and size >= 1 for size in sizes)
    if public["n"] != len(sizes) or rest or features < 1 or not counted:
        raise PrivacyError(
            f"{public['n']} nodes with {sizes} records and models of {width} numbers are none of this spec's runs"
        )
    seed = spec.seed if spec.seed is not None else public.get("schedule_seed")
    return plan_public(Request(spec, np.array(sizes), features, people, seed))


def _compare_events(statement: PrivacyStatement, made: Plan, searched: float) -> None:
    """Return every node's event and the groups of nodes with equal events."""
    expected = grouped_by_event(made.events())
    best = any(group.event.law in ("joint", "search") for group in statement.groups)  # one of several runs
    if not best:
        sizes, turns = made.problem.sizes, made.schedule.turns
        expected = [*expected, *others_of(made.release, sizes, made.spoken, statement.delta, turns)]
    stated = (*statement.groups, *statement.others)
    mine, theirs = [group.nodes for group in stated], [nodes for _, nodes in expected]
    _check_equal("the statement's groups of nodes", mine, theirs)
    for group, (event, nodes) in zip(stated, expected, strict=True):
        said, true = _own(group.event, event).to_dict(), event.to_dict()
        for name in said | true:
            near = searched if name in ("sigma", "levels") else 1e-9
            what = f"the {name} of nodes {list(nodes)}"
            _check_equal(what, said.get(name), true.get(name), near)


def _own(event: Event, true: Event) -> Event:
    """Of a search, or of several releases, the one that is this run's: the nearest in its noise."""
    several = getattr(event, "runs", None) or getattr(event, "releases", None) or (event,)
    candidates = [one for one in several if type(one) is type(true)] or list(several)
    return min(candidates, key=lambda one: (one.rounds != true.rounds, abs(one.sigma - true.sigma)))


def _check_equal(what: str, mine: Any, theirs: Any, near: float = 1e-9) -> None:
    if not _nearly_equal(mine, theirs, near):
        raise PrivacyError(f"{what} is {_short(mine)}, but the spec and the public numbers give {_short(theirs)}")


def _nearly_equal(mine: Any, theirs: Any, near: float) -> bool:
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return mine.keys() == theirs.keys() and all(_nearly_equal(mine[k], theirs[k], near) for k in mine)
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return len(mine) == len(theirs) and all(_nearly_equal(a, b, near) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or math.isclose(mine, theirs, rel_tol=near)
    return bool(mine == theirs)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
