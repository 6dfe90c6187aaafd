"""`sottovoce train FILE`: read and partition records, run, print and save the result."""

import json as json_
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from sottovoce._types import IntArray
from sottovoce.cli import screen
from sottovoce.cli.budget import charge_budget, mention_budget, overview_of
from sottovoce.cli.evaluate import show
from sottovoce.cli.flags import DataFlags, by_class, grouped, option
from sottovoce.cli.holdout import Holdout
from sottovoce.cli.records import Partitioned
from sottovoce.cli.report import NAME, axes_of, write_report
from sottovoce.data.layout import FILE as LAYOUT_FILE
from sottovoce.data.policy import ReadPolicy
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.engine import ENGINES
from sottovoce.errors import SpecError
from sottovoce.evaluation import Evaluation
from sottovoce.matrices import is_sparse
from sottovoce.planner.fit import FitRequest, plan_fit
from sottovoce.planner.shared_settings import (
    INTERCEPT,
    SMALL_INTERCEPT,
    Weighing,
    target_scale,
)
from sottovoce.planner.trust import read_trust
from sottovoce.privacy.calibration import NOISES, Noise, Private
from sottovoce.privacy.one_shot import Quantiles
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.optimum import optimum
from sottovoce.run.build import make_problem
from sottovoce.run.plan import rounds_for_epochs
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import BUDGETED, EVALUATION, HEAD, Result, check_overwrite
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution, Spec

FIXED = {
    "h": "problem__h",
    "weights": "problem__weights",
    "on_violation": "problem__on_violation",
    "activation": "network__activation",
    "mixing": "network__weights",
    "correct": "network__correct",
    "averaging": "network__averaging",
    "a": "algorithm__a",
    "gamma": "algorithm__gamma",
    "primal": "algorithm__primal",
    "sampling": "privacy__sampling",
    "clip": "privacy__clip",
    "quantiles": "privacy__quantiles",
}
"""Settings of the planner, and the fields of a spec that they are."""

MODEL, NETWORK, STEPS, PRIVACY, RUN = "Model", "Network", "Algorithm", "Privacy", "Run"


@dataclass(frozen=True)
class ProblemFlags:
    """The terms of eq. (1) except the regularizer."""

    preset: Annotated[
        str, option("--preset", f"Start from auto (the planner), {', '.join(PRESETS)}; options change it.", MODEL)
    ] = "auto"
    loss: Annotated[
        str | None, option("--loss", "hinge, logistic, softmax, …; of numbers squared, huber:0.25, …", MODEL)
    ] = None
    intercept: Annotated[
        float | None, option("--intercept", "Value of the intercept's column, rows being at most 1 long.", MODEL)
    ] = None
    no_intercept: Annotated[bool, option("--no-intercept", "No constant term.", MODEL)] = False
    node_weights: Annotated[
        str | None, option("--node-weights", "Weight nodes equally, or records: nodes, records, records:κ.", MODEL)
    ] = None
    class_weight: Annotated[
        str | None, option("--class-weight", "What classes count, as in no=1,yes=5; or balanced, by the prior.", MODEL)
    ] = None
    prior: Annotated[
        str | None, option("--prior", "How likely classes are, as in no=0.9,yes=0.1: public, not counted.", MODEL)
    ] = None
    no_private_scaling: Annotated[
        bool, option("--no-private-scaling", "Spend no part of ε on scaling the data.", MODEL)
    ] = False
    feature_map: Annotated[
        str, option("--feature-map", "auto, additive (functions of numeric columns, by a schema) or linear.", MODEL)
    ] = "auto"
    target_scale: Annotated[
        str,
        option(
            "--target-scale", "Narrow the target range privately: private, or the share of ε to spend on it.", MODEL
        ),
    ] = "public"

    @property
    def given_loss(self) -> Loss | None:
        """The loss, if one was named."""
        return None if self.loss is None else LOSSES.read(self.loss)

    def range_share(self, targets: tuple[float, float] | None, planned: bool) -> Quantiles | None:
        """What is spent on the range of targets, or None where the planner chooses that."""
        share = target_scale(self.target_scale if not _is_number(self.target_scale) else float(self.target_scale))
        if (share is None or share) and targets is None:
            raise SpecError("--target-scale needs the public range that it narrows; give --target-bounds, too")
        if share is None and not planned:
            raise SpecError("--target-scale private is for plans, which have an ε and no preset; give a share, as 0.05")
        return share

    @property
    def class_weighting(self) -> Callable[[tuple[Any, ...]], Weighing] | None:
        """What classes count, once they are known."""
        if self.class_weight is None and self.prior is None:
            return None

        def weighing(classes: tuple[Any, ...]) -> Weighing:
            given = (None if text is None else by_class(text, classes) for text in (self.class_weight, self.prior))
            return Weighing.of(classes, *given)

        return weighing

    def column(self, loss: Loss) -> float | None:
        """B: as given, else as estimators have it where the planner plans."""
        if self.no_intercept:
            if self.intercept:
                raise SpecError("--intercept and --no-intercept contradict each other; give one of them")
            return 0.0
        if self.intercept is not None or self.preset != "auto":
            return self.intercept
        return INTERCEPT if loss.targets == "real" else SMALL_INTERCEPT


