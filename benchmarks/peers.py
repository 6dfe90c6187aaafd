"""Beside the peers: the same records, the same ε, accuracy, AUC and time of what people use today, in one table.

    python benchmarks/peers.py                                   (or a section of `make bench`: --only peers)

scikit-learn's LogisticRegression and LinearSVC are not private; a loop of NumPy is the DP-SGD that one would write
oneself, full batches and one release a step; diffprivlib perturbs the objective, Opacus clips and perturbs gradients of
one linear layer, DP-EBM boosts additive models; NVFlare's peer-to-peer descent has no privacy; DECOR's own workers add
noise that pairs of nodes cancel. Ours has one owner, and twenty, and the baseline `decor` of `sottovoce compare`. Each
private method is run at ε = 1, δ = 1e-5 (diffprivlib: δ = 0) in its own adjacency. The table has the ε of both: what a
method states in its own, and in the other one what the accountant of sottovoce computes from its noise. Public numbers
that methods divide by, as the number of records, are public in both. What is not installed is named with the line that
installs it, into an environment of its own:

    pip install diffprivlib scikit-learn==1.7.2 interpret-core==0.7.8 nvflare
    pip install opacus torch --extra-index-url https://download.pytorch.org/whl/cpu
    git clone https://github.com/elfirdoussilab1/DECOR && export PYTHONPATH=$PWD/DECOR

Data is a9a with rows scaled to unit length; where its file is not at hand, a stand-in of scikit-learn's of its size.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from measure import Line
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.errors import SottovoceError
from sottovoce.experiments.baselines import make_baseline
from sottovoce.experiments.inputs import BaselineInputs
from sottovoce.privacy.accounting import epsilon
from sottovoce.privacy.composite_events import JointEvent
from sottovoce.privacy.composition import Part
from sottovoce.privacy.events import Event, FullEvent, PoissonEvent
from sottovoce.privacy.profiles import FixedPair, PoissonPair, gaussian_epsilon, gaussian_multiplier
from sottovoce.problem.shards import Shards, even
from sottovoce.run.solve import solve
from sottovoce.run.spec import Execution

EPSILON, DELTA, SEEDS, OWNERS = 1.0, 1e-5, 3, 20
REPLACE, ADD = "replace-one", "add/remove"
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Guarantee(NamedTuple):
    """ε of a fit in both adjacencies; NaN where it is not known, infinite where there is none."""

    replaced: float = math.inf
    added: float = math.inf


NOT_PRIVATE = Guarantee()


class Fitted(NamedTuple):
    """Scores of the held-out records, whose sign is the class, and what the fit guarantees."""

    scores: Any
    guarantee: Guarantee = NOT_PRIVATE


class Peer(NamedTuple):
    """How a method is run, against whom it protects, in which adjacency it is accounted, and what installs it."""

    fit: Callable[[Split, int], Fitted]
    adversary: str = "none, not private"
    adjacency: str = "–"
    install: str = ""


def added_or_removed(event: Event) -> tuple[Part, ...] | None:
    """The accountant's parts of an event of ours where a record is added or removed; None where that is not known.

    A record moves the sum of its round by one clip, and not from one end to the other. With Poisson sampling the pair
    is the mixture against the noise alone, which is that of `FixedPair`.
    """
    if isinstance(event, JointEvent):
        found = [added_or_removed(each) for each in event.releases if not each.silent]
        return None if None in found else tuple(part for parts in found if parts for part in parts)
    if not isinstance(event, FullEvent | PoissonEvent):  # a batch of fixed size does not know a record less
        return None
    rate = event.rate if isinstance(event, PoissonEvent) else 1.0
    first = () if event.before is None else added_or_removed(event.before) or ()
    levels = event.levels or ((event.sigma, event.rounds),)
    return (*first, *(Part(FixedPair(sigma * event.batch / event.clip, rate), rounds) for sigma, rounds in levels))


def both(event: Event, stated: float) -> Guarantee:
    """Of a run of ours, which counts replaced records."""
    parts = added_or_removed(event)
    return Guarantee(stated, math.nan if parts is None else epsilon(parts, DELTA))


def poisson(multiplier: float, rate: float, steps: int, stated: float) -> Guarantee:
    """Of DP-SGD by Poisson batches that was calibrated for a record more or less; the multiplier is of one clip."""
    return Guarantee(epsilon([Part(PoissonPair(multiplier, rate), steps)], DELTA), stated)


def doubled(multiplier: float, stated: float) -> Guarantee:
    """Of a Gaussian mechanism calibrated for a record more or less: one that is replaced moves it twice as far."""
    return Guarantee(gaussian_epsilon(DELTA, multiplier / 2.0), stated)


def halved(multiplier: float, stated: float) -> Guarantee:
    """Of a Gaussian mechanism calibrated for a replaced record: one that is added moves it half as far."""
    return Guarantee(stated, gaussian_epsilon(DELTA, 2.0 * multiplier))


def data() -> tuple[str, Split]:
    """Rows of unit length; labels ±1."""
    try:
        train, test = load_real("a9a"), load_real("a9a.t")
        X, T = (np.asarray(t.X.todense() if hasattr(t.X, "todense") else t.X, dtype=np.float64) for t in (train, test))
        width = max(X.shape[1], T.shape[1])
        X, T = (np.pad(A, ((0, 0), (0, width - A.shape[1]))) for A in (X, T))
        return "a9a", (_unit(X), train.y, _unit(T), test.y)
    except (SottovoceError, OSError):
        from sklearn.datasets import make_classification

        X, y = make_classification(48_842, 123, n_informative=20, n_redundant=0, class_sep=0.7, random_state=0)
        y = np.where(y > 0, 1.0, -1.0)
        return "stand-in for a9a", (_unit(X[:32_561]), y[:32_561], _unit(X[32_561:]), y[32_561:])


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def logistic(split: Split, seed: int) -> Fitted:
    X, y, T, _ = split
    return Fitted(LogisticRegression(max_iter=1000).fit(X, y).decision_function(T))


def svm(split: Split, seed: int) -> Fitted:
    X, y, T, _ = split
    return Fitted(LinearSVC(random_state=seed).fit(X, y).decision_function(T))


def loop(split: Split, seed: int) -> Fitted:
    """Gradient descent on the logistic loss; a step releases the mean of all gradients, each of length 1 at most."""
    X, y, T, _ = split
    rng, steps, rate = np.random.default_rng(seed), 100, 4.0
    z = gaussian_multiplier(EPSILON, DELTA)
    x = np.zeros(X.shape[1])
    total = np.zeros_like(x)
    for _ in range(steps):
        slopes = -y / (1.0 + np.exp(y * (X @ x)))
        g = X.T @ slopes / len(y) + rng.normal(0.0, 2.0 * z * math.sqrt(steps) / len(y), len(x))
        x -= rate * g
        total += x
    return Fitted(T @ total, halved(z, EPSILON))


def diffprivlib(split: Split, seed: int) -> Fitted:
    """Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011), which compares records that are replaced.

    A record that is added moves the linear term half as far, and the Jacobian by one factor in place of two: ε/2.
    """
    from diffprivlib.models import LogisticRegression as Private

    X, y, T, _ = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a bound that rounding passes by 1e-16
        model = Private(epsilon=EPSILON, data_norm=1.0 + 1e-6, random_state=seed).fit(X, y)
        return Fitted(model.decision_function(T), Guarantee(EPSILON, EPSILON / 2.0))


def dp_ebm(split: Split, seed: int) -> Fitted:
    """DP-EBM: one release of the bins of every column, and one a boosting round, all of them Gaussian.

    It has a share of ε for the bins, and half of δ; the accountant converts the one Gaussian mechanism that both are.
    """
    from interpret.privacy import DPExplainableBoostingClassifier

    X, y, T, _ = split
    columns = range(X.shape[1])
    model = DPExplainableBoostingClassifier(
        epsilon=EPSILON,
        delta=DELTA,
        feature_types=["continuous"] * X.shape[1],
        privacy_bounds=dict.fromkeys(columns, (-1.0, 1.0)),  # of rows of unit length
        random_state=seed,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    share = model.bin_budget_frac
    parts = [gaussian_multiplier(EPSILON * f, DELTA / 2.0) for f in (share, 1.0 - share)]
    together = 1.0 / math.hypot(*(1.0 / z for z in parts))
    return Fitted(model.predict_proba(T)[:, 1] - 0.5, doubled(together, EPSILON))


def opacus(split: Split, seed: int) -> Fitted:
    """DP-SGD as its tutorial has it: Poisson batches, ten passes, noise found by its accountant."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X, y, T, _ = split
    model = torch.nn.Linear(X.shape[1], 1)
    rows = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor((y > 0).astype(np.float32)))
    optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hooks, and of a generator that is not a cryptographic one
        model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=DataLoader(rows, batch_size=512),
            epochs=10,
            target_epsilon=EPSILON,
            target_delta=DELTA,
            max_grad_norm=1.0,
        )
        loss = torch.nn.BCEWithLogitsLoss()
        for _ in range(10):
            for some, labels in loader:
                optimizer.zero_grad()
                loss(model(some)[:, 0], labels).backward()
                optimizer.step()
    with torch.no_grad():
        score = model(torch.tensor(T, dtype=torch.float32))[:, 0].numpy()
    return Fitted(score, poisson(float(optimizer.noise_multiplier), 1.0 / len(loader), 10 * len(loader), EPSILON))


