"""`sottovoce plan`: the planner's choice for public numbers, why it is that, and what else there was."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from sottovoce import limits
from sottovoce.cli import screen
from sottovoce.errors import SpecError
from sottovoce.figure import check_matplotlib
from sottovoce.network.activation import cadence_for
from sottovoce.planner import Choice, PublicInputs, choose
from sottovoce.planner.cost import PlanCost, plan_cost
from sottovoce.planner.network import BANDWIDTH, HOUR, RTT, NetworkModel, ways
from sottovoce.planner.trust import Offer, offers, read_trust
from sottovoce.privacy.events import ADJACENCY
from sottovoce.privacy.release import Adversary


def plan(
    nodes: Annotated[int | None, typer.Option("--nodes", help="How many nodes.")] = None,
    records: Annotated[
        list[int] | None, typer.Option("--records", help="Records of a node; one for all, or one for each.")
    ] = None,
    features: Annotated[
        int | None, typer.Option("--features", help="Columns of a record, the intercept's included.")
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The target ε.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", help="δ.")] = 1e-5,
    loss: Annotated[str | None, typer.Option("--loss", help="Fix it: hinge, logistic, softmax, huber:1.35, …")] = None,
    outputs: Annotated[int, typer.Option("--outputs", help="Classes, where there are more than two.")] = 1,
    graph: Annotated[str, typer.Option("--graph", help="The graph.")] = "complete",
    row_norm: Annotated[float, typer.Option("--row-norm", help="Public bound on a record's norm.")] = 1.0,
    intercept: Annotated[float, typer.Option("--intercept", help="Value of the intercept's column; 0: none.")] = 0.0,
    penalty: Annotated[str | None, typer.Option("--penalty", help="Fix it: l2, l1, elastic_net or none.")] = None,
    max_rounds: Annotated[int | None, typer.Option("--max-rounds", help="At most so many rounds (1000).")] = None,
    max_bytes: Annotated[float | None, typer.Option("--max-bytes", help="At most so many bytes, all nodes.")] = None,
    max_seconds: Annotated[float, typer.Option("--max-seconds", help="At most so many seconds on the network.")] = HOUR,
    rtt: Annotated[float, typer.Option("--rtt", help="Seconds of a round trip between two nodes.")] = RTT,
    bandwidth: Annotated[float, typer.Option("--bandwidth", help="Bytes a second of each node.")] = BANDWIDTH,
    relay: Annotated[float | None, typer.Option("--relay", help="Exchanges a second of a relaying server.")] = None,
    sampling: Annotated[str | None, typer.Option("--sampling", help="Fix it: one, fixed:8, poisson:8, full.")] = None,
    activation: Annotated[str | None, typer.Option("--activation", help="Fix it: edges:1, everyone, …")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Fix T.")] = None,
    h: Annotated[str | None, typer.Option("--regularizer", help="Fix the regularizer: l2:1e-3, …")] = None,
    gamma: Annotated[str | None, typer.Option("--gamma", help="Fix γ_t: constant:3, sqrt:0.01.")] = None,
    clip: Annotated[float | None, typer.Option("--clip", help="Fix L.")] = None,
    node_weights: Annotated[
        str | None, typer.Option("--node-weights", help="Fix the weights: nodes, records, records:κ.")
    ] = None,
    debias: Annotated[
        bool, typer.Option("--debias", help="Correct for nodes that are active unequally often.")
    ] = False,
    trust: Annotated[str, typer.Option("--trust", help="nobody, majority, center, or how many collude.")] = "nobody",
    adversary: Annotated[str | None, typer.Option("--adversary", help="The adversary, in place of --trust.")] = None,
    private_scaling: Annotated[
        bool,
        typer.Option("--private-scaling/--no-private-scaling", help="Whether to release the scale of the data first."),
    ] = True,
    sparse: Annotated[bool, typer.Option("--sparse", help="Records are stored sparse, and stay so.")] = False,
    dropout_rate: Annotated[
        float, typer.Option("--dropout-rate", help="Expected share of releases that get lost; a public guess.")
    ] = 0.0,
    seconds: Annotated[list[float] | None, typer.Option(help="How long a round takes each node.")] = None,
    may_lose: Annotated[int, typer.Option("--may-lose", help="How many nodes may be lost; the others go on.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw accuracy against bytes into this file (PNG, SVG, PDF).")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open a page to play with, on this machine alone.")] = False,
    port: Annotated[int, typer.Option("--port", help="Where the page is served; 0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser at the page.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose a plan for a target (ε, δ) from public numbers, and explain it. Reads no data."""
    if show:
        _open(port, browser)
        return
    if nodes is None or not records or features is None:
        raise SpecError("a plan needs --nodes, --records and --features; or play with them on a page: plan --open")
    screen.writable_file(plot, "--plot")
    inputs = PublicInputs(
        _sizes(nodes, records), features, epsilon, delta, loss or ("hinge" if outputs == 1 else "softmax"), outputs,
        _adversary(nodes, trust, adversary), graph, row_norm, intercept, penalty or "l2", max_rounds, max_bytes,
        private_scaling=private_scaling, dropout_rate=dropout_rate, may_lose=may_lose, sparse=sparse,
        free=tuple(name for name, fixed in (("loss", loss), ("penalty", penalty)) if fixed is None),
        network=NetworkModel(rtt, bandwidth, relay), max_seconds=max_seconds,
    )  # fmt: skip
    fixed = {
        "sampling": sampling, "activation": _activation(activation, seconds, nodes), "rounds": rounds, "h": h,
        "gamma": gamma, "clip": clip, "weights": node_weights, "correct": debias or None,
    }  # fmt: skip
    choice, others = choose(inputs, **fixed), offers(inputs, **fixed)
    exact = plan_cost(choice.spec, np.array(inputs.sizes), inputs.m, epsilon)
    if plot is not None:
        draw(choice.alternatives, plot)
    _report(inputs, choice, others, exact, json)
    if plot is not None and not json:
        screen.out.print(f"drawn into {plot}")