@dataclass(frozen=True)
class ModelFlags(ProblemFlags):
    """eq. (1)."""

    h: Annotated[
        str | None, option("--regularizer", "Regularizer: l2:5e-4, l1:5e-4, elastic_net:…, box:-1,1, …", MODEL)
    ] = None


@dataclass(frozen=True)
class NetworkFlags:
    """Who is linked with whom, and who speaks."""

    graph: Annotated[
        str | None, option("--graph", "complete, ring, torus, erdos_renyi:p=0.3, edge_list:FILE, …", NETWORK)
    ] = None
    activation: Annotated[
        str | None, option("--activation", "Who speaks: edges:1, matching:2, nodes:4, everyone.", NETWORK)
    ] = None
    mixing: Annotated[str | None, option("--mixing", "metropolis, lazy, max_degree, uniform.", NETWORK)] = None
    averaging: Annotated[
        str | None, option("--averaging", "gossip, gossip:5, exact, clipped:RADIUS, trimmed:1, quantized:8.", NETWORK)
    ] = None
    debias: Annotated[bool, option("--debias", "Correct for nodes that are active unequally often.", NETWORK)] = False

    def changes(self) -> dict[str, Any]:
        """The fields of a spec that they are."""
        return {
            "network__graph": self.graph,
            "network__activation": self.activation,
            "network__weights": self.mixing,
            "network__averaging": self.averaging,
            "network__correct": self.debias or None,
        }


@dataclass(frozen=True)
class StepFlags:
    """How long, and with which step sizes."""

    rounds: Annotated[int | None, option("--rounds", "T; or give --epochs.", STEPS)] = None
    epochs: Annotated[float | None, option("--epochs", "Passes over the data.", STEPS)] = None
    a: Annotated[str | None, option("--a", "a_t: linear:1 or constant:1.", STEPS)] = None
    gamma: Annotated[str | None, option("--gamma", "γ_t: constant:20 or sqrt:0.01.", STEPS)] = None
    primal: Annotated[str | None, option("--primal", "recompute or as_written (line 8).", STEPS)] = None

    def changes(self) -> dict[str, Any]:
        """The fields of a spec that they are; rounds and epochs need the data's sizes."""
        if self.rounds is not None and self.epochs is not None:
            raise SpecError("--rounds and --epochs contradict each other; give one of them")
        return {"algorithm__a": self.a, "algorithm__gamma": self.gamma, "algorithm__primal": self.primal}