class Loopback:
    """What NVFlare's executors need of an engine, for nodes that are threads of one process."""

    def __init__(self, name: str, nodes: dict[str, Any]) -> None:
        self.name, self.nodes = name, nodes

    def get_engine(self) -> "Loopback":
        """Return itself: it is the context of a call, too."""
        return self

    def send_aux_request(self, targets: Sequence[str], topic: str, request: Any, **_: Any) -> dict[str, Any]:
        """Hand a message to the nodes that it is for."""
        from nvflare.apis.fl_constant import ReservedKey

        request.set_peer_props({ReservedKey.IDENTITY_NAME: self.name})
        return {to: self.nodes[to]._handle_neighbor_value(topic, request, self) for to in targets}


def nvflare_p2p(split: Split, seed: int) -> Fitted:
    """NVFlare's `DGDExecutor`: twenty nodes on a ring, Metropolis weights, full batches; its messages have no noise."""
    import torch
    from nvflare.apis.signal import Signal
    from nvflare.app_opt.p2p.executors import DGDExecutor
    from nvflare.app_opt.p2p.types import Neighbor

    class Executor(DGDExecutor):  # theirs leaves the constructor to its user, and writes losses into the folder
        def __init__(self, model: Any, loss: Any, train: Any) -> None:
            super().__init__(model, loss, train, train, train)

        def log_info(self, *_: Any, **__: Any) -> None:
            pass

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X, y, T, _ = split
    models = [torch.nn.Sequential(torch.nn.Linear(X.shape[1], 1), torch.nn.Flatten(0)) for _ in range(OWNERS)]
    nodes: dict[str, Any] = {}
    for i, rows in enumerate(_owned(len(y), seed)):
        models[i].load_state_dict(models[0].state_dict())
        batch = (torch.tensor(X[rows], dtype=torch.float32), torch.tensor((y[rows] > 0).astype(np.float32)))
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*batch), batch_size=None, sampler=[list(range(len(rows)))]
        )
        nodes[f"site-{i}"] = Executor(models[i], torch.nn.BCEWithLogitsLoss(), loader)
        nodes[f"site-{i}"].neighbors = [Neighbor(f"site-{(i + k) % OWNERS}", 1.0 / 3.0) for k in (-1, 1)]
        nodes[f"site-{i}"]._weight = 1.0 / 3.0
        nodes[f"site-{i}"]._iterations, nodes[f"site-{i}"]._stepsize = 100, 4.0
    with ThreadPoolExecutor(OWNERS) as pool:
        runs = [pool.submit(node.run_algorithm, Loopback(name, nodes), None, Signal()) for name, node in nodes.items()]
    for run in runs:
        run.result()  # raises what went wrong in it
    with torch.no_grad():
        return Fitted(models[0](torch.tensor(T, dtype=torch.float32)).numpy())


