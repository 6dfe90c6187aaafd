"""Metrics for Prometheus: what they say, who gets them, and that no record is in them."""

import http.client
import os
import re
import socket
import stat

import pytest

pytest.importorskip("prometheus_client", reason="the extra 'flare' is not installed")
from prometheus_client.parser import text_string_to_metric_families

from sottovoce.consortium import metrics
from sottovoce.consortium.metrics import Metrics, served
from sottovoce.errors import NetworkError, SpecError
from sottovoce.node.budget import overview
from sottovoce.node.store import FILE, Store


@pytest.fixture
def site(small, cells):
    """A site's kit after a finished run."""
    made = small(rounds=12)
    kits = made.kits()
    assert all(answer["finished"] for answer in cells.run(cells.join(made, kits)).values())
    (kits["ash"] / "startup" / "fed_client.json").write_text("{}")
    return kits["ash"]


def requested(address, path="/metrics", method="GET", **headers):
    where = address.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(where, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def samples(text):
    """{(name, labels): value} of an exposition."""
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def exposition(kit):
    with served(kit, "0") as address:
        status, text = requested(address)
    assert status == 200
    return samples(text)


def test_a_site_says_how_far_it_is_what_it_cost_and_for_whom_it_waited(site):
    found = exposition(site)
    value = {name: number for (name, labels), number in found.items() if not labels}
    assert (value["sottovoce_round"], value["sottovoce_rounds"], value["sottovoce_starts_total"]) == (12, 12, 1)
    assert value["sottovoce_releases_total"] == 12 and value["sottovoce_ledger_holds"] == 1
    assert value["sottovoce_certificate_expiry_seconds"] > value["sottovoce_start_time_seconds"]
    assert (
        found["sottovoce_state", (("state", "done"),)] == 1
        and sum(number for (name, _), number in found.items() if name == "sottovoce_state") == 1
    )
    for peer in ("birch", "cedar"):
        assert found["sottovoce_sent_bytes_total", (("peer", peer),)] > 0
        assert found["sottovoce_waiting_seconds", (("peer", peer),)] == 0
    store = Store(site / "state", reading=True)
    cost = {each["dataset"]: each for each in overview(store)["datasets"]}
    store.close()
    spent = {dict(labels)["dataset"]: n for (name, labels), n in found.items() if name == "sottovoce_epsilon_spent"}
    left = {dict(labels)["dataset"]: n for (name, labels), n in found.items() if name == "sottovoce_epsilon_left"}
    assert spent == {name: pytest.approx(each["epsilon"]) for name, each in cost.items()} and max(spent.values()) > 0
    assert {name: spent[name] + left[name] for name in spent} == {name: pytest.approx(4.0) for name in cost}


def test_no_record_is_in_them(small, cells, tmp_path):
    """The same agreement over other records: the same samples, but for clocks and what the network did."""
    found = []
    for turn in ("one", "other"):
        made = small(rounds=6)
        if turn == "other":
            for name in made.names:
                path = made.root / f"{name}.csv"
                path.write_text(re.sub(r"^-?[\d.e-]+,", "1.5,", path.read_text(), flags=re.MULTILINE))
        kits = made.kits(turn)
        assert all(answer["finished"] for answer in cells.run(cells.join(made, kits)).values())
        (kits["ash"] / "startup" / "fed_client.json").write_text("{}")
        found.append(exposition(kits["ash"]))
    assert found[0].keys() == found[1].keys()
    fixed = [{k: v for k, v in each.items() if not re.search("seconds|bytes", k[0])} for each in found]
    assert fixed[0] == fixed[1] and len(fixed[0]) > 15


def test_a_damaged_ledger_is_reported(site):
    (site / "state" / FILE).write_bytes(b"damaged")
    assert exposition(site)["sottovoce_ledger_holds", ()] == 0


def test_a_server_has_a_certificate_and_no_ledger(site):
    for ending in ("crt", "key"):
        (site / "startup" / f"client.{ending}").rename(site / "startup" / f"server.{ending}")
    (site / "startup" / "fed_client.json").rename(site / "startup" / "fed_server.json")
    names = {name for name, _ in exposition(site)}
    assert names == {
        "sottovoce_info",
        "sottovoce_start_time_seconds",
        "sottovoce_certificate_expiry_seconds",
    }


def test_only_this_machine_gets_them_at_one_path(site):
    with Metrics(site, "0") as made:
        port = made._server.server_port
        assert made._server.server_address[0] == "127.0.0.1"
        assert requested(made.address)[0] == 200
        assert requested(made.address, Host=f"localhost:{port}")[0] == 200
        for request in ({"path": "/"}, {"path": "/metrics/x"}, {"method": "POST"}, {"Host": f"evil.example:{port}"}):
            assert requested(made.address, **request) == (404, "there is nothing here\n")
        with pytest.raises(NetworkError, match=f"metrics cannot be served at '{port}'"):
            Metrics(site, str(port))


def test_a_socket_is_for_its_owner_and_group(site, tmp_path):
    path = tmp_path / "metrics.sock"
    left = socket.socket(socket.AF_UNIX)  # by a process that was killed
    left.bind(str(path))
    left.close()
    with served(site, str(path)) as address:
        assert address == f"unix:{path}" and stat.S_IMODE(os.lstat(path).st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with client.makefile("rb") as file:
                assert b"sottovoce_rounds 12.0" in file.read()
    assert not path.exists()


def test_nothing_else_is_removed_for_a_socket(site, tmp_path):
    path = tmp_path / "precious"
    path.write_text("kept")
    with pytest.raises(NetworkError, match="metrics cannot be served at"):
        Metrics(site, str(path))
    assert path.read_text() == "kept"
    with pytest.raises(SpecError, match="at a port or at the full path of a socket"):
        Metrics(site, "metrics.sock")
    with pytest.raises(NetworkError, match="metrics cannot be served at '70000'"):
        Metrics(site, "70000")


def test_without_the_library_it_says_what_to_install(site, monkeypatch):
    monkeypatch.setattr(metrics, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(SpecError, match=r"pip install 'sottovoce\[flare\]'"):
        Metrics(site, "0")
    with served(site, None) as address:
        assert address is None