@dataclass(frozen=True)
class MechanismFlags:
    """What a node releases, and the adversary, but not the amount of noise."""

    sampling: Annotated[str | None, option("--sampling", "one, fixed:8, poisson:8 or full.", PRIVACY)] = None
    delta: Annotated[
        float | None, option("--delta", "δ of the guarantee (1e-5, or half a record's share if less).", PRIVACY)
    ] = None
    clip: Annotated[float | None, option("--clip", "L, the bound on a record's subgradient.", PRIVACY)] = None
    on_violation: Annotated[str | None, option("--on-violation", "A row over the bound: raise or clip.", PRIVACY)] = (
        None
    )
    trust: Annotated[
        str | None, option("--trust", "nobody, majority, center, or how many nodes may collude (see plan).", PRIVACY)
    ] = None
    adversary: Annotated[
        str | None, option("--adversary", "The adversary; a run faces transcript, all messages.", PRIVACY)
    ] = None

    def watching(self, nodes: int) -> Any:
        """Who sees what of so many nodes."""
        if self.trust is None:
            return self.adversary
        if self.adversary is not None:
            raise SpecError("--trust and --adversary say the same thing in two ways; give one of them")
        return read_trust(self.trust).adversary(nodes)


@dataclass(frozen=True)
class PrivacyFlags(MechanismFlags):
    """What a node releases, with how much noise, and the adversary."""

    epsilon: Annotated[
        float | None, option("--epsilon", "ε of the guarantee (1); the noise follows from it.", PRIVACY)
    ] = None
    noise: Annotated[
        str | None, option("--noise", "In place of --epsilon: gaussian:σ, theorem1:ε,δ₀ or none.", PRIVACY)
    ] = None

    @property
    def scale(self) -> Noise:
        """How much noise."""
        if self.noise is None:
            return Private(1.0 if self.epsilon is None else self.epsilon)
        if self.epsilon is not None:
            raise SpecError("--epsilon and --noise contradict each other; give one of them")
        return NOISES.read(self.noise)


@dataclass(frozen=True)
class RunFlags:
    """What changes no result but the seed."""

    seed: Annotated[int | None, option("--seed", "Makes the run a reproducible simulation.", RUN)] = None
    no_secure: Annotated[
        bool, option("--no-secure", "Without a seed: fast floating-point noise, not hardened.", RUN)
    ] = False
    engine: Annotated[str, option("--engine", f"auto, {', '.join(ENGINES)}.", RUN)] = "auto"
    certify: Annotated[bool, option("--certify", "Compute F* first, for the suboptimality shown.", RUN)] = False
    observations: Annotated[int, option("--observations", "How often to evaluate; 0: never.", RUN)] = 40
    not_private_history: Annotated[
        bool,
        option("--not-private-history", "Without a seed: show objective and accuracy, and keep them, labeled.", RUN),
    ] = False
    out: Annotated[Path | None, option("--out", "Save the result here; with --seed, also checkpoints.", RUN)] = None
    holdout: Annotated[
        float | None,
        option("--holdout", "Do not train on this share of the records, as 0.2: evaluate on it, at the same ε.", RUN),
    ] = None
    budget: Annotated[
        Path | None, option("--budget", "The ledger that this run is paid from: see `sottovoce ledger budget`.", RUN)
    ] = None
    force: Annotated[bool, option("--force", "Take the place of another result in --out.", RUN)] = False
    json: Annotated[bool, option("--json", "Print one JSON object.", RUN)] = False
    verbose: Annotated[bool, option("--verbose", "Print the paper's symbols as well: ι, β, σ, L.", RUN)] = False

    def observation_count(self, test: Path | None) -> int | None:
        """Return how often to compute objective and accuracy; with a guarantee 0 unless the user sets it."""
        if self.seed is not None or self.not_private_history:
            return self.observations or None
        shown = {"--certify": self.certify, "--test": test is not None}
        for name in (name for name, given in shown.items() if given):
            raise SpecError(
                f"{name} is for figures that are computed from the records outside the mechanism, and a run with a "
                "guarantee shows none; evaluate with noise (sottovoce evaluate), simulate (--seed), or add "
                "--not-private-history"
            )
        return None