def decor_own(split: Split, seed: int) -> Fitted:
    """DECOR's own workers, twenty on the complete graph, full batches; pairs draw anew in every step.

    Its `train.py` draws the noise of pairs once and adds the same in every step, so that the difference of two messages
    of a node is without it; the paper draws it anew, and so does this. Rows of unit length with an intercept have
    gradients of length √2 at most, so that clipping a node's mean at √2 clips nothing, and a replaced record moves it
    by 2√2/q. What outsiders see has the variance 1/[Σ⁻¹]_ii, as that of our `decor`.
    """
    import misc
    import torch
    import worker

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X, y, T, _ = split
    steps, parts = 100, _owned(len(y), seed)
    W = torch.full((OWNERS, OWNERS), 1.0 / OWNERS)
    z = gaussian_multiplier(EPSILON, DELTA)
    effective = z * math.sqrt(steps) * 2.0 * math.sqrt(2.0) / min(map(len, parts))
    ratio = 50.0  # of the noise of a pair to a node's own
    laplacian = OWNERS * np.eye(OWNERS) - 1.0
    own = effective * math.sqrt(np.linalg.inv(np.eye(OWNERS) + ratio**2 * laplacian)[0, 0])
    workers = []
    for rows in parts:
        batch = (torch.tensor(X[rows], dtype=torch.float32), torch.tensor((y[rows] > 0).astype(np.float32)))
        privacy = (math.sqrt(2.0) * (1.0 + 1e-6), own)
        others = (2, "libsvm_topk", 1, "cpu", "user")
        workers.append(worker.Worker([batch], [batch], len(rows), "libsvm_model", "BCELoss", 0.0, *privacy, *others))
    for each in workers:
        each.flat_parameters = torch.zeros_like(each.flat_parameters)
        each.update_model_parameters()
    everyone = torch.ones(OWNERS, OWNERS)
    for _ in range(steps):
        noise = misc.to_antisymmetric(torch.randn(OWNERS, OWNERS, workers[0].model_size), everyone, "cpu")
        moved = torch.stack([each.grad_descent(noise[i] * ratio * own, 4.0, 0.0) for i, each in enumerate(workers)])
        for i, each in enumerate(workers):
            each.decentralized_learning(W[i], moved)
    with torch.no_grad():
        score = workers[0].model(torch.tensor(T, dtype=torch.float32))[:, 0].numpy() - 0.5
    return Fitted(score, halved(z, EPSILON))


