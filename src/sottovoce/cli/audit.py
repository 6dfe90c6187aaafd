"""`sottovoce audit`: attack a planned or a saved run, and show a lower bound on its ε.

The target is a run file of real nodes, the folder of a saved run, or, with `--plan`, the plan for public
numbers. The audit reads no one's records: the attacker chooses its own. The exit code is 7 if the lower bound exceeds
the stated ε.
"""

import json as json_
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sottovoce import limits
from sottovoce._types import IntArray
from sottovoce.auditing import (
    Audit,
    audit_columns,
    audit_inference,
    audit_pre_release,
    audit_private_threshold,
    audit_statistics,
    audit_target_range,
)
from sottovoce.auditing import audit as attack_run
from sottovoce.auditing.attack import ATTACKS, NO_PROOF, RUNS
from sottovoce.auditing.bounds import CONFIDENCE
from sottovoce.cli import screen
from sottovoce.cli.report import AUDITED
from sottovoce.engine import ENGINES, engine_named
from sottovoce.errors import Interrupted, SpecError
from sottovoce.figure import check_matplotlib, draw
from sottovoce.network.schedule import Schedule
from sottovoce.node.runfile import read_run
from sottovoce.planner import PublicInputs, choose
from sottovoce.privacy.release import ADVERSARIES
from sottovoce.privacy.sampling import Full
from sottovoce.privacy.statement import PERSON, number
from sottovoce.run.result import Result
from sottovoce.run.spec import Spec
from sottovoce.run.verify import again

ONCE = ("statistics", "mean")
"""Methods that release statistics, once."""
BROKEN = 7
"""The exit code of an audit whose bound passes the statement."""


class Target(NamedTuple):
    """What is to be audited."""

    name: str
    spec: Spec
    sizes: IntArray
    features: int
    schedule: Schedule | None = None
    people: bool = False
    folder: Path | None = None
    simulated: bool = False


def audit(
    target: Annotated[
        Path | None, typer.Argument(help="A run file (run.toml), or a folder written by `train --out`.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Audit the planner's choice for the numbers below.")] = False,
    nodes: Annotated[int, typer.Option("--nodes", help="With --plan: how many nodes.")] = 2,
    records: Annotated[int, typer.Option("--records", help="With --plan: records of each node.")] = 100,
    features: Annotated[int, typer.Option("--features", help="With --plan: columns of a record.")] = 4,
    epsilon: Annotated[float, typer.Option("--epsilon", help="With --plan: the target ε.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", help="With --plan: δ.")] = 1e-5,
    loss: Annotated[str, typer.Option("--loss", help="With --plan: hinge, logistic, huber:1.35, …")] = "hinge",
    sampling: Annotated[str | None, typer.Option("--sampling", help="With --plan: fix it, as in plan.")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="With --plan: fix T.")] = None,
    runs: Annotated[int, typer.Option("--runs", help="Runs with either record; half of them choose the test.")] = RUNS,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the bound.")] = CONFIDENCE,
    attack: Annotated[str, typer.Option("--attack", help=f"What is seen: {' or '.join(ATTACKS)}.")] = "transcript",
    engine: Annotated[str, typer.Option("--engine", help=f"What runs: {', '.join(ENGINES)}.")] = "reference",
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Attack the fast draws of simulations, not the secure release.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="With --simulate: makes the audit reproducible.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the stated curve and what was attained (PNG).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack a run and show a lower bound on its ε. This does not prove privacy."""
    attacked = engine_named(engine)
    if (target is None) == (not plan):
        raise SpecError("give a run file or a saved run, or --plan with public numbers, and not both")
    screen.writable_file(plot, "--plot")
    if plot is not None:
        check_matplotlib()
    limits.check_count("--runs", runs, 10**8)
    if target is None:
        limits.check_count("the number of nodes", nodes, limits.NODES)
        chosen = choose(
            PublicInputs((records,) * nodes, features, epsilon, delta, loss), sampling=sampling, rounds=rounds
        )
        aim = Target("the plan", chosen.spec, np.full(nodes, records), features)
    else:
        aim = _read_target(target)
    simulate = simulate or aim.simulated or not attacked.secure
    if seed is not None and not simulate:
        raise SpecError("a seed is for --simulate: a secure release cannot be repeated")
    drawn_from = aim.spec.seed if aim.spec.seed is not None else 0
    spec = aim.spec.replace(seed=drawn_from if simulate else None)
    found = _run(aim, json, spec=spec, runs=runs, confidence=confidence, attack=attack, engine=engine, seed=seed)
    one_shot = _audit_one_shot(aim, spec, runs=runs, confidence=confidence, seed=seed)
    _report(aim, found, one_shot, plot, json)
    if found.broken or any(one.broken for one in one_shot.values()):
        raise typer.Exit(BROKEN)


