"""consortium.toml: what the members agreed on, all of it public, and the plan of the run that follows from it.

    name = "three-hospitals"
    schema = "schema.toml"        # beside this file
    run = "first"                 # another name is another run: fresh noise, and its own cost
    schedule_seed = 2026          # public: who speaks when
    held_out = 0.2                # share of every site's records that only test the model, privately; 0 for no test
    test_epsilon = 1.0            # ε of that test, at the same δ; by default the training's
    tolerance = 0.5               # only for regression: by how much a right answer may be off
    timeout = 600                 # seconds that a slow peer is waited for
    skip_after = 60               # seconds after which an edge to a slow peer is left out of a round; never by default

    [server]
    host = "gossip.example.org"   # relays messages that it cannot read
    port = 8002

    [admin]
    email = "lead@example.org"
    org = "north"

    [sites.north]                 # in order; the number of records of each is public
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

Every site keeps a copy of the file and of the schema, and runs nothing else: a job names the digest of the plan only.
"""

import hashlib
import math
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sottovoce.consortium.schema import Schema, read_schema
from sottovoce.errors import SottovoceError, SpecError
from sottovoce.node.plan import Plan, make_plan
from sottovoce.notation import write

FILE = "consortium.toml"
SCHEMA_FILE = "schema.toml"
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
    "server",
    "admin",
    "sites",
    *PARTS,
}


@dataclass(frozen=True)
class Site:
    """A member: its name in the consortium, its organisation, and its public number of records."""

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
    schema, schema_file : what every site's records look like, and where that is written
    sites : the members, in the order of their node numbers
    held_out : the share of every site's records that is never trained on
    test_epsilon : ε of the noisy counts of right answers on it
    tolerance : by how much the right answer of a regression may be off
    skip_after : after how many seconds the controller lets an edge to a slow peer be skipped, or None
    host, port : where the relaying server listens
    admin, admin_org : who submits jobs
    run : the rest, as the run file of the nodes
    """

    name: str
    schema: Schema
    schema_file: str
    sites: tuple[Site, ...]
    held_out: float
    test_epsilon: float
    tolerance: float
    skip_after: float | None
    host: str
    port: int
    admin: str
    admin_org: str
    run: dict[str, Any]

    def __post_init__(self) -> None:
        """Sites that can train at all."""
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

    @cached_property
    def plan(self) -> Plan:
        """What every node runs. Its digest also covers the schema and the held-out share, by the run's name."""
        sizes = {site.name: site.records - site.held_out(self.held_out) for site in self.sites}
        classes = self.schema.label.classes
        test = (self.held_out, self.test_epsilon, self.tolerance) if self.held_out else None
        mark = hashlib.sha256(f"{self.schema.digest} {test!r}".encode()).hexdigest()[:16]
        return make_plan(
            self.run
            | {
                "run": f"{self.run['run']} ({mark})",
                "nodes": sizes,
                "features": self.schema.m if self.schema.features is None else list(self.schema.features),
                "label": self.schema.label.column,
            }
            | ({} if classes is None else {"classes": list(classes)})
        )

    def site(self, name: str) -> Site:
        """The member of that name."""
        for site in self.sites:
            if site.name == name:
                return site
        raise SpecError(f"there is no site '{name}'; the sites are {', '.join(s.name for s in self.sites)}")


def read_agreement(path: str | Path) -> Agreement:
    """Read a consortium.toml, and the schema that it names."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise SpecError(f"'{path}' cannot be read; give the path of a {FILE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"'{path}' is no TOML: {error}") from None
    try:
        named = str(data.get("schema", SCHEMA_FILE))
        if Path(named).name != named:
            raise SpecError(f"the schema lies beside this file: name a file, not '{named}'")
        return _agreement(data, named, read_schema(path.parent / named))
    except SottovoceError as error:
        raise type(error)(f"in '{path}': {error}") from None


def _agreement(data: dict[str, Any], schema_file: str, schema: Schema) -> Agreement:
    odd = sorted(set(data) - _KNOWN)
    if odd:
        raise SpecError(f"there is no entry '{odd[0]}'; the entries are {', '.join(sorted(_KNOWN))}")
    server, admin = _table(data, "server"), _table(data, "admin")
    spec = {part: dict(_table(data, part)) for part in PARTS if part in data}
    problem, privacy = spec.setdefault("problem", {}), spec.setdefault("privacy", {})
    if problem.setdefault("row_norm", schema.row_norm) != schema.row_norm:
        raise SpecError(f"row_norm is the schema's, {schema.row_norm:g}; leave it out here")
    outputs = schema.label.outputs
    if problem.setdefault("outputs", outputs) != outputs:
        raise SpecError(f"the number of outputs follows from the schema's label: {outputs}; leave it out here")
    epsilon = privacy.get("epsilon", math.nan)
    if "epsilon" in privacy:
        if "noise" in privacy:
            raise SpecError("[privacy] has both epsilon and noise; epsilon is short for noise = 'private(ε)'")
        privacy["noise"] = write("private", float(privacy.pop("epsilon")))
    try:
        return Agreement(
            name=str(data["name"]),
            schema=schema,
            schema_file=schema_file,
            sites=tuple(Site(name, str(t["org"]), _count(t["records"])) for name, t in _table(data, "sites").items()),
            held_out=float(data.get("held_out", 0.0)),
            test_epsilon=float(data.get("test_epsilon", epsilon)),
            tolerance=float(data.get("tolerance", math.nan)),
            skip_after=float(data["skip_after"]) if "skip_after" in data else None,
            host=str(server["host"]),
            port=_count(server["port"]),
            admin=str(admin["email"]),
            admin_org=str(admin["org"]),
            run={key: data[key] for key in ("run", "schedule_seed", "timeout") if key in data} | {"spec": spec},
        )
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


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise SpecError(f"records and ports are whole numbers over 0, not {value!r}")
    return value
