"""The ledger: what the verifier catches, what its file survives, what the command says."""

import json
import shutil
import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net import latest, open_node, records, run_of, whole_run

from sottovoce.cli import node as cli
from sottovoce.errors import NetworkError, PrivacyError, StoreError
from sottovoce.node.budget import Budget, budgets, contradictions, export, opening, spendings
from sottovoce.node.ledger import HEAD_FILE, Head, HeadFile, Row, chained, faults
from sottovoce.node.store import FILE, Store
from sottovoce.privacy.accounting import compute_epsilon, epsilon
from sottovoce.privacy.events import CyclicEvent, FixedEvent, LaplaceEvent, TreeEvent

RUN, LONG = run_of(rounds=8), run_of(rounds=16)
TABLES = records(RUN)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Four folders after a run."""
    root = tmp_path_factory.mktemp("finished")
    whole_run(RUN, TABLES, root)
    return root


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of one of them, to be damaged; its name is north."""
    return shutil.copytree(finished / "north", tmp_path / "north")


def rows_of(folder):
    store = Store(folder, reading=True)
    rows = store.rows()
    store.close()
    return rows


def tampered(folder, *statements):
    """Change the database behind the ledger's back."""
    db = sqlite3.connect(folder / FILE)
    db.executescript("DROP TRIGGER ledger_kept; DROP TRIGGER ledger_fixed; DROP INDEX ledger_once;")
    for statement in statements:
        db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    db.commit()
    db.close()


def refused(folder):
    """The verifier's findings; a node must not start on such a folder either."""
    store = Store(folder, reading=True)
    found = store.verify()
    store.close()
    assert found
    with pytest.raises(StoreError, match="does not hold"):
        Store(folder)
    return found


def test_a_whole_ledger_holds(finished):
    for name in RUN.nodes:
        assert Store(finished / name, reading=True).verify() == []


def test_a_changed_row_is_found(folder):
    last = len(rows_of(folder))
    tampered(folder, f"UPDATE ledger SET message = replace(message, substr(message, 1, 1), 'x') WHERE seq = {last - 2}")
    assert f"row {last - 2} was changed" in refused(folder)[0]


@pytest.mark.parametrize("seq", [1, 2, 4])
def test_a_removed_row_is_found(folder, seq):
    tampered(folder, f"DELETE FROM ledger WHERE seq = {seq}")
    assert f"row {seq} is missing" in refused(folder)[0]


def test_a_removed_row_is_found_even_if_the_others_are_numbered_anew(folder):
    tampered(folder, "DELETE FROM ledger WHERE seq = 4", "UPDATE ledger SET seq = seq - 1 WHERE seq > 4")
    assert "row 4 was changed" in refused(folder)[0]


def test_rows_in_another_order_are_found(folder):
    swap = "UPDATE ledger SET seq = CASE seq WHEN 4 THEN -5 WHEN 5 THEN -4 END WHERE seq IN (4, 5)"
    tampered(folder, swap, "UPDATE ledger SET seq = -seq WHERE seq < 0")
    assert "row 4 was changed" in refused(folder)[0]


def test_a_cut_tail_is_found_by_the_head_that_is_kept_apart(folder):
    last = len(rows_of(folder))
    tampered(folder, f"DELETE FROM ledger WHERE seq > {last - 2}")
    assert f"rows {last - 1} to {last} are gone" in refused(folder)[0]


def test_a_ledger_written_anew_with_right_hashes_is_found(folder):
    rows = rows_of(folder)
    changes, before = [], bytes(32)
    for row in rows:
        message = "00" * 32 if row.kind == "release" else row.message
        before = chained(before, *row[:4], message, row.detail)
        changes.append(("UPDATE ledger SET message = ?, hash = ? WHERE seq = ?", (message, before, row.seq)))
    tampered(folder, *changes)
    assert "written anew" in refused(folder)[0]


