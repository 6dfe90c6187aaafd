"""consortium.toml: what all nodes of a consortium agreed on, all of it public, and the run that follows from it.

    name = "three-hospitals"
    schema = "schema.toml"        # beside this file
    run = "first"                 # another name is another run: fresh noise, and its own cost
    schedule_seed = 2026          # public: who speaks when
    held_out = 0.2                # share of every site's records that only test the model, privately; 0 for no test
    test_epsilon = 1.0            # ε of that test, at the same δ; by default the training's
    tolerance = 0.5               # only for regression: by how much a right answer may be off
    timeout = 600                 # seconds that a slow peer is waited for
    revoked = ["3fa9…"]           # serial numbers of certificates that count no more (`sottovoce consortium revoke`)
    in_units_of_bounds = true     # rows over the schema's bound, targets in [−1, 1], as a planned agreement has them
    skip_after = 60               # seconds after which an edge to a slow peer is left out of a round; never by default
    lost_after = 120              # with may_lose in [privacy]: seconds of silence after which a site is lost
    liars = 0                     # how many sites may lie in the votes on that

    [server]
    host = "gossip.example.org"   # relays messages that it cannot read
    port = 8002

    [admin]
    email = "lead@example.org"
    org = "north"

    [sites.north]                 # in order; the number of records of each (of people, with a unit) is public
    org = "north"
    records = 1200

    [problem]                     # these four tables are the fields of a Spec …
    loss = "logistic"
    [network]
    activation = "everyone"
    [algorithm]
    rounds = 200
    [privacy]
    epsilon = 1.0                 # … and this is short for noise = "private(1.0)"
    delta = 1e-5
    sampling = "full"

Every site keeps a copy of the file and of the schema, and runs nothing else: a job names the digest of the run only.
"""

import hashlib
import math
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from sottovoce.bounded import read_toml
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.data.schema import Schema, read_schema
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.runfile import Run, beside, check_name, make_run
from sottovoce.registry import write

FILE = "consortium.toml"
SERVER = "server"
"""FLARE's own name of the server's process; no site may have it."""
_EMAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,127}")
ENTRIES = ("run", "schedule_seed", "timeout", "skip_after", "lost_after", "liars", "in_units_of_bounds")
"""What the run file of every node takes over."""
PARTS = ("problem", "network", "algorithm", "privacy")
_KNOWN = {
    "name",
    "schema",
    "run",
    "schedule_seed",
    "held_out",
    "test_epsilon",
    "tolerance",
    "timeout",
    "skip_after",
    "lost_after",
    "liars",
    "revoked",
    "in_units_of_bounds",
    "server",
    "admin",
    "sites",
    *PARTS,
}


@dataclass(frozen=True)
class PublicSite:
    """The public facts of a site: its node's name, its organization, and its number of records (or of people)."""

    name: str
    org: str
    records: int

    def held_out(self, share: float) -> int:
        """How many of its records only test the model."""
        return math.floor(share * self.records)


@dataclass(frozen=True, eq=False)
class Agreement:
    """A consortium.toml and its schema, read and checked.

    Attributes
    ----------
    name : of the consortium
    schema, schema_file : the format of every site's records, and where that is written
    sites : in the order of their nodes' numbers
    held_out : the share of every site's records that is never trained on
    test_epsilon : ε of the noisy counts of right answers on it
    tolerance : by how much the right answer of a regression may be off
    skip_after : after how many seconds the controller lets an edge to a slow peer be skipped, or None
    host, port : where the relaying server listens
    admin, admin_org : who submits jobs
    revoked : serial numbers of certificates that count no more
    entries : the rest, as the nodes' run file
    """

    name: str
    schema: Schema
    schema_file: str
    sites: tuple[PublicSite, ...]
    held_out: float
    test_epsilon: float
    tolerance: float
    skip_after: float | None
    host: str
    port: int
    admin: str
    admin_org: str
    entries: dict[str, Any]
    revoked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Sites that can train at all, and names that can be parts of paths."""
        for noun, names in (
            ("consortium", [self.name]),
            ("run", [self.run_name]),
            ("site", [site.name for site in self.sites]),
            ("organization", [self.admin_org, *(site.org for site in self.sites)]),
            ("server", [self.host]),
        ):
            for name in names:
                check_name(noun, name)
        if not _EMAIL.fullmatch(self.admin) or ".." in self.admin:
            raise SpecError(f"an administrator is known by an address such as lead@example.org, not {self.admin!r}")
        if self.port > 65535:
            raise SpecError(f"a port is at most 65535, not {self.port}")
        others = [name.casefold() for name in (SERVER, self.host, self.admin)]
        sites = [site.name.casefold() for site in self.sites]
        twice = [name for name in sites if name in others or sites.count(name) > 1]
        if twice:
            raise SpecError(f"'{twice[0]}' is the name of two; sites, server and administrator have names of their own")
        if not self.sites:
            raise SpecError("a consortium needs its [sites.…], each with its org and its number of records")
        if not 0 <= self.held_out < 1:
            raise SpecError(f"held_out is a share of the records, from 0 to below 1, not {self.held_out}")
        if self.held_out and not 0 < self.test_epsilon < math.inf:
            raise SpecError("the test on held-out records needs its own test_epsilon, over 0 and finite")
        if self.held_out and self.schema.label.classes is None and not 0 <= self.tolerance < math.inf:
            raise SpecError("the test of a regression needs a tolerance: by how much a right answer may be off")
        for site in self.sites:
            if site.records - site.held_out(self.held_out) < 1:
                raise SpecError(f"site '{site.name}' has {site.records} records: none would be left to train on")

    @property
    def run_name(self) -> str:
        """The run's name, as the file has it."""
        return str(self.entries["run"])

    @cached_property
    def run(self) -> Run:
        """What every node takes part in. Its digest also covers the held-out share and the test, by the run's name."""
        sizes = {site.name: site.records - site.held_out(self.held_out) for site in self.sites}
        test = (self.held_out, self.test_epsilon, self.tolerance) if self.held_out else None
        revoked = f" {sorted(self.revoked)!r}" if self.revoked else ""
        mark = hashlib.sha256(f"{self.schema.digest} {test!r}{revoked}".encode()).hexdigest()[:16]
        return make_run(self.entries | {"run": f"{self.run_name} ({mark})", "nodes": sizes}, self.schema)

    def site(self, name: str) -> PublicSite:
        """The site of that name."""
        for site in self.sites:
            if site.name == name:
                return site
        raise SpecError(f"there is no site '{name}'; the sites are {', '.join(s.name for s in self.sites)}")


