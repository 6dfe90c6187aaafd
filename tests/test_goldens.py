"""Numbers that no change of structure may move: recorded once, and compared whenever the code changes.

Record with ``python tests/test_goldens.py`` only where a change of numbers is meant, and say so in the changelog.
Numbers are compared to `NEAR`: their last bits depend on the processor. Printed words are no part of it.
"""

import hashlib
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from sottovoce import Budget, PrivateClassifier, PrivateRegressor, Shards, Spec, solve
from sottovoce.errors import SottovoceError
from sottovoce.node.runfile import make_run
from sottovoce.problem.losses import LOSSES
from sottovoce.run.presets import PRESETS
from sottovoce.run.spec import AlgorithmSpec, Execution
from sottovoce.secure.generator import generators

HERE = Path(__file__).parent
sys.path.append(str(HERE / "node"))
KEPT, COMPILED = HERE / "fixtures" / "goldens.json", HERE / "fixtures" / "goldens-compiled.json"
NEAR = 1e-6
ROUNDS, RUN, REFUSED = 25, 110, 15
OPTIONS = {
    "problem__loss": ["hinge", "logistic", "squared_hinge", "smoothed_hinge(0.5)", "squared", "huber(0.5)", "absolute"],
    "problem__h": ["l2(0.1)", "l1(0.05)", "elastic_net(0.05, 0.1)", "box(-0.5, 0.5)", "none", "l2_ball(0.7)"],
    "problem__weights": ["nodes", "records", "records(9)"],
    "problem__intercept": [0.0, 0.75],
    "problem__outputs": [1, 1, 3],
    "algorithm__method": ["dual_averaging", "dual_averaging", "descent", "combine_first", "stale"],
    "algorithm__primal": ["recompute", "as_written"],
    "algorithm__curvature": [0.0, 0.0, 0.2],
    "algorithm__counted": ["all", "tail(0.5)"],
    "network__graph": ["complete", "ring", "star"],
    "network__activation": ["edges(1)", "edges(2)", "matching(2)", "nodes(3)", "everyone", "ticks"],
    "network__weights": ["metropolis", "lazy", "max_degree"],
    "network__averaging": ["gossip", "gossip(2)", "exact", "clipped(0.5)", "trimmed(1)"],
    "network__correct": [False, True],
    "network__every": [1, 1, 3],
    "privacy__sampling": ["one", "fixed(3)", "poisson(3)", "full", "cyclic(3)"],
    "privacy__noise": ["none", "gaussian(0.3)", "private(1.5)", "theorem1(0.5)"],
    "privacy__law": ["gaussian", "gaussian", "laplace", "pairs(2)", "tree"],
    "privacy__adversary": ["transcript", "transcript", "secret_pairs(1)", "central"],
    "data": ["dense", "float32", "csr"],
    "uneven": [False, True],
    "people": [False, True],
}  # frozen: an option that is added later gets a case of its own


