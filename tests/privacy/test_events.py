"""Events: what was released and what is accounted are two things, and neither is ever guessed."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from parts import full

from sottovoce.errors import PrivacyError, SpecError
from sottovoce.network.graphs import GRAPHS
from sottovoce.privacy.accounting import SMALLEST, Account, _compute_epsilon, compute_epsilon, epsilon, risk
from sottovoce.privacy.calibration import NOISES, GivenNoise, NoNoise, PaperNoise, Private, sigma
from sottovoce.privacy.composite_events import ObjectiveEvent, read_event
from sottovoce.privacy.events import (
    SHAPED,
    CyclicEvent,
    FixedEvent,
    FullEvent,
    LaplaceEvent,
    PoissonEvent,
    RandomParticipation,
    TreeEvent,
    canceled,
)
from sottovoce.privacy.pairs import Pairs, PairsChoice
from sottovoce.privacy.planning import account, calibrate
from sottovoce.privacy.profiles import gaussian_epsilon
from sottovoce.privacy.release import ADVERSARIES, LAWS, MechanismContext, Release, SecretPairs, Transcript, Tree
from sottovoce.privacy.sampling import SAMPLINGS, Cyclic, Fixed, Full, Poisson
from sottovoce.privacy.statement import PrivacyStatement, grouped_by_event, make_statement
from sottovoce.run.build import prepare
from sottovoce.run.spec import AlgorithmSpec, Spec
from sottovoce.streams import Streams

OLD = json.loads((Path(__file__).parent / "statements_0_1.json").read_text(encoding="utf-8"))
EVENTS = [
    FixedEvent(400, 8, 1.0, 0.4, 60),
    PoissonEvent(400, 8, 1.0, 0.4, 60),
    FullEvent(400, 400, 1.0, 0.4, 60, note=SHAPED),
    FixedEvent(400, 8, 1.0, 0.4, 60, note=canceled(())),
    FixedEvent(400, 8, 1.0, 0.4, 60, note=canceled((1, 3))),
    CyclicEvent(400, 20, 1.0, 0.4, 60, uses=7),
    CyclicEvent(400, 20, 1.0, 0.4, 0, uses=0),
    TreeEvent(60, 10, 1.0, 2.0, 12, uses=2),
    LaplaceEvent(400, 400, 3.0, 0.4, 12),
    ObjectiveEvent(3000, 3000, 1.0, 0.005, 1, extra=0.02),
]


@pytest.mark.parametrize("name", OLD)
def test_events_of_version_0_1_are_read_and_cost_what_they_cost(name):
    """As a ledger has them; a statement of that version is refused."""
    for group in OLD[name]["groups"]:
        event = read_event(group["event"])
        assert group["event"].items() <= event.to_dict().items()  # every old field, with its old meaning
        stated = math.inf if group["epsilon"] == "inf" else group["epsilon"]
        assert compute_epsilon([event], OLD[name]["delta"]).epsilon == pytest.approx(stated, rel=1e-6)
    with pytest.raises(PrivacyError, match=r"made by sottovoce 0\.1, which this version does not read"):
        PrivacyStatement.from_dict(OLD[name])


def test_a_plain_event_is_written_as_it_always_was():
    for name in ("fixed", "poisson", "full", "theorem1"):
        for group in OLD[name]["groups"]:
            assert list(read_event(group["event"]).to_dict().items()) == list(group["event"].items())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_what_is_written_is_read_back(event):
    text = json.dumps(event.to_dict())
    assert read_event(json.loads(text)) == event
    assert {"sampling", "records", "batch", "clip", "sigma", "rounds", "law", "extra"} <= set(event.to_dict())


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": "shuffled"},
        {"law": "cauchy"},
        {"law": "tree"},
        {"law": "laplace"},
        {"extra": 0.1},
        {"released": 60},
        {"coalition": [1]},
        {"colour": "red"},
        {"batch": 0},
        {"batch": 401},
        {"records": 400.0},
        {"rounds": -1},
        {"rounds": "many"},
        {"clip": 0.0},
        {"sigma": math.inf},
        {"sigma": math.nan},
    ],
)
def test_what_is_not_known_is_an_error_and_never_a_guess(change):
    with pytest.raises(PrivacyError, match=r"no event|no way to account|of an event must be"):
        read_event(EVENTS[0].to_dict() | change)


def test_an_event_of_another_kind_has_no_cost():
    class Shuffled:
        count, noise_multiplier, realized, part = 1, 1.0, True, full(1.0, 1)

    for ask in (compute_epsilon, risk):
        with pytest.raises(PrivacyError, match="no way to account"):
            ask([Shuffled()], 1e-5)


@pytest.mark.parametrize(
    ("rounds", "uses"),
    [(60, 2), (60, 61), (0, 1), (60, 3.0)],
)
def test_uses_that_no_turns_have_are_an_error(rounds, uses):
    with pytest.raises(PrivacyError, match="a record is used"):
        CyclicEvent(400, 20, 1.0, 0.4, rounds, uses=uses)
    with pytest.raises(PrivacyError, match="a record is used"):
        TreeEvent(400, 20, 1.0, 0.4, rounds, uses=uses)


def test_one_cost_for_everything():
    silent, bare = FixedEvent(400, 8, 1.0, 0.4, 0), LaplaceEvent(400, 400, 1.0, 0.0, 3)
    assert compute_epsilon([], 1e-5) == compute_epsilon([silent, silent], 1e-5) == Account(0.0, 0.0, 0.0, 1e-5, 0.0)
    assert compute_epsilon([silent, bare], 1e-5) == Account(math.inf, math.inf, math.inf, 1e-5, 0.0)
    assert risk([silent], 0.1) == 0.1 and risk([bare], 0.1) == risk([ObjectiveEvent(9, 9, 1.0, 0.0, 1, extra=1)], 0.1)
    run, cycle = FullEvent(400, 400, 1.0, 0.4, 3), CyclicEvent(400, 20, 1.0, 0.4, 60, uses=7)
    both = compute_epsilon([run, cycle], 1e-5)
    assert both.epsilon == epsilon([full(0.4 * 200, 3), full(0.4 * 10, 7)], 1e-5) == both.epsilon_lower
    alone = ObjectiveEvent(3000, 3000, 1.0, 0.005, 1, extra=0.02)
    assert compute_epsilon([silent, alone], 1e-5) == compute_epsilon([alone], 1e-5)
    with pytest.raises(PrivacyError, match="composes with nothing"):
        compute_epsilon([run, alone], 1e-5)


def test_equal_questions_are_answered_once():
    event = FixedEvent(4321, 8, 1.0, 0.4, 60)
    first, before = compute_epsilon([event], 1e-5), _compute_epsilon.cache_info().hits
    assert (
        compute_epsilon((FixedEvent(4321, 8, 1.0, 0.4, 60),), 1e-5) is first
        and _compute_epsilon.cache_info().hits == before + 1
    )


def run(**changes):
    return Spec(AlgorithmSpec(12, gamma="constant(5)"), seed=1).replace(**changes)


def uses_of(job, node, q):
    """How often the most used record of a node was drawn, by drawing."""
    counts = np.zeros(q, dtype=int)
    for t in range(1, job.schedule.T + 1):
        if job.schedule.speaks_in(t, node):
            counts[job.draws.records(np.array([node]), np.array([t]))[0]] += 1
    return int(counts.max())


@pytest.mark.parametrize("activation", ["edges(1)", "ticks", "nodes(3)", "everyone"])
@pytest.mark.parametrize("sampling", ["cyclic(1)", "cyclic(3)"])
def test_records_in_a_fixed_order_are_counted_in_the_rounds_in_which_a_node_spoke(make_shards, activation, sampling):
    spec = run(algorithm__rounds=150, network__activation=activation, privacy__sampling=sampling)
    made = prepare(spec.replace(privacy__noise="gaussian(1.0)"), make_shards(n=5, q=20))
    job = made.job
    spoken = job.schedule.participations()
    for i, event in enumerate(job.release.events(np.full(5, 20), spoken, job.schedule.turns)):
        assert event.count == uses_of(job, i, 20) and event.rounds == spoken[i]
        assert np.array_equal(job.schedule.turns(i), [t for t in range(1, 151) if job.schedule.speaks_in(t, i)])
    worst = max(uses_of(job, i, 20) for i in range(5))
    assert made.statement.worst.event.count == worst
    blind = job.release.event(0, 20, int(spoken[0]))
    assert blind.count == spoken[0]  # which rounds they were is not known: they may all have had the same batch


def test_cyclic_batches_under_partial_activation_have_their_true_cost(make_shards):
    """One printed use where there were several: ε = 1 was really 2.95."""
    n, q, rounds = 20, 2000, 19_000
    spec = run(algorithm__rounds=rounds, network__activation="edges(1)", privacy__sampling="cyclic(1)")
    made = prepare(spec.replace(privacy__noise="private(1.0)"), make_shards(n=n, q=q, m=2))
    job, batch = made.job, np.arange(rounds) % q
    most = max(np.bincount(batch[job.schedule.turns(i) - 1]).max() for i in range(n))
    assert most > 4 and max(job.schedule.participations()) < 2200
    multiplier = job.release.sigma[0] / 2.0
    assert (
        gaussian_epsilon(1e-5, multiplier / math.sqrt(most)) <= 1.0 == pytest.approx(made.statement.epsilon, rel=2e-3)
    )
    assert gaussian_epsilon(1e-5, multiplier / math.sqrt(2)) < 1.0  # what was accounted for before
    made.statement.verify()


def test_nodes_in_a_group_cost_no_more_than_their_group():
    events = [CyclicEvent(100, 10, 1.0, 0.5, 20 + 3 * i, uses=10 - i) for i in range(7)]
    grouped = grouped_by_event(events)
    assert sorted(i for _, nodes in grouped for i in nodes) == list(range(7)) and len(grouped) <= 4
    for event, nodes in grouped:
        assert event.count == max(events[i].count for i in nodes)
        assert event.rounds == max(events[i].rounds for i in nodes)
    for event in [event for event in EVENTS if event.rounds]:
        assert event.after(0).count == 0 and event.after(1).count >= 1 and event.after(event.rounds) == event


def test_tree_noise_is_worth_more_than_its_cost_so_that_nothing_is_known_from_below():
    """The exact law of what is released, from the covariance of its noise: the cost was printed as a lower bound."""
    batches, b, rounds, scale = 6, 10, 12, 2.0
    release = Release(Cyclic(b), 1.0, (scale,), Transcript(), Tree(batches))
    statement = make_statement(
        release, np.array([batches * b]), np.array([rounds]), 1e-5, [], False, turns=lambda i: np.arange(1, rounds + 1)
    )
    noise = release.noise(Streams(3), np.zeros(rounds, dtype=int), np.arange(1, rounds + 1), 200_000)
    precision = np.linalg.inv(noise @ noise.T / noise.shape[1])
    used = np.array([[t % batches == leaf for t in range(rounds)] for leaf in range(batches)], dtype=float)
    distance = max(2.0 / b * math.sqrt(row @ precision @ row) for row in used)
    assert gaussian_epsilon(1e-5, 1.0 / distance) < 0.95 * statement.epsilon
    assert statement.epsilon_lower == 0.0
    statement.verify()


def test_pairs_that_do_not_all_speak_leave_more_noise_so_that_nothing_is_known_from_below():
    law = Pairs(3, 2.0, GRAPHS.make("complete")(3).edges)
    event = law.event(0, FullEvent(10, 10, 1.0, 1.0, 5))
    two = law.covariance()[:2, :2]
    assert 1.0 / np.linalg.inv(two)[0, 0] > 1.5 * event.sigma**2
    assert compute_epsilon([event], 1e-5).epsilon_lower == 0.0 < compute_epsilon([event], 1e-5).epsilon


@pytest.mark.parametrize("event", EVENTS[2:], ids=lambda event: type(event).__name__)
def test_lower_bounds_stand_only_where_they_are_reached(event):
    found = compute_epsilon([event], 1e-5)
    assert (found.epsilon_lower > 0) == (event.realized and event.count > 0)
    if not isinstance(event, ObjectiveEvent):  # which composes with nothing
        both = compute_epsilon([FixedEvent(400, 8, 1.0, 0.4, 60), event], 1e-5)
        assert (both.epsilon_lower > 0) == event.realized and both.epsilon >= found.epsilon


def test_the_coalition_is_in_the_statement():
    """A star whose center is curious: what is ε = 1 against the outside is much more against the center."""
    edges = np.array([[0, i] for i in range(1, 6)])
    sizes, spoken = np.full(6, 100), np.full(6, 10)

    def said(coalition, scale=1.0):
        law = PairsChoice(6.0, coalition).on(MechanismContext(GRAPHS.make("star")(6), Full(), sizes, 3))
        return make_statement(Release(Full(), 1.0, (scale,) * 6, SecretPairs(), law), sizes, spoken, 1e-5, [], False)

    assert (
        PairsChoice(6.0).on(MechanismContext(GRAPHS.make("star")(6), Full(), sizes, 3)).pairs.tolist() == edges.tolist()
    )
    scale = next(s for s in np.geomspace(1e-3, 1.0, 400) if said((), s).epsilon <= 1.0)
    alone, center = said((), scale), said((0,), scale)
    assert alone.epsilon == pytest.approx(1.0, rel=0.02) and center.epsilon > 2.0
    assert "no help from any node" in alone.verdict() and "no node is curious" in alone.paragraph()
    assert "with the help of node 0" in center.verdict() and "coalition of node 0" in center.paragraph()
    for statement in (alone, center):
        again = PrivacyStatement.from_json(statement.to_json())
        assert again == statement
        again.verify()
    swapped = center.to_dict() | {"assumptions": list(alone.assumptions)}
    with pytest.raises(PrivacyError, match="its own numbers give"):
        PrivacyStatement.from_dict(swapped).verify()


def test_a_delta_that_the_noise_cannot_keep_is_refused(make_shards):
    event = FullEvent(100, 100, 1.0, 1.0, 1)
    compute_epsilon([event], SMALLEST)
    for bad in (SMALLEST / 2, 1e-100):
        for ask in (
            lambda at: compute_epsilon([event], at),
            lambda at: sigma(event, 1.0, at),
            lambda at: account("full", 100, 1, 1.0, delta=at),
            lambda at: calibrate("full", 100, 1, 1.0, delta=at),
            lambda at: prepare(run(privacy__delta=at, privacy__noise="gaussian(1.0)"), make_shards()),
        ):
            with pytest.raises(PrivacyError, match=r"at least 1e-15.*9\.49"):
                ask(bad)


@pytest.mark.parametrize(
    ("table", "value", "text"),
    [
        (SAMPLINGS, Fixed(1), "fixed(1)"),
        (SAMPLINGS, Fixed(8), "fixed(8)"),
        (SAMPLINGS, Poisson(64), "poisson(64)"),
        (SAMPLINGS, Poisson(0.05), "poisson(0.05)"),
        (SAMPLINGS, Full(), "full"),
        (SAMPLINGS, Cyclic(3), "cyclic(3)"),
        (ADVERSARIES, Transcript(), "transcript"),
        (ADVERSARIES, SecretPairs(), "secret_pairs"),
        (LAWS, PairsChoice(2.0, (4, 1, 4)), "pairs(2, 1, 4)"),
        (LAWS, LAWS["gaussian"](), "gaussian"),
        (LAWS, LAWS["laplace"](), "laplace"),
        (LAWS, LAWS["tree"](), "tree"),
        (NOISES, NoNoise(), "none"),
        (NOISES, GivenNoise((0.5, 0.25)), "gaussian(0.5, 0.25)"),
        (NOISES, Private(1.0), "private(1)"),
        (NOISES, PaperNoise(0.5), "theorem1(0.5, 0.01)"),
    ],
)
def test_a_choice_is_its_notation(table, value, text):
    assert str(value) == text and table.read(text) == value and hash(table.read(text)) == hash(value)
    assert table.read(text.replace("(", ":").rstrip(")")) == value


def test_two_spellings_are_one_choice():
    assert SAMPLINGS.read("one") == SAMPLINGS.read("fixed") == SAMPLINGS.read("fixed:1")
    assert NOISES.read("theorem1(0.5)") == NOISES.read("theorem1(0.5, delta0=0.01)")
    assert LAWS.read("pairs(2, 4, 1)") == LAWS.read("pairs(2.0, 1, 4)") != LAWS.read("pairs(2)")
    assert NOISES.read("private(1)") == NOISES.read("private:1.0")


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: LAWS.read("cauchy"), SpecError, "no noise law 'cauchy'"),
        (lambda: LAWS.read("pairs"), SpecError, "'pairs' is malformed"),
        (lambda: LAWS.read("pairs(0)"), SpecError, "a ratio over 0"),
        (lambda: LAWS.read("pairs(1, 0.5)"), SpecError, "colluding"),
        (lambda: LAWS.read("tree(3)"), SpecError, "malformed"),
        (lambda: NOISES.read("loud"), SpecError, "no noise 'loud'"),
        (lambda: NOISES.read("gaussian"), SpecError, "noise 'gaussian' is malformed"),
        (lambda: NOISES.read("gaussian(-1)"), SpecError, "not negative"),
        (lambda: NOISES.read("private(0)"), PrivacyError, "over 0"),
        (lambda: NOISES.read("private(1, 2)"), SpecError, "malformed"),
        (lambda: NOISES.read("theorem1(1.5)"), PrivacyError, "claimed epsilon"),
    ],
)
def test_a_wrong_choice_is_one_sentence(build, error, words):
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy__law": "laplace"}, "schedule of its own for noise"),
        ({"privacy__law": "pairs(1, 5)", "privacy__adversary": "secret_pairs"}, "nodes are 0 to 4"),
        ({"privacy__noise": "gaussian(1, 2)"}, "one for each of the 5 nodes"),
    ],
)
def test_a_choice_that_does_not_fit_the_run_is_one_sentence(make_shards, changes, words):
    with pytest.raises(SpecError, match=words):
        prepare(run(**changes), make_shards())


def test_noise_for_every_node(make_shards):
    shards = make_shards(sizes=[10, 20, 20, 40, 10])
    made = {
        noise: prepare(run(privacy__noise=noise, network__activation="everyone"), shards)
        for noise in ("none", "gaussian(0.5)", "gaussian(1, 2, 3, 4, 5)", "private(1)", "theorem1(0.5)")
    }
    assert made["none"].job.release.sigma == (0.0,) * 5 and made["gaussian(0.5)"].job.release.sigma == (0.5,) * 5
    assert made["gaussian(1, 2, 3, 4, 5)"].job.release.sigma == (1.0, 2.0, 3.0, 4.0, 5.0)
    private = made["private(1)"].job.release.sigma
    assert private[0] == private[4] > private[1] == private[2] > private[3] > 0
    assert made["private(1)"].statement.epsilon == pytest.approx(1.0, rel=2e-3)
    claims = made["theorem1(0.5)"].claims
    assert tuple(c.sigma for c in claims) == made["theorem1(0.5)"].job.release.sigma and claims[3].records == 40


def test_planning_says_what_the_events_say():
    event = PoissonEvent(2000, 20, 1.5, 0.1, 300)
    found = account("poisson(20)", 2000, 300, 0.1, clip=1.5, activity=0.5)
    assert found == compute_epsilon([RandomParticipation(event, 0.5)], 1e-5)
    needed = calibrate(Poisson(20), 2000, 300, 0.7, clip=1.5, activity=0.5)
    assert 0.995 * 0.7 < account(Poisson(20), 2000, 300, needed, clip=1.5, activity=0.5).epsilon <= 0.7
    turns = account("cyclic(10)", 100, 30, 0.5)
    assert turns.epsilon == compute_epsilon([CyclicEvent(100, 10, 1.0, 0.5, 30, uses=3)], 1e-5).epsilon