@grouped
def train(
    data: DataFlags, model: ModelFlags, network: NetworkFlags, steps: StepFlags, privacy: PrivacyFlags, run: RunFlags
) -> None:
    """Train a linear model on FILE by gossip between simulated nodes."""
    observation_count = run.observation_count(data.test)
    screen.writable(run.out, keep=False)
    clipped, planned = privacy.on_violation == "clip", model.preset == "auto" and isinstance(privacy.scale, Private)
    with screen.reading(data.file, run.json) as on_read, screen.owner_notes() as note:
        policy = ReadPolicy.of(run.seed is None, note)
        partitioned = data.read_and_partition(
            model.given_loss, run.seed, planned, policy, clipped, model.class_weighting, on_read
        )
    partitioned, held = (partitioned, None) if run.holdout is None else Holdout.of(partitioned, run.holdout, run.seed)
    spec, reasons = spec_for(partitioned, model, network, steps, privacy, run.seed)
    unmapped, partitioned = partitioned.shards, partitioned.with_feature_map(spec)
    partitioned = replace(partitioned, shards=partitioned.weighing.weighted(spec, partitioned.shards))
    notes = [*reasons, *([f"· {data.caution}"] if planned and data.caution else [])]
    _mention_small_nodes(spec, partitioned.shards.sizes, partitioned.names.get("nodes"))
    f_star = optimum(make_problem(spec.problem, partitioned.shards), gap=1e-6).value if run.certify else float("nan")
    if run.out is not None:
        check_overwrite(run.out, spec, run.force)
    _mention_earlier_work(run.out, run.seed)
    everything, found = unmapped if held is None else held.everything, None
    with (
        screen.bar("gossip", quiet=run.json) as progress,
        charge_budget(run.budget, "train", spec, partitioned.shards, everything) as budget_check,
    ):
        result = solve(
            spec,
            partitioned.shards,
            test=partitioned.test,
            f_star=f_star,
            execution=Execution(run.engine, observation_count),
            progress=progress,
            checkpoint=run.out if run.out is not None and run.seed is not None else None,
            secure=not run.no_secure,
            budget_check=budget_check if held is None else held.checked(budget_check),
            **partitioned.names,
        )
        if run.budget is not None:
            result = replace(result, environment=result.environment | {BUDGETED: True})
        if held is not None:
            result, found = held.evaluated(result)
    for line in notes:
        screen.err.print(line, soft_wrap=True)
    _report(result, found, data, policy, run, f"{partitioned.name}: {spec.problem.loss} + {spec.problem.h}")


def _report(
    result: Result, found: Evaluation | None, data: DataFlags, policy: ReadPolicy, run: RunFlags, title: str
) -> None:
    """Save the result where a folder is given, and show it."""
    evaluation = None if found is None else found.to_dict() | {"held_out_seeded": run.seed is not None}
    saved = report = None
    if run.out is not None:
        beside = {} if data.schema is None else {SCHEMA_FILE: data.schema.read_bytes()}  # `predict` reads raw columns
        beside[LAYOUT_FILE] = data.layout_of(data.file, policy).to_json()
        saved, report = _save(result, run.out, run, beside, evaluation, title)
    if run.json:
        more = {"report": report, "budget": overview_of(run.budget), "evaluation": evaluation}
        screen.say_json(screen.summary(result, saved) | more)
        return
    screen.show(result, title, verbose=run.verbose)
    if found is not None and evaluation is not None:
        show(found, evaluation)
    if saved:
        screen.out.print(f"saved in {saved}; open {report} in a browser", soft_wrap=True)
    mention_budget(run.budget)


