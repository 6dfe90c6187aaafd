"""The privacy statement: what is guaranteed, to whom, against whom, and on what it rests.

A statement is made from the release that produced the draws and from the fixed schedule's exact counts. It carries
every number that its ε was computed from, so that anybody can compute it again from the statement alone (`verify`).
No ε is ever shown without its δ, its adversary and its adjacency. Whose data it is about, one record or one person with
all of their rows at a node, is its `Unit`, on which its words depend.
"""

import itertools
import json
import math
import operator
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from sottovoce._types import IntArray
from sottovoce._version import __version__
from sottovoce.display import Shown
from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import SMALLEST, check_delta, compute_epsilon, risk
from sottovoce.privacy.composite_events import read_event
from sottovoce.privacy.events import ADJACENCY, Event, envelope
from sottovoce.privacy.filter import any_of_each
from sottovoce.privacy.release import ADVERSARIES, Adversary, NodeTurns, Release, SecretPairs, check_runnable
from sottovoce.privacy.several_sites import epsilon_at_sites
from sottovoce.privacy.theorem1 import Theorem1
from sottovoce.registry import Choices

ASSUMPTIONS = (
    "{honest} runs this software unchanged and keeps its records and its random numbers to itself",
    "the schedule of who speaks when was drawn without looking at the data, and is public",
)
"""On what every guarantee rests; what a unit is comes on top."""
ALONE = "this is the only release from these records: what others cost adds to it"
COMPUTATIONAL = (
    "nobody who sees the messages can tell AES-256 from random: the noise, and the choice of records, come from it"
)
"""On what a secure run rests besides: its guarantee is a computational one."""
RANDOM_GRAPH = (
    "who shares a secret with whom was decided by public coins, thrown after it was settled which nodes collude; that "
    "they leave the others less well linked than counted on has a chance of at most {slack:g}, which is part of δ"
)
"""On what a guarantee rests where the graph of secrets is a random one."""
SEARCHED = (
    "of the search nothing is seen but its best run: none of the others, nor how many there were, nor how long it took"
)
"""The assumption behind the cost of a search."""
SITES = {2: "two", 3: "three"}
"""At how many nodes a person's records may be, for whom ε is stated besides."""
DISJOINT = "no {noun} is in both training and evaluation"
"""The assumption of an evaluation on records that were declared disjoint from the training records."""
EVALUATED = "the statement of this model has an evaluation already; evaluate a model once, or fit it anew"
NOT_COVERED = (
    "how the features, their bounds, the classes and the settings were chosen, if that looked at the data",
    "objective values, accuracies and other figures computed from the data outside the mechanism",
)
"""What no guarantee covers; whom the unit leaves out comes on top."""
REFUSALS = "that a run was refused, or how long it took, because of what the records hold"
NOT_HARDENED = (
    "attacks on the low bits of floating-point noise: the noise is not yet hardened against them",
    "attacks on the random generator, a fast one with a 64-bit key: the noise is not yet a cryptographic one",
)
"""What a run that is not secure leaves open besides."""


MAPPED = "the map of columns is public, with their bounds, and was not read off the records: {words}"
"""What an additive model rests on."""


@dataclass(frozen=True)
class Unit:
    """Whose data a guarantee is about, and the words that depend on it; ``str()`` is its name."""

    name: str
    noun: str
    plural: str
    adjacency: str
    assumption: str
    not_covered: tuple[str, ...]

    def __str__(self) -> str:
        """In a statement."""
        return self.name


RECORD = Unit(
    name="one record",
    noun="record",
    plural="records",
    adjacency=ADJACENCY,
    assumption="one person's data is one record of one node",
    not_covered=(
        "people who have several records, or records at several nodes",
        "which organisations take part, and how many records each has",
    ),
)
PERSON = Unit(
    name="one person",
    noun="person",
    plural="people",
    adjacency="replace one person of one node, with all of their rows there",
    assumption="one person's data are the rows of one node that carry their id, and every row carries the right one",
    not_covered=(
        "people who have rows at several nodes, or under several ids: each time they count as another person",
        "which organisations take part, and how many people each has",
    ),
)
UNITS: Choices[Unit] = Choices(
    "unit of privacy", {RECORD.name: lambda: RECORD, PERSON.name: lambda: PERSON}, PrivacyError
)


LEVELS = 4  # nodes that differ only in how often they spoke are accounted at this many counts, each rounded up

