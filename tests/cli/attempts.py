"""Attempts on the command: every verb with arguments that nobody meant, and files that someone has spoilt.

An attempt is a command line and perhaps a damage to a file that it reads, both made from a seed. Whatever it is, the
command ends within a bound of processor time, in success or in one line with an exit code of its own: no traceback,
no exit code of a bug, no warning of a library, no half-written file.
"""

import base64
import contextlib
import functools
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import warnings
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import typer

from sottovoce import AlgorithmSpec, PrivacyLeakWarning, Shards, Spec, even, solve
from sottovoce.algorithm.method import COUNTED, SEQUENCES
from sottovoce.cli import consortium as consortium_verbs
from sottovoce.cli import main as command
from sottovoce.cli import node as node_verbs
from sottovoce.cli.demo import demo as demo_function
from sottovoce.network.activation import ACTIVATIONS
from sottovoce.network.averaging import AVERAGINGS
from sottovoce.network.graphs import GRAPHS
from sottovoce.network.mixing import WEIGHTS
from sottovoce.node.transport import NodeTransport
from sottovoce.pages.server import Served
from sottovoce.privacy.calibration import NOISES
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.sampling import SAMPLINGS
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.regularizers import REGULARIZERS

demo_verb = sys.modules[demo_function.__module__]
SENTENCES = {1, 2, 3, 4, 5, 6, 7}
"""Exit codes that say what kind of error it was."""
OF_THE_SYSTEM = 74
"""Where the operating system refuses a file, by its name."""
SECONDS = 20.0
"""Processor time that an attempt may take; on a free machine hardly one takes a second."""

WHOLE = ("0", "-1", "1", "2", "3", "7", "255", str(10**9), str(10**11), str(2**63), str(10**40), "1.5", "x", "")
REAL = (*"0 -0.0 -1 1 0.5 1e-5 1e-320 1e-308 1e11 1e308 -1e308 1e999 nan inf -inf ε 1,5 0x1p3".split(), "")
TEXT = (
    *"- -- ε [red] [/] [link=x] x,y , no,yes no,no yes,no,maybe l2( l2) (((( l2: : name(a=b=c) None 0 1 -1".split(),
    *"nan label a site csv tsv parquet svmlight npz comma semicolon tab point utf-8 utf-16 cp1252 latin-1".split(),
    *"rot13 zlib auto all compiled reference raise clip majority center in_order dirichlet:0.3 dirichlet:0".split(),
    *"dirichlet:nan dirichlet:-1 paper_l2 private 2 1e308 {node} ${HOME} sqlite:// scores right confusion".split(),
    *"squares 0,1 1,0 nan,nan -1e308,1e308 epochs=1 rounds=5 rounds=0 rounds=nan alpha=-1".split(),
    *("", " ", "é\tö", "\udcff", "\u202e", "a" * 4000),
)
PLACES = (
    *"GOOD GOOD/data.csv GOOD/nowhere/x /dev/null /proc/nowhere GOOD/data.csv/x OUT/ε GOOD/run GOOD/data.npz".split(),
    *("GOOD/schema.toml", "GOOD/clinic.db", ".", "OUT/[red]x", "", "OUT/\udcff", "OUT/" + "n" * 300),
)
TABLES = (
    SEQUENCES,
    COUNTED,
    ACTIVATIONS,
    AVERAGINGS,
    GRAPHS,
    WEIGHTS,
    NOISES,
    ADVERSARIES,
    SAMPLINGS,
    LOSSES,
    REGULARIZERS,
)
NUMBERS = (*"0 -1 1 2 3 0.5 1e9 1e308 -1e308 nan inf 1e-320 x 1,2 1,-1 0,0,0".split(), "")


class Alone:
    """A communicator of one rank."""

    def Get_size(self):
        return 1

    def Get_rank(self):
        return 0


class Nobody(NodeTransport):
    """A network with nobody to write to."""

    def __init__(self, links, skips, comm):
        super().__init__(links, skips)

    def send(self, peer, payload):
        raise AssertionError("there is no peer")

    wait = send

    def flush(self):
        pass