def shards_of(n=6, q=8, m=4, outputs=1, real=False, kind="dense", uneven=False, people=False, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [4, 12, 7, 9, 20, 5] if uneven else [q] * n
    ids = np.concatenate([rng.permutation(np.r_[0:s, rng.integers(0, s, s)]) for s in sizes]) if people else None
    rows = [2 * s for s in sizes] if people else sizes
    X = rng.normal(size=(sum(rows), m))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    score = X @ rng.normal(size=m) + 0.2 * rng.normal(size=len(X))
    y = np.clip(score, -1, 1) if real else np.where(score > 0, 1.0, -1.0)
    if outputs > 1:
        y = np.argmax(X @ rng.normal(size=(m, outputs)), axis=1)
    made = {"dense": np.asarray, "float32": np.float32, "csr": sparse.csr_array}[kind](X)
    return Shards.of(made, y, np.concatenate([[0], np.cumsum(rows)]), user_ids=ids)


def drawn_case(k):
    rng = random.Random(k)
    case = {name: rng.choice(values) for name, values in OPTIONS.items()}
    if k % 3:  # two of three cases differ from the plain run in few things, so that most of them run
        plain = {name: values[0] for name, values in OPTIONS.items()}
        case = plain | {name: case[name] for name in rng.sample(sorted(OPTIONS), 6)}
        case["privacy__noise"] = rng.choice(OPTIONS["privacy__noise"])
    shape = {name: case.pop(name) for name in ("data", "uneven", "people")}
    loss = LOSSES.read(case["problem__loss"])
    data = shards_of(
        outputs=case["problem__outputs"], real=loss.targets == "real", kind=shape["data"],
        uneven=shape["uneven"], people=shape["people"],
    )  # fmt: skip
    base = Spec(AlgorithmSpec(ROUNDS, a="linear(1)", gamma="constant(5)", eta="inverse_sqrt(0.7)"), seed=7)
    clip = 0.8 if np.isinf(loss.slope_bound) else None
    return base.replace(**case, privacy__clip=clip, problem__on_violation="clip"), data


ONCE = {
    "moments": {"privacy__moments": "moments(0.05, 0.1, 0.1)", "problem__intercept": 0.25},
    "moments, central": {
        "privacy__moments": "moments(0, 0.1, 0.1, 0.5)", "problem__intercept": 0.5,
        "privacy__adversary": "secret_pairs(1)", "privacy__law": "pairs(2)",
    },
    "lengths of sparse rows": {"privacy__moments": "moments(0.05)", "data": "csr"},
    "moments of people": {"privacy__moments": "moments(0.02, 0.1)", "problem__intercept": 0.5, "people": True},
    "moments, three classes": {
        "privacy__moments": "moments(0.05, 0.1, 0.1)", "problem__intercept": 0.25, "problem__outputs": 3,
    },
    "quantiles": {"privacy__quantiles": "quantiles(0.1)", "problem__loss": "huber(0.5)", "problem__intercept": 0.5},
    "quantiles, statistics": {
        "privacy__quantiles": "quantiles(0.1)", "problem__loss": "squared", "problem__intercept": 0.5,
        "algorithm__method": "statistics(1.0)", "privacy__clip": None, "algorithm__rounds": 1,
    },
    "balance": {"privacy__balance": "balance(0.1, 0.2)", "problem__intercept": 0.25},
    "balance and moments": {
        "privacy__balance": "balance(0.1, 0.2)", "privacy__moments": "moments(0.05, 0.1)", "problem__intercept": 0.25,
    },
    "statistics": {"algorithm__method": "statistics", "problem__loss": "squared", "algorithm__rounds": 1},
    "mean": {"algorithm__method": "mean", "problem__loss": "squared", "algorithm__rounds": 1,
             "problem__intercept": 0.5},
    "output": {"algorithm__method": "output_perturbation", "problem__loss": "logistic", "algorithm__rounds": 1,
               "problem__h": "l2(0.1)"},
    "objective": {"algorithm__method": "objective_perturbation", "problem__loss": "logistic", "algorithm__rounds": 1,
                  "problem__h": "l2(0.1)", "network__graph": "complete"},
    "mixup": {"algorithm__method": "mixup"},
    "admm": {"algorithm__method": "admm", "problem__h": "l2(0.1)"},
    "huang": {"algorithm__method": "huang"},
    "muffliato": {"algorithm__method": "muffliato"},
    "tracking": {"algorithm__method": "tracking"},
    "scaffold": {"algorithm__method": "scaffold"},
    "stale": {"algorithm__method": "stale", "network__activation": "edges(1)"},
}  # fmt: skip


def once_case(name):
    case = dict(ONCE[name])
    loss = LOSSES.read(case.get("problem__loss", "hinge"))
    data = shards_of(
        n=4, q=60, real=loss.targets == "real", kind=case.pop("data", "dense"), people=case.pop("people", False),
        outputs=case.get("problem__outputs", 1), seed=3,
    )  # fmt: skip
    base = Spec(AlgorithmSpec(20, a="constant(1)", gamma="constant(5)"), seed=11)
    common = {"privacy__noise": "private(4)", "privacy__sampling": "full", "network__activation": "everyone"}
    return base.replace(**common | case), data


def finite(epsilon):
    return min(float(epsilon), 1e300)


def digest_of(value):
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=12).hexdigest()


def recorded(spec, data, engine="reference"):
    """Bits of the trajectory and of the public numbers of a simulation; the class of the error where there is one."""
    try:
        result = solve(spec, data, execution=Execution(engine, 3))
    except SottovoceError as error:
        return {"refused": type(error).__name__}
    return {
        "spec": digest_of(spec.to_dict()),
        "numbers": [
            float(result.models.sum()), float(np.abs(result.models).sum()), finite(result.statement.epsilon),
            float(result.history["objective"][-1]), result.public["lipschitz"],
        ],
    }  # fmt: skip


def case(name):
    """A case by its name: one of `ONCE`, or drawn from its number."""
    return once_case(name) if name in ONCE else drawn_case(int(name.split()[1]))


