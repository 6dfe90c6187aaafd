"""The run file: every node derives the same from it, anything else is another run, and mistakes are sentences."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from net import SIZES, assert_as_simulated, encoded, records, run_file, run_of, whole_run

from sottovoce.engine.secure import SecureDraws
from sottovoce.errors import DataError, SottovoceError, SpecError
from sottovoce.node.keys import Ahead, fingerprints, own_keys
from sottovoce.node.runfile import make_run, read_run
from sottovoce.node.site import own_problem
from sottovoce.node.store import Store
from sottovoce.problem.shards import Shards
from sottovoce.secure.generator import Purpose

RUN_TOML = """
run = "first"
schedule_seed = 5
features = 3
classes = [-1, 1]
[nodes]
north = 12
east = 9
[spec.algorithm]
rounds = 30
[spec.privacy]
noise = "private(1.0)"
sampling = "poisson(4)"
"""


def test_another_process_derives_the_same_plan(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(RUN_TOML)
    run = read_run(file)
    code = (
        "import sys, json; from sottovoce.node.runfile import read_run; p = read_run(sys.argv[1]); "
        "print(json.dumps([p.digest, p.rounds(0).tolist(), p.event(1).sigma, p.statement.epsilon]))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True).stdout
    digest, rounds, sigma, epsilon = json.loads(out)
    assert digest == run.digest and rounds == run.rounds(0).tolist()
    assert np.isclose(sigma, run.event(1).sigma) and np.isclose(epsilon, run.statement.epsilon)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm__method": "muffliato(3, 1.1)"}, "one message a round"),
        ({"network__averaging": "quantized(8)"}, r"64 bits a number; averaging 'quantized\(8\)' is for simulations"),
        ({"privacy__law": "pairs(2.0)", "privacy__adversary": "secret_pairs"}, "how many of them may collude"),
        (
            {
                "privacy__moments": "moments(0.1)",
                "privacy__noise": "private(1)",
                "algorithm__distance": "euclidean(1, 1, 1)",
            },
            "only where models begin at zero",
        ),
        ({"privacy__may_lose": 1, "network__averaging": "exact"}, "give both may_lose and lost_after"),
        ({"privacy__may_lose": 1, "lost_after": 9.0}, "averaging 'exact'"),
    ],
)
def test_what_real_nodes_cannot_do_is_refused(changes, words):
    run = run_of(rounds=4, network__activation="everyone", privacy__sampling="full", **changes)
    with pytest.raises(SpecError, match=words):
        _ = run.plan


def test_counts_noise_and_statement_come_from_the_fixed_schedule():
    run = run_of(rounds=40, privacy__noise="private(1.5)")
    schedule = run.plan.schedule
    for i in range(run.n):
        assert run.event(i).rounds == len(run.rounds(i)) == schedule.participations()[i]
        assert all(i in schedule.nodes(t) for t in run.rounds(i).tolist())
        for t in run.rounds(i).tolist():
            row = schedule.matrix(t)[i]
            assert dict(run.links(t, i)) == {j: w for j, w in enumerate(row) if w > 0 and j != i}
    for i, met in ((i, run.neighbors(i)) for i in range(run.n)):  # a link has two ends
        assert all(run.neighbors(j)[i] == (heard, said) for j, (said, heard) in met.items())
    assert run.statement.epsilon <= 1.5 and not run.statement.simulation
    run.statement.verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "second"},
        {"schedule_seed": 6},
        {"timeout": 21.0},
        {"label": "ill"},
        {"classes": ["yes", "no"]},
        {"unit_rows": True},
        {"unit": "person"},
        {"features": ["a", "c", "b"]},
        {"nodes": dict(SIZES, north=13)},
        {"nodes": dict(reversed(SIZES.items()))},
        {"privacy__noise": "gaussian(0.4)"},
        {"privacy__clip": 0.5},
        {"algorithm__rounds": 21},
        {"network__weights": "lazy"},
    ],
    ids=str,
)
def test_any_change_is_another_run(changes):
    assert run_of(**changes).mark != run_of().mark


def test_the_digest_does_not_depend_on_the_order_in_which_a_file_is_written():
    data = run_file()
    turned = {key: data[key] for key in reversed(data)}
    turned["spec"] = {key: data["spec"][key] for key in reversed(data["spec"])}
    assert make_run(turned).digest == run_of().digest


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nodes": {}}, r"\[nodes\]"),
        ({"nodes": {"north": "many"}}, r"\[nodes\]"),
        ({"features": []}, "'features'"),
        ({"features": ["a", "a"]}, "twice"),
        ({"features": 0}, "'features'"),
        ({"classes": ["yes"]}, "'classes'"),
        ({"unit": "a"}, "'unit'"),
        ({"unit": "sick"}, "'unit'"),
        ({"unit": "person", "features": 3}, "'unit'"),
        ({"timeout": 0}, "'timeout'"),
        ({"schedule_seed": -1}, "'schedule_seed'"),
        ({"run": ""}, "'run'"),
        *(({"run": name}, "a run cannot be called") for name in ("../up", "a/b", "-rf", "a..b", ".a", "a b", "a" * 65)),
        *(({"nodes": {name: 12, "east": 9}}, "a node cannot be called") for name in ("../up", "-n", "a/b", "ä", "")),
        ({"budget": 3}, "no entry 'budget'"),
        ({"spec": {}}, "rounds"),
        ({"spec": {"algorithm": {"rounds": 3}, "seed": 7}}, "takes no seed"),
        ({"spec": {"algorithm": {"rounds": 3}, "noise": {}}}, r"no \[spec.noise\]"),
        ({"algorithm__sped": 3}, "no field 'sped'"),
        ({"algorithm__rounds": "ten"}, "rounds"),
        ({"privacy__delta": "small"}, "delta"),
        ({"problem__loss": 3}, "loss"),
    ],
    ids=str,
)
def test_mistakes_in_a_run_file_are_sentences(changes, reason):
    with pytest.raises(SpecError, match=reason):
        run_of(**changes)


def test_a_run_file_that_cannot_be_read_is_a_sentence(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        read_run(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("run = ")
    with pytest.raises(SpecError, match="no TOML"):
        read_run(tmp_path / "bad.toml")
    (tmp_path / "odd.toml").write_text(RUN_TOML.replace("north = 12", "north = 2"))
    with pytest.raises(SottovoceError, match="needs nodes with at least as many"):
        read_run(tmp_path / "odd.toml").digest  # noqa: B018 - derived when requested
    assert tomllib.loads(RUN_TOML)["features"] == 3


def test_the_secret_is_drawn_once_and_kept_to_its_owner(tmp_path):
    secrets = []
    for name in ("one", "one", "other"):
        store = Store(tmp_path / name)
        secrets.append(store.secret)
        store.close()
    assert secrets[0] == secrets[1] != secrets[2] and len(secrets[0]) == 32
    assert (tmp_path / "one" / "secret.key").stat().st_mode & 0o777 == 0o600


def test_draws_depend_on_secret_nonce_run_node_and_round_and_on_nothing_else():
    here, three = np.array([1]), np.array([3])
    zero, one = bytes(32), bytes([1]) * 32
    base = own_keys(zero, "00" * 32, zero)[Purpose.NOISE].words(here, three, 0, 8)
    assert np.array_equal(base, own_keys(zero, "00" * 32, zero)[Purpose.NOISE].words(here, three, 0, 8))
    for secret, digest, nonce, node, t in (
        (one, "00", zero, 1, 3),
        (zero, "01", zero, 1, 3),
        (zero, "00", one, 1, 3),
        (zero, "00", zero, 2, 3),
        (zero, "00", zero, 1, 4),
    ):
        keys = own_keys(secret, digest * 32, nonce)
        assert not np.any(keys[Purpose.NOISE].words(np.array([node]), np.array([t]), 0, 8) == base)


def test_draws_made_ahead_are_the_same_wherever_a_run_is_taken_up_again():
    run = run_of(rounds=40)
    problem, turns = own_problem(run, "east", encoded(run, "east", records(run))), run.turns(1)
    x, me, loud = np.full((1, run.m), 0.1), np.array([1]), np.array([True])

    def released(draws, t, drawn=Ahead.drawn):
        return drawn(draws, me, np.array([t]), loud).gradient(problem, run.plan.release, np.array([0]))(x)

    def draws():
        return run.draws(1, problem, own_keys(bytes(32), run.digest, bytes(32)))

    one, alone = draws(), draws()
    whole = {t: released(one, t) for t in turns.tolist()}
    assert len({row.tobytes() for row in whole.values()}) == len(turns) > 2 * Ahead.AT_ONCE
    for first in range(len(turns)):
        again = draws()
        for t in turns[first : first + 3].tolist():
            assert np.array_equal(released(again, t), whole[t])
    for t, row in whole.items():
        assert np.array_equal(row, released(alone, t, SecureDraws.drawn))


def test_the_fingerprint_knows_records_again_and_is_salted():
    from scipy import sparse

    run = run_of()
    shards = own_problem(run, "south", encoded(run, "south", records(run))).shards
    whole = np.array([0, len(shards.y)])

    def fingerprint(*what):
        return fingerprints(*what).records

    mine = fingerprint(bytes(32), shards)
    order = np.random.default_rng(0).permutation(len(shards.y))
    assert fingerprint(bytes(32), Shards.of(shards.X[order], shards.y[order], whole)) == mine
    assert fingerprint(bytes(32), Shards.of(sparse.csr_array(shards.X), shards.y, whole)) == mine
    assert fingerprint(b"\1" * 32, shards) != mine
    other = shards.X.copy()
    other[3, 1] += 1e-9
    assert fingerprint(bytes(32), Shards.of(other, shards.y, whole)) != mine
    turned = shards.y.copy()
    turned[0] *= -1
    assert fingerprint(bytes(32), Shards.of(shards.X, turned, whole)) != mine


SCHEMA_TOML = """
row_norm = 1.5
unit = "person"
[label]
column = "sick"
classes = ["no", "perhaps", "yes"]
[columns.age]
low = 0
high = 120
missing = 50
[columns.ward]
type = "category"
categories = ["007", "B"]
missing = "none"
[columns.smoker]
type = "flag"
categories = ["no", "yes"]
"""


def with_schema(folder, said=SCHEMA_TOML, **changes):
    """A run file that names a schema, and the schema beside it."""
    (folder / "schema.toml").write_text(said)
    lines = {"schema": '"schema.toml"', "run": '"first"', "schedule_seed": "5", "timeout": "20.0"} | changes
    text = "".join(f"{name} = {value}\n" for name, value in lines.items() if value is not None)
    nodes = "".join(f"{name} = {q}\n" for name, q in SIZES.items())
    spec = '[spec.algorithm]\nrounds = 12\n[spec.network]\nactivation = "edges(2)"\n'
    noise = '[spec.privacy]\nsampling = "poisson(4)"\nnoise = "gaussian(0.5)"\n'
    (folder / "run.toml").write_text(f"{text}[nodes]\n{nodes}{spec}{noise}")
    return folder / "run.toml"


def patients(run, seed=0):
    """Records as they stand in a file: texts, gaps, values beyond their bounds, several rows of a person."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, q in zip(run.nodes, run.sizes, strict=True):
        people = [*range(q), 0, 1, 0]
        found[name] = {
            "age": [["", "61", "150", "7.5"][rng.integers(4)] for _ in people],
            "ward": [["007", "B", "elsewhere"][rng.integers(3)] for _ in people],
            "smoker": [["no", "yes"][rng.integers(2)] for _ in people],
            "sick": [["no", "perhaps", "yes"][rng.integers(3)] for _ in people],
            "person": [f"{i:03}" for i in people],
        }
    return found


