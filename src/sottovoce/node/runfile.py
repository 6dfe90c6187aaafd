"""The run file: everything public about a run, from which every node derives the same schedule, noise and statement.

    run = "diabetes-1"            # another name is another run: fresh noise, and its own cost
    schedule_seed = 20260301      # public: who speaks when; noise and records never come from it
    timeout = 600                 # seconds that a slow peer is waited for before the run pauses
    skip_after = 60               # seconds after which an edge to a slow peer may be left out of a round; else never
    lost_after = 120              # with may_lose in [spec.privacy]: seconds of silence after which a node is lost
    liars = 0                     # how many members may lie about who is lost, and how far they are
    schema = "schema.toml"        # beside this file: the format of every node's records (`sottovoce.data.schema`)

    [nodes]                       # in order; the number of records of each (of people, with a unit) is public
    north = 1200
    south = 800

    [spec.algorithm]              # the fields of a Spec; what is left out has its default
    rounds = 500
    [spec.privacy]
    sampling = "poisson(32)"
    noise = "private(1.0)"

    [keys]                        # optional: the nodes' identities, so that nobody else can speak in their names
    north = "…"                   # as `sottovoce node key FOLDER` prints it; one for every node, or none

    in_units_of_bounds = true     # rows over the schema's bound, targets in [−1, 1]: as estimators pose a problem

Records whose columns are all numbers, scaled already, need no schema. In its place a run file says

    features = ["age", "bmi"]     # the columns and their order, or how many there are (svmlight)
    label = "sick"
    classes = ["no", "yes"]       # −1 and +1 (or 0, 1, 2, … for more): public, so that no node infers them
    unit_rows = true              # scale rows over the public bound down to it
    unit = "patient"              # column of person ids: one person's rows count together

The schedule is drawn first, from the public seed, so that every K_i is an exact number before the first message.
"""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.bounded import read_toml
from sottovoce.data.schema import Schema, plain_schema, read_schema
from sottovoce.engine.secure import exact_sums, hindrance
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.features import Additive
from sottovoce.network.dropouts import NamedDropouts
from sottovoce.network.mixing import listed
from sottovoce.node.bounds import longest_messages, longest_model, longest_one_shot, partial_shares
from sottovoce.node.keys import Ahead
from sottovoce.node.message import RUN
from sottovoce.node.message import VERSION as WIRE
from sottovoce.node.removal import quorum
from sottovoce.privacy.events import Event
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.objective import Problem
from sottovoce.problem.regularizers import Euclidean
from sottovoce.registry import Field
from sottovoce.run.build import Map, one_shot_of
from sottovoce.run.inference import StageSums, stages_at
from sottovoce.run.one_shot import OneShotRelease, Query
from sottovoce.run.plan import Plan, Request, plan_public
from sottovoce.run.private_threshold import last_queries
from sottovoce.run.scale import AS_IT_IS, Scale
from sottovoce.run.spec import Spec
from sottovoce.secure.generator import Generator, Purpose

_PLAIN = ("features", "label", "classes", "unit_rows", "unit", "first_index")  # in place of a schema
MAX_SECONDS = 31 * 24 * 3600
"""Of a time-out: a longer one is a slip of the keyboard, and no clock can wait for it."""
_UNITS = "in_units_of_bounds"
_LOSSES = ("lost_after", "liars")
_KNOWN = {"run", "schedule_seed", "timeout", "skip_after", *_LOSSES, "schema", _UNITS, *_PLAIN, "nodes", "keys", "spec"}
_NEEDED = ("run", "schedule_seed", "nodes", "spec")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MARKED = re.compile(r"(.*) \([0-9a-f]{16}\)")
"""A consortium puts a mark of its schema and test behind a run's name, in brackets."""
_KEY = re.compile(r"[0-9a-f]{64}")
_DECIMALS = 12  # weights may differ by a rounding between processors


