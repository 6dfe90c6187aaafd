"""A small consortium on disk, without FLARE's provisioning: agreement, schema, records, state folders with budgets."""

import shutil
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sottovoce.consortium.agreement import read_agreement
from sottovoce.node.budget import Budget
from sottovoce.node.store import Store

SCHEMA = """
row_norm = 1.0
{unit}
[label]
column = "outcome"
classes = {classes}
[columns.a]
low = -2
high = 2
[columns.b]
low = -2
high = 2
missing = 0
[columns.kind]
type = "category"
categories = ["x", "y"]
missing = "none"
"""

AGREEMENT = """
name = "small"
run = "first"
schedule_seed = 5
held_out = {held_out}
timeout = {timeout}
{more}
[server]
host = "localhost"
port = {port}
[admin]
email = "lead@example.org"
org = "one"
{sites}
[problem]
loss = "{loss}"
h = "l2(0.01)"
intercept = 1.0
[network]
graph = "{graph}"
activation = "{activation}"
averaging = "{averaging}"
[algorithm]
rounds = {rounds}
gamma = "constant(1)"
[privacy]
epsilon = 2.0
delta = 1e-5
sampling = "{sampling}"
{private}
"""


@cache
def issued(name):
    """(key, certificate) of a site; the authority signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    by, _ = (key, None) if name == "authority" else issued("authority")
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, "authority")]
    made = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    now = datetime.now(UTC)
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(1))
    return key, made.not_valid_after(now + timedelta(1)).sign(by, hashes.SHA256())


def certify(folder, name):
    """What provisioning gives a site, as far as its node needs it."""
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (key, own), (_, root) = issued(name), issued("authority")
    folder.mkdir(exist_ok=True)
    (folder / "client.crt").write_bytes(own.public_bytes(pem))
    (folder / "client.key").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    (folder / "rootCA.pem").write_bytes(root.public_bytes(pem))


class Small:
    """Kits of a small consortium under one folder."""

    def __init__(
        self,
        root: Path,
        names=("ash", "birch", "cedar"),
        records=40,
        classes=("no", "yes"),
        people: bool = False,
        **settings,
    ):
        """`records` of each site; where they are of `people`, some have several rows."""
        self.root, self.names, self.records = root, names, records
        sites = "".join(f'[sites.{name}]\norg = "{name}"\nrecords = {records}\n' for name in names)
        given = dict(
            held_out=0.25,
            timeout=30,
            port=8002,
            graph="complete",
            activation="everyone",
            averaging="gossip",
            rounds=20,
            loss="logistic",
            more="",
            private="",
        )
        text = AGREEMENT.format(**{**given, "sampling": "full", **settings}, sites=sites)
        (root / "schema.toml").write_text(SCHEMA.format(classes=list(classes), unit='unit = "who"' if people else ""))
        (root / "consortium.toml").write_text(text)
        self.agreement = read_agreement(root / "consortium.toml")
        rng, cuts = np.random.default_rng(3), np.linspace(-1, 1, len(classes) + 1)[1:-1]
        for name in names:
            lines = ["a,b,kind,outcome" + ",who" * people]
            for i in [*range(records), *(range(0, records, 3) if people else ()), *([0] * 5 * people)]:
                a, b = rng.normal(size=2).tolist()
                kind = ("x", "y", "")[int(rng.integers(3))]
                row = f"{a!r},{'' if i == 4 else repr(b)},{kind},{classes[int(np.sum(a - b > cuts))]}"
                lines.append(row + f",{name}-{i:03}" * people)
            (root / f"{name}.csv").write_text("\n".join(lines) + "\n")

    def settle(self, kit: Path, name: str, state="state", epsilon=4.0) -> None:
        """The site's own part of a kit: where its records are, its state folder, its budget.

        All state folders of a site are copies of one that was just born: its draws are the same in each.
        """
        local = kit / "local"
        local.mkdir(parents=True, exist_ok=True)
        if not (kit / "startup" / "client.crt").exists():  # a provisioned kit has its own
            certify(kit / "startup", name)
        for file in ("consortium.toml", "schema.toml"):
            (local / file).write_text((self.root / file).read_text())
        source = f'dataset = "people"\nstate = "../{state}"\nfile = "{self.root / name}.csv"\n'
        (local / "site.toml").write_text(source)
        born = self.root / "born" / name
        if not born.exists():
            Store(born).close()
        store = Store(shutil.copytree(born, kit / state))
        store.set_budget(Budget(epsilon, 1e-5).detail("people"))
        store.close()

    def kits(self, state="state", **given) -> dict[str, Path]:
        found = {name: self.root / "kits" / name for name in self.names}
        for name, kit in found.items():
            self.settle(kit, name, state, **given)
        return found


@pytest.fixture
def small(tmp_path):
    def make(**settings):
        return Small(tmp_path, **settings)

    return make


@pytest.fixture(scope="session")
def small_at():
    """The same, in a folder of one's choice."""
    return Small


@pytest.fixture(scope="session")
def cells():
    """The module beside this one; with pytest's importlib mode, folders of tests are no packages."""
    pytest.importorskip("nvflare", reason="the extra 'flare' is not installed")
    spec = spec_from_file_location("consortium_cells", Path(__file__).parent / "cells.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