def rechained(rows):
    """Rows with right numbers and hashes, as an attacker would write them who can also write the head."""
    result, before = [], bytes(32)
    for seq, row in enumerate(rows, start=1):
        before = chained(before, seq, *row[1:6])
        result.append(Row(seq, *row[1:6], before))
    return result


def test_a_replayed_run_is_found_whatever_its_hashes(finished):
    rows = rows_of(finished / "north")
    assert faults(rechained(rows)) == []
    begin = next(k for k, row in enumerate(rows) if row.kind == "open")
    twice = rechained([*rows, *rows[begin:]])
    assert any("opens run" in fault and "replayed" in fault for fault in faults(twice))
    again = rechained([*rows, next(row for row in rows if row.kind == "release")])
    assert any("again: a run was replayed" in fault for fault in faults(again))
    closed = rechained([*rows[:-2], rows[-1], rows[-2]])
    assert any("after its end" in fault for fault in faults(closed))
    assert any("never opened" in fault for fault in faults(rechained([row for row in rows if row.kind != "open"])))


def ledger_of(opened, messages):
    """The rows of a run that was opened so and sent so many messages."""
    rows = [("open", 0, "", opened)] + [("release", t, f"{t:064x}", {}) for t in range(1, messages + 1)]
    return rechained([Row(0, kind, "run", t, message, detail, b"") for kind, t, message, detail in rows])


@pytest.mark.parametrize(
    "event",
    [
        CyclicEvent(400, 20, 1.0, 0.4, 60, uses=4),
        LaplaceEvent(400, 400, 3.0, 0.4, 60),
        TreeEvent(400, 20, 1.0, 0.4, 60, uses=3),
        FixedEvent(400, 20, 1.0, 0.4, 60),
    ],
    ids=lambda event: type(event).__name__,
)
def test_messages_are_counted_against_messages_and_not_against_what_is_accounted(event):
    opened = opening("first", "north", "records", "ab", event, "transcript")
    assert faults(ledger_of(opened, 60)) == []
    assert "one release more" in faults(ledger_of(opened, 61))[0]
    (spending,) = spendings(ledger_of(opened, 60))
    assert spending.event == event and spending.released == event.rounds == 60


def test_ledgers_of_version_0_1_hold_and_cost_what_they_did():
    """Which wrote down what is accounted alone: with Laplace noise, one mechanism for all messages."""
    opened = {"name": "first", "node": "north", "dataset": "records", "fingerprint": "ab", "adversary": "transcript"}
    plain = {"sampling": "full", "records": 400, "batch": 400, "clip": 1.0, "sigma": 0.4, "extra": 0.0}

    def rows_of_event(event, messages):
        return ledger_of(opened | {"event": event}, messages)

    fixed = plain | {"sampling": "fixed", "batch": 8, "rounds": 60, "law": "gaussian"}
    assert faults(rows_of_event(fixed, 60)) == []
    assert "one release more" in faults(rows_of_event(fixed, 61))[0]
    assert [s.event for s in spendings(rows_of_event(fixed, 60))] == [FixedEvent(400, 8, 1.0, 0.4, 60)]
    for odd in (
        plain | {"rounds": 1, "law": "laplace"},
        plain | {"sampling": "cyclic", "batch": 20, "rounds": 3, "law": "gaussian"},
        plain | {"sampling": "cyclic", "batch": 20, "rounds": 18, "law": "tree"},
    ):
        rows = rows_of_event(odd, 60)
        assert faults(rows) == []
        (spending,) = spendings(rows)
        assert spending.event.count == odd["rounds"] and spending.released == 60
    assert "cannot be accounted for" in faults(rows_of_event(fixed | {"sampling": "shuffled"}, 1))[0]