@dataclass(frozen=True, eq=False)
class Run:
    """A run that every node sees the same way; made by `read_run` or `make_run`.

    Attributes
    ----------
    name : of the run
    spec : what is run; its seed is the public one of the schedule
    nodes, sizes : names and public numbers of records (of people, where there is a unit), in the order of the numbers
    schema : how a node reads its own records
    timeout : seconds
    records : what the run file says about records, as its digest covers it
    schema_file : where the schema was read from, if it has a file
    skip_after : seconds of waiting after which an edge may be left out of a round; None for never
    keys : the nodes' public identity keys in hexadecimal, by name; None where they are known in another way
    in_units : whether rows are divided by the schema's bound, and targets mapped from their public range to [−1, 1]
    lost_after : seconds of silence after which a node counts as lost, where the others go on without it; else None
    liars : how many members may lie in the votes on that
    removed : every node that was removed by now, and the round from which on it is missing
    epoch : the digest of the epoch; empty in the first, whose digest is the run's
    """

    name: str
    spec: Spec
    nodes: tuple[str, ...]
    sizes: tuple[int, ...]
    schema: Schema
    timeout: float = 600.0
    records: Mapping[str, Any] = field(default_factory=dict)
    schema_file: Path | None = None
    skip_after: float | None = None
    keys: Mapping[str, str] | None = None
    in_units: bool = False
    lost_after: float | None = None
    liars: int = 0
    removed: tuple[tuple[int, int], ...] = ()
    epoch: str = ""

    def without(self, removed: tuple[tuple[int, int], ...], epoch: str) -> "Run":
        """The epoch of this run in which these nodes are gone: as a simulation that loses them in these rounds."""
        lost = [number for node, t in removed if t <= self.T for number in (node, t)]
        spec = self.spec.replace(network__dropouts=str(NamedDropouts(tuple(lost)))) if lost else self.spec
        return replace(self, spec=spec, removed=removed, epoch=epoch)

    @property
    def members(self) -> tuple[int, ...]:
        """The nodes that are left."""
        gone = {node for node, _ in self.removed}
        return tuple(i for i in range(self.n) if i not in gone)

    @property
    def begins(self) -> int:
        """The first round of the epoch."""
        return max([t for _, t in self.removed], default=1)

    @property
    def may_lose(self) -> int:
        """How many nodes may be lost."""
        return self.spec.privacy.may_lose

    @cached_property
    def plan(self) -> Plan:
        """Schedule, method and release: made as those of a simulation are, from public numbers alone."""
        sizes, people = np.array(self.sizes), self.schema.unit is not None
        of = self.spec.problem.features
        width = of.width if isinstance(of, Additive) else self.schema.m
        if isinstance(of, Additive) and of.columns != self.schema.m:
            raise SpecError(
                f"the run's map of columns is for {of.columns} features of a record, and the schema makes "
                f"{self.schema.m}; plan the run anew by this schema"
            )
        made = plan_public(Request(self.spec, sizes, width, people))
        if made.method.exchanges > 1:
            raise SpecError(
                f"real nodes exchange one message a round, but '{self.spec.algorithm.method}' needs several"
            )
        averaging = made.schedule.averaging
        if not averaging.on_the_wire:
            raise SpecError(
                f"real nodes send 64 bits a number; averaging '{averaging}' is for simulations, leave it out"
            )
        if self.skip_after is not None and not averaging.bears_gaps:
            raise SpecError(
                f"averaging '{averaging}' needs every edge of its round: with one left out, what nodes hold would not "
                "add up to the sum of their messages any more; leave 'skip_after' out, or average by gossip"
            )
        law = made.release.law
        if isinstance(law, Pairs) and law.k is None:
            raise SpecError(
                "real nodes share seeds in pairs only where it is said how many of them may collude; name the "
                "adversary 'secret_pairs(k)', and no nodes in the law"
            )
        self._check_losses()
        if self.spec.privacy.one_shot and getattr(made.method, "d", Euclidean()) != Euclidean():
            raise SpecError(
                f"real nodes map records by '{self.spec.privacy.pre_release}' only where models begin at zero; leave "
                "the one or the other out, or simulate it"
            )
        why = hindrance(made.problem, made.method, made.release)
        if why is not None:
            raise SpecError(f"real nodes release secure releases only, and this run cannot be one: {why}; simulate it")
        return made

    def _check_losses(self) -> None:
        """Refuse a run that real nodes could not go on with, once a node is lost."""
        if self.spec.network.dropouts.most and not self.epoch:
            raise SpecError("real nodes are lost when they are lost; leave dropouts out, or simulate the run")
        if (self.lost_after is None) != (self.may_lose == 0):
            raise SpecError(
                "a run that may lose nodes says after how many seconds of silence: give both may_lose and lost_after, "
                "or neither"
            )
        if self.lost_after is None:
            return
        if self.spec.privacy.one_shot:
            raise SpecError(
                f"'{self.spec.privacy.pre_release}' is released by all nodes before round 1, when none can be removed "
                "yet; leave it out, or may_lose"
            )
        if not self.lost_after < self.timeout:
            raise SpecError(
                f"lost_after must be shorter than the timeout of {self.timeout:g} s, after which the run pauses, not "
                f"{self.lost_after:g} s"
            )
        if self.n - self.may_lose < quorum(self.n, self.liars) or self.n - self.may_lose <= 3 * self.liars:
            raise SpecError(
                f"{self.n} nodes cannot agree on {self.may_lose} lost ones with {self.liars} liars among them: "
                f"{quorum(self.n, self.liars)} must be left, and over three times as many as liars; lower may_lose or "
                "liars"
            )

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def scale(self) -> Scale:
        """How new records, encoded by the schema, meet the model."""
        of, label = self.spec.problem.features, self.schema.label
        targets = (label.low, label.high) if self.in_units and label.classes is None else None
        if isinstance(of, Additive):
            return Scale(unit=of.norm / self.spec.problem.row_norm, targets=targets)
        return Scale(unit=self.schema.row_norm, targets=targets) if self.in_units else AS_IT_IS

    @property
    def m(self) -> int:
        """Dimension of the model."""
        return int(self.plan.public["m"])

    @cached_property
    def first(self) -> OneShotRelease[Map] | None:
        """What every node releases once, before the first round; every other node gets it."""
        return one_shot_of(self.plan)

    @property
    def before(self) -> int:
        """How many steps there are before the first round."""
        return 0 if self.first is None else 1

    @cached_property
    def last_releases(self) -> tuple[OneShotRelease[Any], ...]:
        """What every node releases once, after the last round, without its records; every other node gets it."""
        before, privacy = self.plan.release.before, self.spec.privacy
        if privacy.post_release is None or before is None:
            return ()
        queries: Sequence[Query[Any]]
        if privacy.inference:  # their widths do not depend on the model
            stages = stages_at(self.spec.problem.loss, np.zeros(self.m), privacy.inference, self.plan.problem.people)
            queries = [StageSums(stage, privacy.inference) for stage in stages]
        else:
            queries = last_queries(privacy.balance, np.empty(0), np.empty(0))
        return tuple(
            OneShotRelease(query, before, np.array(self.sizes), self.T + 1 + k) for k, query in enumerate(queries)
        )

    @property
    def after(self) -> int:
        """How many steps there are after the last round: models are exchanged, and then what follows is released."""
        return len(self.last_releases) and 1 + len(self.last_releases)

    @property
    def outside(self) -> int:
        """How many releases of a node are outside the rounds."""
        return self.before + len(self.last_releases)

    def once_in(self, t: int) -> OneShotRelease[Any] | None:
        """What is released outside the rounds in round t: 0, or T + 2 and on; None where that is no release."""
        if t == 0:
            return self.first
        return self.last_releases[t - self.T - 2] if t > self.T + 1 else None

    @property
    def shape(self) -> tuple[int, int]:
        """Of every message of a round."""
        method = self.plan.method
        return (1, method.width * self.m if method.released.numbers is None else self.plan.numbers)

    def shape_at(self, step: int) -> tuple[int, int]:
        """Of every message of a step."""
        t, _ = self.at(step)
        once = self.once_in(t)
        return (1, once.query.width) if once is not None else (1, self.m) if t > self.T else self.shape

    @cached_property
    def longest_shape(self) -> tuple[int, int]:
        """Of the longest message of any step."""
        return max(map(self.shape_at, [*range(1, self.before + 2), *range(self.last - self.after, self.last + 1)]))

    @cached_property
    def bounds(self) -> Array:
        """Return bounds on the norm of each round's messages, from any node."""
        return longest_messages(self.plan.method, self.plan.release, np.array(self.sizes), self.plan.numbers)

    def bound(self, i: int, step: int) -> float:
        """How long the message of node i at a step can be."""
        t, part = self.at(step)
        return self._longest[t] * (1.0 if part == 0 or t > self.T else self._share(t, part, i))

    @cached_property
    def _longest(self) -> list[float]:
        """By rounds, from 0, and by the exchanges after them."""
        first = 0.0 if self.first is None else longest_one_shot(self.first)
        after = [self.model_bound, *map(longest_one_shot, self.last_releases)] if self.after else []
        return [first, *self.bounds.tolist(), *after]

    def _share(self, t: int, part: int, i: int) -> float:
        schedule = self.plan.schedule
        number, place = int(schedule.pattern[t - 1]), np.flatnonzero(schedule.nodes(t) == i)
        if number not in self._shares:
            self._shares[number] = partial_shares(schedule.averaging, listed(schedule.patterns[number]))
        return float(self._shares[number][part, place[0]])

    @cached_property
    def _shares(self) -> dict[int, Array]:
        """By pattern of the schedule, computed on first use."""
        return {}

    @cached_property
    def model_bound(self) -> float:
        """Return a bound on the norm of any node's final model."""
        return longest_model(self.plan.method, self.bounds, self.m)

    @property
    def T(self) -> int:
        """Number of rounds."""
        return self.plan.schedule.T

    @cached_property
    def parts(self) -> int:
        """How many exchanges a round has at most."""
        schedule = self.plan.schedule
        return max(1, *(schedule.averaging.depth(W) for W in schedule.patterns))

    def step(self, t: int, part: int = 0) -> int:
        """The address of a message: exchanges counted through the run, that of the release before it as round 0.

        What is exchanged after the last round are rounds T + 1, T + 2, … of one exchange each.
        """
        if t > self.T:
            return self.before + self.T * self.parts + t - self.T
        return (t - 1) * self.parts + part + 1 + self.before if t else self.before

    @cached_property
    def last(self) -> int:
        """The last step."""
        return self.before + self.T * self.parts + self.after

    def at(self, step: int) -> tuple[int, int]:
        """The round of a step, and which exchange of the round it is, from 0.

        The exchange of models after the last round is the second one of a round that releases nothing.
        """
        if step <= self.before:
            return 0, 0
        beyond = step - self.before - self.T * self.parts
        if beyond > 0:
            return self.T + beyond, int(beyond == 1 and bool(self.after))
        done, part = divmod(step - 1 - self.before, self.parts)
        return done + 1, part

    def when(self, step: int) -> str:
        """A step in words."""
        t, part = self.at(step)
        if t == 0:
            return "the release before round 1"
        if t > self.T:
            return "the exchange of models" if t == self.T + 1 else f"release {t - self.T - 1} after the last round"
        return f"round {t}" if self.parts == 1 else f"exchange {part + 1} of round {t}"

    @cached_property
    def statement(self) -> PrivacyStatement:
        """What the run guarantees to every node's records; the same at every node."""
        return self.plan.statement(simulated=False, secure=True)  # the seed is the schedule's alone

    def shares_with(self, i: int) -> list[int]:
        """Whom node i shares secret noise with."""
        found: set[int] = set()
        for release in (self.plan.release, self.plan.release.before):
            if release is not None and isinstance(release.law, Pairs):
                mine = release.law.pairs[np.any(release.law.pairs == i, axis=1)]
                found.update(int(j) for j in mine[mine != i])
        return sorted(found)

    def draws(
        self,
        i: int,
        problem: Problem,
        keys: Mapping[Purpose, Generator],
        pairs: Mapping[int, Generator] | None = None,
        longest: float | None = None,
    ) -> Ahead:
        """All that node i draws and releases in its rounds, from its own records and keys, and what it shares.

        `longest` is the public bound of a row, where its records were mapped to another one than the spec's.
        """
        spec, release, sizes = self.spec.problem, self.plan.release, np.array(self.sizes)
        row_norm = spec.row_norm if longest is None else longest
        sums = exact_sums(problem, release, row_norm, spec.intercept, max(self.sizes))
        return Ahead(release, sums, keys, sizes, self.plan.numbers, i, turns=self.turns(i), pairs=pairs or {})

    def once_draws(
        self,
        once: OneShotRelease[Any],
        i: int,
        problem: Problem,
        keys: Mapping[Purpose, Generator],
        pairs: Mapping[int, Generator] | None = None,
    ) -> Ahead:
        """The same of what node i releases outside the rounds, of its records as they came."""
        sums, width, turns = once.sums(problem.shards), once.query.width, np.array([once.when])
        return Ahead(once.release, sums, keys, np.array(self.sizes), width, i, turns=turns, pairs=pairs or {})

    def event(self, i: int) -> Event:
        """What node i will have to account for: its exact K_i, and its σ_i."""
        return self.plan.event(i)

    def number(self, name: str) -> int:
        """The number of a node."""
        if name not in self.nodes:
            raise SpecError(f"run '{self.name}' has no node '{name}'; its nodes are {', '.join(self.nodes)}")
        return self.nodes.index(name)

    def turns(self, i: int) -> IntArray:
        """The rounds in which node i takes a gradient."""
        return self.plan.schedule.turns(i)

    def rounds(self, i: int) -> IntArray:
        """The rounds in which node i sends a message: its turns, and those in which it only listens and passes on."""
        schedule = self.plan.schedule
        places = np.flatnonzero(schedule.active == i)
        return np.searchsorted(schedule.starts, places, side="right").astype(np.int64)

    def row(self, t: int, i: int) -> dict[int, float]:
        """w_ij of round t, for every message that node i mixes, its own among them."""
        peers, weights = self.plan.schedule.peers(t, i)
        return dict(zip(peers.tolist(), weights.tolist(), strict=True))

    def links(self, t: int, i: int) -> list[tuple[int, float]]:
        """The peers of node i in round t, in the agreed order, and the weights of their messages."""
        return [(j, w) for j, w in sorted(self.row(t, i).items()) if j != i]

    def neighbors(self, i: int) -> dict[int, tuple[list[int], list[int]]]:
        """Every node that i ever exchanges messages with: the steps at which i speaks to it, and those of its own."""
        met: dict[int, tuple[list[int], list[int]]] = {}
        others = [j for j in range(self.n) if j != i]
        if self.first is not None:  # which goes to everybody
            met = {j: ([self.step(0)], [self.step(0)]) for j in others}
        if self.removed:  # who says hello and farewell to each other, even where no round is left
            met = {j: ([], []) for j in self.members if j != i}
        for t in self.rounds(i).tolist():
            if t < self.begins:
                continue
            for part, exchange in enumerate(self.plan.schedule.exchanges(t, i)):
                for j in exchange.to:
                    met.setdefault(j, ([], []))[0].append(self.step(t, part))
                for j in exchange.heard:
                    met.setdefault(j, ([], []))[1].append(self.step(t, part))
        for step in range(self.last - self.after + 1, self.last + 1):
            for j in others:
                both = met.setdefault(j, ([], []))
                both[0].append(step)
                both[1].append(step)
        return dict(sorted(met.items()))

    @cached_property
    def digest(self) -> str:
        """One hash of all of this and of the schedule drawn from it, which peers compare before the first message.

        σ_i is left out: it comes from a search whose last digits may differ between processors. Nodes compare it as
        a number, in their first notice (`links.Links.hello`).
        """
        if self.epoch:
            return self.epoch
        schedule = self.plan.schedule
        public = {"name": self.name, "nodes": self.nodes, "sizes": self.sizes, "timeout": self.timeout, **self.records}
        public |= {} if self.skip_after is None else {"skip_after": self.skip_after}
        public |= {} if self.lost_after is None else {"lost_after": self.lost_after, "liars": self.liars}
        public |= {} if self.keys is None else {"keys": dict(self.keys)}
        text = json.dumps(public | {"spec": self.spec.to_dict(), "wire": WIRE}, sort_keys=True, ensure_ascii=False)
        whole = hashlib.blake2b(text.encode(), digest_size=32)
        for part in (schedule.starts, schedule.active, schedule.pattern):
            whole.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        for W in schedule.patterns:
            whole.update(np.ascontiguousarray(np.round(listed(W), _DECIMALS) + 0.0, dtype="<f8").tobytes())
        return whole.hexdigest()

    @cached_property
    def mark(self) -> bytes:
        """The run in every message: the beginning of its digest."""
        return bytes.fromhex(self.digest)[:RUN]