def _report(inputs: PublicInputs, choice: Choice, others: list[Offer], exact: PlanCost, json: bool) -> None:
    """As one JSON object, or for reading."""
    epsilon, delta = inputs.epsilon, inputs.delta
    if json:
        frame = {"epsilon": epsilon, "delta": delta, "adversary": str(inputs.adversary), "adjacency": ADJACENCY}
        frame["trust"] = [offer._asdict() for offer in others]
        found = {"spec": choice.spec.to_dict(), "price": asdict(exact), "predicted_loss": choice.predicted}
        found |= {"ways": ways(choice.spec, inputs.n, inputs.m, inputs.network)}
        screen.say_json(frame | found | {"reasons": choice.reasons, "plans": choice.alternatives})
        return
    _show(inputs, choice, others, exact)


def _sizes(nodes: int, records: list[int]) -> tuple[int, ...]:
    """Records of every node."""
    limits.check_count("the number of nodes", nodes, limits.NODES)
    if len(records) not in (1, nodes):
        raise SpecError(f"give --records once, or once for each of the {nodes} nodes, not {len(records)} times")
    return tuple(records * nodes if len(records) == 1 else records)


def _activation(activation: str | None, seconds: list[float] | None, nodes: int) -> str | None:
    """Who speaks when: as given, or so that nobody waits for slow nodes."""
    if not seconds:
        return activation
    if activation is not None or len(seconds) != nodes:
        raise SpecError(f"give --seconds once for each of the {nodes} nodes, and no --activation beside it")
    return str(cadence_for(seconds))


def _adversary(nodes: int, trust: str, adversary: str | None) -> Adversary | str:
    """Who sees what, by either option."""
    if adversary is None:
        return read_trust(trust).adversary(nodes)
    if trust != "nobody":
        raise SpecError("--trust and --adversary say the same thing in two ways; give one of them")
    return adversary


