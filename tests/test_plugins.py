"""Choices of others': known everywhere by their names, never in the place of ours, and named where they are missing."""

import importlib.metadata
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import sottovoce
from sottovoce import AlgorithmSpec, DataError, Execution, Result, Shards, Spec, SpecError, plugins, solve, testing
from sottovoce.algorithm.descent import Descent
from sottovoce.cli.main import app
from sottovoce.engine import ENGINES, Engine, one_by_one, reference
from sottovoce.problem.losses import LOSSES, Conjugate, Loss
from sottovoce.problem.regularisers import Separable

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
        plugins.register(kind, row)
    yield
    for kind, name in list(plugins.REGISTERED):
        plugins.unregister(kind, name)


@pytest.fixture
def shards():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) / 4
    return Shards.of(X, X @ np.array([1.0, 2.0, 3.0]), np.array([0, 8, 20, 30, 40]))


SPEC = Spec(AlgorithmSpec(20, "descent"), seed=1).but(
    problem__on_violation="clip", network__activation="everyone", problem__loss="huber"
)
OWN = {"problem__loss": "lopsided:0.7", "network__graph": "wheel:2", "problem__h": "ridge"}


def test_one_s_own_choices_obey_the_laws_and_run_everywhere(mine, shards, tmp_path):
    testing.check_loss("lopsided(0.7)", engines=["nodes", "mine"])
    testing.check_graph("wheel(2)")
    testing.check_regulariser("ridge(0.2)", engines=["nodes", "mine"])
    testing.check_method("slow_descent(0.8)")
    assert testing.check_engine("mine") >= 10
    spec = SPEC.but(**OWN, algorithm__method="slow_descent")
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
    assert "plugins" not in solve(SPEC.but(problem__loss="huber"), shards).environment


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
    """What was registered after the kernel was made is unknown to it, and is not taken for something else."""
    from sottovoce.engine import kernel  # noqa: F401 - its table is made by now

    plugins.register("loss", lopsided("late", lambda u, y, k: slope(u, y, k)))
    from sottovoce.engine.kernel import rounds  # noqa: F401 - and so are its loops

    plugins.register("loss", lopsided("later", lambda u, y, k: slope(u, y, k)))
    with pytest.raises(SpecError, match="the compiled engine does not know the loss 'later'"):
        solve(SPEC.but(problem__loss="later"), shards, execution=Execution("compiled"))
    with pytest.raises(sottovoce.PrivacyError, match="slope of loss 'later'"):  # nor can it be made secure
        solve(SPEC.but(problem__loss="later", privacy__noise="gaussian(1)", seed=None), shards)


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
    other.__module__ = "somebody_else"
    with pytest.raises(SpecError, match="already"):
        plugins.register("graph", other, "wheel")


class Entry:
    """An entry point of an installed package."""

    def __init__(self, name, made):
        self.name, self.module, self.dist, self._made = name, "others", None, made

    def load(self):
        return self._made


def test_installed_packages_are_asked_for_a_name_that_nobody_knows(mine, monkeypatch, shards):
    plugins.unregister("graph", "wheel")
    asked = []

    def registers():
        asked.append(1)
        plugins.register("graph", wheel)

    def broken():
        raise ImportError("no module named 'cauchy'")

    entries = [Entry("wheels", registers), Entry("cauchy", broken)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries if group == plugins.GROUP else [])
    monkeypatch.setattr(plugins, "_loaded", {})
    assert solve(SPEC.but(network__graph="ring"), shards).models.shape == (4, 3) and not asked
    assert solve(SPEC.but(network__graph="wheel"), shards).models.shape == (4, 3) and asked == [1]
    with pytest.raises(SpecError, match=r"no loss 'cauchy'; .*plug-in 'cauchy' of others did not load"):
        SPEC.but(problem__loss="cauchy")
    assert asked == [1]


def test_the_laws_find_what_breaks_them(mine, shards):
    forgetful = Engine("forgetful", one_by_one(lambda job, state, start, stop: state))
    with pytest.raises(testing.LawBroken, match=r"reference's trajectory|same nodes spoke"):
        testing.check_engine(forgetful)
    noiseless = Engine("noiseless", one_by_one(lambda job, s, a, b: reference.run(_quiet(job), s, a, b)))
    with pytest.raises(testing.LawBroken, match="reference's trajectory"):
        testing.check_engine(noiseless)
    drawn = iter(range(1, 99))
    plugins.register("graph", lambda n: wheel(n, next(drawn)), "restless")
    with pytest.raises(testing.LawBroken, match="the same every time"):
        testing.check_graph("restless")
    plugins.register("method", lambda i: Descent(i.h, i.a, -i.eta, i.scale), "uphill")
    with pytest.raises((testing.LawBroken, SpecError)):
        testing.check_method("uphill")


def _quiet(job):
    from dataclasses import replace

    class Quiet:
        def __init__(self, draws):
            self.records = draws.records
            self.noise = lambda nodes, t: 0 * draws.noise(nodes, t)

    return replace(job, draws=Quiet(job.draws))


def test_a_plain_run_looks_for_no_plug_ins(monkeypatch, shards):
    monkeypatch.setattr(plugins, "load", lambda force=False: pytest.fail("nothing was asked for that is not there"))
    assert solve(SPEC.but(problem__loss="huber"), shards).models.shape == (4, 3)