def cover():
    """The first so many drawn cases that run, and some that are refused: what runs is recorded, not decided again."""
    ran, refused = [], []
    for name in (f"case {k}" for k in range(10_000)):
        try:
            solve(*case(name), execution=Execution("reference", None))
            ran.append(name)
        except SottovoceError:
            refused.append(name)
        if len(ran) >= RUN:
            return [*ran, *refused[:REFUSED]]
    raise AssertionError("too few of the drawn cases run")


def trajectories(names):
    found = {name: recorded(*case(name)) for name in names}
    found |= {name: recorded(*once_case(name)) for name in ONCE}
    for name in PRESETS:
        found[f"preset {name}"] = recorded(PRESETS.make(name)(30).replace(seed=2), shards_of(n=5, q=70))
    return found


def compiled(names):
    return {name: recorded(*case(name), "compiled") for name in names}


def compilable(names):
    """The cases that the compiled engine runs."""
    found = compiled(names)
    return {name: values for name, values in found.items() if "refused" not in values}


def secure(names):
    """Bits of secure releases under one key, from the operating system's random numbers as a constant."""
    found = {}
    for name in names:
        spec, data = case(name)
        try:
            result = solve(spec.replace(seed=None), data, execution=Execution("reference", None))
        except SottovoceError as error:
            found[name] = {"refused": type(error).__name__}
            continue
        found[name] = {
            "numbers": [
                float(result.models.sum()),
                float(np.abs(result.models).sum()),
                finite(result.statement.epsilon),
            ],
        }
    return found


def run_files():
    """What real nodes agree on, and what they release from fixed keys."""
    from net import records, run_file, secret_of, simulated

    found = {}
    for name, changes in {
        "plain": {},
        "pairs": {"privacy__adversary": "secret_pairs(1)", "privacy__law": "pairs(1.5)", "privacy__noise": "private(2)",
                  "network__activation": "everyone"},
        "ring": {"network__activation": "nodes(2)", "network__graph": "ring", "privacy__sampling": "fixed(3)"},
        "l1": {"algorithm__primal": "as_written", "problem__h": "l1(0.01)", "problem__intercept": 1.0},
        "three": {"classes": ["no", "perhaps", "yes"], "problem__outputs": 3, "problem__loss": "logistic"},
        "people": {"unit": "person", "problem__intercept": 1.0, "privacy__sampling": "poisson(4)"},
        "exact": {"network__averaging": "exact", "network__activation": "everyone"},
    }.items():  # fmt: skip
        run = make_run(run_file(8, **changes))
        keys = [generators(secret_of(i), run.digest.encode(), bytes(32)) for i in range(run.n)]
        found[name] = {
            "digest": run.digest,
            "numbers": [finite(run.statement.epsilon), float(run.model_bound)],
        }
        if name != "pairs":
            models = simulated(run, records(run), keys)
            found[name]["numbers"].append(float(np.abs(models).sum()))
    return found


