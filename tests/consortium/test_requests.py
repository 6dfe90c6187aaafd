"""Members' own keys: a request goes out, a certificate comes back, and no private key is ever in a kit."""

import json
import shutil
from importlib.util import find_spec

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from typer.testing import CliRunner

from sottovoce.cli.consortium import app
from sottovoce.consortium.certificates import held, new_request
from sottovoce.consortium.check import check_kit
from sottovoce.consortium.project import certificate_files, join, kind_of, provision, renew, requests_in, site_of
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.budget import budgets
from sottovoce.node.store import Store

pytestmark = pytest.mark.skipif(find_spec("nvflare") is None, reason="the extra 'flare' is not installed")


@pytest.fixture(scope="module")
def original(small_at, tmp_path_factory):
    """Kits of a consortium whose members all have keys of their own."""
    folder = tmp_path_factory.mktemp("requests")
    made = small_at(folder, rounds=4)
    agreement = made.agreement
    members = [agreement.host, agreement.admin, *made.names]
    (folder / "keys").mkdir()
    (folder / "asked").mkdir()
    for name in members:
        (folder / "asked" / f"{name}.csr").write_bytes(new_request(name, folder / "keys" / f"{name}.key"))
    kits = provision(agreement, folder / "consortium.toml", folder / "kits", requests_in(folder / "asked"))
    return made, folder, kits, members


def test_a_site_joins_with_its_records_and_their_budget(original, tmp_path):
    made, folder, kits, _ = original
    site, server = (shutil.copytree(kits[name], tmp_path / name) for name in ("ash", made.agreement.host))
    key, records = folder / "keys" / "ash.key", folder / "ash.csv"
    runner = CliRunner()
    line = ["join", str(site), str(key), "--file", str(records), "--epsilon", "4"]
    assert runner.invoke(app, line, catch_exceptions=False).exit_code == 0
    found = site_of(site)
    assert found.file == records.resolve() and found.state == site.resolve() / "state"
    store = Store(found.state, reading=True)
    assert budgets(store.rows())[found.dataset].epsilon == 4
    store.close()
    for more, said in ((["--file", str(tmp_path / "none.csv")], "no file of records"), (["--epsilon", "0"], "ε")):
        with pytest.raises(SottovoceError, match=said):
            runner.invoke(app, ["join", str(site), str(key), *more], catch_exceptions=False)
    with pytest.raises(SpecError, match="not the kit of a site"):
        site_of(server)


def paths(kit):
    return [kit / path for path in certificate_files(kind_of(kit))]


def test_no_kit_holds_a_private_key_and_the_authority_has_none_of_theirs(original):
    _, folder, kits, members = original
    own = {name: load_pem_private_key((folder / "keys" / f"{name}.key").read_bytes(), None) for name in members}
    kept = json.loads((folder / "kits" / "small" / "state" / "cert.json").read_text())
    for name in members:
        files = [path.read_bytes() for path in kits[name].rglob("*") if path.is_file()]
        assert not any(b"PRIVATE KEY" in content for content in files)
        certificate = x509.load_pem_x509_certificate(paths(kits[name])[0].read_bytes())
        assert certificate.public_key() == own[name].public_key()
        assert load_pem_private_key(kept[name]["pri_key"].encode(), None).public_key() != own[name].public_key()
        assert b"PRIVATE KEY" not in (folder / "asked" / f"{name}.csr").read_bytes()


def test_a_member_joins_with_its_own_key_only(original, tmp_path):
    made, folder, kits, members = original
    copies = {name: shutil.copytree(kits[name], tmp_path / name) for name in members}
    with pytest.raises(SpecError, match="not the key of this kit's certificate"):
        join(copies["ash"], folder / "keys" / "birch.key")
    for name in members:
        assert join(copies[name], folder / "keys" / f"{name}.key") == name
        assert held(*paths(copies[name])).name == name
    made.settle(copies["ash"], "ash")
    findings = check_kit(copies["ash"])
    assert all(finding.good for finding in findings), findings


def test_made_again_the_kits_are_the_same_and_keys_stay_away(original, tmp_path):
    made, folder, _, members = original
    out = shutil.copytree(folder / "kits", tmp_path / "kits")
    for requests in (requests_in(folder / "asked"), {}):
        again = provision(made.agreement, folder / "consortium.toml", out, requests)
        for name in members:
            certificate, key, _ = paths(again[name])
            assert certificate.read_bytes() == paths(folder / "kits" / "small" / "prod_00" / name)[0].read_bytes()
            assert not key.exists()


def test_a_key_is_rotated_by_a_further_request(original, tmp_path):
    made, folder, _, _ = original
    out = shutil.copytree(folder / "kits", tmp_path / "kits")
    old = paths(out / "small" / "prod_00" / "ash")[0].read_bytes()
    request = new_request("ash", tmp_path / "ash.key")
    startup = renew(made.agreement, folder / "consortium.toml", out, "ash", request)
    new = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
    assert new.public_key() == load_pem_private_key((tmp_path / "ash.key").read_bytes(), None).public_key()
    assert new.serial_number != x509.load_pem_x509_certificate(old).serial_number
    assert not (startup / "client.key").exists()
    assert (startup.parent.parent / "birch" / "startup" / "client.crt").exists()


def test_requests_of_others_are_refused(original, tmp_path):
    made, folder, _, _ = original
    out = shutil.copytree(folder / "kits", tmp_path / "kits")
    foreign = new_request("eve", tmp_path / "eve.key")
    for requests, words in (
        ({"eve": foreign}, "no member"),
        ({"ash": foreign}, "request for 'ash' is of"),
        ({"ash": b"nothing"}, "cannot be read"),
    ):
        with pytest.raises(SpecError, match=words):
            provision(made.agreement, folder / "consortium.toml", out, requests)
    with pytest.raises(SpecError, match="no folder of certificate requests"):
        requests_in(tmp_path / "nowhere")
    with pytest.raises(SpecError, match="no key can be written"):
        new_request("eve", tmp_path / "eve.key")  # a key is never written over


def test_the_commands(original, tmp_path):
    _, folder, _, _ = original
    runner = CliRunner()
    found = runner.invoke(app, ["request", "ash", "--out", str(tmp_path / "mine")], catch_exceptions=False)
    assert found.exit_code == 0 and (tmp_path / "mine" / "ash.key").stat().st_mode & 0o077 == 0
    line = ["init", str(folder / "consortium.toml"), "--out", str(tmp_path / "kits")]
    found = runner.invoke(app, [*line, "--requests", str(tmp_path / "mine"), "--json"], catch_exceptions=False)
    kits = json.loads(found.output)["kits"]
    found = runner.invoke(app, ["join", kits["ash"], str(tmp_path / "mine" / "ash.key")], catch_exceptions=False)
    assert found.exit_code == 0 and "ready for 'ash'" in found.output
    with pytest.raises(SpecError, match="cannot be called"):
        runner.invoke(app, ["request", "../ash", "--out", str(tmp_path)], catch_exceptions=False)