def read_agreement(path: str | Path) -> Agreement:
    """Read a consortium.toml, and the schema that it names."""
    path = Path(path)
    try:
        data = read_toml(path)
    except OSError:
        raise SpecError(f"'{path}' cannot be read; give the path of a {FILE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"'{path}' is no TOML: {error}") from None
    try:
        schema = beside(path, data.get("schema", SCHEMA_FILE))
        return made_agreement(data, schema.name, read_schema(schema))
    except SottovoceError as error:
        raise type(error)(f"in '{path}': {error}") from None


def current_agreement(kit: Path) -> Agreement:
    """The agreement of a kit as it is now; read again only where one of its files has changed."""
    files = sorted(path for path in (kit / "local").glob("*.toml") if path.is_file())
    stamps = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino) for path in files)
    return _current(kit, stamps)


@lru_cache(maxsize=8)
def _current(kit: Path, stamps: tuple[Any, ...]) -> Agreement:
    return read_agreement(kit / "local" / FILE)


def made_agreement(data: dict[str, Any], schema_file: str, schema: Schema) -> Agreement:
    """The agreement in the parsed contents of a file, and in the schema that it names."""
    odd = sorted(set(data) - _KNOWN)
    if odd:
        raise SpecError(f"there is no entry '{odd[0]}'; the entries are {', '.join(sorted(_KNOWN))}")
    server, admin, sites = _table(data, "server"), _table(data, "admin"), _table(data, "sites")
    spec = {part: dict(_table(data, part)) for part in PARTS if part in data}
    privacy = spec.setdefault("privacy", {})
    epsilon = privacy.get("epsilon", math.nan)
    if "epsilon" in privacy:
        if "noise" in privacy:
            raise SpecError("[privacy] has both epsilon and noise; epsilon is short for noise = 'private(ε)'")
        privacy["noise"] = write("private", float(privacy.pop("epsilon")))
    try:
        made = Agreement(
            name=str(data["name"]),
            schema=schema,
            schema_file=schema_file,
            sites=tuple(PublicSite(site, str(t["org"]), _count(t["records"])) for site, t in sites.items()),
            held_out=float(data.get("held_out", 0.0)),
            test_epsilon=float(data.get("test_epsilon", epsilon)),
            tolerance=float(data.get("tolerance", math.nan)),
            skip_after=float(data["skip_after"]) if "skip_after" in data else None,
            host=str(server["host"]),
            port=_count(server["port"]),
            admin=str(admin["email"]),
            admin_org=str(admin["org"]),
            revoked=tuple(serial_number(text) for text in data.get("revoked", [])),
            entries={key: data[key] for key in ENTRIES if key in data} | {"spec": spec},
        )
        _ = made.run.spec  # what is wrong with it is said while the file is read
        return made
    except KeyError as error:
        raise SpecError(f"the entry {error} is missing") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"an entry has the wrong kind of value ({error})") from None


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, dict):
        raise SpecError(f"the table [{name}] is missing")
    return value


def serial_number(text: Any) -> int:
    """Of a certificate, from hexadecimal."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-f]{1,40}", text):
        raise SpecError(f"a revoked certificate is named by its serial number in hexadecimal, not {text!r}")
    return int(text, 16)


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise SpecError(f"records and ports are whole numbers over 0, not {value!r}")
    return value