def table(folder, real=False):
    """A small CSV file of three owners."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 3)) * [3.0, 1.0, 2.0] + [4.0, 0.0, -1.0]
    site = rng.choice(["north", "south", "west"], 1500, p=[0.5, 0.3, 0.2])
    person = rng.integers(0, 400, 1500)
    score = X @ [1.0, -2.0, 0.5] - 3.0
    y = 50 + 8 * score if real else np.where(score > 4.0, "yes", "no")
    rows = ["a,b,c,site,person,outcome"]
    rows += [
        ",".join([*map(repr, map(float, x)), s, f"{s}{p}", str(v)])
        for x, s, p, v in zip(X, site, person, y, strict=True)
    ]
    path = Path(folder) / ("numbers.csv" if real else "classes.csv")
    path.write_text("\n".join(rows) + "\n")
    return path, X, y, site


COMMON = ["--label", "outcome", "--group", "site", "--row-norm", "12", "--unit-rows"]
TWO = [*COMMON, "--drop", "person", "--classes", "no,yes"]
REAL = [*COMMON, "--drop", "person", "--target-bounds=-150,250"]
COMMANDS = {
    "plain": TWO,
    "rounds": [*TWO, "--rounds", "40"],
    "epochs": [*TWO, "--epochs", "20"],
    "ε 3": [*TWO, "--epsilon", "3", "--delta", "1e-6"],
    "no shape": [*TWO, "--no-private-scaling"],
    "no intercept": [*TWO, "--no-intercept"],
    "logistic": [*TWO, "--loss", "logistic", "--regularizer", "l2:0.01"],
    "no slope bound": [*TWO, "--loss", "squared_hinge"],
    "prior": [*TWO, "--class-weight", "balanced", "--prior", "no=0.9,yes=0.1"],
    "weights": [*TWO, "--class-weight", "no=1,yes=3"],
    "majority": [*TWO, "--trust", "majority"],
    "centre": [*TWO[:2], *TWO[4:], "--nodes", "1", "--trust", "centre", "--drop", "site,person"],
    "ring": [*TWO, "--graph", "ring", "--activation", "matching:1"],
    "fixed": [*TWO, "--sampling", "fixed:8", "--clip", "0.5", "--gamma", "constant:5", "--a", "linear:1"],
    "averaging": [*TWO, "--averaging", "exact", "--debias", "--mixing", "lazy"],
    "people": [*COMMON, "--user-id", "person", "--classes", "no,yes"],
    "nodes": [*TWO[:2], *TWO[4:], "--nodes", "7", "--drop", "site,person"],
    "skewed": [*TWO[:2], *TWO[4:], "--nodes", "5", "--partition", "dirichlet:0.3", "--drop", "site,person"],
    "paper": [*TWO, "--preset", "paper-l2", "--rounds", "60"],
    "paper l1": [*TWO, "--preset", "paper-l1", "--epochs", "2", "--noise", "gaussian:0.1"],
    "private": [*TWO, "--preset", "private", "--epsilon", "2"],
    "no noise": [*TWO, "--noise", "none", "--epochs", "3"],
    "theorem 1": [*TWO, "--noise", "theorem1:1,0.1", "--preset", "liu2022", "--rounds", "30"],
    "regression": REAL,
    "statistics": [*REAL, "--epsilon", "8"],
    "robust": [*REAL, "--loss", "huber:0.25"],
    "range": [*REAL, "--target-scale", "private", "--epsilon", "4"],
    "range share": [*REAL, "--target-scale", "0.05"],
    "regression rounds": [*REAL, "--rounds", "50", "--intercept", "1"],
    "records": [*TWO, "--node-weights", "records", "--noise", "gaussian:0.2", "--epochs", "4"],
}  # fmt: skip


def commands(folder):
    """`train --json` with a seed: specs, public numbers, statements, models; and what lies in the folder."""
    from sottovoce.cli import main as cli

    two, real, found = table(folder)[0], table(folder, real=True)[0], {}
    for name, flags in COMMANDS.items():
        out = Path(folder) / "out" / name.replace(" ", "-")
        path = real if "--target-bounds=-150,250" in flags else two
        argv = ["sottovoce", "train", str(path), *flags, "--seed", "3", "--json", "--out", str(out)]
        kept, sys.argv, screen = sys.argv, argv, sys.stdout
        sys.stdout = open(os.devnull, "w")
        try:
            cli.main()
        except SystemExit as stop:
            if stop.code:
                found[name] = {"refused": str(stop.code)}
                continue
        finally:
            sys.stdout.close()
            sys.argv, sys.stdout = kept, screen
        head = json.loads((out / "result.json").read_text())
        with np.load(out / "model.npz") as arrays:
            models = arrays["models"]
        found[name] = {
            "spec": head["spec"],
            "names": digest_of([head["classes"], head["features"], head["nodes"], head["scale"], head["format"]]),
            "keys": sorted(head),
            "numbers": [finite(head["privacy"]["epsilon"]), float(models.sum()), float(np.abs(models).sum())],
        }
    return found


def estimators(folder):
    """Fits of both estimators: plans, models, statements."""
    _, X, y, site = table(folder)
    numbers = table(folder, real=True)[2]
    classes = {"classes": ["no", "yes"], "row_norm": 12.0, "random_state": 3}
    real = {"target_bounds": (-150, 250), "row_norm": 12.0, "random_state": 3}
    makes = {
        "classifier": (PrivateClassifier(1.0, **classes), y),
        "no noise": (PrivateClassifier(None, **classes), y),
        "logistic": (PrivateClassifier(2.0, loss="logistic", alpha=0.01, rounds=30, **classes), y),
        "elastic net": (PrivateClassifier(2.0, penalty="elasticnet", l1_ratio=0.3, **classes), y),
        "batches": (PrivateClassifier(2.0, batch=32, rounds=30, **classes), y),
        "fixed": (PrivateClassifier(2.0, sampling="fixed", activation="matching(1)", **classes), y),
        "squared hinge": (PrivateClassifier(1.0, loss="squared_hinge", **classes), y),
        "prior": (PrivateClassifier(1.0, class_weight="balanced", prior=[0.9, 0.1], **classes), y),
        "majority": (PrivateClassifier(1.0, trust="majority", **classes), y),
        "regressor": (PrivateRegressor(2.0, **real), numbers),
        "descent": (PrivateRegressor(2.0, method="descent", loss="huber(0.25)", **real), numbers),
        "range": (PrivateRegressor(4.0, target_scale="private", **real), numbers),
        "mean": (PrivateRegressor(1.0, method="mean", **real), numbers),
        "quiet regressor": (PrivateRegressor(None, method="descent", **real), numbers),
    }
    found = {}
    for name, (model, targets) in makes.items():
        model.fit(X, targets, nodes=site)
        found[name] = {
            "spec": model.spec_.to_dict(),
            "numbers": [
                float(np.abs(model.coef_).sum()),
                float(np.sum(model.intercept_)),
                finite(model.privacy_.epsilon),
            ],
        }
    return found


def ledger(folder):
    """Rows of a budget's ledger after two fits, but for marks, times and identities."""
    from sottovoce.node.store import Store

    _, X, y, site = table(folder)
    budget = Budget(3.0, 1e-5, Path(folder) / "ledger")
    for seed in (1, 2):
        model = PrivateClassifier(1.0, classes=["no", "yes"], row_norm=12.0, random_state=seed, budget=budget, rounds=9)
        model.fit(X, y, nodes=site)
    store = Store(Path(folder) / "ledger", reading=True)
    rows = [[row.kind, sorted(row.detail), row.detail.get("events")] for row in store.rows()]
    store.close()
    return {"rows": {"rows": rows}}


