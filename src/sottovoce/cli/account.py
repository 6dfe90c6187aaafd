"""`sottovoce account` and `sottovoce calibrate`: ε for a noise, and the noise for an ε.

`account --verify` computes the guarantee of a saved run again; `account --theorem1` puts the paper's claim, its proof
and the truth on one screen.
"""

import json as json_
import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

from sottovoce import limits
from sottovoce.cli import screen
from sottovoce.errors import PrivacyError, SpecError
from sottovoce.privacy import planning
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import ADVERSARIES, Adversary
from sottovoce.privacy.sampling import SAMPLINGS, Fixed, Full
from sottovoce.privacy.sampling import Sampling as Picks
from sottovoce.privacy.statement import PrivacyStatement, number
from sottovoce.privacy.theorem1 import Comparison, Theorem1, compare
from sottovoce.run.plan import activation_of, rounds_for_epochs
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
Watcher = Annotated[str, typer.Option("--adversary", help=f"The adversary: {', '.join(ADVERSARIES)}.")]
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
    iota: Annotated[
        float | None, typer.Option("--iota", help="With --theorem1: ι itself, in place of --activation.")
    ] = None,
    delta0: Annotated[float, typer.Option("--delta0", help="With --theorem1.")] = 0.01,
    json: Json = False,
) -> None:
    """Show the true (ε, δ) of a node's whole participation."""
    if verify is not None:
        _verify(verify, json)
        return
    if theorem1:
        paper = Paper(nodes, _records(records), epsilon_claimed, epochs, rounds, activation, iota, delta0, lipschitz)
        compare_theorem1(paper, delta, adversary, json)
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
    """Show the least noise σ that gives a true (ε, δ)."""
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
    """Return how records are sampled; errors about numbers that contradict each other name the options."""
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
    return f"δ = {delta:g}; adversary '{watcher}' sees {watcher.sees}; neighboring data: {ADJACENCY}; {EXACT}.{what_if}"


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


class Paper(NamedTuple):
    """A setting of the paper: n, q (of all nodes or of each), ε, T by passes or itself, ι by a scheme or itself."""

    nodes: int
    records: list[int]
    epsilon: float
    epochs: float
    rounds: int
    activation: str
    iota: float | None
    delta0: float
    lipschitz: float

    def claims(self) -> list[Theorem1]:
        """What Theorem 1 says for nodes of each size."""
        limits.check_count("the number of nodes", self.nodes, limits.NODES)
        if len(self.records) not in (1, self.nodes):
            raise SpecError(
                f"give --records once, or once for each of the {self.nodes} nodes, not {len(self.records)} times"
            )
        if self.rounds < 0 or not (self.rounds or self.epochs > 0):
            raise SpecError(f"epochs or rounds must be over 0, not {self.epochs} and {self.rounds}")
        for q in self.records:
            limits.check_count("the number of records", q, limits.RECORDS)
        limits.check_count("the number of rounds", self.rounds, limits.ROUNDS, 0)
        limits.check_length("the bound on a subgradient", self.lipschitz)
        sizes = np.array(self.records * self.nodes if len(self.records) == 1 else self.records)
        spec = paper_l2(1).replace(network__activation=self.activation)
        iota = activation_of(spec, len(sizes)) if self.iota is None else self.iota
        if not 0 < iota <= 1:
            raise SpecError(f"ι is the probability that a node is active, over 0 and at most 1, not {iota}")
        if self.rounds:
            T = self.rounds
        elif self.iota is None:
            T = rounds_for_epochs(spec, sizes, self.epochs)
        else:
            needed = self.epochs * float(np.mean(sizes)) / iota * (1 - 1e-12)
            T = math.ceil(min(needed, 2.0 * limits.ROUNDS))
            limits.check_count("the number of rounds", T, limits.ROUNDS, 0)
        return [Theorem1(self.epsilon, self.delta0, iota, self.lipschitz, q, T) for q in sorted(set(sizes.tolist()))]


def compare_theorem1(paper: Paper, delta: float, adversary: str, json: bool) -> None:
    """Judge Theorem 1 for nodes of these sizes; the worst of them is shown."""
    watcher = ADVERSARIES.read(adversary)
    found = [compare(claim, watcher, delta) for claim in paper.claims()]
    worst = max(found, key=lambda c: c.epsilon)
    claim = worst.claim
    needed = planning.calibrate(
        Fixed(1), claim.records, claim.rounds, claim.epsilon,
        clip=claim.lipschitz, delta=delta, activity=claim.iota, adversary=watcher,
    )  # fmt: skip
    by_hand = claim.elementary_epsilon(paper.nodes, delta)
    if json:
        more = {"sigma_needed": needed, "epsilon_by_hand": by_hand, "nodes": [c.to_dict() for c in found]}
        screen.say_json(worst.to_dict() | more)
        return
    show(worst, needed, by_hand)


def show(found: Comparison, needed: float, by_hand: float) -> None:
    """The comparison as a table; `needed` is σ for the claim, `by_hand` the bound of docs/corrigendum.md."""
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
    if by_hand > 0:
        table.add_row("more than, by two lines of arithmetic", number(by_hand), f"{found.delta:g}")
    table.add_row("true δ at the claimed ε", f"{claim.epsilon:g}", f"{found.delta_at_claim:.3g}")
    screen.out.print(table)
    state = "holds" if claim.rounds_condition() else "[red]fails[/]"
    factor = claim.rounds_needed / claim.rounds
    screen.out.print(
        f"σ = {claim.sigma:.4g} for L = {claim.lipschitz:g}, q = {claim.records:,}, ι = {claim.iota:.4g}, "
        f"T = {claim.rounds:,}. The theorem's condition on T {state}: it requires {claim.rounds_needed:.3g} rounds, "
        f"{_times(factor)} as many.\n(ε = {claim.epsilon:g}, δ = {found.delta:g}) needs σ = {needed:.4g}, "
        f"{needed / claim.sigma:.3g} times the printed one.\nAdversary '{found.adversary}' sees "
        f"{found.adversary.sees}; neighboring data: {ADJACENCY}.",
        soft_wrap=True,
    )
    if found.adversary.refusal:
        screen.out.print(f"[bold]A what-if only:[/] {found.adversary.refusal}.", soft_wrap=True)
    verdict = "[green]The claim holds at this δ.[/]" if found.holds else "[bold red]Not private as claimed.[/]"
    screen.out.print(verdict)


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 or math.isclose(factor, round(factor)) else f"{factor:.2g} times"
