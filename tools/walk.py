"""Count the modules and functions of this project that a walk through it calls: ``python tools/walk.py fit train``.

A walk is one use, as a new contributor would step through it with a debugger. Imports are not counted: every walk is
made once before it is measured, on other records. Counted are functions (in brackets without comprehensions and
lambdas), and how often one module calls another. With ``+`` before its name a walk also lists its modules.
"""

import contextlib
import io
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

PACKAGE = str(Path(__file__).parent.parent / "src" / "sottovoce")
N, M = 3_000, 4


class Walk:
    """The functions that were called while a walk was watched."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.across = 0

    def seen(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        module = frame.f_code.co_filename
        self.functions[module, frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name] += 1
        caller = frame.f_back
        self.across += caller is not None and caller.f_code.co_filename.startswith(PACKAGE) and (
            caller.f_code.co_filename != module
        )  # fmt: skip

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Watch this thread."""
        sys.setprofile(self.seen)
        try:
            yield
        finally:
            sys.setprofile(None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all threads."""
        threading.setprofile(self.seen)
        try:
            with self.alone():
                yield
        finally:
            threading.setprofile(None)  # type: ignore[arg-type]

    def named(self) -> int:
        """The number of functions that have a name."""
        return sum(not name.rsplit(".", 1)[-1].startswith("<") for _, name in self.functions)

    def modules(self) -> Counter[str]:
        """How many functions each module has in the walk."""
        return Counter(Path(module).relative_to(PACKAGE).as_posix() for module, _ in self.functions)


Walks = Callable[[Walk], None]
"""Goes through a walk once, and watches the part that counts."""


def fit() -> Walks:
    """A classifier's first `fit` on 3,000 × 4 records of two nodes, with secure noise."""
    from sottovoce import PrivateClassifier

    rng = np.random.default_rng(0)

    def called(walk: Walk) -> None:
        X = rng.uniform(-1, 1, (N, M))  # a second fit on the same records also accounts for the first one
        y, nodes = X @ np.array([1.0, -1.0, 0.5, 0.0]) > 0, np.arange(N) % 2
        with walk.watching():
            PrivateClassifier(1.0, row_norm=2.0, classes=[False, True]).fit(X, y, nodes=nodes)

    return called


def solving() -> Walks:
    """`solve` on breast_cancer, 200 rounds on five nodes, with a seed."""
    from sottovoce import AlgorithmSpec, Shards, Spec, embedded, even, solve

    table = embedded("breast_cancer")
    shards = Shards.of(table.X, table.y, even(len(table.y), 5)[0])
    spec = Spec(AlgorithmSpec(rounds=200), seed=1).replace(
        privacy__noise="private(2.0)", privacy__sampling="poisson(32)"
    )

    def called(walk: Walk) -> None:
        with walk.watching():
            solve(spec, shards)

    return called


def node() -> Walks:
    """One round of one real node among four, from its draws to the mixed state; its own thread alone."""
    sys.path[:0] = [str(Path(PACKAGE).parent.parent / "tests" / part) for part in ("node", "secure")]
    from net import Net, open_node, play, records, run_of

    from sottovoce.node.node import DurableNode

    run = run_of(rounds=12, network__activation="everyone")
    tables = records(run)

    class Watched(DurableNode):
        def turn(self, state: Any, t: int) -> Any:
            with watched.alone() if t == 6 and self.number == 0 else contextlib.nullcontext():
                return super().turn(state, t)

    watched = Walk()

    def called(walk: Walk) -> None:
        nonlocal watched
        watched, root = walk, Path(tempfile.mkdtemp())
        opened = {name: open_node(run, name, tables, root / name) for name in run.nodes}
        opened[run.nodes[0]].__class__ = Watched
        for name, end in play(Net(), opened).items():
            if isinstance(end, Exception):
                raise RuntimeError(f"node {name} failed") from end

    return called


def train() -> Walks:
    """`train FILE --schema SCHEMA --out FOLDER` on the same records, with a seed."""
    from sottovoce.cli import main as command

    rng, folder = np.random.default_rng(0), Path(tempfile.mkdtemp())
    X = rng.normal(size=(N, M)) * 10 + 50
    sick = np.where(X @ np.array([1.0, -1.0, 0.5, 0.0]) > 25, "yes", "no")
    rows = [",".join([*(f"{v:.2f}" for v in x), s, f"s{i % 2}"]) for i, (x, s) in enumerate(zip(X, sick, strict=True))]
    (folder / "patients.csv").write_text("\n".join(["a,b,c,d,sick,site", *rows]) + "\n")
    columns = "".join(f'[columns.{name}]\ntype = "number"\nlow = 0\nhigh = 100\n' for name in "abcd")
    label = 'group = "site"\n[label]\ncolumn = "sick"\nclasses = ["no", "yes"]\n'
    (folder / "schema.toml").write_text(label + columns)

    def called(walk: Walk) -> None:
        out = tempfile.mkdtemp(dir=folder)
        flags = ["--schema", str(folder / "schema.toml"), "--seed", "1", "--out", out, "--force"]
        kept, sys.argv = sys.argv, ["sottovoce", "train", str(folder / "patients.csv"), *flags]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors := io.StringIO()):
                with walk.watching():
                    command.main()
        except SystemExit as stop:
            if stop.code:
                raise RuntimeError(errors.getvalue()) from None
        finally:
            sys.argv = kept

    return called


WALKS = {"fit": fit, "train": train, "node": node, "solve": solving}


def main() -> None:
    """Measure the walks that were named, or all."""
    warnings.simplefilter("ignore")
    print("| walk | modules | functions | calls across modules |\n|---|---|---|---|")
    for name in sys.argv[1:] or WALKS:
        go, walk = WALKS[name.lstrip("+")](), Walk()
        go(Walk())  # what is imported, or made once, is not part of it
        go(walk)
        functions = f"{len(walk.functions)} ({walk.named()})"
        print(f"| {name.lstrip('+')} | {len(walk.modules())} | {functions} | {walk.across} |")
        if name.startswith("+"):
            for module, count in sorted(walk.modules().items()):
                print(f"  {count:4d} {module}")


if __name__ == "__main__":
    main()
