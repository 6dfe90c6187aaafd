"""Statements: immutable, round trips, checkable from their own numbers, and never more reassuring than the truth."""

import dataclasses
import json
import math

import numpy as np
import pytest

from sottovoce.errors import PrivacyError
from sottovoce.privacy.accounting import epsilon
from sottovoce.privacy.events import FixedEvent, PoissonEvent
from sottovoce.privacy.release import Central, HiddenParticipation, Release, SecretPairs, Transcript
from sottovoce.privacy.sampling import Fixed, Full, Poisson
from sottovoce.privacy.statement import (
    COMPUTATIONAL,
    NOT_HARDENED,
    PERSON,
    RECORD,
    UNITS,
    PrivacyStatement,
    make_statement,
    software,
)
from sottovoce.privacy.theorem1 import Theorem1, compare

TRANSCRIPT = Transcript()


EIGHT = Poisson(8)


def statement(
    sampling=EIGHT, sigma=0.4, sizes=(400, 400, 200), spoken=(50, 60, 55), claims=(), simulation=False, unit=RECORD,
    secure=True,
):  # fmt: skip
    release = Release(sampling, 1.0, (sigma,) * len(sizes), TRANSCRIPT)
    return make_statement(
        release, np.array(sizes), np.array(spoken), 1e-5, list(claims), simulation, unit, secure=secure
    )


@pytest.mark.parametrize("sampling", [Poisson(8), Fixed(8), Full()], ids=str)
def test_the_worst_node_is_reported_and_every_node_is_listed(sampling):
    s = statement(sampling)
    each = {i: g.epsilon for g in s.groups for i in g.nodes}
    assert sorted(each) == [0, 1, 2] and s.epsilon == max(each.values()) == each[2]  # fewest records, least privacy
    for i, (q, K) in enumerate(zip((400, 400, 200), (50, 60, 55), strict=True)):
        exact = epsilon([Release(sampling, 1.0, (0.4,), TRANSCRIPT).event(0, q, K).part], 1e-5)
        assert each[i] >= exact * (1 - 1e-9)
    assert s.epsilon_lower <= s.epsilon <= s.epsilon_rdp * (1 + 1e-9)


def test_many_counts_are_rounded_up_never_down():
    s = statement(sizes=(300,) * 30, spoken=tuple(range(40, 70)))
    assert len(s.groups) <= 5
    for group in s.groups:
        assert group.event.rounds == 40 + max(group.nodes)
    assert sorted(i for g in s.groups for i in g.nodes) == list(range(30))


@pytest.mark.parametrize("sigma", [0.4, 0.0])
def test_round_trip_and_verification(sigma):
    s = statement(sigma=sigma, simulation=True)
    again = PrivacyStatement.from_json(s.to_json())
    assert again == s and again.to_json() == s.to_json()
    again.verify()
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.epsilon = 0.1


