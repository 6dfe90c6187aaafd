"""`sottovoce train FILE`: read, deal out, run, show, save."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sottovoce._types import IntArray
from sottovoce.cli import screen
from sottovoce.cli.ingest import ingest
from sottovoce.cli.report import NAME, write_report
from sottovoce.data.load import load
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.notation import parse, write
from sottovoce.planner import Facts, choose
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import loss_from_text, make_problem, rounds_for_epochs
from sottovoce.run.presets import PRESETS, make_preset
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec

FIXED = {
    "h": "problem__h",
    "weights": "problem__weights",
    "on_violation": "problem__on_violation",
    "activation": "network__activation",
    "mixing": "network__weights",
    "correct": "network__correct",
    "a": "algorithm__a",
    "gamma": "algorithm__gamma",
    "primal": "algorithm__primal",
    "sampling": "privacy__sampling",
    "clip": "privacy__clip",
}
"""Settings of the planner, and the fields of a spec that they are."""
DATA, MODEL, NETWORK, STEPS, PRIVACY, RUN = "Data", "Model", "Network", "Algorithm", "Privacy", "Run"


def _option(name: str, text: str, panel: str) -> typer.models.OptionInfo:
    return typer.Option(name, help=text, rich_help_panel=panel)


def train(
    file: Annotated[Path, typer.Argument(help="Training records: svmlight, CSV or Parquet; also .gz, .bz2, .xz.")],
    test: Annotated[Path | None, _option("--test", "Held-out records, for the accuracy shown.", DATA)] = None,
    label: Annotated[str | None, _option("--label", "The target's column (CSV, Parquet).", DATA)] = None,
    positive: Annotated[str | None, _option("--positive", "The label to count as +1.", DATA)] = None,
    group: Annotated[str | None, _option("--group", "The owner's column: one node for each value.", DATA)] = None,
    nodes: Annotated[int | None, _option("--nodes", "Deal the records out to this many nodes (20).", DATA)] = None,
    deal: Annotated[str, _option("--deal", "How: even, in_order or dirichlet:0.3 (skewed labels).", DATA)] = "even",
    format: Annotated[str | None, _option("--format", "svmlight, csv or parquet, if the name lies.", DATA)] = None,
    features: Annotated[int | None, _option("--features", "Number of features (svmlight).", DATA)] = None,
    unit_rows: Annotated[bool, _option("--unit-rows", "Scale rows over the bound down to it.", DATA)] = False,
    preset: Annotated[
        str, _option("--preset", f"Start from auto (the planner), {', '.join(PRESETS)}; options change it.", MODEL)
    ] = "auto",
    loss: Annotated[str | None, _option("--loss", "hinge, logistic, huber:1.35, …", MODEL)] = None,
    h: Annotated[str | None, _option("--h", "Regulariser: l2:5e-4, l1:5e-4, elastic_net:…, box:-1,1, …", MODEL)] = None,
    intercept: Annotated[
        float | None, _option("--intercept", "Value of the intercept's column; 0: none.", MODEL)
    ] = None,
    row_norm: Annotated[float | None, _option("--row-norm", "Public bound on a record's norm (1).", MODEL)] = None,
    weigh: Annotated[str | None, _option("--weigh", "Count nodes or records the same.", MODEL)] = None,
    graph: Annotated[
        str | None, _option("--graph", "complete, ring, torus, erdos_renyi:p=0.3, edge_list:FILE, …", NETWORK)
    ] = None,
    activation: Annotated[
        str | None, _option("--activation", "Who speaks: edges:1, matching:2, nodes:4, everyone.", NETWORK)
    ] = None,
    mixing: Annotated[str | None, _option("--mixing", "metropolis, lazy, max_degree, uniform.", NETWORK)] = None,
    correct: Annotated[bool, _option("--correct", "Weigh unevenly active nodes.", NETWORK)] = False,
    rounds: Annotated[int | None, _option("--rounds", "T; or give --epochs.", STEPS)] = None,
    epochs: Annotated[float | None, _option("--epochs", "Passes over the data.", STEPS)] = None,
    a: Annotated[str | None, _option("--a", "a_t: linear:1 or constant:1.", STEPS)] = None,
    gamma: Annotated[str | None, _option("--gamma", "γ_t: constant:20 or sqrt:0.01.", STEPS)] = None,
    primal: Annotated[str | None, _option("--primal", "recompute or as_written (line 8).", STEPS)] = None,
    sampling: Annotated[str | None, _option("--sampling", "one, fixed:8, poisson:8 or full.", PRIVACY)] = None,
    epsilon: Annotated[
        float | None, _option("--epsilon", "ε of the guarantee (1); the noise follows from it.", PRIVACY)
    ] = None,
    delta: Annotated[float | None, _option("--delta", "δ of the guarantee (1e-5).", PRIVACY)] = None,
    noise: Annotated[
        str | None, _option("--noise", "In place of --epsilon: gaussian:σ, theorem1:ε,δ₀ or none.", PRIVACY)
    ] = None,
    clip: Annotated[float | None, _option("--clip", "L, the bound on a record's subgradient.", PRIVACY)] = None,
    on_violation: Annotated[
        str | None, _option("--on-violation", "A row over the bound: raise or clip.", PRIVACY)
    ] = None,
    adversary: Annotated[
        str | None, _option("--adversary", "Who is watching; a run faces transcript, all messages.", PRIVACY)
    ] = None,
    seed: Annotated[int | None, _option("--seed", "Makes the run a reproducible simulation.", RUN)] = None,
    engine: Annotated[str, _option("--engine", f"auto, {', '.join(ENGINES)}.", RUN)] = "auto",
    certify: Annotated[bool, _option("--certify", "Compute F* first, for the suboptimality.", RUN)] = False,
    observations: Annotated[int, _option("--observations", "How often to look.", RUN)] = 40,
    out: Annotated[Path | None, _option("--out", "Save the result here; with --seed, also checkpoints.", RUN)] = None,
    json: Annotated[bool, _option("--json", "Print one JSON object.", RUN)] = False,
) -> None:
    """Train a linear model on FILE by gossip between simulated nodes."""
    for one, other, both in (
        ("--epsilon", "--noise", epsilon is not None and noise is not None),
        ("--rounds", "--epochs", rounds is not None and epochs is not None),
        ("--group", "--deal", group is not None and deal != "even"),
    ):
        if both:
            raise SpecError(f"{one} and {other} contradict each other; give one of them")
    screen.writable(out)
    changes = {
        "problem__loss": loss,
        "problem__h": h,
        "problem__intercept": intercept,
        "problem__row_norm": row_norm,
        "problem__weights": weigh,
        "problem__on_violation": on_violation,
        "network__graph": graph,
        "network__activation": activation,
        "network__weights": mixing,
        "network__correct": correct or None,
        "algorithm__a": a,
        "algorithm__gamma": gamma,
        "algorithm__primal": primal,
        "privacy__sampling": sampling,
        "privacy__noise": noise if noise is not None else write("private", 1.0 if epsilon is None else epsilon),
        "privacy__delta": delta,
        "privacy__clip": clip,
        "privacy__adversary": adversary,
        "seed": seed,
    }
    base = make_preset("private" if preset == "auto" else preset, 1)
    spec = base.but(**{key: value for key, value in changes.items() if value is not None})
    model = loss_from_text(spec.problem.loss)
    table = load(file, format=format, label=label, group=group, n_features=features)
    held_out = None if test is None else load(test, format=format, label=label, group=group, n_features=table.m)
    data = ingest(
        table,
        model,
        test=held_out,
        nodes=nodes,
        deal=deal,
        positive=positive,
        unit_norm=spec.problem.row_norm if unit_rows else None,
        seed=seed,
    )
    said: list[str] = []
    if preset == "auto" and noise is None:  # the planner plans for an ε
        spec, said = _planned(spec, changes, data.shards, rounds, epochs)
    else:
        wanted = spec.privacy.sampling
        spec = spec if sampling is not None else _fitted(spec, int(data.shards.sizes.min()))
        spec = _with_rounds(spec, rounds, 10.0 if epochs is None else epochs, data.shards.sizes)
        if spec.privacy.sampling != wanted:
            said = [f"[yellow]Note:[/] {spec.privacy.sampling}, not {wanted}: the smallest node has no more records."]
    _mention_small_nodes(spec, data.shards.sizes, data.names.get("nodes"))
    f_star = optimum(make_problem(spec.problem, data.shards), gap=1e-6).value if certify else float("nan")
    _mention_earlier_work(out, seed)
    with screen.bar("gossip", quiet=json) as progress:
        result = solve(
            spec,
            data.shards,
            test=data.test,
            f_star=f_star,
            execution=Execution(engine, observations),
            progress=progress,
            checkpoint=out if out is not None and seed is not None else None,
            **data.names,
        )
    for line in said:
        screen.err.print(line, soft_wrap=True)
    saved = report = None
    title = f"{table.name}: {spec.problem.loss} + {spec.problem.h}"
    if out is not None:
        saved = str(result.save(out))
        (out / "checkpoint.npz").unlink(missing_ok=True)
        report = str(write_report([result], out / NAME, title))
    if json:
        screen.say_json(screen.summary(result, saved) | {"report": report})
    else:
        screen.show(result, title)
        if saved:
            screen.out.print(f"saved in {saved}; open {report} in a browser", soft_wrap=True)


def _mention_earlier_work(out: Path | None, seed: int | None) -> None:
    """What lies in the output folder already."""
    if out is not None and seed is not None and (out / "checkpoint.npz").exists():
        screen.err.print(f"[yellow]Note:[/] going on from the checkpoint in {out}.", soft_wrap=True)
    elif out is not None and (out / "result.json").exists():
        screen.err.print(
            f"[yellow]Note:[/] the result in {out} will be replaced. If both models are ever published, their privacy "
            "costs on the same records add up.",
            soft_wrap=True,
        )


def _mention_small_nodes(spec: Spec, sizes: IntArray, names: tuple[str, ...] | None) -> None:
    """A word about nodes so small that they set everybody's noise or batch: sizes are public."""
    smallest, typical = int(sizes.min()), float(np.median(sizes))
    if smallest * 10 <= typical or (len(sizes) == 2 and smallest * 10 <= int(sizes.max())):
        node = names[int(sizes.argmin())] if names else str(int(sizes.argmin()))
        hint = "" if spec.problem.weights == "records" else "; try --weigh records, or leave it out"
        screen.err.print(
            f"[yellow]Note:[/] node '{node}' has {smallest} records, the typical one {typical:,.0f}: it needs far more "
            f"noise, and no batch can be larger than its records{hint}.",
            soft_wrap=True,
        )


