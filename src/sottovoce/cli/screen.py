"""What a person sees: a progress bar while it runs, a table and the plain truth about privacy at the end.

Everything for people goes to stderr where `--json` is given, so that stdout is one JSON object.
"""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from sottovoce import limits
from sottovoce._text import bytes_text as bytes_text
from sottovoce.data.load import ReadProgress
from sottovoce.data.policy import Note
from sottovoce.errors import Interrupted, SpecError
from sottovoce.experiments.table import Done
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.statement import UNITS, number
from sottovoce.run.result import NOT_PRIVATE, Observation, Result
from sottovoce.run.solve import Progress as OnProgress

out, err = Console(highlight=False), Console(stderr=True, highlight=False)


def fail(message: str) -> None:
    """Print one line in red."""
    err.print(f"[bold red]Error:[/] {plain(message)}", soft_wrap=True)


def say_json(value: Any) -> None:
    """One JSON object on stdout; NaN, which JSON does not know, becomes null."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    print(json.dumps(_finite(value), ensure_ascii=encoding != "utf8", allow_nan=False))


REPORT_EVERY_SECONDS = 20.0
"""Seconds after which something that goes on says how far it is, where there is no terminal to draw a bar on."""


@contextmanager
def reading(path: Path, quiet: bool) -> Iterator[ReadProgress | None]:
    """How many records of a file were read so far: beside a spinner, or a line now and then."""
    if quiet:
        yield None
    elif not err.is_terminal:
        yield _at_intervals(lambda records: f"reading {plain(str(path))}: {records:,} records so far")
    else:
        columns = (SpinnerColumn(), TextColumn("reading {task.description}: {task.completed:,} records"))
        with Progress(*columns, console=err, transient=True) as progress:
            task = progress.add_task(plain(path.name), total=None)
            yield lambda records: progress.update(task, completed=records)


@contextmanager
def owner_notes() -> Iterator[Note]:
    """What the owner of the records should know of single ones: on their own screen, and nowhere else."""
    noted: Counter[str] = Counter()

    def note(what: str, records: int) -> None:
        noted[what] += records

    yield note
    if noted:
        err.print(
            "[yellow]For the owner of the records alone[/] (this depends on single records: keep it to yourself):",
            soft_wrap=True,
        )
    for what, records in noted.items():
        err.print(f"· {plain(what)}: {records:,} record{'s' if records > 1 else ''}", soft_wrap=True)


def _at_intervals(words: Callable[..., str]) -> Callable[..., None]:
    last = [time.monotonic()]

    def advance(*numbers: Any) -> None:
        if time.monotonic() - last[0] >= REPORT_EVERY_SECONDS:
            last[0] = time.monotonic()
            err.print(words(*numbers), soft_wrap=True)

    return advance


@contextmanager
def bar(title: str, quiet: bool) -> Iterator[OnProgress | None]:
    """A progress bar, with the newest observation if there is one; where there is no terminal, a line now and then."""
    try:
        if quiet:
            yield None
        elif not err.is_terminal:
            yield _at_intervals(lambda t, T, row: f"{title}: round {t:,} of {T:,}")
        else:
            with _bar(title) as update:
                yield update
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped; started again, a run with --out and --seed goes on from its last checkpoint"
        ) from None


@contextmanager
def _bar(title: str) -> Iterator[OnProgress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("rounds [dim]{task.fields[speed]}[/]  {task.fields[newest]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        task = progress.add_task(title, total=None, newest="", speed="")
        first: list[tuple[int, float]] = []

        def update(t: int, T: int, row: Observation | None) -> None:
            first.append((t, time.monotonic()))
            (t0, began), (t1, now) = first[0], first[-1]
            speed = f"{(t1 - t0) / (now - began):,.0f}/s" if now > began else ""
            newest = ""
            if row is not None:
                seen = f"F = {row['objective']:.4f}  score {row['train_accuracy']:.3f}"
                newest = f"[cyan]{seen}[/] [dim](not private)[/]"
            progress.update(task, total=T, completed=t, newest=newest, speed=speed)

        yield update


@contextmanager
def works(title: str, named: str, quiet: bool, stopped: str) -> Iterator[Done | None]:
    """A bar of works done, of how many, with this column of the newest row; Ctrl-C ends in the sentence `stopped`."""
    try:
        if quiet or not err.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True) as progress:
            task = progress.add_task(title, total=None)
            yield lambda count, of, row: progress.update(
                task, total=of, completed=count, description=f"{title}: {row[named]}"
            )
    except KeyboardInterrupt:
        raise Interrupted(stopped) from None


def show(result: Result, title: str, quiet: bool = False, verbose: bool = False) -> None:
    """Print the final table of one run and its privacy; `verbose` adds the paper's symbols."""
    console = err if quiet else out
    last, public = result.history.last if len(result.history) else None, result.public
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    score = "accuracy" if result.classes is not None else "R²"
    spoken = public["participations"]
    took = result.environment.get("seconds")  # of a simulation
    rows = {
        "nodes, records, features": f"{public['n']}, {sum(public['records']):,}, {public['m']}",
        "rounds": f"{result.spec.algorithm.rounds:,}",
        "releases of each node": _range(spoken),
        "engine, time": result.environment["engine"] + ("" if took is None else f", {took:.1f} s"),
    }
    if verbose:
        rows["gossip"] = f"ι = {public['iota']:.4g}, β = {public['beta']:.4g}, L = {public['lipschitz']:.4g}"
    if "targets" in public and result.target_range is not None:
        rows["targets clipped to"] = "{:.6g} to {:.6g}, from their noisy counts".format(*result.target_range)
    if last is not None:
        rows |= {
            "passes over the data": f"{last['epoch']:.2f}",
            "messages sent": f"{int(last['messages']):,}, {bytes_text(last['bytes'])}{_deep(public.get('depth'))}",
            "objective": f"{last['objective']:.6f}",
            "distance to the optimum": f"{last['suboptimality']:.3e}",
            f"training {score}": f"{last['train_accuracy']:.4f}",
            f"held-out {score}": f"{last['test_accuracy']:.4f}",
            "disagreement of nodes": f"{last['consensus_error']:.3e}",
        }
    for name, value in rows.items():
        if "nan" not in value:
            table.add_row(name, value)
    console.print(table)
    if last is not None:
        console.print(f"  [dim]objective, accuracy and disagreement are {NOT_PRIVATE}[/]")
    console.print(privacy_panel(result, verbose))