SCHEMA = """
row_norm = 1.0
[label]
column = "label"
classes = ["no", "yes"]
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
RUN = """
run = "alone"
schedule_seed = 1
features = ["a", "b"]
label = "label"
classes = ["no", "yes"]
unit_rows = true
[nodes]
clinic = 60
[spec.algorithm]
rounds = 5
gamma = "constant(1)"
[spec.problem]
h = "l2(0.1)"
[spec.privacy]
sampling = "poisson(8)"
noise = "private(1.0)"
"""
AGREEMENT = """
name = "small"
run = "first"
schedule_seed = 5
held_out = 0.25
timeout = 60
[server]
host = "localhost"
port = 1
[admin]
email = "lead@example.org"
org = "one"
[sites.north]
org = "one"
records = 40
[sites.south]
org = "two"
records = 40
[problem]
loss = "hinge"
h = "l2(0.01)"
[algorithm]
rounds = 5
gamma = "constant(1)"
[privacy]
sampling = "poisson(8)"
noise = "private(1.0)"
"""


class Slow(BaseException):
    """The bound of processor time is passed."""


@dataclass
class Ground:
    """Files that are as they should be, and the place where spoilt copies of them go."""

    folder: Path
    verbs: dict[tuple[str, ...], list] = field(default_factory=dict)

    def __post_init__(self):
        good = self.good = self.folder / "good"
        self.spoilt = self.folder / "spoilt"
        good.mkdir(parents=True)
        self._files()
        for path, verb in _leaves(typer.main.get_command(command.app)):
            self.verbs[path] = [p for p in verb.params if p.name not in ("help", "open_")]
        self.bases = self._bases()
        missing = self.verbs.keys() ^ self.bases.keys()
        assert not missing, f"no attempt is made on {missing}"

    def _files(self):
        good, rng = self.good, np.random.default_rng(0)
        X = rng.normal(size=(60, 2)) / 4
        y = np.where(X[:, 0] + 0.1 * rng.normal(size=60) > 0, "yes", "no")
        rows = [
            f"{a:.4f},{b:.4f},{'xy'[i % 2]},s{i % 3},{label},p{i // 2}"
            for i, ((a, b), label) in enumerate(zip(X, y, strict=True))
        ]
        (good / "raw.csv").write_text("\n".join(["a,b,kind,site,label,person", *rows]) + "\n")
        (good / "data.csv").write_text(
            "a,b,label\n" + "".join(f"{a:.4f},{b:.4f},{v}\n" for (a, b), v in zip(X, y, strict=True))
        )
        signs = np.where(y == "yes", 1, -1)
        (good / "data.svm").write_text(
            "".join(f"{s} 1:{a:.4f} 2:{b:.4f}\n" for (a, b), s in zip(X, signs, strict=True))
        )
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(good / "data.csv"), good / "data.parquet")
        np.savez(good / "data.npz", X=X, y=signs)
        (good / "schema.toml").write_text(SCHEMA)
        (good / "book.csv").write_text("column,type,low,high,values\na,number,-2,2,\nkind,category,,,x|y\n")
        (good / "run.toml").write_text(RUN)
        (good / "consortium").mkdir()
        (good / "consortium" / "consortium.toml").write_text(AGREEMENT)
        (good / "consortium" / "schema.toml").write_text(SCHEMA)
        with contextlib.closing(sqlite3.connect(good / "clinic.db")) as db:
            db.execute("CREATE TABLE t (a REAL, b REAL, label TEXT)")
        self._runs(X, signs)
        self._node()
        kit = good / "kit"
        (kit / "startup").mkdir(parents=True)
        (kit / "local").mkdir()
        (kit / "startup" / "fed_client.json").write_text('{"servers": [{"service": {"target": "localhost:1"}}]}')
        (kit / "startup" / "fed_admin.json").write_text('{"admin": {"username": "lead@example.org"}}')
        (kit / "local" / "consortium.toml").write_text(AGREEMENT)
        (kit / "local" / "schema.toml").write_text(SCHEMA)
        (kit / "local" / "site.toml").write_text('dataset = "d"\nstate = "state"\nfile = "data.csv"\n')

    def _runs(self, X, y):
        offsets, order = even(60, 3)
        shards = Shards.of(X, y.astype(float), offsets, order)
        spec = Spec(AlgorithmSpec(rounds=6, gamma="constant(1)"), seed=1).replace(
            privacy__noise="private(1.0)", privacy__sampling="poisson(8)", network__activation="everyone"
        )
        result = solve(spec, shards, classes=("no", "yes"), features=("a", "b"))
        result.save(self.good / "run")
        solve(spec.replace(privacy__noise="theorem1(0.5)"), shards).save(self.good / "claimed")
        (self.good / "run" / "printed.json").write_text(
            json.dumps({"spec": spec.to_dict(), "public": result.public, "privacy": result.statement.to_dict()})
        )
        (self.good / "statement.json").write_text(json.dumps(result.statement.to_dict()))

    def _node(self):
        line = [
            "node",
            "--spec",
            self.good / "run.toml",
            "--data",
            self.good / "data.csv",
            "--folder",
            self.good / "nodes",
        ]
        code, _, err, _ = run([*map(str, line), "--budget", "2"])
        assert code == 0, err
        code, out, err, _ = run(["ledger", "export", str(self.good / "nodes" / "clinic")])
        assert code == 0, err
        (self.good / "export.json").write_text(out)

    def _bases(self):
        """A cheap command line for every verb; in capitals, files of this ground."""
        common = "--nodes 3 --label label --classes no,yes --format csv"
        short = "--rounds 4 --observations 2"
        base = {
            "demo": "demo --nodes 10000000 --data synthetic",
            "schema": "schema RAW --label label --group site --user-id person --codebook BOOK --out OUT/s.toml",
            "train": f"train DATA {common} {short} --seed 1 --out OUT/run",
            "train2": f"train RAW --schema SCHEMA --nodes 3 {short} --seed 1 --engine reference",
            "train3": f"train SVM --nodes 2 --classes=-1,1 --features 2 --first-index 1 {short}",
            "train4": "train PARQUET --label label --noise gaussian:1 --nodes 3 --rounds 3 --seed 2",
            "tune": "tune DATA --label label --classes no,yes --param epochs=1 --runs 1.5 --epsilon 0 --seed 1",
            "predict": "predict RUN DATA --scores --id label",
            "predict2": "predict CLAIMED SVM --out OUT/p.csv",
            "evaluate": "evaluate RUN DATA --label label --seed 1",
            "sweep": f"sweep DATA {common} --epsilon 1 --seeds 1 --epochs 0.1 --jobs 1 --out OUT/s.parquet",
            "compare": "compare --data DATA --label label --algorithms ours --seeds 1 --nodes 2 --epochs 0",
            "report": "report RUN CLAIMED --out OUT/r.html",
            "export": "export RUN --out OUT/public --without-guarantee",
            "consortium watch": "consortium watch KIT",
            "plan": "plan --nodes 3 --records 50 --features 3 --rounds 10 --sampling full --activation everyone",
            "account": "account --records 50 --rounds 10 --sigma 1 --batch 5 --sampling poisson",
            "account2": "account --verify RUN",
            "account3": "account --verify RUN/printed.json",
            "account4": "account --verify STATEMENT",
            "account5": "account --theorem1 --records 50 --nodes 3 --epochs 1",
            "calibrate": "calibrate --epsilon 1 --rounds 10 --records 50",
            "audit": "audit --plan --runs 4 --rounds 2 --records 10 --simulate --seed 1 --confidence 0",
            "audit2": "audit RUN --runs 2",
            "audit3": "audit RUNFILE --runs 2",
            "reproduce": "reproduce table2 --size tiny --seeds 1 --jobs 1 --out OUT/paper",
            "data fetch": "data fetch a9a --base http://127.0.0.1:1 --folder OUT/cache",
            "data list": "data list --folder OUT/cache",
            "data make": "data make epsilon-like --records 3 --out OUT/e.npz",
            "node": "node --spec RUNFILE --data DATA --folder OUT/nodes --budget 3",
            "node2": "node --spec RUNFILE --data DATA --folder NODES --budget 3",
            "node key": "node key OUT/key",
            "node check": "node check KIT",
            "node health": "node health KIT",
            "node health2": "node health NODES/clinic",
            "ledger show": "ledger show NODES/clinic",
            "ledger verify": "ledger verify NODES/clinic --against EXPORT",
            "ledger export": "ledger export NODES/clinic --out OUT/e.json",
            "ledger abandon": "ledger abandon NODES/clinic alone",
            "ledger budget": "ledger budget NODES/clinic --epsilon 3",
            "consortium init": "consortium init AGREED/consortium.toml --out OUT/kits",
            "consortium renew": "consortium renew AGREED/consortium.toml north --out OUT/kits",
            "consortium revoke": "consortium revoke AGREED/consortium.toml north --out OUT/kits",
            "consortium accept": "consortium accept AGREED/consortium.toml KIT",
            "consortium join": "consortium join KIT AGREED/consortium.toml",
            "consortium ping": "consortium ping 127.0.0.1:1 --count 1",
            "consortium propose": "consortium propose AGREED/consortium.toml KIT --out OUT/run.proposal",
            "consortium request": "consortium request north --out OUT",
            "consortium review": "consortium review AGREED/consortium.toml KIT",
            "consortium start": "consortium start KIT",
            "consortium submit": "consortium submit KIT",
            "consortium status": "consortium status KIT",
            "consortium results": "consortium results KIT",
            "consortium stop": "consortium stop KIT",
            "consortium who": "consortium who KIT",
        }
        known: dict[tuple[str, ...], list[list[str]]] = {}
        for name, line in base.items():
            known.setdefault(tuple(name.rstrip("0123456789").split()), []).append(line.split())
        return known

    FILES: ClassVar = dict(
        pair.split("=")
        for pair in (
            "DATA=data.csv RAW=raw.csv SVM=data.svm PARQUET=data.parquet NPZ=data.npz SCHEMA=schema.toml BOOK=book.csv "
            "RUNFILE=run.toml AGREED=consortium RUN=run CLAIMED=claimed STATEMENT=statement.json EXPORT=export.json "
            "NODES=nodes KIT=kit"
        ).split()
    )

    def attempt(self, seed: int) -> tuple[list[str], str]:
        """A command line, and what was done to the files; made of the seed alone, but for the folder's place."""
        rng = random.Random(seed)
        shutil.rmtree(self.spoilt, ignore_errors=True)
        (self.spoilt / "out").mkdir(parents=True)
        path, chosen = rng.choice([(path, line) for path, lines in sorted(self.bases.items()) for line in lines])
        words = list(chosen)
        read = [word for word in words if word.split("/")[0] in self.FILES]
        done = ""
        if read and rng.random() < 0.5:
            done = self._spoil(rng, rng.choice(read).split("/")[0])
        edits = rng.choice((0, 1, 1, 1, 2, 3)) if done else rng.choice((1, 1, 1, 2, 3))
        for _ in range(edits):
            words = self._edited(rng, path, words)
        return [self.placed(word) for word in words], done

    def _edited(self, rng, path, words):
        kind = rng.random()
        if kind < 0.9 and self.verbs[path]:
            option = rng.choice(self.verbs[path])
            value = self._value(rng, option)
            if option.param_type_name == "argument":
                places = [i for i, w in enumerate(words) if i >= len(path) and not w.startswith("-")]
                return [*words[: len(path)], value, *words[len(path) + 1 :]] if places else [*words, value]
            name = rng.choice(option.opts)
            if getattr(option, "is_flag", False):
                return [*words, name]
            if name in words and rng.random() < 0.8:
                at = words.index(name)
                return [*words[: at + 1], value, *words[at + 2 :]]
            return [*words, name, value]
        if kind < 0.96 and len(words) > len(path):
            at = rng.randrange(len(path), len(words))
            return words[:at] + words[at + 1 :]
        at = rng.randrange(len(path), len(words) + 1)
        return [*words[:at], rng.choice(TEXT), *words[at:]]

    def _value(self, rng, option):
        kind = option.type_descriptor.annotation
        if kind is int:
            return rng.choice(WHOLE)
        if kind is float:
            return rng.choice(REAL)
        if kind is Path:
            return rng.choice(PLACES)
        if rng.random() < 0.5:
            table = rng.choice(TABLES)
            word = rng.choice(sorted(table))
            return word if rng.random() < 0.2 else f"{word}:{rng.choice(NUMBERS)}"
        return rng.choice(TEXT)

    def placed(self, word):
        """A word with the file that it stands for."""
        first, slash, rest = word.partition("/")
        if first == "OUT":
            return f"{self.spoilt / 'out'}{slash}{rest}"
        if first == "GOOD":
            return f"{self.good}{slash}{rest}"
        if first not in self.FILES:
            return word
        name = self.FILES[first]
        copy = self.spoilt / name
        if not copy.exists() and (self.good / name).is_dir():  # verbs may write there
            shutil.copytree(self.good / name, copy)
        return f"{copy if copy.exists() else self.good / name}{slash}{rest}"

    def _spoil(self, rng, word):
        name = self.FILES[word]
        here, copy = self.good / name, self.spoilt / name
        if here.is_dir():
            shutil.copytree(here, copy)
            files = sorted(p for p in copy.rglob("*") if p.is_file())
            target = (
                rng.choice([f for f in files if f.name in ("result.json", "model.npz", "consortium.toml")] or files)
                if rng.random() < 0.6
                else rng.choice(files)
            )
        else:
            shutil.copyfile(here, copy)
            target = copy
        return f"{target.name}: {_damage(rng, target)}"

    def left_behind(self) -> list[Path]:
        """Files that are half written."""
        return [p for p in self.folder.rglob("*.part")]