def read_run(path: str | Path) -> Run:
    """The run in a run file (TOML), with the schema beside it if it names one."""
    path = Path(path)
    try:
        data = read_toml(path)
        if "schema" not in data:
            return make_run(data)
        schema = beside(path, data["schema"])
        return replace(make_run(data, read_schema(schema)), schema_file=schema)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the run file '{path}' cannot be read ({type(error).__name__}); check the path") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"the run file '{path}' is no TOML: {error}") from None
    except SottovoceError as error:
        raise type(error)(f"in run file '{path}': {error}") from None


def beside(path: Path, schema: Any) -> Path:
    """Where the schema of a public file lies."""
    if not isinstance(schema, str) or not schema or Path(schema).name != schema:
        raise SpecError(f"schema must name a file next to this one, not {schema!r}")
    return path.parent / schema


def make_run(data: Mapping[str, Any], schema: Schema | None = None) -> Run:
    """The run in the parsed contents of a run file, and in the schema that it names.

    Examples
    --------
    >>> run = make_run(
    ...     {
    ...         "run": "first",
    ...         "schedule_seed": 7,
    ...         "features": 4,
    ...         "nodes": {"north": 40, "south": 60},
    ...         "spec": {"algorithm": {"rounds": 10}, "privacy": {"noise": "gaussian(0.5)"}},
    ...     }
    ... )
    >>> run.rounds(0).tolist(), run.links(1, 0), run.event(1).rounds
    ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [(1, 0.5)], 10)
    """
    odd = sorted(set(data) - _KNOWN)
    if odd:
        raise SpecError(f"there is no entry '{odd[0]}'; the entries are {', '.join(sorted(_KNOWN))}")
    for name in _NEEDED:
        if name not in data:
            raise SpecError(f"the entry '{name}' is missing")
    nodes = data["nodes"]
    for node in nodes if isinstance(nodes, dict) else ():
        check_name("node", node)
    if not isinstance(nodes, dict) or not nodes or any(type(q) is not int or q < 1 for q in nodes.values()):
        raise SpecError("[nodes] must name every node with its number of records, such as north = 1200")
    timeout = _seconds(data, "timeout", 600.0)
    assert timeout is not None
    if type(data["schedule_seed"]) is not int or data["schedule_seed"] < 0:
        raise SpecError("'schedule_seed' must be a whole number that is not negative; it is public")
    name = _text(data, "run")
    check_name("run", name)
    if schema is None:
        if _UNITS in data:
            raise SpecError(f"'{_UNITS}' goes with a schema, which has the bounds; leave it out")
        spec = _spec(data["spec"], data["schedule_seed"])
        schema, records = _plain(data, spec)
    else:
        both = [entry for entry in _PLAIN if entry in data]
        if both:
            raise SpecError(f"the schema says what records are; leave '{both[0]}' out of the run file")
        in_units = data.get(_UNITS, False)
        if not isinstance(in_units, bool):
            raise SpecError(f"'{_UNITS}' must be true or false, not {in_units!r}")
        spec = _spec(_with_schema(data["spec"], schema, 1.0 if in_units else schema.row_norm), data["schedule_seed"])
        records = {"schema": schema.digest} | ({_UNITS: True} if in_units else {})
    keys, skip_after = _keys(data.get("keys"), nodes), _seconds(data, "skip_after", None)
    lost_after, liars = _seconds(data, "lost_after", None), data.get("liars", 0)
    if type(liars) is not int or liars < 0 or (liars and lost_after is None):
        raise SpecError("'liars' is a whole number, 0 or more, and goes with 'lost_after'")
    sizes = tuple(nodes.values())
    in_units = bool(records.get(_UNITS))
    return Run(
        name,
        spec,
        tuple(nodes),
        sizes,
        schema,
        timeout,
        records,
        skip_after=skip_after,
        keys=keys,
        in_units=in_units,
        lost_after=lost_after,
        liars=liars,
    )