def _save(
    result: Result, out: Path, run: RunFlags, beside: dict[str, bytes], evaluation: dict[str, Any] | None, title: str
) -> tuple[str, str]:
    """Save the result, the files beside it and its report, verified; return where both are."""
    if evaluation is not None:
        beside[EVALUATION] = json_.dumps(evaluation, ensure_ascii=False, indent=2).encode()
    again = (out / HEAD).exists()
    saved = str(result.save(out, beside=beside, not_private_history=run.not_private_history, force=run.force))
    if again and SCHEMA_FILE not in beside:  # it belonged to the result that was replaced
        (out / SCHEMA_FILE).unlink(missing_ok=True)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    result.verify()
    axes = axes_of(out)
    return saved, str(write_report([result], out / NAME, title, evaluation=evaluation, verified=True, axes=axes))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _mention_earlier_work(out: Path | None, seed: int | None) -> None:
    """What lies in the output folder already."""
    if out is not None and seed is not None and (out / "checkpoint.npz").exists():
        screen.err.print(f"[yellow]Note:[/] going on from the checkpoint in {out}.", soft_wrap=True)
    elif out is not None and (out / HEAD).exists():
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
        hint = "" if isinstance(spec.problem.weights, ByRecords) else "; try --node-weights records, or leave it out"
        screen.err.print(
            f"[yellow]Note:[/] node '{node}' has {smallest} records, the typical one {typical:,.0f}: it needs far more "
            f"noise, and no batch can be larger than its records{hint}.",
            soft_wrap=True,
        )


