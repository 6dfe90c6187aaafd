"""Choices of others': known everywhere by their names, never in the place of ours, and named where they are missing."""

import importlib.metadata
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy
from typer.testing import CliRunner

import sottovoce
from sottovoce import AlgorithmSpec, DataError, Execution, Result, Shards, Spec, SpecError, plugins, solve, testing
from sottovoce.algorithm.descent import Descent
from sottovoce.cli.main import app
from sottovoce.engine import ENGINES, Engine, choose, engine_named, one_by_one, reference
from sottovoce.errors import PrivacyError, SottovoceError
from sottovoce.experiments.baselines import Baseline
from sottovoce.experiments.compare.metrics import measured
from sottovoce.network import Nodes, Periodic
from sottovoce.network.mixing import Averaging, Gossip
from sottovoce.privacy.sampling import Poisson
from sottovoce.problem.losses import LOSSES, Conjugate, Loss
from sottovoce.problem.objective import Problem
from sottovoce.problem.optimum import GapError, optimum
from sottovoce.problem.regularizers import Separable

STEEP = 3.0


def slope(u, y, k):
    return STEEP * (u > y) - k * (u < y)


def lopsided(name="lopsided", slope=slope):
    return Loss(
        name,
        "real",
        lambda u, y, k: np.maximum(STEEP * (u - y), k * (y - u)),
        slope,
        lambda k: max(STEEP, k),
        Conjugate(lambda k: 0.0, lambda y, k: (-k, STEEP)),
        parameter=0.5,
        parameter_name="down",
    )


def wheel(n: int, spokes: int = 1):
    return np.array([(i, i % (n - 1) + 1) for i in range(1, n)] + [(0, i) for i in range(1, n, spokes)])


def ridge(mu: float = 0.5):
    return Separable(mu=mu)


class Noiseless(Descent):
    """Leaves the noise out."""

    def step(self, state, t, nodes, speaks, gradient, noise, mix):
        return super().step(state, t, nodes, speaks, gradient, 0.0 * noise, mix)

    @classmethod
    def of(cls, i):
        return cls(i.h, i.a, i.eta, i.scale)


class Twice(Noiseless):
    """Takes a gradient at two places."""

    def step(self, state, t, nodes, speaks, gradient, noise, mix):
        gradient(state.z + 1.0)
        return Descent.step(self, state, t, nodes, speaks, gradient, noise, mix)


def slow_descent(i, times: float = 0.5):
    return Descent(i.h, i.a, times * i.eta, i.scale)


MINE = {
    "loss": lopsided(),
    "graph": wheel,
    "regulariser": ridge,
    "method": slow_descent,
    "engine": Engine("mine", one_by_one(reference.run)),
}


@pytest.fixture
def mine():
    for kind, row in MINE.items():
        plugins.register(kind, row, check=False)  # the laws are run below
    yield
    for kind, name in list(plugins.REGISTERED):
        plugins.unregister(kind, name)


@pytest.fixture
def shards():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) / 4
    return Shards.of(X, X @ np.array([1.0, 2.0, 3.0]), np.array([0, 8, 20, 30, 40]))


SPEC = Spec(AlgorithmSpec(20, "descent"), seed=1).replace(
    problem__on_violation="clip", network__activation="everyone", problem__loss="huber"
)
OWN = {"problem__loss": "lopsided:0.7", "network__graph": "wheel:2", "problem__h": "ridge"}


def test_one_s_own_choices_obey_the_laws_and_run_everywhere(mine, shards, tmp_path):
    testing.check_loss("lopsided(0.7)", engines=["nodes", "mine"])
    testing.check_graph("wheel(2)")
    testing.check_regularizer("ridge(0.2)", engines=["nodes", "mine"])
    testing.check_method("slow_descent(0.8)")
    assert testing.check_engine("mine") >= 10
    spec = SPEC.replace(**OWN, algorithm__method="slow_descent")
    results = [solve(spec, shards, execution=Execution(name)) for name in ("mine", "reference", "nodes")]
    for result in results[1:]:
        np.testing.assert_allclose(result.models, results[0].models, rtol=1e-12, atol=1e-14)
    assert Spec.from_json(spec.to_json()) == spec and "lopsided(0.7)" in spec.to_json()
    named = {(each["kind"], each["name"]) for each in results[0].environment["plugins"]}
    assert named == {("loss", "lopsided"), ("graph", "wheel"), ("method", "slow_descent"), ("engine", "mine")}
    results[0].save(tmp_path)
    assert Result.load(tmp_path).spec == spec
    plugins.unregister("graph", "wheel")
    with pytest.raises(DataError, match=r"needs the graph 'wheel' of .*; install that package, or import"):
        Result.load(tmp_path)
    assert "plugins" not in solve(SPEC.replace(problem__loss="huber"), shards).environment


