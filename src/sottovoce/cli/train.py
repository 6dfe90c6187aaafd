"""`sottovoce train FILE`: read, deal out, run, show, save."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from sottovoce._types import IntArray
from sottovoce.cli import screen
from sottovoce.cli.budget import mention_budget, overview_of, paying
from sottovoce.cli.flags import DataFlags, grouped, option
from sottovoce.cli.report import NAME, write_report
from sottovoce.data.schema import FILE as SCHEMA_FILE
from sottovoce.engine import ENGINES
from sottovoce.errors import PrivacyLeakWarning, SpecError
from sottovoce.planner import Facts, choose
from sottovoce.planner.trust import read_trust
from sottovoce.privacy.calibration import Private
from sottovoce.problem.objective import ByRecords
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards
from sottovoce.run.build import make_problem, rounds_for_epochs
from sottovoce.run.presets import PRESETS
from sottovoce.run.result import HEAD, History, refuse_to_lose
from sottovoce.run.scale import AS_IT_IS, Scale
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
}
"""Settings of the planner, and the fields of a spec that they are."""

MODEL, NETWORK, STEPS, PRIVACY, RUN = "Model", "Network", "Algorithm", "Privacy", "Run"


@dataclass(frozen=True)
class ModelFlags:
    """eq. (1)."""

    preset: Annotated[
        str, option("--preset", f"Start from auto (the planner), {', '.join(PRESETS)}; options change it.", MODEL)
    ] = "auto"
    loss: Annotated[str | None, option("--loss", "hinge, logistic, huber:1.35, …", MODEL)] = None
    h: Annotated[str | None, option("--h", "Regulariser: l2:5e-4, l1:5e-4, elastic_net:…, box:-1,1, …", MODEL)] = None
    intercept: Annotated[float | None, option("--intercept", "Value of the intercept's column; 0: none.", MODEL)] = None
    row_norm: Annotated[float | None, option("--row-norm", "Public bound on a record's norm (1).", MODEL)] = None
    weigh: Annotated[str | None, option("--weigh", "Count nodes or records the same.", MODEL)] = None

    def changes(self) -> dict[str, Any]:
        """The fields of a spec that they are."""
        return {
            "problem__loss": self.loss,
            "problem__h": self.h,
            "problem__intercept": self.intercept,
            "problem__row_norm": self.row_norm,
            "problem__weights": self.weigh,
        }


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
class PrivacyFlags:
    """What a node lets out, and who is watching."""

    sampling: Annotated[str | None, option("--sampling", "one, fixed:8, poisson:8 or full.", PRIVACY)] = None
    epsilon: Annotated[
        float | None, option("--epsilon", "ε of the guarantee (1); the noise follows from it.", PRIVACY)
    ] = None
    delta: Annotated[float | None, option("--delta", "δ of the guarantee (1e-5).", PRIVACY)] = None
    noise: Annotated[
        str | None, option("--noise", "In place of --epsilon: gaussian:σ, theorem1:ε,δ₀ or none.", PRIVACY)
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

    def changes(self) -> dict[str, Any]:
        """The fields of a spec that they are."""
        if self.epsilon is not None and self.noise is not None:
            raise SpecError("--epsilon and --noise contradict each other; give one of them")
        return {
            "problem__on_violation": self.on_violation,
            "privacy__sampling": self.sampling,
            "privacy__noise": self.noise or Private(1.0 if self.epsilon is None else self.epsilon),
            "privacy__delta": self.delta,
            "privacy__clip": self.clip,
            "privacy__adversary": self._watching(),
        }

    def _watching(self) -> Any:
        if self.trust is None:
            return self.adversary
        if self.adversary is not None:
            raise SpecError("--trust and --adversary say the same thing in two ways; give one of them")
        return read_trust(self.trust).adversary(1)  # how many nodes there are is seen when records are dealt out


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
    screen.writable(run.out)
    changes = model.changes() | network.changes() | steps.changes() | privacy.changes() | {"seed": run.seed}
    given = data.implied() | {key: value for key, value in changes.items() if value is not None}
    if data.schema is not None and model.row_norm is not None:
        raise SpecError("row_norm is the schema's; leave --row-norm out, or change it there")
    spec = PRESETS.make("private" if model.preset == "auto" else model.preset)(1).but(**given)
    dealt = data.read(spec.problem.loss, spec.problem.row_norm, run.seed)
    sizes = dealt.shards.sizes
    notes = data.leaks(spec.problem.loss) if run.seed is None else []  # a simulation has no secrets to leak
    said: list[str] = []
    if model.preset == "auto" and privacy.noise is None:  # the planner plans for an ε
        spec, said = _planned(spec, set(given), dealt.shards, steps)
    else:
        wanted = spec.privacy.sampling
        spec = spec if privacy.sampling is not None else _fitted(spec, int(sizes.min()))
        spec = _with_rounds(spec, steps.rounds, 10.0 if steps.epochs is None else steps.epochs, sizes)
        if spec.privacy.sampling != wanted:
            said = [f"[yellow]Note:[/] {spec.privacy.sampling}, not {wanted}: the smallest node has no more records."]
    _mention_small_nodes(spec, sizes, dealt.names.get("nodes"))
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
            scale=Scale(spec.problem.row_norm) if data.unit_rows else AS_IT_IS,  # new records as these were
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
        shown = result if run.seed is not None else replace(result, history=History())
        report = str(write_report([shown], run.out / NAME, title))
    if run.json:
        screen.say_json(
            screen.summary(result, saved) | {"report": report, "notes": notes, "budget": overview_of(run.budget)}
        )
    else:
        screen.show(result, title)
        if saved:
            screen.out.print(f"saved in {saved}; open {report} in a browser", soft_wrap=True)
        mention_budget(run.budget)


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


def _planned(spec: Spec, given: set[str], shards: Shards, steps: StepFlags) -> tuple[Spec, list[str]]:
    """The planner's choice around what the user has fixed, and its reasons."""
    problem, privacy = spec.problem, spec.privacy
    fixed: dict[str, Any] = {name: _field(spec, key) for name, key in FIXED.items() if key in given}
    fixed["rounds"] = steps.rounds
    if steps.epochs is not None:  # passes over the data speak of batches
        spec = spec if "sampling" in fixed else _fitted(spec, int(shards.sizes.min()))
        fixed["rounds"] = _with_rounds(spec, None, steps.epochs, shards.sizes).algorithm.rounds
        fixed |= {"sampling": spec.privacy.sampling, "activation": spec.network.activation}
    assert isinstance(privacy.noise, Private)
    facts = Facts(
        sizes=tuple(shards.sizes.tolist()),
        features=shards.m + (problem.intercept > 0),
        epsilon=privacy.noise.epsilon,
        delta=privacy.delta,
        loss=problem.loss,
        adversary=privacy.adversary,
        graph=spec.network.graph,
        outputs=problem.outputs,
        row_norm=problem.row_norm,
        intercept=problem.intercept,
    )
    choice = choose(facts, **fixed)
    reasons = ["[bold]The plan[/], from public numbers alone:", *(f"· {reason}" for reason in choice.reasons)]
    return choice.spec.but(seed=spec.seed), reasons


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