def _damage(rng, path: Path) -> str:
    if path.suffix == ".json" and rng.random() < 0.8:
        return _damaged_json(rng, path)
    content, kind = (
        path.read_bytes(),
        rng.choice(("cut", "flip", "empty", "gone", "folder", "noise", "word", "line", "swap")),
    )
    if kind == "cut":
        content = content[: rng.randrange(len(content) + 1)]
    elif kind == "flip":
        changed = bytearray(content)
        for _ in range(rng.choice((1, 1, 3, 20))):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        content = bytes(changed)
    elif kind == "empty":
        content = b""
    elif kind in ("gone", "folder"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        return kind
    elif kind == "noise":
        content = rng.randbytes(rng.choice((1, 10, 1000)))
    elif kind == "word":
        words = (
            b"nan",
            b"\xff\xfe",
            b"1e999",
            b"\x00",
            b"-1",
            b"99999999999999999999",
            b'"',
            b";",
            b"[",
            b"\n\n",
            "ε".encode(),
        )
        at = rng.randrange(len(content) + 1)
        content = content[:at] + rng.choice(words) + content[at + rng.choice((0, 1, 5)) :]
    elif kind == "line":
        lines = content.split(b"\n")
        del lines[rng.randrange(len(lines))]
        content = b"\n".join(lines)
    else:
        content = content.replace(
            *rng.choice(((b",", b";"), (b".", b","), (b"0", b""), (b"=", b":"), (b"\n", b"\r"), (b'"', b"'")))
        )
    path.write_bytes(content)
    return kind


_REALS = (1.5, 1e308, *map(float, ("nan", "inf", "-inf")))
_WHOLES = (-1, 0, 1, 10**30, 2**63, True)
STRANGE = (None, [], {}, "", "x", "l2(", "nan", "\ud800", [[]], [None], {"a": []}, [1, 2, 3], *_REALS, *_WHOLES)


def _damaged_json(rng, path: Path) -> str:
    """Another value at some place of a JSON file, or a part of it gone."""
    if rng.random() < 0.05:
        path.write_text(rng.choice(("[]", "null", "0", '"x"', "{}", "[" * 100_000, '{"a":' * 5000, "NaN", "1e999")))
        return "all of it"
    kind = rng.choice(("gone", "cut", "other", "other", "other", "other", "other"))
    return changed(path, rng.random(), rng.choice(STRANGE) if kind == "other" else kind, shallow=rng.random() < 0.3)


def changed(path: Path, where: float, what, shallow: bool = False) -> str:
    """Put another value at a place of a JSON file, or take what is there away, or all of a list but its first."""
    whole = json.loads(path.read_text())
    places = [place for place in _places(whole) if len(place) == 1 or not shallow]
    *above, last = place = places[min(int(where * len(places)), len(places) - 1)]
    holder = whole
    for key in above:
        holder = holder[key]
    if what == "gone":
        del holder[last]
    elif what == "cut" and isinstance(holder[last], list):
        del holder[last][1:]
    else:
        holder[last] = what
    path.write_text(json.dumps(whole))
    return f"{what!r} at {'/'.join(map(str, place))}"


def _places(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def _leaves(verb, path=()):
    if getattr(verb, "commands", None):
        if verb.invoke_without_command:
            yield path, verb
        for name, each in verb.commands.items():
            yield from _leaves(each, (*path, name))
    else:
        yield path, verb


class Screen(io.TextIOWrapper):
    """A stream of this encoding, kept."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")

    def said(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


def run(arguments: list[str], encoding: str = "utf-8") -> tuple[int, str, str, list[str]]:
    """The command in this process: exit code, stdout, stderr, and warnings that were released."""
    out, err, code = Screen(encoding), Screen(encoding), 0
    kept = sys.argv, sys.stdout, sys.stderr
    stubs = {
        (node_verbs, "world"): Alone,
        (node_verbs, "MpiTransport"): Nobody,
        (node_verbs, "_start_all"): lambda run: None,
        (webbrowser, "open"): lambda *a: True,
        (consortium_verbs, "foreground"): _never,
        (Served, "serve_forever"): lambda *_, **__: None,
        (consortium_verbs, "SITE_TIMEOUT"): 0.0,
        (command, "parser"): _app,
        (demo_verb, "EPOCHS"): 0.01,
    }
    before = {place: getattr(*place) for place in stubs if hasattr(*place)}
    old = signal.signal(signal.SIGPROF, _slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        for (module, name), value in stubs.items():
            if (module, name) in before:
                setattr(module, name, value)
        with warnings.catch_warnings(record=True) as details:
            warnings.simplefilter("always")
            sys.argv, sys.stdout, sys.stderr = ["sottovoce", *arguments], out, err
            try:
                command.main()
            except SystemExit as end:
                code = int(end.code or 0)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
        sys.argv, sys.stdout, sys.stderr = kept
        for (module, name), value in before.items():
            setattr(module, name, value)
    leaked = [f"{w.category.__name__}: {w.message}" for w in details if not issubclass(w.category, PrivacyLeakWarning)]
    return code, out.said(), err.said(), leaked


def _slow(number, frame):
    raise Slow


@functools.cache
def _app():
    """Typer makes it anew for every call."""
    return typer.main.get_command(command.app)


def _never(*given):
    raise AssertionError("nothing is to be started")


def judged(ground: Ground, seed: int) -> tuple[str | None, int, str]:
    """What is wrong with how an attempt ended, if anything is; its exit code; and the attempt."""
    arguments, done = ground.last = ground.attempt(seed)
    encoding = ("utf-8", "cp1252", "latin-1", "ascii")[seed % 4]
    shown = " ".join(arguments) + (f"   [{done}]" if done else "")
    here = os.getcwd()
    os.chdir(ground.spoilt)
    try:
        code, out, err, warned = run(arguments, encoding)
    except Slow:
        return "slow", -1, shown
    finally:
        os.chdir(here)
    wrong = None
    if code == OF_THE_SYSTEM and "cannot be used: " in err:
        pass
    elif code not in SENTENCES | {0}:
        wrong = f"exit code {code}: {err[-300:]}"
    elif "Traceback" in out + err:
        wrong = "a traceback"
    elif code and err.count("Error: ") + err.count(" Error ") != 1:
        wrong = f"not one line: {err[-300:]}"
    elif warned:
        wrong = f"warnings: {warned[:2]}"
    elif ground.left_behind():
        wrong = f"half written: {ground.left_behind()}"
        for path in ground.left_behind():
            path.unlink()
    return wrong, code, shown


def encoded(arguments: list[str]) -> str:
    """An attempt as one word, to be made again."""
    return base64.b64encode(json.dumps(arguments).encode()).decode()
