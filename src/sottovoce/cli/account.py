"""`sottovoce account` and `sottovoce calibrate`: ε for a noise, and the noise for an ε.

`account --verify` computes the guarantee of a saved run again; `account --theorem1` puts the paper's claim, its proof
and the truth on one screen.
"""

import json as json_
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import within
from sottovoce.cli import screen
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy import planning
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import ADVERSARIES, Adversary
from sottovoce.privacy.sampling import SAMPLINGS, Full
from sottovoce.privacy.sampling import Sampling as Picks
from sottovoce.privacy.statement import PrivacyStatement, number
from sottovoce.privacy.theorem1 import Comparison, Theorem1, compare
from sottovoce.run.build import activation_of, rounds_for_epochs
from sottovoce.run.presets import paper_l2
from sottovoce.run.result import Result
from sottovoce.run.spec import Spec
from sottovoce.run.verify import verify as verify_run

EXACT = "for noise that is exact to the last bit, as it is in runs without a seed"

Records = Annotated[list[int], typer.Option("--records", help="Records of a node; several times for uneven nodes.")]
Rounds = Annotated[int, typer.Option("--rounds", help="T, or K_i with --activity 1.")]
Activity = Annotated[float, typer.Option("--activity", help="Probability that a node is active in a round.")]
Batch = Annotated[int, typer.Option("--batch", help="b.")]
Sampling = Annotated[str, typer.Option("--sampling", help="fixed, poisson or full.")]
Lipschitz = Annotated[float, typer.Option("--lipschitz", help="L, the bound on a record's subgradient.")]
Delta = Annotated[float, typer.Option("--delta", help="δ.")]
Watcher = Annotated[str, typer.Option("--adversary", help=f"Who is watching: {', '.join(ADVERSARIES)}.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def account(
    records: Records = [],  # noqa: B006 - Typer wants a list
    rounds: Rounds = 0,
    activity: Activity = 1.0,
    batch: Batch = 1,
    sampling: Sampling = "fixed",
    sigma: Annotated[float, typer.Option("--sigma", help="σ of the noise on a released mean subgradient.")] = 0.0,
    lipschitz: Lipschitz = 1.0,
    delta: Delta = 1e-5,
    adversary: Watcher = "transcript",
    verify: Annotated[
        Path | None,
        typer.Option(
            "--verify",
            help="Check a saved run against its spec and public numbers, or a bare statement's arithmetic.",
        ),
    ] = None,
    theorem1: Annotated[
        bool, typer.Option("--theorem1", help="What the paper's noise claims, and what it gives.")
    ] = False,
    nodes: Annotated[int, typer.Option("--nodes", help="With --theorem1: how many nodes.")] = 20,
    epsilon_claimed: Annotated[float, typer.Option("--epsilon-claimed", help="With --theorem1.")] = 1.0,
    epochs: Annotated[float, typer.Option("--epochs", help="With --theorem1, in place of --rounds.")] = 3.0,
    activation: Annotated[str, typer.Option("--activation", help="With --theorem1.")] = "edges(1)",
    delta0: Annotated[float, typer.Option("--delta0", help="With --theorem1.")] = 0.01,
    json: Json = False,
) -> None:
    """Tell the true (ε, δ) of a node's whole participation."""
    if verify is not None:
        _verify(verify, json)
        return
    if theorem1:
        compare_theorem1(
            nodes,
            _records(records),
            epsilon_claimed,
            epochs,
            rounds,
            activation,
            delta0,
            lipschitz,
            delta,
            adversary,
            json,
        )
        return
    watcher = ADVERSARIES.read(adversary)
    rows = []
    for q in _records(records):
        picks = _checked(sampling, q, batch, lipschitz, rounds)
        if not sigma > 0:
            raise PrivacyError(f"σ must be over 0, not {sigma}: without noise there is no guarantee")
        found = planning.account(
            picks, q, rounds, sigma, clip=lipschitz, delta=delta, activity=activity, adversary=watcher
        )
        rows.append(
            {
                "records": q,
                "epsilon": found.epsilon,
                "epsilon_lower": found.epsilon_lower,
                "epsilon_rdp": found.epsilon_rdp,
            }
        )
    worst = max(rows, key=lambda row: row["epsilon"])
    report = {k: v for k, v in worst.items() if k != "records"} | _frame(watcher, delta) | {"nodes": rows}
    if json:
        screen.say_json(report)
        return
    table = Table(title="ε of each node's records", title_justify="left")
    for column in ("records", "ε", "at least (worst data)", "Rényi cross-check"):
        table.add_column(column, justify="right")
    for row in rows:
        values = (number(row[k]) for k in ("epsilon", "epsilon_lower", "epsilon_rdp"))
        table.add_row(f"{row['records']:,}", *values)
    screen.out.print(table)
    screen.out.print(_fine_print(watcher, delta), soft_wrap=True)


def calibrate(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The target ε.")],
    rounds: Rounds,
    records: Records,
    activity: Activity = 1.0,
    batch: Batch = 1,
    sampling: Sampling = "fixed",
    lipschitz: Lipschitz = 1.0,
    delta: Delta = 1e-5,
    adversary: Watcher = "transcript",
    json: Json = False,
) -> None:
    """Tell the least noise σ that gives a true (ε, δ)."""
    watcher = ADVERSARIES.read(adversary)
    rows = []
    for q in _records(records):
        picks = _checked(sampling, q, batch, lipschitz, rounds)
        needed = planning.calibrate(
            picks, q, rounds, epsilon, clip=lipschitz, delta=delta, activity=activity, adversary=watcher
        )
        rows.append({"records": q, "sigma": needed})
    report: dict[str, Any] = {"sigma": rows[0]["sigma"] if len(rows) == 1 else [r["sigma"] for r in rows]}
    report |= {"epsilon": epsilon} | _frame(watcher, delta) | {"nodes": rows}
    if json:
        screen.say_json(report)
        return
    table = Table(title=f"σ for ε = {epsilon:g}", title_justify="left")
    table.add_column("records", justify="right")
    table.add_column("σ", justify="right")
    for row in rows:
        table.add_row(f"{row['records']:,}", f"{row['sigma']:.5g}")
    screen.out.print(table)
    screen.out.print(_fine_print(watcher, delta), soft_wrap=True)


def _checked(sampling: str, q: int, batch: int, lipschitz: float, rounds: int) -> Picks:
    """How records are picked; numbers that do not go together are told by the names of their options."""
    if sampling not in SAMPLINGS:
        raise SpecError(f"there is no sampling '{sampling}'; choose one of fixed, poisson, full")
    if rounds < 1:
        raise SpecError(f"give the number of rounds with --rounds, at least 1, not {rounds}")
    if q < 1 or not 1 <= batch <= q:
        raise SpecError(f"a batch of {batch} does not fit a node with {q} records")
    if not lipschitz > 0:
        raise SpecError(f"the bound on a subgradient must be over 0, not {lipschitz}")
    return Full() if sampling == "full" else SAMPLINGS["fixed" if sampling == "one" else sampling](batch)


def _records(records: list[int]) -> list[int]:
    if not records:
        raise SpecError("give the number of records of a node with --records")
    return records


def _frame(watcher: Adversary, delta: float) -> dict[str, Any]:
    return {
        "delta": delta,
        "adversary": watcher.name,
        "adversary_sees": watcher.sees,
        "what_if": watcher.refusal,
        "adjacency": ADJACENCY,
        "caveat": EXACT,
    }


def _fine_print(watcher: Adversary, delta: float) -> str:
    what_if = f" [bold]A what-if only:[/] {watcher.refusal}." if watcher.refusal else ""
    return (
        f"δ = {delta:g}; adversary '{watcher}' sees {watcher.sees}; neighbouring data: {ADJACENCY}; {EXACT}.{what_if}"
    )


WHOLE = (
    "against the run's spec and public numbers; on trust: that the run was made so, with these sizes and secret noise "
    "where it says so, and what a unit is"
)
ARITHMETIC = (
    "only the statement's own arithmetic; on trust: the noise and all other numbers it starts from, whether it was a "
    "simulation, and what was claimed. Verify the folder of the run to have these checked"
)


def _verify(path: Path, json: bool) -> None:
    """A saved folder, or what `--json` printed, against its spec and public numbers; a bare statement by itself."""
    if path.is_dir():
        result = Result.load(path)
        result.verify()
        statement, checked = result.statement, WHOLE
    else:
        statement, checked = _verify_file(path)
    if json:
        screen.say_json({"verified": True, "checked": checked} | statement.to_dict())
    else:
        screen.out.print(f"[green]verified:[/] {statement.verdict()} (Checked: {checked}.)", soft_wrap=True)


def _verify_file(path: Path) -> tuple[PrivacyStatement, str]:
    try:
        text = path.read_text()
        data = json_.loads(text)
    except (OSError, UnicodeDecodeError, RecursionError):
        raise PrivacyError(f"'{path}' cannot be read; give a statement's JSON file or a saved result") from None
    except json_.JSONDecodeError:
        data = None
    if isinstance(data, dict) and {"privacy", "spec", "public"} <= set(data):
        statement = PrivacyStatement.from_dict(data["privacy"])
        verify_run(Spec.from_dict(data["spec"]), data["public"], statement, data.get("environment", {}))
        return statement, WHOLE
    bare = data["privacy"] if isinstance(data, dict) and "privacy" in data else None
    statement = PrivacyStatement.from_json(text) if bare is None else PrivacyStatement.from_dict(bare)
    statement.verify()
    return statement, ARITHMETIC


def compare_theorem1(
    nodes: int,
    records: list[int],
    epsilon: float,
    epochs: float,
    rounds: int,
    activation: str,
    delta0: float,
    lipschitz: float,
    delta: float,
    adversary: str,
    json: bool,
) -> None:
    """Judge Theorem 1 for nodes of these sizes; the worst of them is shown."""
    within.check_count("the number of nodes", nodes, within.NODES)
    if len(records) not in (1, nodes):
        raise SpecError(f"give --records once, or once for each of the {nodes} nodes, not {len(records)} times")
    if rounds < 0 or not (rounds or epochs > 0):
        raise SpecError(f"epochs or rounds must be over 0, not {epochs} and {rounds}")
    for q in records:
        within.check_count("the number of records", q, within.RECORDS)
    within.check_count("the number of rounds", rounds, within.ROUNDS, 0)
    within.check_length("the bound on a subgradient", lipschitz)
    sizes = np.array(records * nodes if len(records) == 1 else records)
    spec = paper_l2(1).but(network__activation=activation)
    T = rounds or rounds_for_epochs(spec, sizes, epochs)
    iota = activation_of(spec, len(sizes))
    watcher = ADVERSARIES.read(adversary)
    found = [
        compare(Theorem1(epsilon, delta0, iota, lipschitz, int(q), T), watcher, delta)
        for q in sorted(set(sizes.tolist()))
    ]
    worst = max(found, key=lambda c: c.epsilon)
    if json:
        screen.say_json(worst.to_dict() | {"nodes": [c.to_dict() for c in found]})
        return
    show(worst)


def show(found: Comparison) -> None:
    """The comparison as a table."""
    claim = found.claim
    table = Table(title="Theorem 1: what is claimed, what its proof gives, what is true", title_justify="left")
    for column in ("", "ε", "δ"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("claimed", f"{claim.epsilon:g}", "“some constant in (0, 1]”")
    for name, (epsilon, delta) in (
        ("the paper's proof, as printed", claim.proof_as_printed()),
        ("the same without its slips", claim.proof_corrected(32)),
        ("… with 160 for 32 in σ²", claim.proof_corrected(160)),
    ):
        table.add_row(name, f"{epsilon:.3g}", f"{delta:.3g}")
    table.add_row("[bold]true, at most[/]", f"[bold]{number(found.epsilon)}[/]", f"{found.delta:g}")
    table.add_row("true, at least (worst data)", number(found.epsilon_lower), f"{found.delta:g}")
    table.add_row("true δ at the claimed ε", f"{claim.epsilon:g}", f"{found.delta_at_claim:.3g}")
    screen.out.print(table)
    state = "holds" if claim.rounds_condition() else "[red]fails[/]"
    factor = claim.rounds_needed / claim.rounds
    screen.out.print(
        f"σ = {claim.sigma:.4g} for L = {claim.lipschitz:g}, q = {claim.records:,}, ι = {claim.iota:.4g}, "
        f"T = {claim.rounds:,}. The theorem's condition on T {state}: it asks for {claim.rounds_needed:.3g} rounds, "
        f"{_times(factor)} as many.\nAdversary '{found.adversary}' sees {found.adversary.sees}; neighbouring "
        f"data: {ADJACENCY}.",
        soft_wrap=True,
    )
    if found.adversary.refusal:
        screen.out.print(f"[bold]A what-if only:[/] {found.adversary.refusal}.", soft_wrap=True)
    verdict = "[green]The claim holds at this δ.[/]" if found.holds else "[bold red]Not private as claimed.[/]"
    screen.out.print(verdict)


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 or math.isclose(factor, round(factor)) else f"{factor:.2g} times"