def _owned(records: int, seed: int) -> list[np.ndarray]:
    """The records of twenty owners, at random."""
    return np.array_split(np.random.default_rng(seed).permutation(records), OWNERS)


def decor(split: Split, seed: int) -> Fitted:
    """The baseline of `sottovoce compare`: Poisson batches of 64, ten passes, its rule's step."""
    X, y, T, _ = split
    offsets, order = even(len(y), OWNERS, np.random.default_rng(seed))
    inputs = BaselineInputs(tuple(np.diff(offsets).tolist()), X.shape[1], EPSILON, DELTA)
    spec = make_baseline("decor").spec(inputs).replace(seed=seed)
    result = solve(spec, Shards.of(X, y, offsets, order), execution=Execution(observations=1))
    worst = result.statement.worst
    return Fitted(result.decide(T), both(worst.event, worst.epsilon))


def ours(owners: int) -> Callable[[Split, int], Fitted]:
    def fit(split: Split, seed: int) -> Fitted:
        X, y, T, _ = split
        model = PrivateClassifier(
            EPSILON, delta=DELTA, row_norm=1.0, classes=(-1, 1), n_nodes=owners, random_state=seed
        ).fit(X, y)
        worst = model.privacy_.worst
        return Fitted(model.decision_function(T), both(worst.event, worst.epsilon))

    return fit


