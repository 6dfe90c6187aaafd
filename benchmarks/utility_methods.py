"""The data sets and methods of benchmarks/utility.py: (data, n, ε, seed) -> accuracy and AUC on held-out records.

Sets are scaled by public numbers alone; where one has no test file of its own, a fifth of it is held out by a fixed
draw. Each method names the adversary that its guarantee is against: methods under different ones do not belong into
one column. Adding a method is a function and a row of METHODS.
"""

import json
import math
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import brentq

from sottovoce import PrivateClassifier
from sottovoce._types import FLOAT_BYTES
from sottovoce.data.standins import epsilon_like
from sottovoce.engine.job import ENGINES
from sottovoce.errors import SpecError
from sottovoce.estimators.settings import SMALL_INTERCEPT
from sottovoce.evaluation.curves import figures
from sottovoce.experiments import data as sets
from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.data import Dataset
from sottovoce.experiments.inputs import BaselineInputs as Public
from sottovoce.experiments.table import Row
from sottovoce.network.activation import Everyone
from sottovoce.planner import PublicInputs, choose, predict
from sottovoce.planner.trust import AllBut, Majority, Nobody, Trust
from sottovoce.privacy.calibration import Private
from sottovoce.privacy.profiles import gaussian_multiplier
from sottovoce.privacy.release import Adversary
from sottovoce.privacy.statement import PrivacyStatement
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import Prepared, prepare
from sottovoce.run.plan import rounds_for_epochs
from sottovoce.run.presets import paper_l2
from sottovoce.run.solve import RunOptions, run_batch, solve
from sottovoce.run.spec import Execution, Spec

DELTA = 1e-5
INTERCEPT = SMALL_INTERCEPT
FIRST = {
    "b": 0.1582, "tau0": 19.15, "p": 0.3607, "k": 2.018, "u": 0.9093, "v": 0.4499, "tau1": 0.2458, "e": 0.2154,
    "d": 84.72, "w": 2.172, "s": 0.06203,
}  # fmt: skip
FIRST_STEP, FIRST_INTERCEPT = 10.0, 0.5
"""The planner's constants in version 0.1, to which new defaults are compared."""
ONE_OUTPUT: set[Callable[[Dataset, int, float], "Plan"]] = set()
"""Plans that are for two classes only."""
SILENT = 1e4
"""An ε with next to no noise."""
FREE = (1.0, 30.0, 1000.0)
"""C of scikit-learn, without privacy: one over how much is regularized."""
ONE_SHOT = {"objective": "objective_perturbation", "output": "output_perturbation"}
"""Methods that minimize, which only the reference engine knows, and what the package calls them."""
PINNED = ("diffprivlib==0.6.6", "scikit-learn==1.7.2", "numpy==2.4.6", "scipy==1.17.1")
"""Versions that work together, for an environment of its own."""
CACHE = Path.home() / ".cache" / "sottovoce" / "diffprivlib"

DATA: dict[str, Callable[[], Dataset]] = {
    "a9a": lambda: dense(sets.load("a9a")),
    "rcv1": lambda: sets.load("rcv1", drawn=0).bounded(),
    "covtype": lambda: sets.load("covtype-centred", drawn=0),
    "mnist": lambda: sets.load("mnist"),
    "odd": lambda: odd(sets.load("mnist")),
    "mushrooms": lambda: dense(sets.load("mushrooms", drawn=0)),
    "epsilon-like": lambda: sets.split(epsilon_like(25_000, 500, seed=1), drawn=0).bounded(),
}


UNBALANCED: dict[str, Callable[[], Dataset]] = {
    "digit 8": lambda: digit(sets.load("mnist"), 8),
    "rcv1, 3 %": lambda: thinned(sets.load("rcv1", drawn=0).bounded(), 0.03),
    "covtype, 1 %": lambda: thinned(sets.load("covtype-centred", drawn=0), 0.01),
}
"""One class of few records. The files at hand know two topics of rcv1 and two kinds of wood, so that a rare one is made
by leaving most of its records out, of the test too."""


