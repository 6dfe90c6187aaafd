"""Replace one record, or one person, of a file by an adversarial one, and compare two runs of each command on it.

As in `replacement`, which is about tables in memory: the second run is made with the same random numbers and is
answered with the recorded releases. Then each exact sum has moved by at most the accounted sensitivity, and all that
comes out of the command is the same to the last byte: exit code, what it prints, and every file that it writes. What is
printed on stderr is for the owner's screen alone.

`python tests/privacy/replaced_files.py --replacements 200` prints a table; the tests run some of each row.
"""

import argparse
import contextlib
import functools
import gzip
import io
import itertools
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from replacement import ROUNDING, Trace, changes, moved, traced

from sottovoce import solve
from sottovoce.cli import main as command
from sottovoce.cli import node as node_command
from sottovoce.cli import train as _train  # noqa: F401 - the module is fetched by its name
from sottovoce.consortium import evaluation as consortium
from sottovoce.data.schema import read_schema
from sottovoce.estimators import base
from sottovoce.evaluation.holdout import secret_order
from sottovoce.node.node import DurableNode
from sottovoce.node.site import Site
from sottovoce.node.transport import NodeTransport
from sottovoce.run.build import make_problem
from sottovoce.run.spec import AlgorithmSpec, PrivacySpec, ProblemSpec, Spec

RECORDS = 48
OWN = (".sqlite", ".head", ".key")
"""Endings of files that are a node's own: nobody else sees them. They are compared by name alone."""
CLASSES = "no,yes"
Rows = list[list[Any]]
"""Cells a, b, c, who and y of each record; or bytes, which are a whole line."""


class Kind(NamedTuple):
    """A kind of file, and by what it is read."""

    name: str
    schema: bool


class Stubs:
    """Nodes over MPI, alone in this process."""

    class Alone:
        """A communicator of one rank."""

        def Get_size(self) -> int:
            return 1

        def Get_rank(self) -> int:
            return 0

    class Nobody(NodeTransport):
        """A network with nobody to write to."""

        def __init__(self, links: Any, skips: Any, comm: Any) -> None:
            super().__init__(links, skips)

        def send(self, peer: int, payload: bytes) -> None:
            raise AssertionError("there is no peer")

        wait = send  # type: ignore[assignment]

        def flush(self) -> None:
            pass


# -- files --


def text(cell: Any) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else repr(float(cell))


def lines_of(rows: Rows, between: str, people: bool) -> bytes:
    """A text with a header."""
    used = [0, 1, 2, 3, 4] if people else [0, 1, 2, 4]
    out = [between.join(np.array(["a", "b", "c", "who", "y"])[used]).encode()]
    out += [row if isinstance(row, bytes) else between.join(text(row[k]) for k in used).encode() for row in rows]
    return b"\n".join([*out, b""])


def svmlight(rows: Rows) -> bytes:
    """Lines of 'label index:value'."""
    made = []
    for row in rows:
        if isinstance(row, bytes):
            made.append(row)
            continue
        label = {"no": "-1", "yes": "1"}.get(row[4], text(row[4]))
        made.append(" ".join([label, *(f"{k + 1}:{text(v)}" for k, v in enumerate(row[:3]))]).encode())
    return b"\n".join([*made, b""])


def parquet(path: Path, rows: Rows, people: bool, real: bool) -> None:
    """The same with types, which a file has whatever its records hold."""
    numbers, target = pa.float64(), pa.float64() if real else pa.string()
    columns = {name: pa.array([row[k] for row in rows], numbers) for k, name in enumerate("abc")}
    if people:
        columns["who"] = pa.array([row[3] for row in rows], pa.string())
    columns["y"] = pa.array([row[4] for row in rows], target)
    pq.write_table(pa.table(columns), path)


def write(path: Path, rows: Rows, people: bool, real: bool) -> None:
    """A file of the kind that its name says."""
    if path.suffix == ".parquet":
        parquet(path, rows, people, real)
    elif path.suffix == ".svm":
        path.write_bytes(svmlight(rows))
    else:
        raw = lines_of(rows, "\t" if ".tsv" in path.name else ",", people)
        path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


