"""Beside the peers: the same records, the same ε, time and accuracy of what people use today.

    python benchmarks/peers.py                                   (or a section of `make bench`: --only peers)

scikit-learn's LogisticRegression and LinearSVC are not private; a loop of NumPy is the DP-SGD that one would write
oneself, full batches and one release a step; diffprivlib perturbs the objective, Opacus clips and perturbs gradients of
one linear layer; ours has one owner, as they have, and twenty, which they cannot. Who is private has ε = 1, δ = 1e-5
(diffprivlib: pure ε). What is not installed is named with the line that installs it, into an environment of its own:

    pip install diffprivlib scikit-learn==1.7.2 opacus torch --extra-index-url https://download.pytorch.org/whl/cpu

Data is a9a with rows scaled to unit length; where its file is not at hand, a stand-in of scikit-learn's of its size.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from measure import Line
from sottovoce import PrivateClassifier
from sottovoce.data.fetch import load_real
from sottovoce.errors import SottovoceError
from sottovoce.privacy.profiles import gaussian_multiplier

EPSILON, DELTA, SEEDS = 1.0, 1e-5, 3
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


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


def logistic(split: Split, seed: int) -> float:
    X, y, T, t = split
    return float(LogisticRegression(max_iter=1000).fit(X, y).score(T, t))


def svm(split: Split, seed: int) -> float:
    X, y, T, t = split
    return float(LinearSVC(random_state=seed).fit(X, y).score(T, t))


def loop(split: Split, seed: int) -> float:
    """Gradient descent on the logistic loss; a step lets out the mean of all gradients, each of length 1 at most."""
    X, y, T, t = split
    rng, steps, rate = np.random.default_rng(seed), 100, 4.0
    z = gaussian_multiplier(EPSILON, DELTA) * math.sqrt(steps)
    x = np.zeros(X.shape[1])
    total = np.zeros_like(x)
    for _ in range(steps):
        slopes = -y / (1.0 + np.exp(y * (X @ x)))
        g = X.T @ slopes / len(y) + rng.normal(0.0, 2.0 * z / len(y), len(x))
        x -= rate * g
        total += x
    return float(np.mean(np.sign(T @ total) == t))


def diffprivlib(split: Split, seed: int) -> float:
    from diffprivlib.models import LogisticRegression as Private

    X, y, T, t = split
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a bound that rounding passes by 1e-16
        return float(Private(epsilon=EPSILON, data_norm=1.0 + 1e-6, random_state=seed).fit(X, y).score(T, t))


def opacus(split: Split, seed: int) -> float:
    """DP-SGD as its tutorial has it: Poisson batches, ten passes, noise found by its accountant."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    X, y, T, t = split
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
    return float(np.mean(np.sign(score) == t))


def ours(owners: int) -> Callable[[Split, int], float]:
    def fit(split: Split, seed: int) -> float:
        X, y, T, t = split
        model = PrivateClassifier(
            EPSILON, delta=DELTA, row_norm=1.0, classes=(-1, 1), n_nodes=owners, random_state=seed
        )
        return float(model.fit(X, y).score(T, t))

    return fit


PEERS: dict[str, tuple[str, Callable[[Split, int], float]]] = {
    "LogisticRegression, not private": ("", logistic),
    "LinearSVC, not private": ("", svm),
    "a NumPy loop, DP-SGD": ("", loop),
    "diffprivlib": ("pip install diffprivlib scikit-learn==1.7.2", diffprivlib),
    "Opacus, one linear layer": (
        "pip install opacus torch --extra-index-url https://download.pytorch.org/whl/cpu",
        opacus,
    ),
    "sottovoce, one owner": ("", ours(1)),
    "sottovoce, twenty owners": ("", ours(20)),
}


def measured(only: str = "") -> Iterator[tuple[str, str, float, float]]:
    """Name, data, accuracy, and processor seconds of a fit; no number is where a package is not installed."""
    what, split = data()
    for name, (install, fit) in PEERS.items():
        if only not in name:
            continue
        try:
            fit(split, 0)  # compiles, loads and warms up
        except ImportError as error:
            yield f"{name}: not installed, {error} ({install})", what, math.nan, math.nan
            continue
        scores, seconds = [], math.inf
        for seed in range(SEEDS):
            began = time.process_time()
            scores.append(fit(split, seed))
            seconds = min(seconds, time.process_time() - began)
        yield name, what, float(np.mean(scores)), seconds


def lines(quick: bool, repeats: int) -> Iterator[Line]:
    """Each beside LinearSVC: accuracy is told with the name."""
    found = list(measured())
    base = next(seconds for name, _, _, seconds in found if name.startswith("LinearSVC"))
    for name, what, accuracy, seconds in found:
        told = "" if math.isnan(accuracy) else f": {accuracy:.3f}"
        yield Line(f"{what}, ε = {EPSILON:g}", f"{name}{told} / LinearSVC", seconds, base, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="peers with this in their name")
    only = parser.parse_args().only
    print("| | data | accuracy | seconds of a fit |\n|---|---|---|---|")
    for name, what, accuracy, seconds in measured(only):
        cells = ("", "") if math.isnan(accuracy) else (f"{accuracy:.3f}", f"{seconds:.2f}")
        print(f"| {name} | {what} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