def _show(inputs: PublicInputs, choice: Choice, others: list[Offer], exact: PlanCost) -> None:
    """The plan, what else there was, and why."""
    screen.out.print(_table(choice.alternatives, inputs.epsilon, inputs.delta))
    if inputs.n > 1:
        screen.out.print(_ways(inputs, choice))
    screen.out.print(_trust(others))
    for reason in choice.reasons:
        screen.out.print(f"· {reason}", soft_wrap=True, highlight=False)
    screen.out.print(
        f"The worst node adds σ = {exact.sigma:.3g} to each coordinate of each release, accounted exactly. "
        f"Adversary '{inputs.adversary}' sees {inputs.adversary.sees}; neighboring data: {ADJACENCY}.",
        soft_wrap=True,
    )
    if exact.moments_sigma:
        screen.out.print(
            f"Before the first round it releases {exact.moments} of its records for private scaling, with σ = "
            f"{exact.moments_sigma:.3g} in each number: {100 * choice.spec.privacy.shares:.3g} % of the budget, "
            "counted in the σ above.",
            soft_wrap=True,
            highlight=False,
        )


def _open(port: int, browser: bool) -> None:
    """Serve the planner's page until Ctrl-C."""
    from sottovoce.pages.planner import page  # only needed here
    from sottovoce.pages.server import serve

    def ready(address: str) -> None:
        screen.out.print(f"the planner is at {address} until Ctrl-C", soft_wrap=True, highlight=False)

    serve(page(), port, show=browser, ready=ready)


def _table(plans: list[dict[str, Any]], epsilon: float, delta: float) -> Table:
    table = Table(
        title=f"the chosen plan for ε = {epsilon:g}, δ = {delta:g}, and others", title_justify="left", box=None
    )
    for column in ("", "sampling", "active", "averaging", "rounds", "noise", "points lost", "sent", "takes"):
        table.add_column(column, justify="right", overflow="fold")
    for place, p in enumerate(plans):
        table.add_row(
            "" if place else "→", p["sampling"], p["activation"], p.get("averaging", "gossip"), f"{p['rounds']:,}",
            f"{p['noise']:.2g}", f"{100 * p['loss']:.1f}", screen.bytes_text(p["bytes"]), f"{p['seconds']:,.0f} s",
        )  # fmt: skip
    return table


def _ways(inputs: PublicInputs, choice: Choice) -> Table:
    """How long the rounds of the plan take on the network in each way that nodes may speak."""
    rounds = choice.spec.algorithm.rounds
    title = f"ways to speak, and what {rounds:,} rounds of each take on a network of {inputs.network}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("active")
    for column in ("averaging", "sent", "takes"):
        table.add_column(column, justify="right")
    for row in ways(choice.spec, inputs.n, inputs.m, inputs.network):
        table.add_row(row["activation"], row["averaging"], screen.bytes_text(row["bytes"]), f"{row['seconds']:,.0f} s")
    return table


def _trust(offers: list[Offer]) -> Table:
    """What each choice of whom to trust would give."""
    table = Table(title="whom to trust (--trust), and what it would give", title_justify="left", box=None)
    table.add_column("trust")
    table.add_column("who may do what", overflow="fold")
    table.add_column("noise", justify="right")
    table.add_column("points lost", justify="right")
    for offer in offers:
        table.add_row(
            offer.trust.replace("centre", "center"), offer.words, f"{offer.noise:.2g}", f"{100 * offer.loss:.1f}"
        )
    return table


def draw(plans: list[dict[str, Any]], path: Path) -> None:
    """Predicted loss of accuracy against bytes sent, one point a plan."""
    check_matplotlib()
    from matplotlib.figure import Figure  # heavy, and only needed here

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    for marker, name in zip("osD^v", sorted({p["activation"] for p in plans}), strict=False):
        mine = [p for p in plans if p["activation"] == name]
        axis.plot([p["bytes"] for p in mine], [100 * p["loss"] for p in mine], marker, label=name)
        for p in mine:
            place = (max(p["bytes"], 1.0), 100 * p["loss"])
            axis.annotate(f"{p['rounds']:,}", place, xytext=(5, 3), textcoords="offset points", fontsize=8)
    axis.set(xscale="symlog", xlabel="bytes sent, all nodes", ylabel="predicted loss of accuracy, points")
    axis.legend(title="who speaks; number: rounds", frameon=False)
    axis.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise SpecError(f"the plot cannot be written to '{path}': {error}") from None