def digit(mnist: Dataset, one: int) -> Dataset:
    """One digit against the rest."""
    tables = [replace(t, y=np.where(np.asarray(t.y) == one, 1.0, -1.0)) for t in (mnist.records, mnist.held_out)]
    return replace(mnist, name=f"digit {one}", records=tables[0], held_out=tables[1])


def thinned(data: Dataset, share: float) -> Dataset:
    """So many positive records as make this share of what is left; which ones does not depend on what they hold."""
    tables = []
    for place, table in enumerate((data.records, data.held_out)):
        positive = np.asarray(table.y) > 0
        mine = np.flatnonzero(positive)
        count = round(share / (1 - share) * int(np.sum(~positive)))
        kept = np.random.default_rng(place).permutation(mine)[:count]
        rows = np.sort(np.concatenate([np.flatnonzero(~positive), kept]))
        tables.append(replace(table, X=table.X[rows], y=np.asarray(table.y)[rows]))
    return replace(data, records=tables[0], held_out=tables[1])


def dense(data: Dataset) -> Dataset:
    """The same records, stored dense, so that their mean may be taken off."""
    tables = [replace(t, X=t.X.toarray()) for t in (data.records, data.held_out)]
    return replace(data, records=tables[0], held_out=tables[1])


def odd(mnist: Dataset) -> Dataset:
    """Odd digits against even ones."""
    tables = [replace(t, y=np.where(np.asarray(t.y) % 2 == 1, 1.0, -1.0)) for t in (mnist.records, mnist.held_out)]
    return replace(mnist, name="odd", records=tables[0], held_out=tables[1])


@cache
def load(name: str) -> Dataset:
    """A data set by its name."""
    return (DATA | UNBALANCED)[name]()


class Plan(NamedTuple):
    """What all runs of a cell are: a spec without a seed, and among how many nodes the records are partitioned.

    Where `shards` are given, they are partitioned already, for all seeds equally.
    """

    spec: Spec
    nodes: int
    shards: Shards | None = None


class Method(NamedTuple):
    """How it is run, and against whom it protects; where it is a run of the package, its plan."""

    run: Callable[[Dataset, int, float, int], Row]
    adversary: str
    says: str
    plan: Callable[[Dataset, int, float], Plan] | None = None