def _seconds(data: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = data.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise SpecError(f"'{name}' must be a number of seconds over 0 and at most {MAX_SECONDS:,} (31 days)")
    return float(value)


def _keys(keys: Any, nodes: Mapping[str, Any]) -> dict[str, str] | None:
    """The nodes' identities: of all, each its own, or of none."""
    if keys is None:
        return None
    if not isinstance(keys, dict) or set(keys) != set(nodes):
        raise SpecError(
            "[keys] must name the key of every node, and of nobody else; leave it out to trust on first use"
        )
    for node, key in keys.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise SpecError(f"[keys] has {node} = {key!r}, where 64 hexadecimal digits are expected")
    if len(set(keys.values())) < len(keys):
        raise SpecError("[keys] gives two nodes the same key; every node has its own")
    return dict(keys)


def check_name(noun: str, name: Any) -> None:
    """Names of runs, nodes and sites become parts of paths, of commands and of certificates: one pattern for all.

    Examples
    --------
    >>> check_name("run", "../../etc")
    Traceback (most recent call last):
    ...
    sottovoce.errors.SpecError: a run cannot be called '../../etc': a name has letters, digits, '.', '_' and '-', ...
    """
    marked = _MARKED.fullmatch(name) if noun == "run" and isinstance(name, str) else None
    bare = name if marked is None else marked[1]
    if not isinstance(bare, str) or not _NAME.fullmatch(bare) or ".." in bare:
        raise SpecError(
            f"{'an' if noun[0] in 'aeiou' else 'a'} {noun} cannot be called {name!r}: a name has letters, digits, '.', "
            "'_' and '-', begins with a letter or digit, has no two dots together, and is no longer than 64 "
            "characters; choose such a one"
        )


def predicts_numbers(spec: Spec) -> bool:
    """Whether targets are numbers, and no classes."""
    return spec.problem.loss.targets == "real"


def _plain(data: Mapping[str, Any], spec: Spec) -> tuple[Schema, dict[str, Any]]:
    """The schema of a run file that names none, and what of it the digest covers."""
    if "features" not in data:
        raise SpecError("the entry 'schema' is missing (or 'features', where all columns are numbers)")
    features, classes = data["features"], data.get("classes")
    named = isinstance(features, list)
    if not (named and features and all(isinstance(f, str) for f in features)) and not (
        type(features) is int and features > 0
    ):
        raise SpecError("'features' must be a list of the columns' names, or how many there are")
    if named and len(set(features)) < len(features):
        raise SpecError("'features' names a column twice; name every column once")
    if classes is not None and not (isinstance(classes, list) and len(classes) > 1 and _distinct(classes)):
        raise SpecError("'classes' must be a list of different labels: two, the one for −1 first, or more")
    label = _text(data, "label") if "label" in data else None
    if named and label is None:
        raise SpecError("the entry 'label' is missing: it names the label's column")
    unit = _text(data, "unit") if "unit" in data else None
    if unit is not None and (not named or unit in (*features, label)):
        raise SpecError("'unit' must be a column of its own, beside named features and the label")
    first = data.get("first_index")
    if first is not None and (named or type(first) is not int or first not in (0, 1)):
        raise SpecError("'first_index' is 0 or 1, the index of the first of so many features in svmlight files")
    scaled = bool(data.get("unit_rows", False))
    schema = plain_schema(
        features,
        label or "",
        None if predicts_numbers(spec) else classes,
        unit,
        spec.problem.row_norm if scaled else math.inf,
        spec.problem.outputs,
        first_index=first,
    )
    said = {"features": features if named else None, "width": schema.m, "label": label, "classes": classes}
    said |= {"unit_rows": scaled} | ({} if unit is None else {"unit": unit})
    return schema, said | ({} if first is None else {"first_index": first})


def _with_schema(spec: Any, schema: Schema, row_norm: float) -> Any:
    """The tables of a Spec with what follows from a schema: the bound of a row and the number of outputs."""
    if not isinstance(spec, dict) or not isinstance(spec.get("problem", {}), dict):
        return spec
    problem = dict(spec.get("problem", {}))
    if problem.setdefault("row_norm", row_norm) != row_norm:
        raise SpecError(f"row_norm is the schema's, {row_norm:g}; leave it out here")
    outputs = schema.label.outputs
    if problem.setdefault("outputs", outputs) != outputs:
        raise SpecError(f"the number of outputs follows from the schema's label: {outputs}; leave it out here")
    return spec | {"problem": problem}


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str) or not value or not value.isprintable():
        raise SpecError(f"'{name}' must be a name in quotes, not {value!r}")
    return value


