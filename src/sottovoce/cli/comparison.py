"""`sottovoce account --theorem1`: the paper's claim, its proof, and the truth, on one screen."""

import math

import numpy as np
from rich.table import Table

from sottovoce.build import activation_of, rounds_for_epochs
from sottovoce.cli import screen
from sottovoce.errors import SpecError
from sottovoce.presets import paper_l2
from sottovoce.privacy.adversaries import make_adversary
from sottovoce.privacy.comparison import Comparison, compare
from sottovoce.privacy.event import ADJACENCY
from sottovoce.privacy.statement import number
from sottovoce.privacy.theorem1 import Theorem1


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
    if len(records) not in (1, nodes):
        raise SpecError(f"give --records once, or once for each of the {nodes} nodes, not {len(records)} times")
    if nodes < 1 or rounds < 0 or not (rounds or epochs > 0):
        raise SpecError(f"nodes, and epochs or rounds, must be over 0, not {nodes}, {epochs} and {rounds}")
    sizes = np.array(records * nodes if len(records) == 1 else records)
    spec = paper_l2(1).but(network__activation=activation)
    T = rounds or rounds_for_epochs(spec, sizes, epochs)
    iota = activation_of(spec, len(sizes))
    watcher = make_adversary(adversary)
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
        f"{_times(factor)} as many.\nAdversary '{found.adversary.name}' sees {found.adversary.sees}; neighbouring "
        f"data: {ADJACENCY}.",
        soft_wrap=True,
    )
    if found.adversary.refusal:
        screen.out.print(f"[bold]A what-if only:[/] {found.adversary.refusal}.", soft_wrap=True)
    verdict = "[green]The claim holds at this δ.[/]" if found.holds else "[bold red]Not private as claimed.[/]"
    screen.out.print(verdict)


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 10 or math.isclose(factor, round(factor)) else f"{factor:.2g} times"