Grouped = Sequence[tuple[Event, tuple[int, ...]]]
"""Events, and the nodes that each belongs to."""


@dataclass(frozen=True)
class Group:
    """Nodes with the same guarantee: their event, with the largest count among them, and its ε."""

    nodes: tuple[int, ...]
    event: Event
    epsilon: float


def grouped_by_event(events: Sequence[Event]) -> list[tuple[Event, tuple[int, ...]]]:
    """Nodes whose events differ in their count alone, at a few counts each rounded up: more is never less private."""
    members: dict[int, list[int]] = {}  # equal nodes share one event, so a hundred thousand of them are accounted once
    for i, event in enumerate(events):
        members.setdefault(id(event), []).append(i)
    kinds: dict[Event, list[list[int]]] = {}
    for nodes in members.values():
        kinds.setdefault(events[nodes[0]].after(0), []).append(nodes)
    result: list[tuple[Event, tuple[int, ...]]] = []
    for shared in kinds.values():
        each = [events[nodes[0]] for nodes in shared]
        counts = sorted({event.count for event in each})
        levels = counts[len(counts) - 1 :: -max(1, math.ceil(len(counts) / LEVELS))][::-1]
        for low, high in zip([-1, *levels], levels, strict=False):
            mine = [nodes for nodes, event in zip(shared, each, strict=True) if low < event.count <= high]
            covered = [events[nodes[0]] for nodes in mine]
            result.append((covered[0].covering(covered), tuple(sorted(itertools.chain(*mine)))))
    return result


FORMAT = 2


def software() -> str:
    """What runs here: version and platform.

    Examples
    --------
    >>> software().startswith("sottovoce ")
    True
    """
    return f"sottovoce {__version__}, {platform.system()} {platform.machine()}"