def _planned(
    spec: Spec, changes: dict[str, Any], shards: Shards, rounds: int | None, epochs: float | None
) -> tuple[Spec, list[str]]:
    """The planner's choice around what the user has fixed, and its reasons."""
    problem, privacy = spec.problem, spec.privacy
    fixed = {name: changes[key] for name, key in FIXED.items()} | {"rounds": rounds}
    if epochs is not None:  # passes over the data speak of batches
        spec = spec if fixed["sampling"] is not None else _fitted(spec, int(shards.sizes.min()))
        fixed["rounds"] = _with_rounds(spec, None, epochs, shards.sizes).algorithm.rounds
        fixed |= {"sampling": spec.privacy.sampling, "activation": spec.network.activation}
    facts = Facts(
        sizes=tuple(shards.sizes.tolist()),
        features=shards.m + (problem.intercept > 0),
        loss=problem.loss,
        epsilon=parse(privacy.noise).args[0],
        delta=privacy.delta,
        adversary=privacy.adversary,
        graph=spec.network.graph,
        row_norm=problem.row_norm,
        intercept=problem.intercept,
    )
    choice = choose(facts, **fixed)
    reasons = ["[bold]The plan[/], from public numbers alone:", *(f"· {reason}" for reason in choice.reasons)]
    return choice.spec.but(seed=spec.seed), reasons


def _fitted(spec: Spec, smallest: int) -> Spec:
    """A preset's batch, made no larger than the smallest node: sizes are public."""
    name, args, _ = parse(spec.privacy.sampling)
    return spec if not args or args[0] <= smallest else spec.but(privacy__sampling=write(name, smallest))


def _with_rounds(spec: Spec, rounds: int | None, epochs: float, sizes: IntArray) -> Spec:
    if not epochs > 0:
        raise SpecError(f"the number of epochs must be over 0, not {epochs}")
    T = rounds if rounds is not None else rounds_for_epochs(spec, sizes, epochs)
    return replace(spec, algorithm=replace(spec.algorithm, rounds=T))