def constant_randomness(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(7, 7 + count)) if count < 200 else bytes(count))
    monkeypatch.setattr("secrets.randbits", lambda k: 123456789 % (1 << k))


@pytest.fixture(scope="module")
def known():
    return json.loads(KEPT.read_text())


def differs(mine, expected):
    """Numbers may be off by `NEAR`; everything else is the same."""
    numbers, known = mine.get("numbers", []), expected.get("numbers", [])
    if len(numbers) != len(known) or not np.allclose(numbers, known, rtol=NEAR, atol=NEAR):
        return True
    return {**mine, "numbers": known} != {**expected, "numbers": known}


def compare(found, expected):
    plain = json.loads(json.dumps(found))
    assert plain.keys() == expected.keys()
    wrong = [name for name, values in expected.items() if differs(plain[name], values)]
    details = {name: {k: (plain[name].get(k), v) for k, v in expected[name].items() if plain[name].get(k) != v}
               for name in wrong[:3]}  # fmt: skip
    assert not wrong, f"{len(wrong)} of {len(expected)} differ: {wrong}; (found, recorded): {details}"


def test_reference_trajectories(known):
    names = [name for name in known["trajectories"] if name.startswith("case")]
    compare(trajectories(names), known["trajectories"])


def test_secure_releases(known, monkeypatch):
    constant_randomness(monkeypatch)
    compare(secure(known["secure"]), known["secure"])


def test_run_files(known):
    compare(run_files(), known["run files"])


def test_commands(known, tmp_path, monkeypatch):
    monkeypatch.setattr("sottovoce.cli.train.write_report", lambda results, path, *title, **verified: path)  # slow
    compare(commands(tmp_path), known["commands"])


def test_estimators(known, tmp_path):
    compare(estimators(tmp_path), known["estimators"])


def test_ledger(known, tmp_path):
    compare(ledger(tmp_path), known["ledger"])


def test_compiled_trajectories():
    kept = json.loads(COMPILED.read_text())
    compare(compiled(kept["compiled"]), kept["compiled"])


def test_most_cases_run(known):
    """What is refused says nothing about numbers."""
    for part, least in {"trajectories": 0.85, "secure": 0.75, "commands": 1.0}.items():
        ran = [name for name, values in known[part].items() if "refused" not in values]
        assert len(ran) >= least * len(known[part]), part


def test_a_change_of_one_number_is_found(known):
    values = dict(list(known["trajectories"].items())[:3])
    other = {name: dict(row) for name, row in values.items()}
    first = next(name for name, row in values.items() if "numbers" in row)
    other[first]["numbers"] = [number + 1e-3 for number in values[first]["numbers"]]
    with pytest.raises(AssertionError, match="1 of 3 differ"):
        compare(other, values)


def main():
    import tempfile
    import warnings

    warnings.simplefilter("ignore")
    names = cover()
    found = {"trajectories": trajectories(names), "run files": run_files()}
    for name, make in {"commands": commands, "estimators": estimators, "ledger": ledger}.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = make(folder)
    with pytest.MonkeyPatch.context() as patch:
        constant_randomness(patch)
        found["secure"] = secure([*ONCE, *names[:RUN:2]])
    KEPT.write_text(json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False) + "\n")
    kept = {"compiled": compilable(names[:RUN])}
    COMPILED.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