@dataclass(frozen=True, repr=False)
class PrivacyStatement(Shown):
    """(ε, δ) for every record, or person, of every node, with everything that it depends on.

    Attributes
    ----------
    epsilon, delta : the guarantee of the worst node
    epsilon_lower : what an attacker really reaches on the worst data (the truth lies between the two); 0 where that is
        not known
    epsilon_rdp : the same from Rényi accounting, a cross-check that is never smaller
    adversary, adjacency : against whom, and for which change of the data
    unit : whose data that is: one record's, or one person's
    groups : the guarantees of all nodes
    held_out : the same for records that were kept out of training and used once, to count right answers with noise
    later : of an evaluation of records that may be those of training: ε counts each record as if it was used for both
    declared : whether only a declaration keeps records from being both trained on and held out
    others : where nodes may collude, the worst guarantees if another number of them does: one, or none
    error : the relative amount by which numerics may have raised ε
    claimed : the ε that the paper's Theorem 1 claims for this noise, where that is the noise
    simulation : a seed was given, so anyone who knows it can remove the noise
    secure : whether every draw went through the secure release: a cryptographic generator, and true of the bits
    software : version and platform of what ran
    features : the public map that columns went through, in words; empty where there was none
    excluded : what the guarantee does not hold of, though the model shows it, in words; empty where there is nothing
    """

    epsilon: float
    delta: float
    epsilon_lower: float
    epsilon_rdp: float
    adversary: str
    adjacency: str
    groups: tuple[Group, ...]
    unit: str
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    held_out: tuple[Group, ...] = ()
    others: tuple[Group, ...] = ()
    later: tuple[Group, ...] = ()
    declared: bool = False
    error: float = 0.0
    claimed: float | None = None
    simulation: bool = False
    secure: bool = False
    software: str = ""
    features: str = ""
    excluded: str = ""
    accountant: str = "privacy-loss distributions"
    format: int = FORMAT

    def _entries(self) -> dict[str, str]:
        nodes = sum(len(group.nodes) for group in self.groups)
        return {
            "verdict": self.verdict(),
            "adversary": f"{self.against}: sees {ADVERSARIES.read(self.adversary).sees}",
            "adjacency": self.adjacency,
            "epsilon": f"{number(self.epsilon)} for the worst of {nodes} node{'s' * (nodes != 1)}",
            "delta": f"{self.delta:g}",
            "rests on": f"{len(self.assumptions)} assumptions: see paragraph()",
            "not covered": "; ".join(self.not_covered),
        }

    @property
    def private(self) -> bool:
        """Whether there is a guarantee, and it is no worse than what was claimed."""
        return math.isfinite(self.epsilon) and (self.claimed is None or self.epsilon <= self.claimed)

    @property
    def worst(self) -> Group:
        """The nodes whose records are protected least."""
        return max((*self.groups, *self.held_out), key=lambda group: group.epsilon)

    @property
    def against(self) -> str:
        """The adversary, and the nodes that help it."""
        return ADVERSARIES.read(self.adversary).helped(_coalition(group.event for group in self.groups))

    @property
    def proviso(self) -> str:
        """What the guarantee is subject to, as the end of a sentence; empty where there is nothing."""
        noun = UNITS.make(self.unit).noun
        return f", provided that {DISJOINT.format(noun=noun)}" if self.declared else ""

    @property
    def covers(self) -> str:
        """How ε covers an evaluation beside the training, in a sentence; empty where there is none."""
        if self.later:
            return f"ε counts every {UNITS.make(self.unit).noun} as if it was in both training and evaluation."
        if not self.held_out:
            return ""
        return f"ε covers training and evaluation{self.proviso or ', each of a share of its own'}."

    @property
    def collusion(self) -> str:
        """What it would be if another number of nodes colluded, in words; nothing where that does not matter."""
        clauses = [
            f"ε = {number(group.epsilon)} against {_curious(group.event.note.collusion or 0)}"
            for group in sorted(self.others, key=lambda group: -(group.event.note.collusion or 0))
        ]
        only = " of the training alone" if clauses and (self.later or self.held_out) else ""
        return " and ".join(clauses) + only

    @property
    def kind(self) -> str:
        """What the verdict begins with where it is not a guarantee of what ran: SIMULATION, NOT HARDENED, or nothing.

        A seed can be known; noise that is not secure can be taken off by its bits or its generator.
        """
        return "SIMULATION" if self.simulation else "" if self.secure or math.isinf(self.epsilon) else "NOT HARDENED"

    def verdict(self) -> str:
        """One line: the guarantee, or that there is none."""
        lead = "SIMULATION, and " if self.simulation else ""
        if math.isinf(self.epsilon):
            return f"{lead}NOT PRIVATE: no noise was added."
        true = f"(ε = {number(self.epsilon)}, δ = {self.delta:g})"
        noun, who = UNITS.make(self.unit).noun, f"against {self.against} ({self.adjacency})"
        if not self.private:
            truth = "with secret noise the truth would be" if self.simulation else "the truth is"
            return f"{lead}NOT PRIVATE as claimed: Theorem 1 claims ε = {self.claimed:g}; {who} {truth} {true}."
        but = f", but not of {self.excluded}" if self.excluded else ""
        promise = f"{true}-differential privacy {who}{self.proviso}{but}"
        if self.simulation:
            return f"SIMULATION: with secret noise every {noun} would have {promise}."
        if not self.secure:
            return (
                f"NOT HARDENED: with exact noise every {noun} would have {promise}; this noise can be attacked through "
                "its floating-point bits and its generator."
            )
        return f"Every {noun} has {promise}."

    def paragraph(self) -> str:
        """Return the statement in plain words, for a person who signs it."""
        sees, unit = ADVERSARIES.read(self.adversary).sees, UNITS.make(self.unit)
        if math.isinf(self.epsilon):
            body = "No noise was added, so nothing is guaranteed."
        else:
            body = (
                f"Suppose that an adversary sees {sees}, and knows all {unit.plural} but one. Anything that they "
                f"conclude about that {unit.noun} is almost as likely with a different one: no conclusion "
                f"becomes more than e^{number(self.epsilon)} = {number(math.exp(min(self.epsilon, 700)))} times as "
                f"likely, except with a probability of {self.delta:g}. An attack with a 1 % false-positive "
                f"rate has a true-positive rate of at most {100 * self.risk(0.01):.1f} %."
            )
        if self.claimed is not None and not self.private:
            body += (
                f" The formula that set the noise claims ε = {self.claimed:g}. That claim is not true against this "
                "observer."
            )
        lines = [f"{self.verdict()} {body}", f"It rests on this: {'; '.join(self.assumptions)}."]
        if self.others:
            lines.append(f"At the same δ it would be {self.collusion}.")
        if any(getattr(group.event, "before", None) is not None for group in self.groups):
            lines.append(
                "Besides its rounds each node released once noisy means of its records or noisy counts of their "
                "columns, targets or scores; the ε above covers that, too."
            )
        lines += [words] if (words := self._sites_words()) else []
        if self.declared:
            lines.append(
                f"The model was evaluated once, with noise, on {unit.plural} that were not trained on, as whoever "
                f"evaluated it has declared. The ε above covers training and evaluation{self.proviso}."
            )
        elif self.held_out:
            lines.append(
                "Some records were held out of training, by a secret choice that did not depend on them, and used "
                "once to evaluate the model by noisy counts. Each record is in one of the two parts; the ε above "
                "covers both."
            )
        if self.later:
            lines.append(
                f"The model was evaluated once, with noise, on {unit.plural} that may have been trained on, too: the ε "
                f"above is the sum of both uses, for a {unit.noun} that is in both."
            )
        if self.simulation:
            lines.append("This run has a seed, so it is a simulation: anyone who knows the seed can remove the noise.")
        elif self.kind:
            lines.append(
                "The noise was not hardened: it was made fast, from 32-bit words, and one message with such noise can "
                "give a record away, whatever its ε."
            )
        return "\n\n".join([*lines, f"It does not cover: {'; '.join(self.not_covered)}."])

    def epsilon_at(self, sites: int) -> float | None:
        """Return ε of a person with records at so many nodes; None where that is not known.

        A node's release costs what the larger of its training and its test does.
        """
        if self.later or math.isinf(self.epsilon):
            return None
        costs = {node: group for group in self.held_out for node in group.nodes}
        held = [(group, 1) for node, group in costs.items() if group.epsilon > self._trained(node).epsilon]
        trained = [(group, len(group.nodes)) for group in self.groups]
        return epsilon_at_sites([(group.event, count) for group, count in (*trained, *held)], sites, self.delta)

    def _trained(self, node: int) -> Group:
        return next(group for group in self.groups if node in group.nodes)

    def _sites_words(self) -> str:
        """What a person pays whose records are at several nodes, in a sentence; empty where that is not known."""
        known = [(word, self.epsilon_at(k)) for k, word in SITES.items()]
        each = [f"ε = {number(value)} with records at {word} nodes" for word, value in known if value is not None]
        if not each:
            return ""
        shared = any(group.event.note.secrets for group in self.groups)
        why = "the noise of all nodes is one noise" if shared else "each node has noise of its own"
        return f"A person has {' and '.join(each)}, since {why}; identifiers are never compared."

    def risk(self, fpr: float) -> float:
        """The largest share of true alarms that a test with the given share of false alarms can have."""
        if math.isinf(self.epsilon):
            return 1.0
        if self.later:
            return min(1.0, math.exp(min(self.epsilon, 700)) * fpr + self.delta)
        return max(risk([group.event], fpr) for group in (*self.groups, *self.held_out))

    def verify(self) -> None:
        """Make the statement again from its events and compare; raise if anything that follows from them does not.

        This is a check of arithmetic. What cannot follow from numbers is taken on trust: the events themselves, what a
        unit is, `simulation`, `secure`, `software` and `claimed`. Of a saved run `Result.verify` checks these too.
        """
        listed = sorted(i for group in self.groups for i in group.nodes)
        if not listed or listed != list(range(len(listed))):
            raise PrivacyError(f"the statement does not list every node once: it lists {listed}")
        for what, groups in (("held-out", self.held_out), ("evaluated", self.later)):
            counted = [i for group in groups for i in group.nodes]
            if len(set(counted)) != len(counted) or not set(counted) <= set(listed):
                raise PrivacyError(f"the statement's {what} records are of nodes {counted}: each of its nodes once")
        if not isinstance(self.declared, bool) or (self.declared and not self.held_out):
            raise PrivacyError("the statement's 'declared' is about held-out records, of which it has none")
        again = _state(_listed(self.groups), _Frame.of(self), _listed(self.held_out), _listed(self.others))
        again = with_excluded(with_features(again, self.features), self.excluded)
        again = _evaluated(again, _listed(self.later), self.declared)
        self.check_compatible(again, "its own numbers give")

    def check_compatible(self, other: "PrivacyStatement", why: str) -> None:
        """Compare with what the statement should be, numbers up to the rounding of another machine."""
        for name in (f.name for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if not _nearly_equal(mine, theirs):
                raise PrivacyError(f"the statement's {name} is {mine}, but {why} {theirs}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an infinite ε is written as the text 'inf'."""
        left_out = {name for name in ("others", "later", "declared", "features", "excluded") if not getattr(self, name)}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in left_out}
        return _plain(own | {"private": self.private, "verdict": self.verdict()})

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "PrivacyStatement":
        """Read `to_dict` back."""
        try:
            if data["format"] != FORMAT:
                older = "sottovoce 0.1" if data["format"] == 1 else "another version of sottovoce"
                raise PrivacyError(f"this statement was made by {older}, which this version does not read")
            rarely = ("held_out", "others", "later")  # statements of runs without them need not have these
            known = {"declared": False, "features": "", "excluded": ""} | data
            values = {f.name: _number(known[f.name]) for f in fields(cls) if f.name not in rarely}
            for name in ("groups", *rarely):
                values[name] = tuple(
                    Group(tuple(map(operator.index, g["nodes"])), read_event(g["event"]), float(_number(g["epsilon"])))
                    for g in (data[name] if name == "groups" else data.get(name, ()))
                )
            for name in ("assumptions", "not_covered"):
                values[name] = tuple(data[name])
            for name in ("epsilon", "delta", "epsilon_lower", "epsilon_rdp", "error"):
                values[name] = float(values[name])
            values["claimed"] = None if values["claimed"] is None else float(values["claimed"])
            read = cls(**values)
            if data["verdict"] != read.verdict() or data["private"] is not read.private:
                raise PrivacyError(
                    f"the statement's verdict is '{data['verdict']}', but its own numbers give '{read.verdict()}'"
                )
            return read
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            if isinstance(error, PrivacyError):
                raise
            raise PrivacyError(f"this is no privacy statement of sottovoce ({type(error).__name__})") from None

    @classmethod
    def from_json(cls, text: str) -> "PrivacyStatement":
        """Read `to_json` back."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):  # nested too deep, or a number of thousands of digits
            raise PrivacyError("this is no JSON; give a statement written by sottovoce") from None
        return cls.from_dict(data)


def make_statement(
    release: Release,
    sizes: IntArray,
    participations: IntArray,
    delta: float,
    claims: Sequence[Theorem1],
    simulation: bool,
    unit: Unit = RECORD,
    turns: NodeTurns | None = None,
    secure: bool = False,
) -> PrivacyStatement:
    """The statement of a run, from the release that makes its draws and from its fixed schedule.

    `participations` says how often each node spoke and `turns` in which rounds, which matters where records come in a
    fixed order; `secure` that every draw of it went through the secure release.
    """
    check_delta(delta)
    trained = grouped_by_event(release.events(sizes, participations, turns))
    claimed = claims[0].epsilon if claims else None
    others = others_of(release, sizes, participations, delta, turns)
    frame = _Frame(delta, release.adversary, claimed, simulation, unit, secure, software())
    return _state(trained, frame, others=others)


def others_of(
    release: Release, sizes: IntArray, participations: IntArray, delta: float, turns: NodeTurns | None = None
) -> Grouped:
    """The nodes that are protected least if another number of nodes than was said collude: one, or none."""
    law, watching = release.law, release.adversary
    if not isinstance(watching, SecretPairs):
        return ()
    from sottovoce.privacy.pairs import Pairs  # a chapter of its own, for those who need it

    assert isinstance(law, Pairs)
    found = []
    for k in (1, 0):
        if k != (watching.k or len(law.coalition)) and law.n > k + 1:
            try:
                events = _against(release, k).events(sizes, participations, turns)
            except PrivacyError:  # of a large graph of secrets that is not known
                continue
            groups = grouped_by_event(events)
            worst = [one for one in groups if not any(_covers(other[0], one[0]) for other in groups)]
            found.append(max(worst or groups, key=lambda one: compute_epsilon([one[0]], delta, lower=False).epsilon))
    return found


def _against(release: Release, k: int) -> Release:
    """The same release where k nodes collude."""
    before = None if release.before is None else _against(release.before, k)
    return replace(release, law=release.law.against(k), before=before)  # type: ignore[attr-defined]


def _covers(event: Event, other: Event) -> bool:
    """Whether one event plainly costs more than another: records as often or oftener, with no more noise."""
    mine, its = (tuple((round(part.pair.multiplier, 9), part.count) for part in one.parts) for one in (event, other))
    more = envelope([mine, its]) == mine and event.rate >= other.rate
    return type(event) is type(other) and more and (mine, event.rate) != (its, other.rate)


def statement_of(
    events: Sequence[Event], delta: float, adversary: str, simulation: bool, unit: Unit = RECORD, secure: bool = False
) -> PrivacyStatement:
    """The statement of releases that are no training, one event a node."""
    check_delta(delta)
    watcher = ADVERSARIES.read(adversary)
    return _state(grouped_by_event(events), _Frame(delta, watcher, None, simulation, unit, secure, software()))


def with_held_out(statement: PrivacyStatement, events: Mapping[int, Event], declared: bool = False) -> PrivacyStatement:
    """Return the statement with an evaluation on held-out records of some nodes.

    `declared` says that only the caller's declaration keeps records out of one of the two parts.

    Each record is either trained on or held out, by a choice that does not depend on its content. So its ε is that of
    this one use, and the larger of the two covers all records (parallel composition). If others were held out and used
    before, as by a search, it is the largest of all three.
    """
    if declared and (statement.declared or statement.later):
        raise PrivacyError(EVALUATED)
    before = {node: group for group in statement.held_out for node in group.nodes}
    costs = {i: compute_epsilon([event], statement.delta, lower=False).epsilon for i, event in events.items()}
    now = {i: event for i, event in events.items() if i not in before or costs[i] > before[i].epsilon}
    each = {node: group.event for node, group in before.items()} | now
    held_out = grouped_by_event([each[i] for i in sorted(each)])
    named = [(event, tuple(sorted(each)[i] for i in places)) for event, places in held_out]
    whole = _state(_listed(statement.groups), _Frame.of(statement), named, _listed(statement.others))
    whole = with_excluded(with_features(whole, statement.features), statement.excluded)
    return _evaluated(whole, _listed(statement.later), declared or statement.declared)


def with_features(statement: PrivacyStatement, words: str) -> PrivacyStatement:
    """The same statement of a run on functions of columns, which names the map among the public choices."""
    if not words:
        return statement
    if not isinstance(words, str):
        raise PrivacyError("the statement's features are words about a map of columns; give them as text")
    assumptions = (*statement.assumptions, MAPPED.format(words=words))
    return replace(statement, features=words, assumptions=assumptions)


def with_excluded(statement: PrivacyStatement, words: str) -> PrivacyStatement:
    """The same statement of a run whose model shows something that the guarantee does not hold of."""
    if not words:
        return statement
    if not isinstance(words, str):
        raise PrivacyError("the statement's excluded is what the guarantee does not hold of; give it as text")
    return replace(statement, excluded=words, not_covered=(words, *statement.not_covered))


def with_evaluation(statement: PrivacyStatement, events: Mapping[int, Event]) -> PrivacyStatement:
    """Return the statement with an evaluation on records that may have been trained on.

    Nothing checks whether they were: the answer would reveal it. Every record counts as used by the worst of the
    releases so far, and then by the worst of the evaluation, chosen after the model was seen: ε is that of a privacy
    filter.
    """
    if statement.later:
        raise PrivacyError(EVALUATED)
    groups = grouped_by_event([events[i] for i in sorted(events)])
    named = [(event, tuple(sorted(events)[i] for i in places)) for event, places in groups]
    return _evaluated(statement, named, statement.declared)


def _evaluated(statement: PrivacyStatement, later: Grouped, declared: bool) -> PrivacyStatement:
    """Account for a later release from the same records, and name what the caller has declared."""
    if declared and not statement.declared:
        words = DISJOINT.format(noun=UNITS.make(statement.unit).noun)
        assumptions = (*statement.assumptions, f"{words}, as whoever evaluated the model has declared")
        statement = replace(statement, declared=True, assumptions=assumptions)
    if not later:
        return statement
    delta, half = statement.delta, statement.delta / 2
    first = dict.fromkeys(group.event for group in (*statement.groups, *statement.held_out))
    second = dict.fromkeys(event for event, _ in later)
    epsilon = any_of_each([list(first), list(second)], delta)
    rdp = math.inf
    if half >= SMALLEST:  # a cross-check by basic composition
        rdp = math.fsum(max(compute_epsilon([event], half).epsilon_rdp for event in some) for some in (first, second))
    return replace(
        statement,
        epsilon=epsilon,
        epsilon_rdp=max(rdp, epsilon),
        later=tuple(
            Group(nodes, event, compute_epsilon([event], delta, lower=False).epsilon) for event, nodes in later
        ),
    )


def restated(statement: PrivacyStatement, trained: Sequence[Event], tested: Sequence[Event]) -> PrivacyStatement:
    """The same statement of other events, one a node: those of a search that a run was the best of."""
    made = _state(grouped_by_event(trained), _Frame.of(statement), grouped_by_event(tested))
    return with_excluded(with_features(made, statement.features), statement.excluded)


def _listed(groups: Sequence[Group]) -> Grouped:
    return [(group.event, group.nodes) for group in groups]


class _Frame(NamedTuple):
    """What a statement says besides its events."""

    delta: float
    adversary: Adversary
    claimed: float | None
    simulation: bool
    unit: Unit
    secure: bool
    software: str

    @classmethod
    def of(cls, said: PrivacyStatement) -> "_Frame":
        """That of an earlier statement."""
        adversary, unit = ADVERSARIES.read(said.adversary), UNITS.make(said.unit)
        return cls(said.delta, adversary, said.claimed, said.simulation, unit, said.secure, said.software)


def _state(trained: Grouped, frame: _Frame, held_out: Grouped = (), others: Grouped = ()) -> PrivacyStatement:
    """Account for every group, against an adversary that these events are accounted against."""
    delta, unit, secure, software = frame.delta, frame.unit, frame.secure, frame.software
    nodes = sum(len(members) for _, members in trained)
    adversary = frame.adversary.among(nodes)
    colluding = getattr(adversary, "k", None)
    for event, _ in trained:
        check_runnable(adversary, event.note.secrets, nodes)
        if event.note.collusion != colluding:
            raise PrivacyError(
                f"the statement is against '{adversary}', but its events are accounted for "
                f"{_curious(event.note.collusion or 0)}"
            )
    slack = max((event.slack for event, _ in trained), default=0.0)
    groups = tuple(
        Group(nodes, event, compute_epsilon([event], delta, lower=False).epsilon)
        for event, nodes in (*trained, *held_out)
    )
    worst = compute_epsilon(
        [max(groups, key=lambda group: group.epsilon).event], delta
    )  # of the others only ε is stated
    return PrivacyStatement(
        epsilon=worst.epsilon,
        delta=delta,
        epsilon_lower=worst.epsilon_lower,
        epsilon_rdp=worst.epsilon_rdp,
        adversary=str(adversary),
        adjacency=unit.adjacency,
        groups=groups[: len(trained)],
        held_out=groups[len(trained) :],
        others=tuple(
            Group(nodes, event, compute_epsilon([event], delta, lower=False).epsilon) for event, nodes in others
        ),
        unit=unit.name,
        assumptions=(
            *(words.format(honest=adversary.honest) for words in ASSUMPTIONS),
            ALONE,
            unit.assumption,
            *adversary.assumptions(_coalition(event for event, _ in trained)),
            *((RANDOM_GRAPH.format(slack=slack),) if slack else ()),
            *((SEARCHED,) if any(event.law == "search" for event, _ in (*trained, *held_out)) else ()),
            *((COMPUTATIONAL, f"what ran was {software}") if secure else ()),
        ),
        not_covered=(
            *unit.not_covered,
            *NOT_COVERED,
            REFUSALS,
            *(() if secure else NOT_HARDENED),
        ),
        error=worst.error,
        claimed=frame.claimed,
        simulation=frame.simulation,
        secure=secure,
        software=software,
    )


def _curious(k: int) -> str:
    return f"{k} curious node{'s' * (k > 1)}" if k else "outsiders, with no curious node"


def _coalition(events: Iterable[Event]) -> tuple[int, ...] | None:
    """Everybody whose secrets count as known to the adversary of a run; None where that was not written down."""
    declared = {event.note.coalition for event in events}
    if None in declared:
        return None
    return tuple(sorted({node for coalition in declared for node in coalition or ()}))


def _nearly_equal(mine: Any, theirs: Any) -> bool:
    """Equal, numbers up to the rounding of another machine."""
    if isinstance(mine, Group):
        return mine.nodes == theirs.nodes and mine.event == theirs.event and _nearly_equal(mine.epsilon, theirs.epsilon)
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(_nearly_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    return bool(mine == theirs)


def number(value: float) -> str:
    """A number for reading: three digits, thousands marked, powers of ten for what nobody could count."""
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, Group):
        return _plain({"nodes": value.nodes, "event": value.event.to_dict(), "epsilon": value.epsilon})
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _number(value: Any) -> Any:
    return math.inf if value == "inf" else value