def test_the_command_and_estimators_know_them(mine, shards, tmp_path):
    settings = {"epsilon": 5.0, "rounds": 3, "random_state": 0, "row_norm": 1.0, "graph": "wheel", "n_nodes": 4}
    model = sottovoce.PrivateRegressor(loss="lopsided", target_bounds=(-3, 3), **settings)
    assert np.isfinite(model.fit(np.asarray(shards.X), shards.y).coef_).all()
    table = np.column_stack([shards.X, shards.y])
    np.savetxt(tmp_path / "data.csv", table, delimiter=",", header="a,b,c,label", comments="")
    line = ["train", str(tmp_path / "data.csv"), "--loss", "lopsided:0.7", "--graph", "wheel", "--nodes", "4", "--json"]
    done = CliRunner().invoke(app, [*line, "--noise", "gaussian:1", "--rounds", "3", "--seed", "1", "--row-norm", "2"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["spec"]["problem"]["loss"] == "lopsided(0.7)"


def test_an_engine_that_cannot_run_it_says_so_by_its_name(mine, shards):
    """A registered loss is unknown to compiled engines, and is not taken for something else."""
    plugins.register("loss", lopsided("later", lambda u, y, k: slope(u, y, k)))
    with pytest.raises(SpecError, match="the compiled engine does not know the loss 'later'"):
        solve(SPEC.replace(problem__loss="later"), shards, execution=Execution("compiled"))
    with pytest.raises(sottovoce.PrivacyError, match="slope of loss 'later'"):  # nor can it be made secure
        solve(SPEC.replace(problem__loss="later", privacy__noise="gaussian(1)", seed=None), shards)


@pytest.mark.parametrize(
    ("kind", "row", "name", "words"),
    [
        ("loss", LOSSES["hinge"], None, "there is a loss 'hinge' already"),
        ("loss", lopsided(), "other", "calls itself 'lopsided'"),
        ("graph", wheel, "ring", "there is a graph 'ring' already"),
        ("graph", wheel, "Wheel of mine", "is no name of a graph"),
        ("graph", 3, "three", "cannot be called"),
        ("engine", ENGINES["nodes"], None, "there is a engine 'nodes' already"),
        ("colour", wheel, None, "no kind 'colour'"),
    ],
)
def test_what_cannot_be_registered(kind, row, name, words):
    with pytest.raises(SpecError, match=words):
        plugins.register(kind, row, name)


def test_a_cell_of_a_notebook_may_be_run_again_but_nobody_else_takes_the_name(mine):
    plugins.register("graph", wheel)
    other = lambda n: wheel(n)  # noqa: E731
    other.__module__ = "another_package"
    with pytest.raises(SpecError, match="already"):
        plugins.register("graph", other, "wheel")


class Entry:
    """An entry point of an installed package."""

    def __init__(self, name, made):
        self.name, self.module, self.dist, self._made = name, "others", None, made

    def load(self):
        return self._made


def test_installed_packages_are_searched_for_an_unknown_name(mine, monkeypatch, shards):
    plugins.unregister("graph", "wheel")
    requested = []

    def registers():
        requested.append(1)
        plugins.register("graph", wheel)

    def broken():
        raise ImportError("no module named 'cauchy'")

    entries = [Entry("wheels", registers), Entry("cauchy", broken)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == plugins.GROUP else [])
    monkeypatch.setattr(plugins, "_loaded", {})
    assert solve(SPEC.replace(network__graph="ring"), shards).models.shape == (4, 3) and not requested
    assert solve(SPEC.replace(network__graph="wheel"), shards).models.shape == (4, 3) and requested == [1]
    with pytest.raises(SpecError, match=r"no loss 'cauchy'; .*plug-in 'cauchy' of others did not load"):
        SPEC.replace(problem__loss="cauchy")
    assert requested == [1]


def test_the_laws_find_what_breaks_them(mine, shards):
    forgetful = Engine("forgetful", one_by_one(lambda job, state, start, stop: state))
    with pytest.raises(testing.LawBroken, match=r"reference's trajectory|same nodes spoke"):
        testing.check_engine(forgetful)
    noiseless = Engine("noiseless", one_by_one(lambda job, s, a, b: reference.run(_quiet(job), s, a, b)))
    with pytest.raises(testing.LawBroken, match="reference's trajectory"):
        testing.check_engine(noiseless)
    drawn = iter(range(1, 99))
    plugins.register("graph", lambda n: wheel(n, next(drawn)), "restless", check=False)
    with pytest.raises(testing.LawBroken, match="the same every time"):
        testing.check_graph("restless")
    plugins.register("method", lambda i: Descent(i.h, i.a, -i.eta, i.scale), "uphill", check=False)
    with pytest.raises((testing.LawBroken, SpecError)):
        testing.check_method("uphill")
    plugins.register("method", Noiseless.of, "noiseless", check=False)
    with pytest.raises(testing.LawBroken, match="adds the noise"):
        testing.check_method("noiseless")


def test_a_second_gradient_in_a_step_is_refused(mine, shards):
    plugins.register("method", Twice.of, "twice", check=False)
    for seed in (1, None):
        with pytest.raises(PrivacyError, match="once a step"):
            solve(SPEC.replace(algorithm__method="twice", seed=seed, privacy__noise="private(0.5)"), shards)


def _quiet(job):
    from dataclasses import replace

    class Quiet:
        def __init__(self, draws):
            self.records = draws.records
            self.noise = lambda nodes, t: 0 * draws.noise(nodes, t)

    return replace(job, draws=Quiet(job.draws))


def test_an_engine_of_a_plug_in_is_found_by_its_name_or_says_how_to_get_it(mine, monkeypatch, shards, tmp_path):
    """`auto` searches for plug-ins where a run has enough work; a result needs no engine to be read."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.delitem(ENGINES, "gpu", raising=False)
    for run in (lambda: solve(SPEC, shards, execution=Execution("gpu")), lambda: engine_named("gpu")):
        with pytest.raises(SpecError, match=r"engine 'gpu' is a plug-in that is not installed; .*pip install"):
            run()
    done = CliRunner().invoke(app, ["reproduce", "table1", "--engine", "gpu"])
    assert isinstance(done.exception, SpecError) and "plugins/gpu" in str(done.exception)

    entries = [
        Entry("slow", lambda: plugins.register("engine", Engine("slow", one_by_one(reference.run), auto_threshold=2e9)))
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    monkeypatch.setattr(plugins, "_loaded", {})
    job = testing.small_job()
    assert choose("auto", job).name == "reference" and "slow" not in ENGINES
    assert choose("auto", job, runs=10**7).name == "slow"
    solve(SPEC, shards, execution=Execution("slow")).save(tmp_path)
    plugins.unregister("engine", "slow")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    assert Result.load(tmp_path).environment["engine"] == "slow"


def test_a_plain_run_loads_no_plug_ins(monkeypatch, shards):
    monkeypatch.setattr(plugins, "load", lambda force=False: pytest.fail("nothing was requested that is not there"))
    assert solve(SPEC.replace(problem__loss="huber"), shards).models.shape == (4, 3)


def untypable(u, y, k):
    return np.where(y * u < 1, -y, 0.0 * y)  # of whole arrays


def own_hinge():
    return Loss(
        "own_hinge",
        "binary",
        lambda u, y, k: np.maximum(0.0, 1.0 - y * u),
        untypable,
        lambda k: 1.0,
        LOSSES["hinge"].conjugate_formula,
    )


PROGRAM = """
import numpy as np
import sottovoce
from sottovoce import AlgorithmSpec, Execution, Shards, Spec, plugins, solve
from sottovoce.problem.losses import Loss
from sottovoce.engine import ENGINES
{register}
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3)) / 4
shards = Shards.of(X, np.where(X[:, 0] > 0, 1.0, -1.0), np.array([0, 8, 20, 30, 40]))
spec = Spec(AlgorithmSpec(20, "descent"), seed=1).replace(
    problem__on_violation="clip", network__activation="everyone", problem__loss="{loss}"
)
result = solve(spec, shards, execution=Execution("{engine}"))
print(result.environment["engine"], result.models.tobytes().hex())
"""
REGISTERS = """
plugins.register("loss", Loss("own_hinge", "binary", lambda u, y, k: np.maximum(0.0, 1.0 - y * u),
    lambda u, y, k: np.where(y * u < 1, -y, 0.0 * y), lambda k: 1.0, None), check=False)