def test_a_run_file_names_the_schema_and_all_nodes_read_by_it(tmp_path):
    run = read_run(with_schema(tmp_path))
    assert run.schema.features == ("age", "ward=007", "ward=B", "smoker") and run.schema.unit == "person"
    assert run.spec.problem.row_norm == 1.5 and run.spec.problem.outputs == 3 and run.m == 12
    assert run.statement.unit == "one person" and run.schema_file == tmp_path / "schema.toml"
    tables = patients(run)
    ends = whole_run(run, tables, tmp_path)
    assert_as_simulated(run, tables, tmp_path, ends)


def test_a_schema_is_part_of_the_digest_and_says_all_about_records(tmp_path):
    digest = read_run(with_schema(tmp_path)).digest
    assert digest == read_run(with_schema(tmp_path, "# a remark\n" + SCHEMA_TOML)).digest
    assert digest != read_run(with_schema(tmp_path, SCHEMA_TOML.replace("high = 120", "high = 110"))).digest
    for changes, reason in (
        ({"features": 3}, "leave 'features' out"),
        ({"unit": '"person"'}, "leave 'unit' out"),
        ({"schema": '"../schema.toml"'}, "next to"),
        ({"schema": '"none.toml"'}, "no readable schema"),
        ({"schema": None}, "'schema' is missing"),
    ):
        with pytest.raises(SpecError, match=reason):
            read_run(with_schema(tmp_path, **changes))
    file = with_schema(tmp_path)
    file.write_text(file.read_text() + "[spec.problem]\nrow_norm = 1.0\n")
    with pytest.raises(SpecError, match="row_norm is the schema's"):
        read_run(file)


def test_a_value_that_does_not_fit_the_run_file_is_one_clear_error(tmp_path):
    """Types are never guessed: the same file is read in the same way whatever stands in it."""
    run = run_of()
    good = records(run)["north"]
    for change, reason in (
        ({"a": ["many", *good["a"][1:]]}, "column 'a' is a number in the schema, but holds something else in record 1"),
        ({"b": [None, *good["b"][1:]]}, "column 'b' has no value in record 1"),
        ({"sick": ["perhaps", *good["sick"][1:]]}, r"neither class \('no', 'yes'\) in record 1"),
        ({"c": [True, *good["c"][1:]]}, None),  # a number in any database
    ):
        if reason is None:
            encoded(run, "north", {"north": good | change})
        else:
            with pytest.raises(DataError, match=reason):
                encoded(run, "north", {"north": good | change})


@pytest.mark.parametrize("seconds", [1e300, 31 * 24 * 3600 + 1, float("inf"), 0, -1.0, True])
def test_a_time_out_is_one_that_a_clock_can_wait_for(seconds):
    with pytest.raises(SpecError, match="'timeout' must be a number of seconds over 0 and at most 2,678,400"):
        make_run(run_file(timeout=seconds))