NAMES = {"csv": "r.csv", "csv.gz": "r.csv.gz", "tsv": "r.tsv", "parquet": "r.parquet", "svmlight": "r.svm"}
KINDS = {
    f"{name}, {'schema' if by else 'options'}": Kind(name, by)
    for name, by in itertools.product(NAMES, (True, False))
    if (name, by) not in {("csv", False), ("csv.gz", False), ("tsv", True)}
}


def records(people: bool, real: bool) -> Rows:
    """Ordinary records; a person has one to four rows."""
    rng = np.random.default_rng(5)
    X = np.round(rng.uniform(-0.4, 0.4, (RECORDS, 3)), 4)
    ids = np.sort(rng.integers(0, RECORDS // 2, RECORDS)) if people else np.arange(RECORDS)
    y = X @ [1.0, -1.0, 0.5]
    labels = np.round(y, 4).tolist() if real else ["yes" if one > 0 else "no" for one in y]
    return [[*x, f"p{who:02}", label] for x, who, label in zip(X.tolist(), ids, labels, strict=True)]


ODD = [1e308, -1e308, 0.0, -0.0, 5e-324, 1e154, 1e-160, 0.5, 1e9, 9.99e307, -0.4]
NOT_FINITE = [float("nan"), float("inf"), float("-inf")]
STRANGE = [
    None, "", "nan", "inf", "-1e999", "0x10", "1_0", "soon", "1,5", '"', '""', "'", "é", "𝟙", "1e5 ", "\x00", "+1",
    "1e-400",
]  # fmt: skip
LABELS = ["no", "yes", "yes ", "no", "", None, "perhaps", "1", "0", "nan", "-1", "𝟙"]
LINES = [
    b"", b",", b",,,,", b",,,,,,,", b'"', b'"""', b'0.1,"0.2,0.3,yes', b'"0.1",0.2,"0.3",yes', b"\xff\xfe\x00", b"\x00",
    b"\r", b"0.1\r0.2,0.3,yes", b"0.1\t0.2\t0.3\tyes\t", b"\xef\xbb\xbf0.1,0.2,0.3,yes", b"a,b,c,y", b"#", b"# 1 1:2",
    b"1 0:0.5 1:0.1", b"1 1:1e308 2:-1e308 3:1e308", b"1 1:nan 2:inf", b"1", b"nan 1:1", b"inf 1:1", b"x 1:1",
    b"1 4:1", b"1 99999999999999999999:1", b"1 -1:2", b"1 3:1 2:1", b"1 2:1 2:1", b"1 qid:3 1:1", b"1,2 1:1", b"2 1:1",
    b"1e308 1:1", b"1 1:", b"1 :1", b"1 1:1 # note", b"\xef\xbb\xbf1 1:1", b"1 1:1e999", b"-0 1:1", b"1 1:0x1p3",
    b"9" * 400 + b" 1:1", b"1 1:0.1 \r", "0.1,0.2,0.3,ja;".encode("utf-16-le").replace(b"\n", b""),
]  # fmt: skip
"""Lines that a record of a text could be; as a person's they are nobody's."""


def odd_record(rng: np.random.Generator, kind: Kind, real: bool, who: str | None) -> Any:
    """A record as nobody would have it: other cells, or (where no person is requested) a whole line."""
    if kind.name != "parquet" and who is None and rng.random() < 0.4:
        if rng.random() < 0.3:
            return rng.bytes(int(rng.integers(60))).replace(b"\n", b"")
        return LINES[rng.integers(len(LINES))]
    typed = kind.name == "parquet"
    cells = ODD + NOT_FINITE + ([None] if typed else STRANGE)
    found = [cells[rng.integers(len(cells))] if rng.random() < 0.6 else float(rng.normal()) for _ in range(3)]
    labels: list[Any] = ODD + NOT_FINITE + [None] if real else LABELS
    return [*found, who, labels[rng.integers(len(labels))]]


def replaced(rows: Rows, kind: Kind, people: bool, real: bool, rng: np.random.Generator) -> tuple[Rows, dict[str, str]]:
    """The records with one, or one person, replaced; and by whose secret score a new person goes.

    A person has at least one line with an id that can be read: others are nobody's, and people are counted by ids.
    """
    rows = [list(row) for row in rows]
    if not people:
        rows[rng.integers(len(rows))] = odd_record(rng, kind, real, None)
        return rows, {}
    who = str(rows[rng.integers(len(rows))][3])
    name = who if rng.random() < 0.4 else str(rng.choice(["zz", "0", "p0", "−1", "a b", "é"]))
    mine = [k for k, row in enumerate(rows) if row[3] == who]
    new = [odd_record(rng, kind, real, name) for _ in range(int(rng.choice([0, 0, 1, 3, 30])))]
    new = [[0.3, float(rng.normal()), 1e308, name, rng.choice(ODD) if real else "yes"], *new]  # a line with an id
    kept = [row for k, row in enumerate(rows) if k not in mine[1:]]
    place = next(k for k, row in enumerate(kept) if row[3] == who)
    kept[place] = new[0]
    at = len(kept) if rng.random() < 0.5 else place + 1
    return kept[:at] + new[1:] + kept[at:], {name: who}


# -- entry points --


SCHEMA = 'row_norm = 1.0\n{unit}[label]\ncolumn = "y"\n{label}\n' + "".join(
    f"[columns.{name}]\nlow = -1\nhigh = 1\nmissing = 0\n" for name in "abc"
)
NUMBERED = 'row_norm = 1.0\nfeatures = 3\nlow = -1\nhigh = 1\nfirst_index = 1\n[label]\ncolumn = "y"\n{label}\n'
RUN = """
run = "alone"
schedule_seed = 1
schema = "s.toml"
[nodes]
clinic = {size}
[spec.algorithm]
rounds = 2
[spec.problem]
h = "l2(0.1)"
row_norm = 1.0
[spec.network]
activation = "everyone"
[spec.privacy]
sampling = "full"
noise = "private(20.0)"
"""


@functools.cache
def parsed() -> Any:
    """The command, which Typer would make anew for each call."""
    return typer.main.get_command(command.app)


class Ground:
    """A folder with a file, a schema and a model that was trained before on other records."""

    def __init__(self, kind: Kind, people: bool, real: bool, additive: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="replaced-"))
        self.kind, self.people, self.real, self.file = kind, people, real, self.folder / NAMES[kind.name]
        label = (
            "low = -1\nhigh = 1"
            if real
            else "classes = [-1, 1]"
            if kind.name == "svmlight"
            else 'classes = ["no", "yes"]'
        )
        shape = NUMBERED if kind.name == "svmlight" else SCHEMA
        if additive:  # a shorter bound would move the columns of a row
            shape = shape.replace("row_norm = 1.0\n", "")
        unit = 'unit = "who"\n' if people else ""
        (self.folder / "s.toml").write_text(shape.format(unit=unit, label=label))
        self.size = len({row[3] for row in records(people, real)})
        self.spent: list[float] = []

    @property
    def how(self) -> list[str]:
        """The options that say how the file is read."""
        if self.kind.schema:
            return ["--schema", str(self.folder / "s.toml")]
        label = ["--target-bounds=-1,1"] if self.real else ["--classes", CLASSES]
        if self.kind.name == "svmlight":
            label = ["--target-bounds=-1,1"] if self.real else ["--classes=-1,1"]
            return [*label, "--features", "3", "--first-index", "1"]
        return [*label, "--label", "y", *(["--user-id", "who"] if self.people else [])]

    def call(self, *words: Any) -> dict[str, Any]:
        """The command in this process: its exit code, what it prints, and what it writes below `out`."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        self._before()
        train = sys.modules["sottovoce.cli.train"]
        with (
            mock.patch.object(sys, "argv", ["sottovoce", *map(str, words)]),
            mock.patch.object(command, "parser", parsed),
            mock.patch.object(train, "solve", self._solve),
            mock.patch.object(train, "write_report", lambda result, place, *_, **__: place),
            mock.patch.object(base, "solve", self._solve),
            mock.patch.object(node_command, "world", Stubs.Alone),
            mock.patch.object(node_command, "MpiTransport", Stubs.Nobody),
            mock.patch.object(node_command, "DurableNode", self._node),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                command.main()
            except SystemExit as end:
                code = int(end.code or 0)
        assert code == 0, err.getvalue()[-400:]
        found = {"code": code, "printed": out.getvalue()}
        files = sorted(path for path in (self.folder / "out").rglob("*") if path.is_file())
        kept = {str(path): path.read_bytes() for path in files if path.suffix not in OWN}
        assert len(set(self.spent)) <= 1, "runs of several bounds"
        reach = {"reach": self.spent[0]} if self.spent else {}
        return found | kept | {"names": sorted(map(str, files))} | reach

    def _before(self) -> None:
        model = self.folder / "model"
        if model.exists():
            shutil.copytree(model, self.folder / "out" / "model")

    def _solve(self, *given: Any, **more: Any) -> Any:
        done = solve(*given, **more)
        event = done.statement.groups[0].event
        self.spent.append((2.0**0.5 if type(event).__name__ == "ProductsEvent" else 2.0) * event.clip)
        return done

    def _node(self, run: Any, *given: Any) -> Any:
        self.spent.append(2.0 * run.event(0).clip)
        return DurableNode(run, *given)

    def train(self, *more: str) -> dict[str, Any]:
        out = ["--out", self.folder / "out" / "run"] if "--holdout" in more else []
        words = ["--epsilon", "20", "--rounds", "2", "--nodes", "1", "--partition", "in_order", "--json"]
        return self.call("train", self.file, *self.how, *words, *out, *more)

    def evaluate(self) -> dict[str, Any]:
        return self.call("evaluate", self.folder / "out" / "model", self.file, "--epsilon", "5", "--json")

    def tune(self) -> dict[str, Any]:
        words = ["--param", "rounds=1,2", "--epsilon", "20", "--runs", "1.5", "--held-out", "0.4", "--json"]
        return self.call("tune", self.file, *self.how, *words, "--out", self.folder / "out" / "run")

    def node(self) -> dict[str, Any]:
        (self.folder / "run.toml").write_text(RUN.format(size=self.size))
        words = ["--data", self.file, "--folder", self.folder / "out" / "nodes", "--budget", "30", "--json"]
        return self.call("node", "--spec", self.folder / "run.toml", *words)

    def consortium(self) -> dict[str, Any]:
        """A site's shares, the training on the one, and the count of right answers on the other."""
        schema, held = read_schema(self.folder / "s.toml"), self.size // 3
        encoded = Site("records", self.folder, self.file).read(schema)
        shares = consortium.split_held_out(encoded, self.size, held, bytes(32), "records", weighted=not self.real)
        loss = {"loss": "huber(0.25)"} if self.real else {}
        spec = Spec(AlgorithmSpec(2), ProblemSpec(**loss), privacy=PrivacySpec("full", "private(20)"))
        done = solve(spec, shares.train)
        assert shares.test is not None
        right = consortium.right_answers(make_problem(spec.problem, shares.test), done.models[0], 0.1)
        event = consortium.count_event(held, 5.0, 1e-5)
        noisy = consortium.noisy_count(right, event, consortium.node_keys.own_keys(bytes(32), "ab", bytes(32)))
        reach = 2.0 * done.statement.groups[0].event.clip
        return {"models": done.models, "count": noisy, "statement": str(done.statement.to_dict()), "reach": reach}


ENTRIES: dict[str, tuple[Callable[[Ground], dict[str, Any]], bool]] = {
    "train": (lambda ground: ground.train(), False),
    "train --holdout --out": (lambda ground: ground.train("--holdout", "0.3"), False),
    "train --on-violation clip": (lambda ground: ground.train("--on-violation", "clip"), False),
    "train, regression": (lambda ground: ground.train(), True),
    "train, additive --holdout --out": (
        lambda ground: ground.train("--feature-map", "additive", "--holdout", "0.3"),
        False,
    ),
    "train, additive regression": (lambda ground: ground.train("--feature-map", "additive"), True),
    "train, private target range": (lambda ground: ground.train("--target-scale", "0.1"), True),
    "evaluate": (Ground.evaluate, False),
    "evaluate, regression": (Ground.evaluate, True),
    "tune --out": (Ground.tune, False),
    "node": (Ground.node, False),
    "consortium": (Ground.consortium, False),
}
CELLS = [
    (entry, kind, unit)
    for entry, kind, unit in itertools.product(ENTRIES, KINDS, ("record", "person"))
    if not (unit == "person" and KINDS[kind].name == "svmlight")
    and (KINDS[kind].schema or entry not in ("node", "consortium"))
    and (("schema" in kind and "svmlight" not in kind) or "additive" not in entry)
]


@contextlib.contextmanager
def with_same_scores(place: dict[str, Any], same: dict[str, str]) -> Any:
    """Within it a site partitions records out as in the run before: the new one has the old one's secret score."""

    def order(X: Any, y: Any, user_ids: Any, *rest: Any) -> Any:
        if user_ids is None:
            return place.setdefault("order", secret_order(X, y, None, *rest))
        return secret_order(X, y, np.array([same.get(str(unit), str(unit)) for unit in user_ids]), *rest)

    with mock.patch.object(consortium, "secret_order", order):
        yield


class Cell:
    """One entry point × kind of file × unit: a recorded run, against which replaced ones are compared."""

    def __init__(self, entry: str, kind: str, unit: str) -> None:
        (self.run, self.real), self.kind, self.people = ENTRIES[entry], KINDS[kind], unit == "person"
        self.ground = Ground(self.kind, self.people, self.real, "additive" in entry)
        self.place = dict[str, Any]()
        self.rows, self.trace = records(self.people, self.real), Trace()
        if "evaluate" in entry:
            write(self.ground.file, self.rows[::-1], self.people, self.real)
            self.ground.call("train", self.ground.file, *self.ground.how, "--epsilon", "20", "--rounds", "2",
                             "--nodes", "1", "--out", self.ground.folder / "model")  # fmt: skip
            self.ground.spent.clear()
        self._made(self.rows, Trace(), {})  # what is loaded at first use may draw random numbers
        self.out = self._made(self.rows, self.trace, {})
        again = self._made(self.rows, Trace(self.trace.released), {})
        assert self.trace.exact, "nothing was released"
        assert not changes(self.out, again), f"the replay itself differs: {changes(self.out, again)}"

    def _made(self, rows: Rows, trace: Trace, same: dict[str, str]) -> dict[str, Any]:
        write(self.ground.file, rows, self.people, self.real)
        with traced(trace, same), with_same_scores(self.place, same):
            return self.run(self.ground)

    def replace(self, rng: np.random.Generator) -> dict[str, float]:
        """By how much sums move when someone is replaced, over what is accounted; all else must stay the same."""
        return self.compared(*replaced(self.rows, self.kind, self.people, self.real, rng))

    def compared(self, rows: Rows, same: dict[str, str]) -> dict[str, float]:
        """The same of these records."""
        trace = Trace(self.trace.released)
        out = self._made(rows, trace, same)
        assert out.keys() == self.out.keys(), "other files"
        assert not (different := changes(self.out, out)), f"these outputs changed: {self._shown(different, out)}"
        found = moved(self.trace, trace, self.out.get("reach", float("nan")))
        assert max(found.values()) <= ROUNDING, f"a sum moved by more than is accounted: {found}"
        return found

    def _shown(self, different: list[str], out: dict[str, Any]) -> str:
        """The first place at which each output differs."""
        found = []
        for key in different:
            one, two = str(self.out[key]), str(out[key])
            at = next((k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
            found.append(f"{key}: …{one[max(0, at - 60) : at + 60]}… {two[max(0, at - 60) : at + 60]}…")
        return "; ".join(found)

    def close(self) -> None:
        shutil.rmtree(self.ground.folder)


def main() -> None:
    """Print a table of all cells."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--replacements", type=int, default=200, help="in each cell")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="cells whose name holds this")
    given = options.parse_args()
    print("| entry point | file | unit | replaced | failed | rounds | looks | tallies |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    failures = made = 0
    for number, names in enumerate(CELLS):
        if given.only not in ", ".join(names):
            continue
        cell, rng, begun = Cell(*names), np.random.default_rng((given.seed, number)), time.monotonic()
        most, failed = dict[str, float](), 0
        for _ in range(given.replacements):
            try:
                for what, far in cell.replace(rng).items():
                    most[what] = max(most.get(what, 0.0), far)
            except Exception as error:  # counted, and the first of each cell is shown
                failed += 1
                if failed == 1:
                    print(f"  {names}: {type(error).__name__}: {error}", file=sys.stderr)
        cell.close()
        failures, made = failures + failed, made + given.replacements
        shown = " | ".join(f"{most.get(what, 0.0):.4f}" for what in ("round", "pre_release", "tally"))
        print(f"| {' | '.join(names)} | {given.replacements} | {failed} | {shown} |", flush=True)
        print(f"{time.monotonic() - begun:.1f} s", file=sys.stderr)
    print(f"\n{made} replacements, {failures} failed")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