@pytest.mark.parametrize("sampling", ["cyclic(4)", "full", "one"])
def test_an_honest_node_is_not_condemned_for_how_it_picks_records(tmp_path, sampling):
    plan = run_of(rounds=16, privacy__sampling=sampling)
    whole_run(plan, TABLES, tmp_path)
    for i, name in enumerate(plan.nodes):
        store = Store(tmp_path / name)
        assert store.verify() == []
        (spending,) = spendings(store.rows())
        assert spending.event == plan.event(i) and spending.released == len(plan.rounds(i)) == spending.event.rounds
        store.close()


@settings(max_examples=40)
@given(data=st.data())
def test_a_flipped_byte_in_the_ledger_is_found(finished, tmp_path_factory, data):
    """Every byte of every row that is in the file: its text, its hashes, its numbers."""
    whole = (finished / "north" / FILE).read_bytes()
    rows = rows_of(finished / "north")
    row = data.draw(st.sampled_from(rows))
    pieces = [piece for piece in (row.message.encode(), row.hash) if piece]
    piece = data.draw(st.sampled_from(pieces))
    place = whole.index(piece) + data.draw(st.integers(0, len(piece) - 1))
    assert whole.count(piece) >= 1
    folder = shutil.copytree(finished / "north", tmp_path_factory.mktemp("flip") / "north")
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(1, 127))
    (folder / FILE).write_bytes(damaged)
    store = None
    try:
        store = Store(folder, reading=True)
        found = store.verify()
    except StoreError as error:
        found = [str(error)]
    finally:
        if store:
            store.close()
    assert found


def test_any_damage_to_the_file_is_a_sentence_or_harmless(finished, tmp_path):
    """Bytes all over the file: either something is reported, or nothing that counts was touched."""
    whole = (finished / "north" / FILE).read_bytes()
    folder = shutil.copytree(finished / "north", tmp_path / "north")
    expected = rows_of(finished / "north")
    rng, reported = np.random.default_rng(0), 0
    for place in rng.integers(0, len(whole), 300).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        (folder / FILE).write_bytes(damaged)
        try:
            store = Store(folder, reading=True)
        except StoreError:
            reported += 1
            continue
        try:
            found = store.verify()
        except StoreError as error:
            found = [str(error)]
        reported += bool(found)
        assert found or store.rows() == expected
        store.close()
    assert reported > 8


def test_a_truncated_file_is_reported(folder):
    whole = (folder / FILE).read_bytes()
    for keep in (0, 100, 4096, len(whole) // 2):
        (folder / FILE).write_bytes(whole[:keep])
        for suffix in ("-wal", "-shm"):
            (folder / (FILE + suffix)).unlink(missing_ok=True)
        with pytest.raises(StoreError):
            Store(folder)


def test_a_torn_write_ahead_log_loses_whole_transactions_only(tmp_path):
    """Power fails while the log is written: what was committed before is there, and the rest as if never begun."""
    node = open_node(LONG, "north", TABLES, tmp_path / "live")
    node.greet = lambda wait: None
    folders = []
    for t in LONG.rounds(0)[:3].tolist():
        state = node._state
        message = np.full((1, LONG.m), float(t))
        node._release(t, message)
        node._state, node._round = state._replace(z=state.z + 1.0), t
        folders.append(shutil.copytree(tmp_path / "live", tmp_path / f"copy{t}"))
    log = (folders[-1] / (FILE + "-wal")).read_bytes()
    base = len((folders[-2] / (FILE + "-wal")).read_bytes())
    assert len(log) > base
    for cut in np.linspace(base, len(log), 7).astype(int).tolist():
        copy = shutil.copytree(folders[-1], tmp_path / f"cut{cut}")
        (copy / (FILE + "-wal")).write_bytes(log[:cut])
        (copy / (FILE + "-shm")).unlink()
        (copy / HEAD_FILE).write_bytes((folders[-2] / HEAD_FILE).read_bytes())
        store = Store(copy)
        saved = store.load(LONG.digest)
        last = latest(store, LONG)
        assert max(saved.outbox) == last in LONG.rounds(0)[1:3]
        assert saved.round == LONG.rounds(0)[LONG.rounds(0).tolist().index(last) - 1]
        assert store.verify() == []
        store.close()
    node.store.close()


def test_a_node_whose_disk_lost_a_written_round_does_not_start(tmp_path):
    """A disk that lies about syncing: the head that was kept apart knows better than the database."""
    node = open_node(RUN, "north", TABLES, tmp_path / "north")
    copy = shutil.copytree(tmp_path / "north", tmp_path / "old")
    node._release(int(RUN.rounds(0)[0]), np.zeros((1, RUN.m)))
    node.store.close()
    shutil.copy(tmp_path / "north" / HEAD_FILE, copy / HEAD_FILE)
    with pytest.raises(StoreError, match="are gone"):
        Store(copy)


def test_a_full_disk_stops_a_node_before_anything_is_sent(tmp_path):
    node = open_node(RUN, "north", TABLES, tmp_path / "north")
    t, store = int(RUN.rounds(0)[0]), node.store
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        node._release(t, np.zeros((1, 3000)))
    assert node.links._outbox == {} and latest(store, RUN) == 0 and store.verify() == []
    store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    node._release(t, np.zeros((1, 3000)))  # there is room again
    assert latest(store, RUN) == t and store.verify() == []
    store.close()


def test_the_state_and_the_messages_are_checked_too(folder):
    tampered(folder, "UPDATE state SET data = zeroblob(length(data)) WHERE field = 'z'")
    assert any("field 'z'" in fault for fault in Store(folder, reading=True).verify())
    with pytest.raises(StoreError, match="field 'z'"):
        Store(folder).load(RUN.digest)


@given(st.integers(0, 2**63), st.binary(min_size=32, max_size=32), st.integers(0, 111), st.integers(1, 255))
def test_the_head_survives_damage_to_one_slot(tmp_path_factory, seq, digest, place, change):
    folder = tmp_path_factory.mktemp("head")
    heads = HeadFile(folder)
    heads.write(Head(seq, digest))
    heads.write(Head(seq + 1, digest[::-1]))
    assert heads.read() == Head(seq + 1, digest[::-1])
    content = bytearray((folder / HEAD_FILE).read_bytes())
    content[place] ^= change
    (folder / HEAD_FILE).write_bytes(content)
    assert heads.read() in (Head(seq, digest), Head(seq + 1, digest[::-1]))


def test_a_lost_ledger_or_key_is_not_made_anew(folder):
    (folder / FILE).rename(folder / "away")
    with pytest.raises(StoreError, match=r"ledger in .* is gone"):
        Store(folder)
    (folder / "away").rename(folder / FILE)
    (folder / "secret.key").rename(folder / "away")
    with pytest.raises(StoreError, match=r"secret key of .* is gone"):
        Store(folder)
    (folder / "secret.key").write_text("ab" * 32)
    (folder / "secret.key").chmod(0o600)
    with pytest.raises(StoreError, match="not the one"):
        Store(folder)
    (folder / "secret.key").chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        Store(folder)
    (folder / "secret.key").write_text("short")
    (folder / "secret.key").chmod(0o600)
    with pytest.raises(StoreError, match="damaged"):
        Store(folder)


def test_rows_cannot_be_changed_or_released_twice_through_the_database(folder):
    db = sqlite3.connect(folder / FILE)
    for statement in ("DELETE FROM ledger", "UPDATE ledger SET round = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()
    store = Store(folder)
    with pytest.raises(StoreError, match="never released twice"), store.transaction():
        store.ledger.append("release", RUN.digest, int(RUN.rounds(0)[0]), "00")
    assert store.verify() == []
    store.close()


def test_an_export_and_a_peers_export_find_a_restored_folder(finished, tmp_path):
    early = tmp_path / "early"
    node = open_node(RUN, "north", TABLES, early)
    node.store.close()
    mine, peers = (export(Store(finished / name, reading=True)) for name in ("north", "east"))
    whole = rows_of(finished / "north")
    assert contradictions(whole, mine["ledger"], mine) == []
    assert contradictions(whole, mine["ledger"], peers) == []
    cut = next(k for k, row in enumerate(whole) if row.kind == "release") + 1
    assert "old copy" in contradictions(whole[:cut], mine["ledger"], mine)[0]
    assert "a peer saw round" in contradictions(whole[:cut], mine["ledger"], peers)[0]


def test_what_is_spent_is_the_composition_of_all_runs(finished):
    rows = rows_of(finished / "south")
    events = [s.event for s in spendings(rows)]
    assert events == [RUN.event(2)] and budgets(rows) == {"records": Budget(1e6, 1e-5)}
    parts = [event.part for event in events * 3]
    assert compute_epsilon(events * 3, 1e-5).epsilon == epsilon(parts, 1e-5) > epsilon(parts[:1], 1e-5)
    with pytest.raises(PrivacyError):
        Budget(0.0, 1e-5)
    with pytest.raises(PrivacyError):
        Budget(1.0, 0.0)


def test_a_run_is_named_as_the_user_sees_it(tmp_path):
    """`consortium.toml` says 'first', the ledger 'first (8121a777…)', `ledger show` the digest's beginning."""
    store = Store(tmp_path)
    digests = {"first": "8121a777" * 8, "second (8121a777bad79186)": "ab" * 32, "first (0123456789abcdef)": "cd" * 32}
    for name, digest in digests.items():
        store.enter(digest, name, "north", ("north", "south"), ["fingerprint"])
    assert store.run_of("first") == "8121a777" * 8
    assert store.run_of("second") == store.run_of("second (8121a777bad79186)") == store.run_of("abababab") == "ab" * 32
    for unknown in ("fir", "third", "ab", "secon.", "(8121a777bad79186)"):
        with pytest.raises(StoreError, match="its runs are: 'first'"):
            store.run_of(unknown)
    store.enter("ef" * 32, "second (0000000000000000)", "north", ("north", "south"), ["fingerprint"])
    with pytest.raises(StoreError, match=r"names several runs .*abababababab, efefefefefef"):
        store.run_of("second")
    store.close()


def test_health_is_one_line_and_an_exit_code(tmp_path, capsys):
    run = run_of(rounds=20)
    whole_run(run, records(run), tmp_path)

    def requested(folder):
        with pytest.raises((NetworkError, StoreError)) as caught:
            cli.health(folder)
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["why"] == str(caught.value)
        return caught.value.exit_code, json.loads(line)

    folder = tmp_path / "north"
    code, said = requested(folder)
    assert code == 4 and not said["healthy"] and said["ledger"] and said["why"] == "no process of it runs"
    assert said["run"]["state"] == "closed" and said["run"]["released"] == len(run.rounds(0))
    store = Store(folder)
    cli.health(folder)
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] and said["in_run"] and said["spent"][0]["epsilon"] > 0 and said["spent"][0]["adversary"]
    store.close()
    (folder / FILE).write_bytes(b"damaged")
    code, said = requested(folder)
    assert code == 6 and not said["ledger"] and "damaged" in said["why"]
    assert requested(tmp_path / "nowhere")[0] == 6


def test_a_row_that_is_written_meanwhile_is_no_fault(tmp_path, monkeypatch):
    """Health and `ledger verify` run beside the node: the kept head may be older than the rows, and never newer."""
    writer = Store(tmp_path)
    reader = Store(tmp_path, reading=True)
    read = HeadFile.read

    def read_late(self):
        writer.set_budget({"dataset": "records", "epsilon": "1.0", "delta": 1e-5})
        return read(self)

    monkeypatch.setattr(HeadFile, "read", read_late)
    assert reader.ledger_faults() == []
    reader.close()
    writer.close()
