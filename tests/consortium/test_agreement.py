"""consortium.toml: one run for everybody, with a digest that covers whatever changes a result or a guarantee."""

import pytest

from sottovoce.consortium.agreement import read_agreement
from sottovoce.errors import SpecError
from sottovoce.node.site import read_site


def test_the_run_trains_on_what_is_not_held_out(small):
    agreement = small(records=41, held_out=0.25).agreement
    assert agreement.run.sizes == (31, 31, 31)
    assert agreement.run.spec.problem.row_norm == agreement.schema.row_norm == 1.0
    assert str(agreement.run.spec.privacy.noise) == "private(2)"
    assert agreement.run.schema.features == ("a", "b", "kind=x", "kind=y")


@pytest.mark.parametrize(
    "old, new",
    [
        ('run = "first"', 'run = "second"'),
        ("schedule_seed = 5", "schedule_seed = 6"),
        ("held_out = 0.25", "held_out = 0.3"),
        ("held_out = 0.25", "held_out = 0.25\ntest_epsilon = 1.0"),
        ("records = 40", "records = 44"),
        ("epsilon = 2.0", "epsilon = 2.5"),
        ("rounds = 20", "rounds = 21"),
        ('loss = "logistic"', 'loss = "hinge"'),
        ("high = 2", "high = 3"),
        ("missing = 0", "missing = 1"),
        ('run = "first"', 'run = "first"\nrevoked = ["1f"]'),
    ],
)
def test_whatever_matters_is_in_the_digest(small, old, new):
    made = small()
    before = made.agreement.run.digest
    for name in ("consortium.toml", "schema.toml"):
        path = made.root / name
        path.write_text(path.read_text().replace(old, new))
    assert read_agreement(made.root / "consortium.toml").run.digest != before


@pytest.mark.parametrize(
    "old, new, why",
    [
        ('name = "small"', "", "name"),
        ("held_out = 0.25", "held_out = 1.0", "held_out"),
        ("records = 40", "records = 0", "whole numbers"),
        ("[privacy]", '[privacy]\nnoise = "none"', "both epsilon and noise"),
        ("[problem]", "[problem]\nrow_norm = 2.0", "schema's"),
        ("[problem]", "[problem]\noutputs = 2", "follows from the schema"),
        ("epsilon = 2.0", 'noise = "gaussian(1.0)"', "test_epsilon"),
        ('name = "small"', 'name = "small"\nseed = 3', "'seed'"),
        ('name = "small"', 'name = "small"\nschema = "../other.toml"', "next to"),
        ("[server]", "[server]]", "TOML"),
        ("port = 8002", "", "port"),
        ('run = "first"', 'run = "../../first"', "a run cannot be called"),
        ('run = "first"', 'run = "-first"', "a run cannot be called"),
        ('name = "small"', 'name = "../small"', "a consortium cannot be called"),
        ("[sites.ash]", '[sites."../ash"]', "a site cannot be called"),
        ("[sites.ash]", '[sites."--help"]', "a site cannot be called"),
        ("[sites.ash]", "[sites.server]", "name of two"),
        ("[sites.ash]", "[sites.LOCALHOST]", "name of two"),
        ("[sites.ash]", "[sites.Birch]", "name of two"),
        ('host = "localhost"', 'host = "-oProxyCommand=id"', "a server cannot be called"),
        ('host = "localhost"', 'host = "a b"', "a server cannot be called"),
        ('org = "ash"', 'org = "../ash"', "an? organization cannot be called"),
        ('"lead@example.org"', '"-x@example.org"', "an administrator is known by"),
        ('"lead@example.org"', '"lead@../example.org"', "an administrator is known by"),
        ("port = 8002", "port = 80020", "65535"),
        ('name = "small"', 'name = "small"\nrevoked = ["0x1F"]', "hexadecimal"),
        ('name = "small"', 'name = "small"\nrevoked = [7]', "hexadecimal"),
    ],
)
def test_what_is_wrong_is_said(small, old, new, why):
    made = small()
    path = made.root / "consortium.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(SpecError, match=why):
        read_agreement(path)


def test_a_site_says_where_its_records_are(tmp_path, monkeypatch):
    path = tmp_path / "local" / "site.toml"
    path.parent.mkdir()
    path.write_text('dataset = "d"\nstate = "../state"\ndatabase = "postgresql://u:${PW}@h/d"\nquery = "SELECT 1"\n')
    with pytest.raises(SpecError, match="PW"):
        read_site(path)
    monkeypatch.setenv("PW", "secret")
    assert read_site(path).database == "postgresql://u:secret@h/d" and read_site(path).state == tmp_path / "state"
    for text in (
        'dataset = "d"\nstate = "s"\n',
        'dataset = "d"\nstate = "s"\nfile = "f"\nquery = "q"\ndatabase = "b"\n',
        'state = "s"\nfile = "f"\n',
        'dataset = "d"\nstate = "s"\nfile = "f"\nepsilon = "9"\n',
    ):
        path.write_text(text)
        with pytest.raises(SpecError):
            read_site(path)
