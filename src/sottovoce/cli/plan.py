"""`sottovoce plan`: what a plan, or a grid of plans, costs and buys, from public numbers alone."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track
from rich.table import Table

from sottovoce.cli import screen
from sottovoce.errors import SpecError
from sottovoce.planning import Price, grid, price
from sottovoce.presets import PRESETS, make_preset
from sottovoce.privacy.adversaries import make_adversary, refuse_unless_runnable
from sottovoce.privacy.event import ADJACENCY

SAMPLINGS = ["one", "fixed(8)", "fixed(64)", "poisson(1)", "poisson(8)", "poisson(64)", "poisson(512)", "full"]
ACTIVATIONS = ["edges(1)", "everyone"]


def plan(
    nodes: Annotated[int, typer.Option("--nodes", help="How many nodes.")],
    records: Annotated[list[int], typer.Option("--records", help="Records of a node; one for all, or one for each.")],
    features: Annotated[int, typer.Option("--features", help="m, the model's dimension.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="The target ε.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", help="δ.")] = 1e-5,
    sampling: Annotated[list[str] | None, typer.Option("--sampling", help="one, fixed:8, poisson:8, full.")] = None,
    activation: Annotated[list[str] | None, typer.Option("--activation", help="edges:1, everyone, …")] = None,
    epochs: Annotated[list[float] | None, typer.Option("--epochs", help="Passes over the data (10).")] = None,
    graph: Annotated[str, typer.Option("--graph", help="The graph.")] = "complete",
    correct: Annotated[bool, typer.Option("--correct", help="Weigh unevenly active nodes.")] = False,
    preset: Annotated[str, typer.Option("--preset", help=f"Step sizes of {', '.join(PRESETS)}.")] = "private",
    h: Annotated[str | None, typer.Option("--h", help="Regulariser.")] = None,
    gamma: Annotated[str | None, typer.Option("--gamma", help="γ_t.")] = None,
    lipschitz: Annotated[float, typer.Option("--lipschitz", help="L.")] = 1.0,
    adversary: Annotated[str, typer.Option("--adversary", help="Who is watching.")] = "transcript",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the trade-off into this file (PNG, SVG, PDF).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Price plans for a target (ε, δ): noise, error, bytes. Looks at no data."""
    watcher = make_adversary(adversary)
    refuse_unless_runnable(watcher)
    if nodes > 0 and len(records) not in (1, nodes):
        raise SpecError(f"give --records once, or once for each of the {nodes} nodes, not {len(records)} times")
    for what, value in (
        ("nodes", nodes),
        ("features", features),
        ("lipschitz", lipschitz),
        *(("records", q) for q in records),
    ):
        if not value > 0:
            raise SpecError(f"--{what} must be over 0, not {value}")
    if any(not passes > 0 for passes in epochs or []):
        raise SpecError(f"--epochs must be over 0, not {min(epochs or [])}")
    sizes = np.array(records * nodes if len(records) == 1 else records)
    base = make_preset(preset, 1).but(network__graph=graph, network__correct=correct)
    base = base.but(**{k: v for k, v in (("problem__h", h), ("algorithm__gamma", gamma)) if v is not None})
    specs = list(grid(base, sizes, sampling or SAMPLINGS, activation or ACTIVATIONS, epochs or [10.0]))
    if not specs:
        raise SpecError(f"no plan fits: the smallest node has {sizes.min()} records; ask for smaller batches")
    todo = specs if json or not screen.err.is_terminal else track(specs, "pricing", console=screen.err, transient=True)
    prices = sorted(
        (price(s, sizes, features, lipschitz, epsilon, delta) for s in todo), key=lambda p: p.noise_in_model
    )
    if plot is not None:
        draw(prices, plot)
    if json:
        frame = {"epsilon": epsilon, "delta": delta, "adversary": watcher.name, "adjacency": ADJACENCY}
        screen.say_json(frame | {"plans": [asdict(p) for p in prices]})
        return
    table = Table(
        title=f"plans for ε = {epsilon:g}, δ = {delta:g}, by the noise in the model", title_justify="left", box=None
    )
    for column in ("sampling", "active", "rounds", "epochs", "σ", "‖noise‖", "Thm 2", "sent"):
        table.add_column(column, justify="right", overflow="fold")
    for p in prices:
        table.add_row(
            p.sampling, p.activation, f"{p.rounds:,}", f"{p.epochs:.3g}", f"{p.sigma:.2g}", f"{p.noise_in_model:.2g}",
            f"{p.bound:.2g}", screen.bytes_text(p.bytes),
        )  # fmt: skip
    screen.out.print(table)
    screen.out.print(
        f"adversary '{watcher.name}' sees {watcher.sees}; neighbouring data: {ADJACENCY}. ‖noise‖ is what the noise "
        "adds to the averaged model; Thm 2 bounds the error in its sharper form, 100 to 1000 times too high; few "
        "rounds also optimise less, which the noise does not show.",
        soft_wrap=True,
    )
    if plot is not None:
        screen.out.print(f"drawn into {plot}")


def draw(prices: list[Price], path: Path) -> None:
    """Noise in the model against bytes sent, one point a plan."""
    from matplotlib.figure import Figure  # heavy, and only needed here

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    for marker, name in zip("osD^v", sorted({p.activation for p in prices}), strict=False):
        mine = [p for p in prices if p.activation == name]
        axis.plot([p.bytes for p in mine], [p.noise_in_model for p in mine], marker, label=name)
        for p in mine:
            axis.annotate(
                p.sampling, (p.bytes, p.noise_in_model), xytext=(5, 3), textcoords="offset points", fontsize=8
            )
    axis.set(xscale="log", yscale="log", xlabel="bytes sent, all nodes", ylabel="‖noise in the averaged model‖")
    axis.legend(title="who speaks in a round", frameon=False)
    axis.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise SpecError(f"the plot cannot be written to '{path}': {error}") from None
