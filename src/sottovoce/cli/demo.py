"""`sottovoce demo`: twenty nodes, no download, under a minute."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.build import make_problem, rounds_for_epochs
from sottovoce.cli import screen
from sottovoce.cli.ingest import ingest
from sottovoce.data.embedded import EMBEDDED, embedded
from sottovoce.presets import paper_l2
from sottovoce.problem.losses import LOSSES
from sottovoce.problem.optimum import optimum
from sottovoce.result import Result
from sottovoce.solve import solve

EPOCHS = 3.0


def demo(
    data: Annotated[str, typer.Option(help=f"Which embedded data set: {', '.join(EMBEDDED)}.")] = "synthetic",
    nodes: Annotated[int, typer.Option(help="How many nodes share it.")] = 20,
    epsilon: Annotated[float, typer.Option(help="The ε that the paper's Theorem 1 claims.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Save the two results here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Watch nodes train an SVM by gossip: first without noise, then with the paper's noise."""
    table = embedded(data)
    loss = LOSSES["hinge"] if data != "diabetes" else LOSSES["absolute"]
    dealt = ingest(table, loss, nodes=nodes, seed=seed)
    spec = paper_l2(1).but(problem__loss=loss.name, problem__h="l2(0.01)", seed=seed)
    spec = spec.but(algorithm__rounds=rounds_for_epochs(spec, dealt.shards.sizes, EPOCHS))
    console = screen.err if json else screen.out
    console.print(
        f"[bold]{nodes} nodes[/] hold {table.n_records:,} records of '{table.name}' and share none of them. In each of "
        f"{spec.algorithm.rounds:,} rounds one random pair wakes up, each looks at [bold]one[/] of its own records, "
        "and they average a noisy message."
    )
    best = optimum(make_problem(spec.problem, dealt.shards), gap=1e-6)
    results: dict[str, Result] = {}
    for title, noise in (("no noise", "none"), (f"paper's noise, ε = {epsilon:g}", f"theorem1({epsilon!r}, 0.01)")):
        with screen.bar(title, quiet=json) as progress:
            results[title] = solve(
                spec.but(privacy__noise=noise), dealt.shards, f_star=best.value, progress=progress, **dealt.names
            )
    if out is not None:
        for name, result in zip(("no-noise", "paper-noise"), results.values(), strict=True):
            result.save(out / name)
    if json:
        screen.say_json({title: screen.summary(result, None) for title, result in results.items()})
        return
    for title, result in results.items():
        console.print()
        screen.show(result, title)
    console.print(
        "\nThe paper's noise is reproduced here to be judged, [bold]not[/] to be relied on: see docs/privacy in the "
        "README. Train on your own file with [cyan]sottovoce train FILE --nodes 20[/]."
    )
