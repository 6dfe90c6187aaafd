"""`sottovoce train FILE`: read, deal out, run, show, save."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from sottovoce._types import IntArray
from sottovoce.cli import screen
from sottovoce.cli.budget import mention_budget, overview_of, paying
from sottovoce.cli.flags import DataFlags, by_class, grouped, option
from sottovoce.cli.records import Dealt
from sottovoce.cli.report import NAME, write_report
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.engine import ENGINES
from sottovoce.errors import PrivacyLeakWarning, SpecError
from sottovoce.planner import Facts, choose
from sottovoce.planner.terms import (
    INTERCEPT,
    SMALL_INTERCEPT,
    Weighing,
    budget,
    refuse_small_nodes,
    steepest,
    target_scale,
)
from sottovoce.planner.trust import read_trust
from sottovoce.privacy.calibration import NOISES, Noise, Private
from sottovoce.privacy.quantiles import NO_QUANTILES, Quantiles
from sottovoce.problem.losses import LOSSES, Loss
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.optimum import optimum
from sottovoce.rows import is_sparse
from sottovoce.run.build import make_problem, rounds_for_epochs
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import HEAD, refuse_to_lose
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
    """eq. (1) but its regulariser."""

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
    weigh: Annotated[str | None, option("--weigh", "Count nodes or records the same.", MODEL)] = None
    class_weight: Annotated[
        str | None, option("--class-weight", "What classes count, as in no=1,yes=5; or balanced, by the prior.", MODEL)
    ] = None
    prior: Annotated[
        str | None, option("--prior", "How likely classes are, as in no=0.9,yes=0.1: public, not counted.", MODEL)
    ] = None
    no_shape: Annotated[bool, option("--no-shape", "Spend no share of ε on the shape of the data.", MODEL)] = False
    target_scale: Annotated[
        str, option("--target-scale", "private: look for a narrower range of targets; or for which share of ε.", MODEL)
    ] = "public"

    @property
    def given_loss(self) -> Loss | None:
        """The loss, if one was named."""
        return None if self.loss is None else LOSSES.read(self.loss)

    def range_share(self, targets: tuple[float, float] | None, planned: bool) -> Quantiles | None:
        """What is spent on the range of targets, or None where the planner chooses that."""
        share = target_scale(self.target_scale if not _is_number(self.target_scale) else float(self.target_scale))
        if share != NO_QUANTILES and targets is None:
            raise SpecError("--target-scale looks for a range within that of a regression; give --target-bounds, too")
        if share is None and not planned:
            raise SpecError("--target-scale private is for plans, which have an ε and no preset; give a share, as 0.05")
        return share

    @property
    def weighed(self) -> Callable[[tuple[Any, ...]], Weighing] | None:
        """What classes count, once they are known."""
        if self.class_weight is None and self.prior is None:
            return None

        def weighing(classes: tuple[Any, ...]) -> Weighing:
            said = (None if text is None else by_class(text, classes) for text in (self.class_weight, self.prior))
            return Weighing.of(classes, *said)

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

    h: Annotated[str | None, option("--h", "Regulariser: l2:5e-4, l1:5e-4, elastic_net:…, box:-1,1, …", MODEL)] = None


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
        str | None, option("--averaging", "gossip, gossip:5, exact, clipped:RADIUS, trimmed:1.", NETWORK)
    ] = None
    correct: Annotated[bool, option("--correct", "Weigh unevenly active nodes.", NETWORK)] = False

    def changes(self) -> dict[str, Any]:
        """The fields of a spec that they are."""
        return {
            "network__graph": self.graph,
            "network__activation": self.activation,
            "network__weights": self.mixing,
            "network__averaging": self.averaging,
            "network__correct": self.correct or None,
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
    """What a node lets out, and who is watching; how much noise is said elsewhere."""

    sampling: Annotated[str | None, option("--sampling", "one, fixed:8, poisson:8 or full.", PRIVACY)] = None
    delta: Annotated[
        float | None, option("--delta", "δ of the guarantee (1e-5, or half a record's share if less).", PRIVACY)
    ] = None
    clip: Annotated[float | None, option("--clip", "L, the bound on a record's subgradient.", PRIVACY)] = None
    on_violation: Annotated[str | None, option("--on-violation", "A row over the bound: raise or clip.", PRIVACY)] = (
        None
    )
    trust: Annotated[
        str | None, option("--trust", "nobody, majority, centre, or how many nodes may collude (see plan).", PRIVACY)
    ] = None
    adversary: Annotated[
        str | None, option("--adversary", "Who is watching; a run faces transcript, all messages.", PRIVACY)
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
    """What a node lets out, with how much noise, and who is watching."""

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
    certify: Annotated[bool, option("--certify", "Compute F* first, for the suboptimality.", RUN)] = False
    observations: Annotated[int, option("--observations", "How often to look; 0: never.", RUN)] = 40
    not_private_history: Annotated[
        bool,
        option("--not-private-history", "Without a seed: keep what was seen, in a file that says what it is.", RUN),
    ] = False
    out: Annotated[Path | None, option("--out", "Save the result here; with --seed, also checkpoints.", RUN)] = None
    budget: Annotated[
        Path | None, option("--budget", "The ledger that this run is paid from: see `sottovoce ledger budget`.", RUN)
    ] = None
    force: Annotated[bool, option("--force", "Take the place of another result in --out.", RUN)] = False
    json: Annotated[bool, option("--json", "Print one JSON object.", RUN)] = False


@grouped
def train(
    data: DataFlags, model: ModelFlags, network: NetworkFlags, steps: StepFlags, privacy: PrivacyFlags, run: RunFlags
) -> None:
    """Train a linear model on FILE by gossip between simulated nodes."""
    screen.writable(run.out, keep=False)
    clipped, planned = privacy.on_violation == "clip", model.preset == "auto" and isinstance(privacy.scale, Private)
    with screen.reading(data.file, run.json) as told:
        dealt = data.dealt(model.given_loss, run.seed, planned, clipped, model.weighed, told)
    classified = dealt.names["classes"] is not None
    notes = data.leaks(data.file, classified) if run.seed is None else []  # a simulation has no secrets to leak
    spec, reasons = spec_for(dealt, model, network, steps, privacy, run.seed)
    dealt = replace(dealt, shards=dealt.weighing.weighed(spec, dealt.shards))
    said = [*reasons, *([f"· {data.caution}"] if planned and data.caution else [])]
    _mention_small_nodes(spec, dealt.shards.sizes, dealt.names.get("nodes"))
    f_star = optimum(make_problem(spec.problem, dealt.shards), gap=1e-6).value if run.certify else float("nan")
    if run.out is not None:
        refuse_to_lose(run.out, spec, run.force)
    _mention_earlier_work(run.out, run.seed)
    with screen.bar("gossip", quiet=run.json) as progress, paying(run.budget, "train", spec, dealt.shards) as allow:
        result = solve(
            spec,
            dealt.shards,
            test=dealt.test,
            f_star=f_star,
            execution=Execution(run.engine, run.observations or None),
            progress=progress,
            checkpoint=run.out if run.out is not None and run.seed is not None else None,
            secure=not run.no_secure,
            allow=allow,
            **dealt.names,
        )
    warned = [f"[yellow]{PrivacyLeakWarning.__name__}:[/] {screen.plain(note)}" for note in notes]
    for line in (*said, *warned):
        screen.err.print(line, soft_wrap=True)
    saved = report = None
    title = f"{dealt.name}: {spec.problem.loss} + {spec.problem.h}"
    if run.out is not None:
        beside = {} if data.schema is None else {SCHEMA_FILE: data.schema.read_bytes()}  # `predict` reads raw columns
        again = (run.out / HEAD).exists()
        saved = str(result.save(run.out, beside=beside, not_private_history=run.not_private_history, force=run.force))
        if again and data.schema is None:  # it was of the result that is gone
            (run.out / SCHEMA_FILE).unlink(missing_ok=True)
        (run.out / "checkpoint.npz").unlink(missing_ok=True)
        result.verify()
        report = str(write_report([result], run.out / NAME, title, verified=True))
    if run.json:
        screen.say_json(
            screen.summary(result, saved) | {"report": report, "notes": notes, "budget": overview_of(run.budget)}
        )
    else:
        screen.show(result, title)
        if saved:
            screen.out.print(f"saved in {saved}; open {report} in a browser", soft_wrap=True)
        mention_budget(run.budget)


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
        hint = "" if isinstance(spec.problem.weights, ByRecords) else "; try --weigh records, or leave it out"
        screen.err.print(
            f"[yellow]Note:[/] node '{node}' has {smallest} records, the typical one {typical:,.0f}: it needs far more "
            f"noise, and no batch can be larger than its records{hint}.",
            soft_wrap=True,
        )


def spec_for(
    dealt: Dealt,
    model: ModelFlags,
    network: NetworkFlags,
    steps: StepFlags,
    privacy: PrivacyFlags,
    seed: int | None,
    alone: bool = True,
) -> tuple[Spec, list[str]]:
    """The run that these options ask for on these records, of which only sizes are looked at; and what is to be said.

    With an ε and no preset the planner chooses what is left open, as it does for estimators: the same plan. Unless it
    is not `alone`: runs that share records share what these weigh, so that none of them leaves the weights out.
    """
    auto, noise = model.preset == "auto", privacy.scale
    ranged = model.range_share(dealt.targets, auto and isinstance(noise, Private))
    changes: dict[str, Any] = {
        "problem__loss": dealt.loss,
        "problem__outputs": dealt.outputs,
        "problem__h": model.h,
        "problem__intercept": model.column(dealt.loss),
        "problem__weights": model.weigh,
        "problem__on_violation": privacy.on_violation,
        **network.changes(),
        **steps.changes(),
        "privacy__sampling": privacy.sampling,
        "privacy__noise": noise,
        "privacy__delta": privacy.delta,
        "privacy__clip": privacy.clip,
        "privacy__adversary": privacy.watching(dealt.shards.n),
        "privacy__quantiles": None if ranged == NO_QUANTILES else ranged,
        "seed": seed,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    spec, sizes = PRESETS.make("private" if auto else model.preset)(1).but(**given), dealt.shards.sizes
    if auto and isinstance(noise, Private):
        free = tuple(name for name, fixed in (("loss", model.loss), ("penalty", model.h)) if fixed is None)
        return _planned(spec, set(given), dealt, steps, privacy, not model.no_shape, ranged is None, free, alone)
    wanted, said = spec.privacy.sampling, []
    spec = spec if privacy.sampling is not None else _fitted(spec, int(sizes.min()))
    spec = _with_rounds(spec, steps.rounds, 10.0 if steps.epochs is None else steps.epochs, sizes)
    if spec.privacy.sampling != wanted:
        said = [f"[yellow]Note:[/] {spec.privacy.sampling}, not {wanted}: the smallest node has no more records."]
    return dealt.weighing.started(spec, int(dealt.shards.X.shape[1])), said


def _planned(
    spec: Spec,
    given: set[str],
    dealt: Dealt,
    steps: StepFlags,
    privacy: PrivacyFlags,
    shape: bool,
    quantiles: bool,
    free: tuple[str, ...],
    alone: bool,
) -> tuple[Spec, list[str]]:
    """The planner's choice around what the user has fixed, and its reasons."""
    problem, shards = spec.problem, dealt.shards
    sizes, features = tuple(shards.sizes.tolist()), int(shards.X.shape[1])
    assert isinstance(spec.privacy.noise, Private)
    epsilon, delta = budget(spec.privacy.noise.epsilon, "auto" if privacy.delta is None else privacy.delta, sum(sizes))
    if dealt.targets is None:  # a regression of which nothing can be learned is a constant, and says so
        refuse_small_nodes(sizes, dealt.node_names, epsilon, delta, "people" if shards.people else "records")
    fixed: dict[str, Any] = {name: _field(spec, key) for name, key in FIXED.items() if key in given}
    fixed["rounds"] = steps.rounds
    if steps.epochs is not None:  # passes over the data speak of batches
        spec = spec if "sampling" in fixed else _fitted(spec, int(shards.sizes.min()))
        fixed["rounds"] = _with_rounds(spec, None, steps.epochs, shards.sizes).algorithm.rounds
        fixed |= {"sampling": spec.privacy.sampling, "activation": spec.network.activation}
    if dealt.targets is not None:  # a regression in known units may be other than a descent
        fixed["method"] = "auto"
    elif math.isinf(problem.loss.slope_bound) and problem.loss.targets != "real" and "clip" not in fixed:
        fixed["clip"] = steepest(problem.outputs, problem.row_norm, problem.intercept)
    facts = Facts(
        sizes=sizes,
        features=features + (problem.intercept > 0),
        epsilon=math.inf if epsilon is None else epsilon,
        delta=delta,
        loss=problem.loss,
        adversary=spec.privacy.adversary,
        graph=spec.network.graph,
        outputs=problem.outputs,
        intercept=problem.intercept,
        shape=shape and problem.loss.targets != "real",
        quantiles=quantiles,
        weight=dealt.weighing.mean,
        rarest=dealt.weighing.rarest,
        balance=dealt.weighing.balance if alone else None,
        sparse=is_sparse(shards.X),
        free=() if epsilon is None else free,
    )
    choice = choose(facts, **fixed)
    reasons = ["[bold]The plan[/], from public numbers alone:", *(f"· {reason}" for reason in choice.reasons)]
    return dealt.weighing.started(choice.spec.but(seed=spec.seed), features), reasons


def _field(spec: Spec, key: str) -> Any:
    part, _, name = key.partition("__")
    return getattr(getattr(spec, part), name)


def _fitted(spec: Spec, smallest: int) -> Spec:
    """A preset's batch, made no larger than the smallest node: sizes are public."""
    sampling = spec.privacy.sampling
    size = getattr(sampling, "size", 0)
    return spec if size <= smallest else spec.but(privacy__sampling=replace(sampling, size=smallest))  # type: ignore[type-var]


def _with_rounds(spec: Spec, rounds: int | None, epochs: float, sizes: IntArray) -> Spec:
    if not epochs > 0:
        raise SpecError(f"the number of epochs must be over 0, not {epochs}")
    T = rounds if rounds is not None else rounds_for_epochs(spec, sizes, epochs)
    return replace(spec, algorithm=replace(spec.algorithm, rounds=T))