@pytest.mark.parametrize(
    "tamper",
    [
        lambda d: d.update(epsilon=d["epsilon"] / 2),
        lambda d: d["groups"][0].update(epsilon=d["groups"][0]["epsilon"] / 2),
        lambda d: [g["event"].update(sigma=2 * g["event"]["sigma"]) for g in d["groups"]],
        lambda d: [g["event"].update(rounds=g["event"]["rounds"] // 2) for g in d["groups"]],
        lambda d: d.update(delta=1e-3),
        lambda d: d.update(adversary="nobody"),
        lambda d: d.update(adversary="hidden_participation"),
        lambda d: d.update(adversary="central"),
        lambda d: d.update(adjacency="replace a whole node"),
        lambda d: d.update(unit="one hospital"),
        lambda d: d.update(assumptions=[]),
        lambda d: d.update(not_covered=[]),
        lambda d: d.update(secure=False),
        lambda d: d.update(simulation=True),
        lambda d: d.update(software="sottovoce 9.9, a typewriter"),
        lambda d: d.update(verdict="Every record is perfectly safe."),
        lambda d: d.update(private=False),
        lambda d: d.update(format=1),
        lambda d: d.update(epsilon_lower=0.0),
        lambda d: d.update(epsilon_rdp=99.0),
        lambda d: d["groups"].pop(),
        lambda d: d["groups"][0].update(nodes=[7]),
        lambda d: d["groups"].pop() and d.update(epsilon=max(g["epsilon"] for g in d["groups"])),
    ],
)
def test_a_changed_number_is_noticed(tamper):
    data = statement().to_dict()
    tamper(data)
    with pytest.raises(PrivacyError):
        PrivacyStatement.from_dict(data).verify()


@pytest.mark.parametrize(
    "tamper",
    [
        lambda d: d.pop("groups"),
        lambda d: d.update(groups=[]),
        lambda d: d.update(groups=[{}]),
        lambda d: d["groups"][0]["event"].pop("sigma"),
        lambda d: d["groups"][0]["event"].update(sigma="x"),
        lambda d: d["groups"][0]["event"].update(batch=0),
        lambda d: d["groups"][0]["event"].update(color="red"),
        lambda d: d["groups"][0]["event"].update(sampling="shuffle"),
        lambda d: d.update(epsilon="abc"),
        lambda d: d.update(epsilon=None),
        lambda d: d.update(delta="1e-5x"),
        lambda d: d.update(claimed="much"),
    ],
)
def test_a_garbled_statement_is_one_sentence(tamper):
    data = statement().to_dict()
    tamper(data)
    with pytest.raises(PrivacyError):
        PrivacyStatement.from_json(json.dumps(data)).verify()


@pytest.mark.parametrize(
    "text", ["no json", "[]", "{}", "null", "3", json.dumps({"format": 9}), "[" * 100_000, "9" * 5000]
)
def test_something_else_is_refused(text):
    with pytest.raises(PrivacyError, match=r"no JSON|no privacy statement|another version"):
        PrivacyStatement.from_json(text)


def test_the_verdict_says_what_it_is():
    """Seeded runs used to be called private without a word."""
    claim = Theorem1(0.5, 0.01, 0.5, 1.0, 400, 120)
    true = "(ε = 0.67, δ = 1e-05)-differential privacy against 'transcript' (replace one record of one node)"
    assert statement().verdict() == f"Every record has {true}." and statement().kind == ""
    seeded = statement(simulation=True, secure=False)
    assert seeded.verdict() == f"SIMULATION: with secret noise every record would have {true}."
    open_ = statement(secure=False)
    assert open_.verdict().startswith(f"NOT HARDENED: with exact noise every record would have {true};")
    assert "floating-point bits and its generator" in open_.verdict() and "give a record away" in open_.paragraph()
    for simulation in (True, False):
        none = statement(sigma=0.0, simulation=simulation, secure=False)
        broken = statement(Fixed(1), claim.sigma, (400,) * 3, claims=[claim] * 3, simulation=simulation, secure=False)
        assert none.verdict().endswith("NOT PRIVATE: no noise was added.")
        for said in (none, broken):
            assert said.verdict().startswith("SIMULATION") is simulation and "NOT PRIVATE" in said.verdict()


def test_what_is_hardened_decides_what_is_covered_and_what_is_assumed():
    secure, open_ = statement(), statement(secure=False)
    assert set(open_.not_covered) - set(secure.not_covered) == set(NOT_HARDENED)
    added = set(secure.assumptions) - set(open_.assumptions)
    assert added == {COMPUTATIONAL, f"what ran was {software()}"} and "AES-256" in COMPUTATIONAL
    for said in (secure, open_, statement(unit=PERSON), statement(simulation=True)):
        assert "this is the only release from these records" in " ".join(said.assumptions)
    with pytest.raises(PrivacyError, match="not_covered"):
        dataclasses.replace(open_, secure=True, assumptions=secure.assumptions).verify()


def test_the_paragraph_names_everything_that_a_guarantee_needs():
    text = statement(simulation=True, secure=False).paragraph()
    for words in ("ε = ", "δ = 1e-05", "'transcript'", "every message of every node", "It rests on this", "simulation",
                  "It does not cover", "floating-point", "several records"):  # fmt: skip
        assert words in text
    assert "nothing is guaranteed" in statement(sigma=0.0).paragraph()


def test_a_person_is_called_a_person_and_counted_as_a_record():
    record, person = statement(), statement(unit=PERSON)
    assert (record.unit, person.unit) == ("one record", "one person")
    assert person.groups == record.groups and person.epsilon == record.epsilon
    assert person.verdict().startswith("Every person has (ε") and "replace one person of one node" in person.verdict()
    text = person.paragraph()
    assert "knows all people but one" in text and "rows at several nodes" in text and "how many people each" in text
    for words in ("several records", "one record", "every record", "that record"):
        assert words not in text
    again = PrivacyStatement.from_json(person.to_json())
    assert again == person
    again.verify()
    for change in ({"unit": "one record"}, {"adjacency": record.adjacency}, {"not_covered": record.not_covered}):
        with pytest.raises(PrivacyError, match="its own numbers give"):
            dataclasses.replace(person, **change).verify()
    assert set(UNITS) == {"one record", "one person"}


def test_a_claim_that_is_not_true_is_called_so():
    claim = Theorem1(0.5, 0.01, 0.5, 1.0, 400, 120)
    s = statement(Fixed(1), sigma=claim.sigma, sizes=(400,) * 3, claims=[claim] * 3)
    assert s.claimed == 0.5 < s.epsilon and not s.private
    assert s.verdict().startswith("NOT PRIVATE as claimed") and "not true against this observer" in s.paragraph()
    honest = statement(Fixed(1), sigma=50.0, sizes=(400,) * 3, claims=[claim] * 3)
    assert honest.private and "differential privacy" in honest.verdict()


def test_risk_lies_between_guessing_and_certainty():
    s = statement()
    assert 0.01 < s.risk(0.01) < s.risk(0.1) < 1.0 and statement(sigma=0.0).risk(0.01) == 1.0
    assert s.risk(0.01) <= math.exp(s.epsilon) * 0.01 + 1e-5 + 1e-12


def test_silence_costs_nothing():
    assert statement(spoken=(0, 0, 0)).epsilon == 0.0


def test_delta_must_be_a_probability():
    with pytest.raises(PrivacyError, match="strictly between 0 and 1"):
        make_statement(Release(Full(), 1.0, (1.0,), TRANSCRIPT), np.array([9]), np.array([1]), 0.0, [], False)


def test_adversaries_change_the_accounting():
    event = FixedEvent(1000, 1, 1.0, 1.5, 3000)
    seen = epsilon([TRANSCRIPT.seen(event, 0.1).part], 1e-5)
    hidden = epsilon([HiddenParticipation().seen(event, 0.1).part], 1e-5)
    always = epsilon([TRANSCRIPT.seen(event, 1.0).part], 1e-5)
    assert hidden < seen < always
    with pytest.raises(PrivacyError, match="one record a round only"):
        HiddenParticipation().seen(PoissonEvent(1000, 1, 1.0, 1.5, 3000), 0.1)
    for adversary in (Central(), SecretPairs()):
        with pytest.raises(PrivacyError, match=f"'{adversary}' cannot be accounted"):
            adversary.seen(event)
    with pytest.raises(PrivacyError, match="activity"):
        TRANSCRIPT.seen(event, 0.0)


# AUDIT A.3: q, ι, T, claimed ε -> true ε at δ = 1e-5, transcript
TRUTH = [
    (20000, 0.1, 600_000, 1.0, 10084, 10087),
    (20000, 0.1, 600_000, 0.2, 297, 300),
    (20000, 0.2, 300_000, 0.6, 1711, 1714),
    (20000, 1.0, 60_000, 0.2, 4.12, 4.17),
    (20000, 1.0, 60_000, 1.0, 901, 904),
    (33869, 0.1, 1_016_070, 1.0, 17165, 17168),
]


@pytest.mark.parametrize(("q", "iota", "T", "claimed", "low", "high"), TRUTH)
def test_theorem1_at_the_papers_sizes_is_not_private(q, iota, T, claimed, low, high):
    found = compare(Theorem1(claimed, 0.01, iota, 1.0, q, T), TRANSCRIPT, 1e-5)
    assert not found.holds
    assert found.epsilon == pytest.approx(high, rel=5e-3)
    assert found.epsilon_lower == pytest.approx(low, rel=1e-2) and found.epsilon_lower < found.epsilon
    assert found.to_dict()["verdict"] == "not private as claimed"
    if iota < 1:
        assert found.delta_at_claim > 0.83