def _deep(depth: int | None) -> str:
    """How many exchanges are waited for, where the result says so."""
    return "" if depth is None else f", {depth:,} of them sequential"


def privacy_panel(result: Result, verbose: bool = False) -> Panel:
    """Return the verdict, the adversary and the adjacency: never one without the others."""
    statement = result.statement
    lines = [
        f"[bold]{plain(statement.verdict())}[/]",
        f"adversary: {statement.adversary}, who sees {ADVERSARIES.read(statement.adversary).sees}",
        f"neighboring data: {statement.adjacency}",
        *([f"at the same δ it would be {statement.collusion}"] if statement.others else []),
    ]
    if math.isfinite(statement.epsilon):
        event, units = statement.worst.event, UNITS.make(statement.unit).plural
        lower = f"on the worst data ε is at least {number(statement.epsilon_lower)}; " if event.realized else ""
        symbols = f", σ = {event.sigma:.4g}, L = {event.clip:.4g}" if verbose else ""
        lines.append(
            f"worst node: {event.rounds:,} releases of {event.sampling} batches of {event.batch} from "
            f"{event.records:,} {units}{symbols}; {lower}"
            f"an attack with a 1 % "
            f"false-positive rate has a true-positive rate of at most {100 * statement.risk(0.01):.3g} %"
        )
    for claim in result.public["theorem1"][:1]:
        holds = "holds" if claim["rounds_condition_holds"] else "fails"
        proof = ", ".join(
            f"{name.replace('_', ' ')} ε = {e:.3g}, δ = {d:.3g}" for name, (e, d) in claim["proof"].items()
        )
        if verbose:
            lines.append(f"the paper's proof gives: {proof}")
        lines.append(
            f"Theorem 1's condition on the number of rounds {holds}: it requires {claim['rounds_needed']:.3g} rounds, "
            f"the run had {claim['rounds']:,} (compare: sottovoce account --theorem1)"
        )
    if 0.1 <= statement.delta or (math.isfinite(statement.epsilon) and statement.risk(0.01) > 0.5):
        lines.append("[bold]a weak guarantee:[/] with this ε and δ an attacker may well succeed")
    if statement.simulation:
        lines.append("this run has a seed, so it is a simulation: anyone who knows the seed can remove the noise")
    open_ = "" if statement.secure else "floating-point attacks on the noise; "
    lines.append(f"not covered, among others: {open_}{statement.not_covered[0]}")
    style = "red" if not statement.private else "yellow" if statement.kind else "green"
    title = f"privacy: {statement.kind}" if statement.kind else "privacy"
    return Panel("\n".join(lines), title=title, title_align="left", border_style=style)


def summary(result: Result, saved: str | None) -> dict[str, Any]:
    """The same as `show`, for programs."""
    return {
        "spec": result.spec.to_dict(),
        "public": result.public,
        "last": ({"label": NOT_PRIVATE} | result.history.last) if len(result.history) else None,
        "privacy": result.statement.to_dict(),
        "environment": result.environment,
        "saved": saved,
    }


def _range(counts: list[int]) -> str:
    return f"{counts[0]:,}" if min(counts) == max(counts) else f"{min(counts):,} to {max(counts):,}"


def writable(out: Path | None, keep: bool = True) -> None:
    """Refuse an output folder that cannot be made or written to, before any work is done for it.

    Where it is not to be kept, folders that were made to find that out are gone again: work that fails leaves none.
    """
    if out is None:
        return
    try:
        made = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".probe"
        probe.touch()
        probe.unlink()
        for folder in made if not keep else ():
            folder.rmdir()
    except OSError:
        raise SpecError(f"the folder '{out}' cannot be written to; give another one with --out") from None


def writable_file(out: Path | None, option: str = "--out", force: bool = True) -> None:
    """The same for a file: its folder is there, and it is no folder itself; without `force`, nothing is there."""
    if out is None:
        return
    try:
        wrong = not out.name or out.is_dir() or not out.parent.is_dir() or not os.access(out.parent, os.W_OK)
    except (OSError, ValueError):  # as a name that is too long, or holds what no name can
        wrong = True
    if wrong:
        raise SpecError(f"the file '{out}' cannot be written; give a file in a folder that there is with {option}")
    limits.check_file(out)
    if not force and out.exists():
        raise SpecError(f"there is a file '{out}' already; give another one with {option}, or --force to lose it")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def plain(text: str) -> str:
    """Text that Rich shows as it is; a terminal's escapes, and other signs that are not to be seen, become marks."""
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text)
    return shown.replace("[", r"\[")