def spec_for(
    partitioned: Partitioned,
    model: ModelFlags,
    network: NetworkFlags,
    steps: StepFlags,
    privacy: PrivacyFlags,
    seed: int | None,
    alone: bool = True,
) -> tuple[Spec, list[str]]:
    """Return the run that these options describe, and notes to print; only the sizes of the records are read.

    With an ε and no preset the planner chooses all open settings, and the plan equals that of the estimators. Runs that
    are not `alone` share records and their weights, so none of them leaves the weights out.
    """
    if partitioned.shards.n == 1:
        _check_one_node(model, network, privacy)
    planned = model.preset == "auto" and isinstance(privacy.scale, Private)
    if model.feature_map == "additive" and not (planned and alone):
        raise SpecError(
            "--feature-map additive is for one planned run: give an --epsilon, and no --preset or --noise; a sweep "
            "compares linear models"
        )
    ranged = model.range_share(partitioned.targets, planned)
    changes: dict[str, Any] = {
        "problem__loss": partitioned.loss,
        "problem__outputs": partitioned.outputs,
        "problem__h": model.h,
        "problem__intercept": model.column(partitioned.loss),
        "problem__weights": model.node_weights,
        "problem__on_violation": privacy.on_violation,
        **network.changes(),
        **steps.changes(),
        "privacy__sampling": privacy.sampling,
        "privacy__noise": privacy.scale,
        "privacy__delta": privacy.delta,
        "privacy__clip": privacy.clip,
        "privacy__adversary": privacy.watching(partitioned.shards.n),
        "privacy__quantiles": ranged or None,
        "seed": seed,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    preset, sizes = "private" if model.preset == "auto" else model.preset, partitioned.shards.sizes
    spec = PRESETS.make(preset)(1).replace(**given)
    if planned:
        fixed = _fixed(spec, set(given), steps, sizes)
        if partitioned.targets is not None:  # a regression in known units may be other than a descent
            fixed["method"] = "auto"
        request = replace(
            _request(spec, partitioned),
            delta="auto" if privacy.delta is None else privacy.delta,
            fixed=fixed,
            private_scaling=not model.no_private_scaling and partitioned.loss.targets != "real",
            find_range=ranged is None,
            threshold=alone or not partitioned.weighing.known,
            free=tuple(name for name, named in (("loss", model.loss), ("penalty", model.h)) if named is None),
            columns=partitioned.columns,
            wanted=model.feature_map if alone else "linear",
        )
        choice = plan_fit(request)
        reasons = ["[bold]The plan[/], from public numbers alone:", *(f"· {reason}" for reason in choice.reasons)]
        return choice.spec.replace(seed=seed), reasons
    wanted, notes = spec.privacy.sampling, []
    spec = spec if privacy.sampling is not None else _fitted(spec, int(sizes.min()))
    spec = _with_rounds(spec, steps.rounds, 10.0 if steps.epochs is None else steps.epochs, sizes)
    if spec.privacy.sampling != wanted:
        notes = [f"[yellow]Note:[/] {spec.privacy.sampling}, not {wanted}: the smallest node has no more records."]
    return partitioned.weighing.started(spec, int(partitioned.shards.X.shape[1])), notes


def _check_one_node(model: ProblemFlags, network: NetworkFlags, privacy: MechanismFlags) -> None:
    """Refuse options about several nodes where there is one."""
    given = {f"--{f.name}": getattr(network, f.name) for f in fields(network)}
    given["--trust"] = privacy.trust not in (None, "nobody", "center", "centre")
    given[f"--preset {model.preset}"] = model.preset not in ("auto", "private")
    several = [name for name, value in given.items() if value]
    if several:
        raise SpecError(
            f"{several[0]} is for several nodes, and all records belong to one; give --nodes 20, or --group and the "
            "column of owners"
        )


def _request(spec: Spec, partitioned: Partitioned) -> FitRequest:
    """What is public of these records, and what the spec says of them."""
    problem, shards, noise = spec.problem, partitioned.shards, spec.privacy.noise
    assert isinstance(noise, Private)
    if math.isinf(noise.epsilon):
        raise SpecError(f"a plan needs an ε that is finite and over 0, not {noise.epsilon}")
    return FitRequest(
        sizes=tuple(shards.sizes.tolist()),
        nodes=partitioned.node_names,
        features=int(shards.X.shape[1]),
        loss=problem.loss,
        epsilon=noise.epsilon,
        outputs=problem.outputs,
        people=shards.people,
        adversary=spec.privacy.adversary,
        graph=spec.network.graph,
        intercept=problem.intercept,
        weighing=partitioned.weighing,
        sparse=is_sparse(shards.X),
    )


def _fixed(spec: Spec, given: set[str], steps: StepFlags, sizes: IntArray) -> dict[str, Any]:
    """What the options fix of a plan, as settings of the planner."""
    fixed: dict[str, Any] = {name: _field(spec, key) for name, key in FIXED.items() if key in given}
    fixed["rounds"] = steps.rounds
    if steps.epochs is not None:  # passes over the data speak of batches
        spec = spec if "sampling" in fixed else _fitted(spec, int(sizes.min()))
        fixed["rounds"] = _with_rounds(spec, None, steps.epochs, sizes).algorithm.rounds
        fixed |= {"sampling": spec.privacy.sampling, "activation": spec.network.activation}
    return fixed


def _field(spec: Spec, key: str) -> Any:
    part, _, name = key.partition("__")
    return getattr(getattr(spec, part), name)


def _fitted(spec: Spec, smallest: int) -> Spec:
    """A preset's batch, made no larger than the smallest node: sizes are public."""
    sampling = spec.privacy.sampling
    size = getattr(sampling, "size", 0)
    return spec if size <= smallest else spec.replace(privacy__sampling=replace(sampling, size=smallest))  # type: ignore[type-var]


def _with_rounds(spec: Spec, rounds: int | None, epochs: float, sizes: IntArray) -> Spec:
    if not epochs > 0:
        raise SpecError(f"the number of epochs must be over 0, not {epochs}")
    T = rounds if rounds is not None else rounds_for_epochs(spec, sizes, epochs)
    return replace(spec, algorithm=replace(spec.algorithm, rounds=T))