CENTER = "the model's reader; trusted center"
TRANSCRIPT = "who sees all messages"
OUTSIDER = "outsiders; no participant"
TORCH = "torch --extra-index-url https://download.pytorch.org/whl/cpu"
PEERS: dict[str, Peer] = {
    "LogisticRegression, not private": Peer(logistic),
    "LinearSVC, not private": Peer(svm),
    "a NumPy loop, DP-SGD": Peer(loop, CENTER, REPLACE),
    "diffprivlib": Peer(diffprivlib, CENTER, REPLACE, "pip install diffprivlib scikit-learn==1.7.2"),
    "DP-EBM": Peer(dp_ebm, CENTER, ADD, "pip install interpret-core==0.7.8"),
    "Opacus, one linear layer": Peer(opacus, CENTER, ADD, f"pip install opacus {TORCH}"),
    "NVFlare p2p, descent, twenty owners, not private": Peer(nvflare_p2p, install=f"pip install nvflare {TORCH}"),
    "DECOR, its own code, twenty owners": Peer(
        decor_own,
        OUTSIDER,
        REPLACE,
        "git clone https://github.com/elfirdoussilab1/DECOR && export PYTHONPATH=$PWD/DECOR; "
        f"pip install matplotlib pandas {TORCH}",
    ),
    "sottovoce, decor, twenty owners": Peer(decor, OUTSIDER, REPLACE),
    "sottovoce, one owner": Peer(ours(1), TRANSCRIPT, REPLACE),
    "sottovoce, twenty owners": Peer(ours(OWNERS), TRANSCRIPT, REPLACE),
}


class Row(NamedTuple):
    """A line of the table; `missing` says what is not installed, and then there are no numbers."""

    name: str
    data: str
    adversary: str
    adjacency: str
    guarantee: Guarantee = Guarantee(math.nan, math.nan)
    accuracy: float = math.nan
    auc: float = math.nan
    seconds: float = math.nan
    missing: str = ""


def row_of(name: str, peer: Peer, what: str, split: Split) -> Row:
    """Means over seeds, the largest ε, and the least processor seconds of a fit."""
    row = Row(name, what, peer.adversary, peer.adjacency)
    try:
        peer.fit(split, 0)  # compiles, loads and warms up
    except ImportError as error:
        return row._replace(missing=f"cannot be imported, {error} ({peer.install})")
    accuracies, aucs, seconds, found = [], [], math.inf, []
    for seed in range(SEEDS):
        began = time.process_time()
        fitted = peer.fit(split, seed)
        seconds = min(seconds, time.process_time() - began)
        accuracies.append(np.mean(np.where(fitted.scores > 0, 1, -1) == split[3]))
        aucs.append(roc_auc_score(split[3], fitted.scores))
        found.append(fitted.guarantee)
    worst = Guarantee(*(float(np.max(each)) for each in zip(*found, strict=True)))  # NaN stays NaN
    return row._replace(guarantee=worst, accuracy=float(np.mean(accuracies)), auc=float(np.mean(aucs)), seconds=seconds)


def measured(only: str = "", split: tuple[str, Split] | None = None) -> Iterator[Row]:
    """A row for each peer with this in its name."""
    what, records = split or data()
    for name, peer in PEERS.items():
        if only in name:
            yield row_of(name, peer, what, records)


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Each beside LinearSVC: accuracy is informed with the name."""
    found = list(measured())
    base = next(row.seconds for row in found if row.name.startswith("LinearSVC"))
    for row in found:
        details = f": {row.missing}" if row.missing else f": {row.accuracy:.3f}"
        yield Line(f"{row.data}, ε = {EPSILON:g}", f"{row.name}{details} / LinearSVC", row.seconds, base, "s")


HEADS = ("method", "adversary", "adjacency", f"ε, {REPLACE}", f"ε, {ADD}", "accuracy", "AUC", "seconds of a fit")


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table as text, in the order of `HEADS`."""
    first = (row.name, row.adversary, row.adjacency)
    if row.missing:
        return (f"{row.name}: {row.missing}", *first[1:], *[""] * 5)
    return (*first, *map(_shown, row.guarantee), f"{row.accuracy:.3f}", f"{row.auc:.3f}", f"{row.seconds:.2f}")


def _shown(value: float) -> str:
    """ε: in which adjacency nothing is known, there is a question mark."""
    return "?" if math.isnan(value) else "none" if math.isinf(value) else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="peers with this in their name")
    only = parser.parse_args().only
    what, split = data()
    print(f"{what}; δ = {DELTA:g} (diffprivlib: 0); ε in a method's own adjacency as it states it, in the other by our")
    print(f"accountant; means of {SEEDS} seeds, the least processor seconds.\n")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for row in measured(only, (what, split)):
        print(f"| {' | '.join(cells(row))} |", flush=True)


if __name__ == "__main__":
    main()