def _report(aim: Target, found: Audit, one_shot: dict[str, Audit], plot: Path | None, json: bool) -> None:
    """Save what was found beside an audited result, draw it, and print it."""
    values = {"audited": aim.name, "adversary": aim.spec.privacy.adversary.name} | found.to_dict()
    values |= {when: one.to_dict() for when, one in one_shot.items()}
    if aim.folder is not None:
        kept = json_.dumps(values, ensure_ascii=False, indent=2).encode()
        Result.load(aim.folder).restate(aim.folder, {AUDITED: kept})
    if plot is not None:
        from sottovoce.report.audits import picture  # Bokeh takes long to load: only when used

        draw(picture(values), plot)
    if json:
        screen.say_json(values)
        return
    _show(aim, found)
    for when, one in one_shot.items():
        which = "before the first round" if when == "before" else "after the last round"
        screen.out.print(f"{which}: {one.verdict()}", soft_wrap=True, highlight=False)
    if aim.folder is not None:
        screen.out.print(f"kept in {aim.folder / AUDITED}; `sottovoce report` draws it", soft_wrap=True)


def _audit_one_shot(aim: Target, spec: Spec, **how: Any) -> dict[str, Audit]:
    """Return the releases before the first round (of rows or targets) and after the last (scores, or for intervals)."""
    found: dict[str, Audit] = {}
    if spec.privacy.moments:
        found["before"] = audit_pre_release(spec, aim.sizes, aim.features, **how)
    elif spec.privacy.distribution:
        found["before"] = audit_columns(spec, aim.sizes, **how)
    elif spec.privacy.quantiles:
        found["before"] = audit_target_range(spec, aim.sizes, **how)
    if spec.privacy.balance:
        found["after"] = audit_private_threshold(spec, aim.sizes, **how)
    elif spec.privacy.inference:
        found["after"] = audit_inference(spec, aim.sizes, aim.features, **how)
    return found


def _read_target(path: Path) -> Target:
    if path.is_dir():
        result = Result.load(path)
        result.verify()
        spec, public = result.spec, result.public
        people = result.statement.unit == PERSON.name
        schedule = again(spec, public, people).schedule
        features = int(public["m"]) // spec.problem.outputs - (spec.problem.intercept > 0)
        simulated = not result.statement.secure
        return Target(str(path), spec, np.array(public["records"]), features, schedule, people, path, simulated)
    run = read_run(path)
    width = run.m // run.spec.problem.outputs - (run.spec.problem.intercept > 0)
    people = run.statement.unit == PERSON.name
    return Target(run.name, run.spec, np.array(run.sizes), width, run.plan.schedule, people)


def _run(aim: Target, quiet: bool, *, spec: Spec, **options: Any) -> Audit:
    def go(progress: Any) -> Audit:
        if isinstance(spec.privacy.sampling, Full) and str(spec.algorithm.method).partition("(")[0] in ONCE:
            how = {name: options[name] for name in ("runs", "confidence", "seed")}
            return audit_statistics(spec, aim.sizes, aim.features, **how)
        return attack_run(
            spec, aim.sizes, aim.features, schedule=aim.schedule, people=aim.people, progress=progress, **options
        )

    try:
        if quiet or not screen.err.is_terminal:
            return go(None)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=screen.err, transient=True) as bar:
            task = bar.add_task("runs", total=None)
            return go(lambda done, of: bar.update(task, total=of, completed=done))
    except KeyboardInterrupt:
        raise Interrupted("stopped; nothing was concluded from the runs so far") from None


def _show(aim: Target, found: Audit) -> None:
    adversary, wrong, runs = aim.spec.privacy.adversary, found.wrong, found.runs
    lines = [
        f"[bold]{screen.plain(found.verdict())}[/]",
        f"δ = {found.delta:g}, a record of node {found.node}, against '{adversary}', who sees "
        f"{ADVERSARIES.read(adversary.name).sees}; engine {found.engine}",
        f"the best of the attacks: {found.score}, others' records {'loud' if found.loud else 'quiet'}; it raised "
        f"{wrong[0]:,} false alarms in {runs[0]:,} runs and missed {wrong[1]:,} of {runs[1]:,}",
        f"so the noise was no more than {number(found.scale)} times the stated one"
        if found.scale < 1e3
        else "which refutes no amount of noise",
        *found.notes,
        NO_PROOF,
    ]
    style = "red" if found.broken else "yellow" if found.at_least < 0.5 * found.stated else "green"
    screen.out.print(Panel("\n".join(lines), title=f"audit of {aim.name}", title_align="left", border_style=style))