def _distinct(labels: list[Any]) -> bool:
    return len({str(label) for label in labels}) == len(labels)


def _spec(data: Any, seed: int) -> Spec:
    """A Spec whose parts may leave fields out."""
    hints = get_type_hints(Spec)
    parts = {f.name: hints[f.name] for f in fields(Spec) if is_dataclass(hints[f.name])}
    if not isinstance(data, dict) or not isinstance(data.get("algorithm"), dict) or "rounds" not in data["algorithm"]:
        raise SpecError("[spec.algorithm] must say at least the number of rounds")
    values: dict[str, Any] = {}
    for part, given in data.items():
        if part == "seed":
            raise SpecError("a run of real nodes takes no seed: each draws its noise from its own secret entropy")
        if part not in parts or not isinstance(given, dict):
            raise SpecError(f"there is no [spec.{part}]; the parts are {', '.join(parts)}")
        known = {f.name for f in fields(parts[part])}
        odd = sorted(set(given) - known)
        if odd:
            raise SpecError(f"[spec.{part}] has no field '{odd[0]}'; its fields are {', '.join(sorted(known))}")
        kinds = get_type_hints(parts[part])
        for name, value in given.items():
            if not _fits(value, kinds[name]):
                raise SpecError(f"[spec.{part}] has {name} = {value!r}, which is not of the right type")
        values[part] = parts[part](**given)
    return Spec(**values, seed=seed)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of a TOML file is of a field's type."""
    if get_origin(kind) is UnionType:
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Field:
        return isinstance(value, str)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind
