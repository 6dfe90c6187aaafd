"""Nodes of a consortium on a network inside this process: the model, the test, resumption, and what is refused."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.x509 import load_pem_x509_certificate

from sottovoce.consortium import evaluation as evaluate
from sottovoce.consortium import node as consortium_node
from sottovoce.consortium.agreement import read_agreement
from sottovoce.consortium.evaluation import evaluation, noise_of, statement
from sottovoce.consortium.flare import MODEL, ORDER, PROGRESS, Channel
from sottovoce.consortium.node import ConsortiumNode
from sottovoce.errors import FolderInUse, NetworkError, PrivacyError, SpecError, StoreError
from sottovoce.node.dropped_edges import SkipOrders
from sottovoce.node.message import Header, Refused, pack
from sottovoce.node.store import Store
from sottovoce.run.result import Result


def result(kits, state="state"):
    return {name: Result.load(kit / state / "results" / "first") for name, kit in kits.items()}


@pytest.mark.parametrize(
    "activation, sampling, averaging",
    [("everyone", "full", "gossip"), ("edges(1)", "poisson(8)", "gossip"), ("everyone", "poisson(8)", "exact")],
)
def test_the_run_equals_the_simulation_from_the_same_draws(small, cells, activation, sampling, averaging):
    made = small(activation=activation, sampling=sampling, averaging=averaging)
    kits = made.kits()
    nodes = cells.join(made, kits)
    problems = [node.node.problem for node in nodes.values()]
    answers = cells.run(nodes)
    assert all(answer["finished"] for answer in answers.values()), answers
    run = made.agreement.run
    expected = cells.simulated(run, problems, cells.keys(run, [kit / "state" for kit in kits.values()]))
    for kept in result(kits).values():
        np.testing.assert_allclose(kept.models, expected, rtol=0, atol=1e-9)
        assert kept.statement == statement(made.agreement)
        kept.statement.verify()


def test_sites_share_noise_in_pairs(small, cells):
    """From the keys that their certificates vouch for; killed and gone on with, as ever."""
    made = small(rounds=8, private='law = "pairs(10)"\nadversary = "secret_pairs(1)"')
    kits = made.kits()
    nodes = cells.join(made, kits, stopped=lambda name: nodes["birch"].progress()["round"] >= 4)
    assert all(isinstance(answer, NetworkError) for answer in cells.run(nodes).values())
    answers = cells.run(cells.join(made, kits))
    assert all(answer["finished"] for answer in answers.values()), answers
    kept = list(result(kits).values())
    assert all(np.array_equal(one.models, kept[0].models) for one in kept)
    made_of = statement(made.agreement)
    assert str(made.agreement.run.spec.privacy.adversary) == "secret_pairs(1)" and kept[0].statement == made_of
    kept[0].statement.verify()
    store = Store(kits["ash"] / "state", reading=True)
    row = next(row for row in store.rows() if row.kind == "open" and row.run == made.agreement.run.digest)
    assert set(row.detail["pairs"]) == {"birch", "cedar"} and store.run_keys(row.run) is None
    store.close()


@pytest.mark.parametrize("loss", ["softmax", "hinge"])
def test_three_classes_train_test_and_predict(small, cells, loss):
    names = ("no", "perhaps", "yes")
    made = small(classes=names, loss=loss, records=60, rounds=30)
    kits = made.kits()
    nodes = cells.join(made, kits)
    run, problems = made.agreement.run, [node.node.problem for node in nodes.values()]
    tests = {name: node.examiner.problem for name, node in nodes.items()}
    answers = cells.run(nodes)
    assert all(answer["finished"] for answer in answers.values()), answers
    expected = cells.simulated(run, problems, cells.keys(run, [kit / "state" for kit in kits.values()]))
    assert run.m == 3 * 5 and expected.shape == (3, 15)  # a, b, two kinds and the intercept, for each class
    events = evaluate.count_events(made.agreement)
    for i, (name, kept) in enumerate(result(kits).items()):
        np.testing.assert_allclose(kept.models, expected, rtol=0, atol=1e-9)
        kept.statement.verify()
        right = round(tests[name].accuracy(kept.model) * tests[name].shards.sizes[0])
        assert abs(answers[name]["right"] - right) < 6 * noise_of(events[i]) + 1
        rows = made.agreement.schema.read_rows(made.root / f"{name}.csv")
        assert set(kept.predict(rows)) <= set(names)


def test_a_person_counts_with_all_of_their_rows(small, cells):
    """As at nodes over MPI: the run, its statement and the ledger are for people, the test is on one row of each."""
    made = small(people=True, sampling="poisson(8)", rounds=12)
    kits = made.kits()
    nodes = cells.join(made, kits)
    run, problems = made.agreement.run, [node.node.problem for node in nodes.values()]
    assert run.sizes == (30, 30, 30) and all(p.shards.people and p.shards.sizes.tolist() == [30] for p in problems)
    assert sum(len(p.shards.y) for p in problems) > 90  # more rows than people
    assert all(node.examiner.problem.shards.sizes.tolist() == [10] for node in nodes.values())
    answers = cells.run(nodes)
    assert all(answer["finished"] for answer in answers.values()), answers
    expected = cells.simulated(run, problems, cells.keys(run, [kit / "state" for kit in kits.values()]))
    for name, kept in result(kits).items():
        np.testing.assert_allclose(kept.models, expected, rtol=0, atol=1e-9)
        kept.statement.verify()
        assert kept.statement.unit == "one person"
        store = Store(kits[name] / "state", reading=True)
        opened = [row.detail for row in store.rows() if row.kind == "open"]
        assert len(opened) == 2 and {detail["adjacency"] for detail in opened} == {kept.statement.adjacency}
        store.close()
    alone = small(rounds=12, sampling="poisson(8)").agreement.run
    assert alone.sizes == run.sizes and alone.digest != run.digest and alone.statement.unit == "one record"


def test_a_stopped_run_continues_to_the_same_model_and_releases_nothing_twice(small, cells):
    made = small(rounds=30)
    calm = made.kits("calm")
    cells.run(cells.join(made, calm))
    undisturbed = result(calm, "calm")
    rough = made.kits("rough")
    nodes = cells.join(made, rough, stopped=lambda name: nodes["birch"].progress()["round"] >= 11)
    stopped = cells.run(nodes)
    assert all(isinstance(answer, NetworkError) for answer in stopped.values())
    done = cells.run(cells.join(made, rough))
    assert all(answer["finished"] for answer in done.values()), done
    for name, kept in result(rough, "rough").items():
        assert np.array_equal(kept.models, undisturbed[name].models)
        store = Store(rough[name] / "rough", reading=True)
        assert store.verify() == []
        rows = store.rows()
        released = [(row.run, row.round) for row in rows if row.kind == "release"]
        assert len(released) == len(set(released)) == 30 + 1  # the rounds, and the test
    again = cells.run(cells.join(made, rough))
    assert [a["right"] for a in again.values()] == [a["right"] for a in done.values()]


def test_the_test_counts_right_answers_on_records_that_were_not_trained_on(small, cells):
    made = small(rounds=40, held_out=0.5, records=60)
    kits = made.kits()
    nodes = cells.join(made, kits)
    shares = {name: (m.node.problem.shards, m.examiner.problem.shards) for name, m in nodes.items()}
    answers = cells.run(nodes)
    events = evaluate.count_events(made.agreement)
    for i, (name, (train, test)) in enumerate(shares.items()):
        assert (train.sizes[0], test.sizes[0]) == (30, 30)
        rows = {row.tobytes() for row in train.X}
        assert not any(row.tobytes() in rows for row in test.X)
        model = result(kits)[name].model
        right = np.count_nonzero(np.where(test.margins(model) >= 0, 1.0, -1.0) == test.y)
        assert abs(answers[name]["right"] - right) < 6 * noise_of(events[i]) + 1
    found = evaluation(made.agreement, {name: answer["right"] for name, answer in answers.items()})
    assert found.accuracy == min(max(sum(answer["right"] for answer in answers.values()) / 90, 0.0), 1.0)


def test_every_message_is_sent_encrypted_and_a_plaintext_one_is_refused(small, cells):
    made = small(rounds=4)
    net = cells.Cells()
    nodes = cells.join(made, made.kits(), net)
    forged = Channel.ask(Channel(net.cell("ash"), "job-1", plaintext=True), "birch", PROGRESS, b"")
    assert forged is None  # birch answers nothing that came in plaintext
    net.cells["ash.job-1"] = nodes["ash"].channel._cell
    cells.run(nodes)
    assert len(net.passed) > 24
    assert all(secure for topic, secure, _ in net.passed[1:] if topic != PROGRESS)


def test_a_final_model_that_no_honest_site_can_have_is_refused_and_so_is_a_second(small, cells):
    made = small(rounds=2)
    nodes = cells.join(made, made.kits())
    ash, birch, run = nodes["ash"], nodes["birch"], made.agreement.run
    ash.node.envelope.meet(birch.number, birch.node.envelope.introduction)
    birch.node.envelope.meet(ash.number, ash.node.envelope.introduction)

    def sent(numbers):
        payload = pack(Header(run.mark, run.T + 2, birch.number), numbers)
        return ash._swap("birch", birch.node.envelope.seal(ash.number, MODEL, b"", payload))

    for size in (1e300, 1.01 * run.model_bound):
        with pytest.raises(Refused, match="no honest node's are over"):
            sent(np.full(run.m, size / np.sqrt(run.m)))
    assert not ash._models
    first = np.full(run.m, 0.99 * run.model_bound / np.sqrt(run.m))
    sent(first)
    sent(first)  # sent again, it is no news
    with pytest.raises(Refused, match="a second, different final model"):
        sent(np.zeros(run.m))
    assert np.array_equal(ash._models[birch.number], first)
    for node in nodes.values():
        node.close()


def plain(message, **headers):
    """What a relay writes in someone's name: it cannot encrypt, but any header is its own to set."""
    message.headers = {**message.headers, **headers}
    message.payload = b"forged"
    return message


@pytest.mark.parametrize("headers", [{"SECURE": True, "ENCRYPTED": False}, {"SECURE": False, "ENCRYPTED": True}])
def test_a_relay_that_writes_headers_gets_nothing_into_a_node(cells, headers):
    """FLARE decrypts and verifies what has both headers: a message with one of them is whatever the relay wrote."""
    from nvflare.fuel.f3.cellnet.core_cell import MessageHeaderKey

    net, heard = cells.Cells(), []
    given = {getattr(MessageHeaderKey, name): value for name, value in headers.items()}
    one, other = Channel(net.cell("ash"), cells.JOB), Channel(net.cell("birch"), cells.JOB)
    other.serve("message", lambda site, payload: heard.append((site, payload)) or b"an answer")
    assert one.ask("birch", "message", b"as it was sent") == b"an answer"
    assert heard == [("ash", b"as it was sent")]
    net.meddle = lambda message: plain(message, **given)  # the request is forged
    assert one.ask("birch", "message", b"as it was sent") is None and len(heard) == 1
    net.meddle = lambda message: plain(message, **given) if message.payload == b"an answer" else message
    assert one.ask("birch", "message", b"as it was sent") is None and len(heard) == 2  # the reply is forged
    elsewhere = given | {MessageHeaderKey.CHANNEL: "another"}  # past the filter of our channel
    net.meddle = lambda message: plain(message, **elsewhere) if message.payload == b"an answer" else message
    assert one.ask("birch", "message", b"as it was sent") is None and len(heard) == 3


def hostile(net, forged, sent):
    """A relay for which FLARE's encryption does not exist: it reads, forges, replays, reflects and misdirects."""
    from nvflare.fuel.f3.cellnet.core_cell import Message, MessageHeaderKey

    earlier, busy = {}, []

    def inject(kind, target, origin, message, payload):
        headers = message.headers | {MessageHeaderKey.ORIGIN: origin, MessageHeaderKey.ENCRYPTED: True}
        cell = net.cells.get(target)
        if cell is not None and message.get_header(MessageHeaderKey.TOPIC) in cell.handlers:
            sent.append(kind)
            cell.handle(Message(headers, payload))

    def meddle(message):
        topic, origin = (message.get_header(key) for key in (MessageHeaderKey.TOPIC, MessageHeaderKey.ORIGIN))
        if topic not in ("message", "model") or busy or len(sent) > 400:
            return message
        busy.append(True)
        try:
            for target in [name for name in net.cells if name != origin]:
                inject("forged", target, origin, message, forged)
                inject("misdirected", target, origin, message, message.payload[:-1] + b"x")
                if (origin, target) in earlier:
                    inject("replay", target, origin, message, earlier[origin, target])
                earlier[origin, target] = message.payload
            inject("reflection", origin, next(name for name in net.cells if name != origin), message, message.payload)
        finally:
            busy.clear()
        return message

    return meddle


def test_a_relay_that_broke_flare_s_encryption_changes_nothing(small, cells):
    """Our own envelopes stand alone: the model is the simulation's, and every round was released once."""
    made = small(rounds=12, timeout=60)
    kits, net, sent = made.kits(), cells.Cells(), []
    nodes = cells.join(made, kits, net)
    run, problems = made.agreement.run, [node.node.problem for node in nodes.values()]
    net.meddle = hostile(net, pack(Header(run.mark, 1, 0), np.full(run.shape, 1e6)), sent)
    answers = cells.run(nodes)
    assert all(answer["finished"] for answer in answers.values()), answers
    assert {kind: sent.count(kind) > 10 for kind in sent} == dict.fromkeys(
        ("forged", "misdirected", "replay", "reflection"), True
    )
    expected = cells.simulated(run, problems, cells.keys(run, [kit / "state" for kit in kits.values()]))
    for name, kept in result(kits).items():
        np.testing.assert_allclose(kept.models, expected, rtol=0, atol=1e-9)
        rows = Store(kits[name] / "state", reading=True).rows()
        assert len([row for row in rows if row.kind == "release" and row.run == run.digest]) == 12


def test_a_revoked_certificate_s_introduction_is_refused(small, cells):
    made = small(rounds=4)
    serial = load_pem_x509_certificate((made.kits()["ash"] / "startup" / "client.crt").read_bytes()).serial_number
    again = small(rounds=4, more=f'revoked = ["{serial:x}"]', timeout=2)
    kits = {name: made.root / "kits" / name for name in made.names}
    for kit in kits.values():
        (kit / "local" / "consortium.toml").write_text((made.root / "consortium.toml").read_text())
    answers = cells.run(cells.join(again, kits))
    assert all(isinstance(answer, NetworkError) for answer in answers.values()), answers
    for name in ("birch", "cedar"):
        assert not any(row.kind == "release" for row in Store(kits[name] / "state", reading=True).rows())


def test_the_filters_that_were_there_still_run(cells):
    """FLARE takes the filters of a channel in place of those of all channels."""
    net, before = cells.Cells(), []
    cell = net.cell("ash")
    cell.add_incoming_filter("*", "*", before.append)
    Channel(cell, cells.JOB).serve("message", lambda site, payload: b"yes")
    assert Channel(net.cell("birch"), cells.JOB).ask("ash", "message", b"") == b"yes" and len(before) == 1


def test_no_error_in_a_handler_shows_what_it_says(cells):
    def fail(site, payload):
        raise RuntimeError("PGPASSWORD is swordfish")

    net = cells.Cells()
    Channel(net.cell("ash"), cells.JOB).serve("message", fail)
    assert Channel(net.cell("birch"), cells.JOB).ask("ash", "message", b"") is None
    assert not any(b"swordfish" in bytes(payload or b"") for _, _, payload in net.passed)


def test_a_node_without_a_certificate_sends_nothing(cells):
    with pytest.raises(NetworkError, match="plaintext"):
        Channel(cells.Cells().cell("ash", secure=False), "job-1")


def test_only_the_controller_gives_orders(small, cells):
    made = small(rounds=4)
    net = cells.Cells()
    nodes = cells.join(made, made.kits(), net)
    assert Channel(net.cell("oak"), "job-1").ask("ash", "order", b"leave an edge out") is None
    for node in nodes.values():
        node.close()


def test_a_job_for_another_run_is_refused_before_anything_is_read(small, cells):
    made = small()
    kits = made.kits()
    with pytest.raises(SpecError, match="another run"):
        ConsortiumNode(kits["ash"], "ash", "00" * 32, Channel(cells.Cells().cell("ash"), "job-1"), lambda: False)


def test_a_folder_that_is_in_use_is_waited_for_and_a_damaged_one_is_not(small, cells, monkeypatch):
    """Distinguished by the errors' classes: the process of a job that was just ended lets go of its folder soon."""
    made = small(rounds=4)
    kits = made.kits()
    channel, digest = Channel(cells.Cells().cell("ash"), "job-1"), made.agreement.run.digest
    held = Store(kits["ash"] / "state")
    monkeypatch.setattr(consortium_node, "LOCKED", 0.0)
    with pytest.raises(FolderInUse):
        ConsortiumNode(kits["ash"], "ash", digest, channel, lambda: False)
    monkeypatch.setattr(consortium_node, "LOCKED", 40.0)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(ConsortiumNode, kits["ash"], "ash", digest, channel, lambda: False)
        time.sleep(0.2)
        assert not opening.done()
        held.close()
        opening.result(timeout=30).close()
    (kits["ash"] / "state" / "secret.key").write_text("another process\n")
    never = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("a damaged folder is not waited for"))
    monkeypatch.setattr(consortium_node, "time", never)
    with pytest.raises(StoreError, match="damaged"):
        ConsortiumNode(kits["ash"], "ash", digest, channel, lambda: False)


def test_a_run_over_the_owner_s_budget_is_refused(small, cells):
    made = small()
    kits = made.kits(epsilon=1.0)
    with pytest.raises(PrivacyError, match="budget"):
        cells.join(made, kits)


def test_held_out_records_may_not_move_into_training(small, cells):
    made = small(rounds=4)
    kits = made.kits(epsilon=50.0)
    cells.run(cells.join(made, kits))
    for kit in kits.values():
        path = kit / "local" / "consortium.toml"
        path.write_text(path.read_text().replace('run = "first"', 'run = "second"').replace("0.25", "0.5"))
    made.agreement = read_agreement(kits["ash"] / "local" / "consortium.toml")
    with pytest.raises(PrivacyError, match="moved between training and testing"):
        cells.join(made, kits)


def test_progress_says_nothing_but_rounds(small, cells):
    made = small(rounds=4)
    net = cells.Cells()
    nodes = cells.join(made, made.kits(), net)
    answer = Channel(net.cell("server"), "job-1").ask("ash", PROGRESS, b"")
    assert json.loads(answer) == {"round": 0, "rounds": 4, "waits": None, "state": "meeting"}
    for node in nodes.values():
        node.close()


def test_a_site_with_an_undecided_edge_reports_for_whom_it_waits(small, cells, monkeypatch):
    """So that any controller can set it free, and not only the one that requested and forgot."""
    made = small(rounds=3, more="skip_after = 5")
    nodes = cells.join(made, made.kits())
    ash, t = nodes["ash"], int(nodes["ash"].node.rounds[0])
    peer = made.agreement.run.links(t, 0)[0][0]
    ash.transport._awaited = (made.agreement.run.step(t), (peer,), time.monotonic() - 7.0)
    monkeypatch.setattr(ash.node.links, "heard", lambda t, peer: b"a message")
    assert ash.progress()["waits"] is None
    ash.node.skips.word(t, peer)
    waits = ash.progress()["waits"]
    assert waits["for"] == made.agreement.run.nodes[peer] and waits["round"] == t and waits["seconds"] >= 7
    for node in nodes.values():
        node.close()


def test_an_edge_to_a_straggler_is_skipped_at_both_ends(small, cells, tmp_path):
    made = small(rounds=3, more="skip_after = 0.2")
    net = cells.Cells()
    kits = made.kits()
    nodes = cells.join(made, kits, net)
    channel = Channel(net.cell("server"), "job-1")
    run = made.agreement.run
    controller = SkipOrders(run, tmp_path / "skips", lambda i, order: channel.ask(run.nodes[i], ORDER, order))
    quick = {name: node for name, node in nodes.items() if name != "cedar"}
    with ThreadPoolExecutor(2) as pool:
        going = pool.submit(cells.run, quick)
        nodes["cedar"].node.greet()
        until = time.monotonic() + 20
        for name in quick:
            while (nodes[name].progress()["waits"] or {"seconds": 0})["seconds"] < 0.4 and time.monotonic() < until:
                time.sleep(0.05)
        assert controller.skip(1, 0, 2) and controller.skip(1, 1, 2)
        while min(m.progress()["round"] for m in quick.values()) < 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert nodes["ash"].progress()["round"] == nodes["birch"].progress()["round"] == 1
        last = cells.run({"cedar": nodes["cedar"]})
        answers = going.result(timeout=60) | last
    assert all(answer["finished"] for answer in answers.values()), answers
    skipped = {name: [r.round for r in Store(kit / "state").rows() if r.kind == "skip"] for name, kit in kits.items()}
    assert skipped == {"ash": [1], "birch": [1], "cedar": [1, 1]}
    models = result(kits)
    assert all(np.array_equal(kept.models, models["ash"].models) for kept in models.values())


def test_a_site_says_for_whom_it_waits_before_the_first_round_and_after_the_last(small, cells):
    made, net = small(rounds=3), cells.Cells()
    kits, run = made.kits(), made.agreement.run
    quick = cells.join(made, {name: kit for name, kit in kits.items() if name != "cedar"}, net)

    def waiting(round):
        """Whether both wait for the third, once they do."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            found = [node.progress()["waits"] or {} for node in quick.values()]
            if all(each.get("for") == "cedar" and each["round"] == round for each in found):
                return True
            time.sleep(0.02)
        return False

    with ThreadPoolExecutor(2) as pool:
        going = pool.submit(cells.run, quick)
        assert waiting(0)
        (cedar,) = cells.join(made, {"cedar": kits["cedar"]}, net).values()
        outcome = cedar.node.take_part(leave=False)  # its rounds, and not yet its model
        assert waiting(run.T + 1) and {node.progress()["state"] for node in quick.values()} == {"done"}
        cedar._gather(outcome.model)
        assert all(answer["finished"] for answer in going.result(timeout=60).values())
    assert all(node.transport.waited[2] > 0 for node in quick.values())
    cedar.close()


@pytest.mark.parametrize("moment", ["_gather", "leave"])
def test_a_site_that_is_killed_while_the_others_end_gets_its_model(small, cells, monkeypatch, moment):
    """The others may be over, with their keys erased: they answer it, and the run ends at every site."""
    made = small(rounds=6, timeout=30)
    kits = made.kits()
    nodes = cells.join(made, kits)
    birch = nodes["birch"]
    if moment == "leave":
        monkeypatch.setattr(birch.node, "leave", lambda *_: (_ for _ in ()).throw(ValueError("killed")))
    else:
        gather, others = birch._gather, [node for name, node in nodes.items() if name != "birch"]

        def late(model):
            gather(model)
            while not all(node.node.over for node in others):
                time.sleep(0.01)
            raise ValueError("killed")

        monkeypatch.setattr(birch, "_gather", late)
        monkeypatch.setattr("sottovoce.consortium.node.ConsortiumNode.close", lambda node: None)
    ends = cells.run(nodes)
    assert str(ends.pop("birch")) == "killed" and all(end["finished"] for end in ends.values())
    monkeypatch.undo()
    for node in nodes.values():
        node.close()
    assert (kits["birch"] / "state" / "results" / "first").exists() == (moment == "leave")
    again = cells.run(cells.join(made, kits))
    assert all(end["finished"] and end["unheard"] == [] for end in again.values()), again
    assert {name: again[name]["right"] for name in ends} == {name: end["right"] for name, end in ends.items()}
    kept = result(kits)
    assert all(np.array_equal(each.models, kept["birch"].models) for each in kept.values())
    for kit in kits.values():
        store = Store(kit / "state", reading=True)
        assert store.verify() == [] and store.run_keys(made.agreement.run.digest) is None
        store.close()