"""


def run_anew(loss, engine, register=""):
    """A run in a process of its own, where no kernel is loaded."""
    program = PROGRAM.format(loss=loss, engine=engine, register=register)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_a_registered_loss_changes_nothing_that_a_built_in_loss_does():
    """One that is written for arrays alone once ended every run of the compiled engine with an error."""
    assert run_anew("hinge", "compiled", REGISTERS) == run_anew("hinge", "compiled")


def test_the_automatic_choice_of_an_engine_falls_back_at_the_first_call(shards, monkeypatch):
    """The compiled engine does not know the loss, whether its kernel is loaded or not."""
    from sottovoce.engine import job as jobs

    assert run_anew("own_hinge", "auto", REGISTERS + "ENGINES['compiled'] = __import__('dataclasses').replace("
                    "ENGINES['compiled'], auto_threshold=0.0)")[0] == "reference"  # fmt: skip
    plugins.register("loss", own_hinge())
    try:
        monkeypatch.setattr(jobs, "work", lambda job: math.inf)
        job = testing.small_job(problem__loss="own_hinge")
        assert jobs.choose("auto", job).name == "reference"
        assert jobs.choose("auto", testing.small_job(problem__loss="hinge")).name != "reference"
    finally:
        plugins.unregister("loss", "own_hinge")


def pseudo_huber(conjugate=None):
    return Loss(
        "pseudo_huber",
        "real",
        lambda u, y, k: np.sqrt(1.0 + np.square(u - y)) - 1.0,
        lambda u, y, k: (u - y) / np.sqrt(1.0 + np.square(u - y)),
        lambda k: 1.0,
        conjugate,
    )


def test_a_loss_without_a_conjugate_is_certified_by_other_means_or_refused(shards):
    """No conjugate once meant the logistic one: a wrong optimum with a gap of 0."""
    loss = pseudo_huber()
    problem = Problem(loss, Separable(mu=0.1), shards)
    best = optimum(problem, gap=1e-10)
    found = scipy.optimize.minimize(problem.value, np.zeros(problem.m), method="BFGS", options={"gtol": 1e-9})
    assert best.lower <= found.fun + 1e-12 and best.value <= found.fun + 1e-10 and best.value - best.lower <= 1e-10
    with pytest.raises(SpecError, match=r"'pseudo_huber' has no conjugate, .* give the loss a Conjugate, or take l2"):
        optimum(Problem(loss, Separable(phi=0.1), shards))
    assert loss.smoothness == math.inf  # not that of the logistic loss, which a privacy statement would rest on
    with pytest.raises(SpecError, match="has no conjugate"):
        loss.conjugate(np.zeros(2), np.zeros(2))
    kinked = replace(lopsided(), conjugate_formula=None)
    with pytest.raises(GapError, match="give it a Conjugate"):
        optimum(Problem(kinked, Separable(mu=1e-4), shards), gap=1e-12)


def test_several_classes_without_a_conjugate_are_certified_too():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60).astype(float)
    shards = Shards.of(X, y, np.array([0, 60]))
    known, unknown = LOSSES.make("logistic"), replace(LOSSES.make("logistic"), conjugate_formula=None)
    values = [optimum(Problem(loss, Separable(mu=0.1), shards, outputs=3), gap=1e-9).value for loss in (known, unknown)]
    assert values[0] == pytest.approx(values[1], abs=2e-9)
    known, unknown = LOSSES.make("softmax"), replace(LOSSES.make("softmax"), conjugate_formula=None)
    values = [optimum(Problem(loss, Separable(mu=0.1), shards, outputs=3), gap=1e-9).value for loss in (known, unknown)]
    assert values[0] == pytest.approx(values[1], abs=2e-9)


def test_a_dual_value_above_the_primal_one_is_an_error(shards):
    wrong = pseudo_huber(Conjugate(lambda k: 0.0, lambda y, k: (-1.0, 1.0)))  # that of the absolute loss
    with pytest.raises(SpecError, match="the conjugate of loss 'pseudo_huber' is wrong"):
        optimum(Problem(wrong, Separable(mu=0.1), shards))


def test_a_one_shot_method_takes_built_in_losses_only():
    """It clips nothing: a false bound or smoothness would be a false guarantee."""
    X = np.random.default_rng(0).normal(size=(40, 3)) / 4
    shards = Shards.of(X, np.where(X[:, 0] > 0, 1.0, -1.0), np.array([0, 40]))
    plugins.register("loss", own_hinge())
    try:
        for method in ("output_perturbation", "objective_perturbation"):
            spec = Spec(AlgorithmSpec(1, method), seed=1).replace(
                problem__loss="own_hinge", problem__h="l2(0.1)", problem__on_violation="clip",
                network__activation="everyone", privacy__adversary="central", privacy__sampling="full",
            )  # fmt: skip
            with pytest.raises(sottovoce.PrivacyError, match="needs a built-in loss"):
                solve(spec, shards)
    finally:
        plugins.unregister("loss", "own_hinge")


BROKEN = {
    "loss": replace(lopsided("false_bound"), bound_formula=lambda k: 0.5),
    "graph": lambda n: np.random.default_rng().integers(0, n, (2 * n, 2)),
    "regulariser": lambda: _Uphill(mu=0.5),
    "method": lambda i: Descent(i.h, i.a, -i.eta, i.scale),
    "engine": Engine("forgetful", one_by_one(lambda job, state, start, stop: state)),
}


@dataclass(frozen=True)
class _Loud(Gossip):
    """Says that it mixes twice, and mixes once."""

    def mix(self, W, messages, unit=1.0):
        return W @ messages

    def weights(self, W):
        return W @ W

    def __str__(self):
        return "loud"


@dataclass(frozen=True)
class _Nameless(Periodic):
    """A ring, whose text is that of a dataclass."""

    def pairs(self, graph):
        i = np.arange(graph.n)
        return [np.stack([i, (i + 1) % graph.n], axis=1)]


@dataclass(frozen=True)
class _Busy(Nodes):
    """Draws one node more than it says."""

    def __str__(self):
        return "busy"

    def iota(self, graph):
        return super().iota(graph) * (self.k - 1) / self.k


@dataclass(frozen=True)
class _Often(Poisson):
    """Draws all records, and is accounted as if it drew a few."""

    kind = "often"

    def draw(self, uniforms, q, t=1):
        return None


class _Uphill(Separable):
    def step(self, z, s, gamma):
        return -super().step(z, s, gamma)


@pytest.mark.parametrize("kind", BROKEN)
def test_register_runs_the_check_of_its_kind_unless_disabled(kind):
    name = getattr(BROKEN[kind], "name", "broken")
    table = plugins._table(kind)
    with pytest.raises(
        (testing.LawBroken, SottovoceError), match=f"the {kind} '{name}' is not registered: .*check=False"
    ):
        plugins.register(kind, BROKEN[kind], name)
    assert name not in table and (kind, name) not in plugins.REGISTERED
    plugins.register(kind, BROKEN[kind], name, check=False)
    try:
        assert name in table
    finally:
        plugins.unregister(kind, name)


def test_a_broken_row_does_not_take_the_place_of_an_earlier_one(mine):
    worse = replace(lopsided(), bound_formula=lambda k: 0.1)
    with pytest.raises(testing.LawBroken, match="not registered"):
        plugins.register("loss", worse)
    assert LOSSES["lopsided"] is MINE["loss"] and ("loss", "lopsided") in plugins.REGISTERED
    plugins.register("loss", lopsided())  # a right one does
    assert LOSSES["lopsided"] is not MINE["loss"]


PACKAGE = '''
"""A package of its own: a baseline from a paper, a metric, a data set, a map, a sequence of graphs, an averaging."""
from dataclasses import dataclass, replace

import numpy as np

from sottovoce import register
from sottovoce.data.tables import Table
from sottovoce.experiments.baselines import Baseline
from sottovoce.experiments.inputs import stepped
from sottovoce.network.activation import Periodic
from sottovoce.network.mixing import Averaging, Gossip


@dataclass(frozen=True)
class RingThenStar(Periodic):
    def __str__(self):
        return "ring_then_star"

    def pairs(self, graph):
        i = np.arange(graph.n)
        star = np.stack([np.zeros(graph.n - 1, dtype=int), i[1:]], axis=1)
        return [np.stack([i, (i + 1) % graph.n], axis=1), star]


@dataclass(frozen=True)
class Twice(Gossip):
    k: int = 2

    def __str__(self):
        return "twice"


def lazy_descent(inputs):
    spec = inputs.spec("descent", network__activation="ring_then_star", network__averaging="twice")
    return stepped(inputs, spec)


def blobs():
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], 300)
    X = rng.normal(size=(300, 3)) / 8 + 0.3 * y[:, None]
    return (Table(X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None], y, None, None, "blobs"),)


def squares(X, weight=0.5):
    return np.concatenate([X, weight * X**2], axis=1)


def brier(scores, truth):
    return np.mean((1 / (1 + np.exp(-scores)) - truth) ** 2)


def everything():
    register("activation", RingThenStar, "ring_then_star")
    register("averaging", Twice, "twice")
    register("baseline", Baseline("lazy_descent", "Somebody et al. 2030", lazy_descent, citation="doi:10.0/0"))
    register("data set", blobs)
    register("feature map", squares)
    register("metric", brier)
'''


def test_the_command_finds_what_an_installed_package_brings(tmp_path):
    """A baseline, a metric, a data set, an averaging and a time-varying graph, none of which sottovoce imports."""
    (tmp_path / "their_bench.py").write_text(PACKAGE)
    folder = tmp_path / "their_bench-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: their-bench\nVersion: 1.2\n")
    (folder / "RECORD").write_text("their_bench.py,,\n")
    (folder / "top_level.txt").write_text("their_bench\n")
    (folder / "entry_points.txt").write_text("[sottovoce.plugins]\ntheirs = their_bench:everything\n")
    line = ["compare", "--data", "blobs", "--algorithms", "dsgd,lazy_descent", "--nodes", "4", "--batch", "8"]
    line += ["--feature-map", "squares:0.25"]
    code = "from sottovoce.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *line, "--epochs", "3", "--seeds", "2", "--regularizer", "l2:0.05", "--json"],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = {line["algorithm"]: line for line in json.loads(done.stdout)["ranking"]}
    assert set(lines) == {"dsgd", "lazy_descent"}
    for line in lines.values():
        assert (
            line["data"] == "blobs, squares(0.25)"
            and line["true_epsilon"] <= 1 + 1e-6
            and 0 < line["metrics"]["brier"]["mean"] < 0.5
        )


@pytest.mark.parametrize(
    ("kind", "row", "name"),
    [
        ("weight rule", lambda links: np.asarray(links, dtype=float), "links"),
        ("averaging", _Loud, "loud"),
        ("sampling", _Often, "often"),
        ("baseline", None, "spendthrift"),
        ("activation", _Nameless, "nameless"),
        ("activation", lambda: _Busy(3), "busy"),
        ("feature map", lambda X: X - X.mean(axis=0), "centered"),
    ],
)
def test_the_new_kinds_are_checked(kind, row, name):
    if kind == "baseline":
        spend = lambda inputs: replace(inputs, epsilon=2 * inputs.epsilon).spec("descent")  # noqa: E731
        row = Baseline(name, "twice the budget", spend)
    with pytest.raises((testing.LawBroken, SottovoceError), match=r"(?s)is not registered: .*check=False"):
        plugins.register(kind, row, name)
    assert name not in plugins._table(kind)


def test_an_abstract_class_is_refused_with_what_it_lacks():
    class Half(Averaging):
        def mix(self, W, messages, unit=1.0):
            return messages

    with pytest.raises(SpecError, match=r"averaging 'half' is an abstract class, .*; define exchanges in Half$"):
        plugins.register("averaging", Half, "half")
    assert "half" not in plugins._table("averaging")


def test_a_metric_gives_one_number():
    plugins.register("metric", lambda scores, truth: scores, "all_scores")
    try:
        with pytest.raises(SpecError, match=r"'all_scores' gave .* one number"):
            measured(np.zeros(3), np.ones(3), binary=False)
    finally:
        plugins.unregister("metric", "all_scores")