def planned_by(plan: Callable[[Dataset, int, float], Plan], adversary: str, says: str) -> Method:
    """A method that is a plan for all seeds."""

    def one(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
        if data.classes > 2 and plan in ONE_OUTPUT:
            return {"accuracy": float("nan")}
        spec, nodes, shards = plan(data, n, epsilon)
        return run(spec, shards or data.partition(nodes, seed), data, seed)

    return Method(one, adversary, says, plan)


def run(spec: Spec, shards: Shards, data: Dataset, seed: int) -> Row:
    """One run, on a processor; its statement must not be over the budget."""
    engine = "reference" if spec.algorithm.method.name in ONE_SHOT.values() else "compiled"
    result = solve(spec.replace(seed=seed), shards, test=data.test, execution=Execution(engine, observations=1))
    check(spec, result.statement)
    return judged(result.decide(data.test.X), data) | {
        "rounds": spec.algorithm.rounds,
        "bytes": float(result.history.last["bytes"]),
        "seconds": result.environment["seconds"],
    }


def check(spec: Spec, statement: PrivacyStatement) -> None:
    """What is stated is no more than what was requested."""
    assert isinstance(spec.privacy.noise, Private)
    assert statement.private and statement.epsilon <= spec.privacy.noise.epsilon * (1 + 1e-9)


def judged(scores: Any, data: Dataset) -> Row:
    """What a model is worth, by its scores of the held-out records: of several classes each against the rest."""
    truth = np.asarray(data.test.y)
    if data.classes == 2:
        return figures(scores, truth > 0) | {"accuracy": float(np.mean(np.where(scores >= 0, 1.0, -1.0) == truth))}
    each = [figures(scores[:, k], truth == k)["auc"] for k in range(data.classes)]
    return {"auc": float(np.mean(each)), "accuracy": float(np.mean(np.argmax(scores, axis=1) == truth))}


@cache
def partitions(name: str, nodes: int, seeds: int) -> list[Shards]:
    """The records of a set, partitioned from each seed, as `Dataset.partition` does."""
    data = load(name)
    first = data.partition(nodes, 0)
    first.norms  # noqa: B018 - once for all
    partitioned = lambda seed: first.partitioned(*even(data.records.n_records, nodes, np.random.default_rng(seed)))  # noqa: E731
    with ThreadPool() as pool:
        return [first, *pool.map(partitioned, range(1, seeds))]


def exists(name: str, method: str) -> bool:
    """Whether there is such a method for the classes of a set."""
    return (METHODS | WEIGHTS)[method].plan not in ONE_OUTPUT or load(name).classes == 2


def for_device(name: str, method: str, n: int, epsilon: float) -> bool:
    """Whether a CUDA device runs a cell, and quicker than processors, which batches need that fill products."""
    from sottovoce_gpu.products import SHARE  # a plug-in

    data, plan = load(name), (METHODS | WEIGHTS)[method].plan
    if plan is None:
        return False
    spec, nodes, _ = plan(data, n, epsilon)
    everybody = isinstance(spec.network.activation, Everyone)
    if method in ONE_SHOT or (spec.problem.outputs > 1 and not everybody):
        return False
    used = sum(spec.privacy.sampling.batch(q) for q in sizes(data, nodes))
    return not everybody or used * SHARE >= data.records.n_records


def on_device(name: str, method: str, n: int, epsilon: float, seeds: int) -> list[Row]:
    """All seeds of a cell together, on a CUDA device; what they took is shared among them."""
    began = time.perf_counter()
    data, plan = load(name), (METHODS | WEIGHTS)[method].plan
    if plan is None:
        raise SpecError(f"'{method}' is no plan that an engine could run; leave it to a processor")
    spec, nodes, shards = plan(data, n, epsilon)
    specs = [spec.replace(seed=seed) for seed in range(seeds)]
    partitioned = partitions(name, nodes, seeds) if shards is None else shards
    runs = run_batch(specs, partitioned, RunOptions(Execution("gpu", observations=None)))
    job = runs[0].prepared.job
    check(spec, runs[0].prepared.statement)  # the same for all seeds, or calibrated for each in the same way
    with ThreadPool(4) as pool:
        found = pool.map(lambda r: judged(scores(spec, r.models.mean(axis=0), data), data), runs)
    sent = int(job.schedule.up_to(spec.algorithm.rounds)[-1]) * job.method.width * job.problem.m * FLOAT_BYTES
    each = {"rounds": spec.algorithm.rounds, "bytes": float(sent), "seconds": (time.perf_counter() - began) / seeds}
    key = {"data": name, "method": method, "nodes": 1 if method in POOLED else n, "epsilon": epsilon}
    return [key | {"seed": seed} | row | each for seed, row in enumerate(found)]


def minimized(name: str, method: str, epsilon: float, seeds: list[int]) -> list[Row]:
    """Some seeds of a method that minimizes what is the same for all of them, which is then found once."""
    began, data, plan = time.perf_counter(), load(name), METHODS[method].plan
    assert plan is not None
    spec, rows = plan(data, 1, epsilon).spec, list[Row]()
    shards = partitions(name, 1, 1)[0].with_intercept(spec.problem.intercept)  # itself, and not like it, for all seeds
    first: Prepared | None = None
    for seed in seeds:
        made = prepare(spec.replace(seed=seed), shards, reusable=first)
        first = first or made
        assert made.job.method is first.job.method
        state = ENGINES["reference"].run([made.job], [made.job.start()], 1, 1)[0]
        check(spec, made.statement)
        row = judged(scores(spec, made.models(state, 1)[0], data), data)
        rows.append({"data": name, "method": method, "nodes": 1, "epsilon": epsilon, "seed": seed} | row)
    each = {"rounds": 1, "bytes": 0.0, "seconds": (time.perf_counter() - began) / len(seeds)}
    return [row | each for row in rows]


def scores(spec: Spec, model: Any, data: Dataset) -> Any:
    """Of the held-out records; one column a class where there are several."""
    by_class = model.reshape(spec.problem.outputs, -1)
    width = data.test.X.shape[1]
    found = data.test.X @ by_class[:, :width].T
    found = found + spec.problem.intercept * by_class[:, width] if spec.problem.intercept else found
    return found if spec.problem.outputs > 1 else found[:, 0]


def inputs_of(
    of: tuple[int, ...],
    data: Dataset,
    epsilon: float,
    adversary: Adversary | str = "transcript",
    private_scaling: bool = True,
) -> PublicInputs:
    """What the planner may know; all as in the estimators."""
    two = data.classes == 2
    return PublicInputs(
        sizes=of,
        features=data.records.m + 1,
        loss="hinge" if two else "softmax",
        epsilon=epsilon,
        delta=DELTA,
        outputs=1 if two else data.classes,
        adversary=adversary,
        intercept=INTERCEPT,
        private_scaling=private_scaling,
        sparse=sparse.issparse(data.records.X),
        free=("loss", "penalty"),
    )


def sizes(data: Dataset, n: int) -> tuple[int, ...]:
    """How many records each of n nodes has, from whichever seed they are partitioned."""
    return tuple(np.diff(even(data.records.n_records, n)[0]).tolist())


def trusting(trust: Trust) -> Callable[[Dataset, int, float], Plan]:
    """Everything by the planner, with secrets between pairs where trust says so."""
    return lambda data, n, epsilon: Plan(choose(inputs_of(sizes(data, n), data, epsilon, trust.adversary(n))).spec, n)


def paper(data: Dataset, n: int, epsilon: float) -> Plan:
    """Section 5.2 to the letter, but for the noise: three epochs of single records over one edge a round."""
    spec = paper_l2(1).replace(privacy__noise=Private(epsilon), privacy__delta=DELTA)
    if data.classes > 2:
        spec = spec.replace(problem__loss="softmax", problem__outputs=data.classes)
    return Plan(spec.replace(algorithm__rounds=rounds_for_epochs(spec, np.array(sizes(data, n)), 3.0)), n)


def alone(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
    """The first node, with its own records and nobody else's, by the planner."""
    shards = data.partition(n, seed).node(0)
    return run(choose(inputs_of(tuple(shards.sizes.tolist()), data, epsilon)).spec, shards, data, seed)


def center(data: Dataset, n: int, epsilon: float) -> Plan:
    """All records in one trusted place, and the same algorithm there, by the planner."""
    return Plan(choose(inputs_of(sizes(data, 1), data, epsilon, "central")).spec, 1)


def noisier(trust: Trust) -> Callable[[Dataset, int, float], Plan]:
    """The same with √(n/(n − k)) times the noise: at the smaller ε that has a multiplier so much larger."""

    def dearer(data: Dataset, n: int, epsilon: float) -> Plan:
        honest = inputs_of(sizes(data, n), data, epsilon, trust.adversary(n)).honest
        wanted = math.log(gaussian_multiplier(epsilon, DELTA) * math.sqrt(n / honest))
        less = brentq(lambda e: math.log(gaussian_multiplier(math.exp(e), DELTA)) - wanted, math.log(epsilon) - 3, 3.0)
        return center(data, n, math.exp(less))

    return dearer


def first(data: Dataset, n: int, epsilon: float) -> Plan:
    """One node by the defaults of version 0.1."""
    return Plan(first_spec(sizes(data, 1), data, epsilon), 1)


def first_nodes(trust: Trust) -> Callable[[Dataset, int, float], Plan]:
    """The same with many nodes; with secrets between pairs, which version 0.1 did not have, where trust says so."""
    return lambda data, n, epsilon: Plan(first_spec(sizes(data, n), data, epsilon, trust.adversary(n)), n)


def first_spec(of: tuple[int, ...], data: Dataset, epsilon: float, adversary: Adversary | str = "transcript") -> Spec:
    """The plan of version 0.1: its constants, its intercept, all rounds counted, no moments."""
    inputs = replace(inputs_of(of, data, epsilon, adversary, private_scaling=False), intercept=FIRST_INTERCEPT, free=())
    kept = dict(predict.FITTED), predict.LONGEST_STEP
    try:
        predict.FITTED.update(FIRST)
        predict.LONGEST_STEP = FIRST_STEP
        return choose(inputs, counted="all").spec
    finally:
        predict.FITTED.update(kept[0])
        predict.LONGEST_STEP = kept[1]


def baseline(name: str) -> Callable[[Dataset, int, float], Plan]:
    """A row of the table of algorithms, untuned: logistic, h = l2(0.001), ten epochs, 64 records a node in a batch."""
    row = make_baseline(name)

    def untuned(data: Dataset, n: int, epsilon: float) -> Plan:
        inputs = Public(sizes(data, n), data.records.m + 1, epsilon, DELTA, intercept=FIRST_INTERCEPT)
        return Plan(row.spec(inputs), 1 if row.central else n)

    ONE_OUTPUT.add(untuned)
    return untuned


def no_privacy(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
    """scikit-learn's logistic regression on all records, without noise and almost without a penalty."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e3, max_iter=500, solver="lbfgs")
    return {"accuracy": float(model.fit(data.records.X, data.y).score(data.held_out.X, data.held_out.y))}


def weighted(weigh: bool, silent: bool = False) -> Callable[[Dataset, int, float], Plan]:
    """The estimator's own run, classes weighed by a public prior or not, with secrets between pairs.

    What is silent has the same plan (loss, rounds, clip, averaging) with next to no noise.
    """

    def fitted(data: Dataset, n: int, epsilon: float) -> Plan:
        share = float(f"{np.mean(data.y > 0):.2g}")  # as a public prior would be known
        prior = {"prior": {-1.0: 1 - share, 1.0: share}, "class_weight": "balanced"} if weigh else {}
        model: Any = PrivateClassifier(
            epsilon, DELTA, row_norm=1.0, classes=(-1.0, 1.0), n_nodes=n, trust=1, random_state=0, **prior
        )
        made = model._prepare(data.records.X, data.y, None, None)
        spec = made.spec
        return Plan(spec.replace(privacy__noise=Private(SILENT)) if silent else spec, n, made.shards)

    return fitted


def rated(rate: float) -> Callable[[Dataset, int, float, int], Row]:
    """Classes not weighed, and a threshold for a public rate of positive answers, from a twentieth held out privately.

    Nobody's record is in both, so that ε covers the two.
    """

    def fitted(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
        drawn = np.random.default_rng(seed).permutation(len(data.y))
        aside, kept = np.split(drawn, [len(drawn) // 20])
        model = PrivateClassifier(
            epsilon, DELTA, loss="logistic", row_norm=1.0, classes=(-1.0, 1.0), n_nodes=n, trust=1, random_state=seed
        ).fit(data.records.X[kept], data.y[kept])
        found = model.evaluate(data.records.X[aside], data.y[aside], disjoint=True)
        assert found.statement is not None and found.statement.epsilon <= epsilon * (1 + 1e-9)
        model.use_threshold(found, rate=rate)
        return judged(model.decision_function(data.held_out.X) - model.threshold_, data)

    return fitted


def openly(weigh: bool, C: float | None) -> Callable[[Dataset, int, float, int], Row]:
    """scikit-learn's logistic regression without privacy, classes weighed or not.

    Without a C it is the one of FREE that has the least log-loss in five folds of the records.
    """

    def fitted(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        model: Any = LogisticRegression(C=C or 1.0, max_iter=500, class_weight="balanced" if weigh else None)
        if C is None:
            folds = StratifiedKFold(5, shuffle=True, random_state=seed)
            model = GridSearchCV(model, {"C": FREE}, scoring="neg_log_loss", cv=folds)
        model.fit(data.records.X, data.y)
        if C is None:
            print(data.name, "weighed" if weigh else "not weighed", model.best_params_, flush=True)
        return figures(model.decision_function(data.held_out.X), np.asarray(data.held_out.y) > 0)

    return fitted


def diffprivlib(data: Dataset, n: int, epsilon: float, seed: int) -> Row:
    """IBM's library: logistic regression by objective perturbation on all records, δ = 0; dense records only."""
    if sparse.issparse(data.records.X) and data.records.m > 1000:
        return {"accuracy": float("nan")}
    python = CACHE / "bin" / "python"
    if not python.exists():
        venv.create(CACHE, with_pip=True)
        subprocess.run([CACHE / "bin" / "pip", "install", "--quiet", *PINNED], check=True)
    with tempfile.TemporaryDirectory() as folder:
        tables = data.records, data.held_out
        X, X_test = (table.X.toarray() if sparse.issparse(table.X) else table.X for table in tables)
        np.savez(Path(folder, "data.npz"), X=X, y=data.y, X_test=X_test, y_test=data.held_out.y)
        script = Path(__file__).with_name("utility_diffprivlib.py")
        words = [python, script, Path(folder, "data.npz"), str(epsilon), str(seed)]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: Row = json.loads(said.splitlines()[-1])
    return found


METHODS: dict[str, Method] = {
    "planned": planned_by(trusting(Nobody()), "transcript", "sottovoce, defaults"),
    "paper": planned_by(paper, "transcript", "the paper's algorithm, honest noise"),
    "dsgd": planned_by(baseline("dsgd"), "transcript", "decentralised DP-SGD"),
    "alone": Method(alone, "transcript", "a node alone"),
    "pairs": planned_by(trusting(AllBut(1)), "secret_pairs(1)", "sottovoce, secrets between pairs, one node curious"),
    "majority": planned_by(trusting(Majority()), "secret_pairs(majority)", "sottovoce, a majority honest"),
    "centre": planned_by(center, "trusted center", "a trusted center, same algorithm"),
    "noisier": planned_by(noisier(Majority()), "trusted center", "the same, noise × √(n/(n − k)) of the majority"),
    "first": planned_by(first, "trusted center", "a trusted center, defaults of version 0.1"),
    "first nodes": planned_by(first_nodes(Nobody()), "transcript", "defaults of version 0.1"),
    "first pairs": planned_by(
        first_nodes(AllBut(1)), "secret_pairs(1)", "secrets between pairs, defaults of version 0.1"
    ),
    "dpsgd": planned_by(baseline("dpsgd"), "trusted center", "DP-SGD"),
    "objective": planned_by(baseline("objective"), "trusted center", "objective perturbation"),
    "output": planned_by(baseline("output"), "trusted center", "output perturbation"),
    "diffprivlib": Method(diffprivlib, "trusted center", "diffprivlib, trusted center, δ = 0"),
    "none": Method(no_privacy, "none", "no privacy"),
}
WEIGHTS: dict[str, Method] = {
    "plain": planned_by(weighted(False), "secret_pairs(1)", "classes not weighed"),
    "weighed": planned_by(weighted(True), "secret_pairs(1)", "class_weight"),
    "rated": Method(rated(0.4), "secret_pairs(1)", "not weighed, logistic; private threshold, 40 % positive"),
    "silent": planned_by(weighted(False, silent=True), "secret_pairs(1)", "the same plan, next to no noise"),
    "silent, weighed": planned_by(weighted(True, silent=True), "secret_pairs(1)", "the same, class_weight"),
}
for _C in (*FREE, None):
    _says = "C by cross-validation" if _C is None else f"C = {_C:g}"
    WEIGHTS[f"free, {_says}"] = Method(openly(False, _C), "none", f"no privacy, {_says}")
    WEIGHTS[f"free, weighed, {_says}"] = Method(openly(True, _C), "none", f"no privacy, class_weight, {_says}")
"""What weighing classes does, on unbalanced sets."""
POOLED = (
    "centre", "first", "dpsgd", "objective", "output", "diffprivlib", "none",
    *(name for name in WEIGHTS if name.startswith("free")),
)  # fmt: skip
"""Those for which the number of nodes makes no difference."""
