"""A hundred thousand devices with some twenty records each: what accuracy, bytes, rounds and time a run takes.

    python benchmarks/scale.py                       (--devices 5000 for a minute's run; results/scale.md)

Sizes are uneven, between 5 and 60 records. A public share of the devices never answers: they are not there when keys
are exchanged, so that nobody counts on them, and the run is one of the others. One row shows what it costs where
devices are lost after their secrets were shared. Every run is planned from public numbers, at the same ε and δ; noise
is drawn for every device, and what pairs share where it does not cancel.
"""

import argparse
import math
import resource
import time
from dataclasses import dataclass, replace

import numpy as np

from sottovoce._types import FLOAT_BYTES
from sottovoce.data.synthetic import two_gaussians
from sottovoce.engine import compiled
from sottovoce.planner.choose import PublicInputs, choose
from sottovoce.privacy.random_secret_graph import least_noise_left, linked
from sottovoce.privacy.release import Gaussian
from sottovoce.problem.shards import Shards
from sottovoce.run.build import prepare
from sottovoce.run.spec import Spec

FEATURES, DELTA, TEST = 30, 1e-7, 20_000
SILENT, LOST = 0.1, 0.01
PEERS, FAILS, KEYS = 240, 1e-9, 64  # peers with secrets, the chance that they are too few, bytes of a key either way
LATENCY, LINE = 0.05, 1e6  # seconds an exchange waits, bytes a second of a device's line
COLUMNS = (
    "way",
    "accuracy",
    "worst of 50 devices",
    "ε",
    "rounds",
    "exchanges a round",
    "β",
    "KB a device sends",
    "minutes on a network",
    "processor seconds",
)
PAIRS = "secret_pairs(majority)"


@dataclass(frozen=True)
class Way:
    """One row of the table."""

    name: str
    graph: str = "complete"
    pairs: bool = False
    lost: float = 0.0


WAYS = (
    Way("exact averaging"),
    Way("random regular, 6 neighbors", "random_regular(degree=6)"),
    Way("exact averaging, random secrets", pairs=True),
    Way(f"the same, {LOST:.0%} lost after sharing", pairs=True, dropout_rate=LOST),
)


def sizes_of(devices: int) -> np.ndarray:
    """Uneven: twenty records on average, five at least."""
    drawn = np.random.default_rng(1).lognormal(math.log(18), 0.5, devices)
    return np.clip(np.round(drawn), 5, 60).astype(np.int64)


def best_ratio(n: int, lost: float) -> tuple[float, float]:
    """r, and noise of the mean in units of a run with independent noise.

    What hides a node is σ̂²(r), and what the mean has besides own noises is r² for each pair that is not canceled.
    """
    chance, k = PEERS / (n - 1), (n - 1) // 2

    def noise(ratio: float) -> float:
        left = least_noise_left(np.ones(n), ratio**2, chance, FAILS, k)
        return math.sqrt((1 + ratio**2 * lost * PEERS) / left)

    best = min(np.geomspace(0.1, 1000, 81), key=noise)
    return float(f"{best:.3g}"), noise(best)


def planned(way: Way, sizes: np.ndarray, epsilon: float) -> Spec:
    """By the planner, with the secrets of random bits where pairs share any."""
    adversary = PAIRS if way.pairs else "transcript"
    inputs = PublicInputs(tuple(sizes.tolist()), FEATURES, epsilon, DELTA, adversary=adversary, graph=way.graph)
    fixed = {"averaging": "gossip(4)", "rounds": 100} if way.graph != "complete" else {}
    spec = choose(inputs, weights="records", sampling="full", **fixed).spec
    if way.pairs:
        ratio, _ = best_ratio(len(sizes), way.lost)
        spec = spec.replace(privacy__law=f"pairs({ratio}, peers={PEERS}, coins=1, fails={FAILS})")
    return spec.replace(seed=1)


def run(way: Way, shards: Shards, test: Shards, epsilon: float) -> dict[str, float | str]:
    """Plan, run, account; examine the models at the end."""
    began = time.process_time()
    spec = planned(way, shards.sizes, epsilon)
    made, T, n = prepare(spec, shards), spec.algorithm.rounds, shards.n
    job = made.job
    if way.lost:  # the mean has own noises, and independent of them what was shared with who is gone
        ratio, _ = best_ratio(n, way.lost)
        stray = math.sqrt(1 + ratio**2 * way.lost * PEERS)
        release = replace(job.release, sigma=tuple(stray * s for s in job.release.sigma), law=Gaussian())
        job = replace(job, release=release, draws=replace(job.draws, release=release))
    models = made.models(compiled.run(job, job.start(), 1, T), T)
    sent = float(job.schedule.up_to()[-1]) * FEATURES * FLOAT_BYTES / n + (PEERS * KEYS if way.pairs else 0.0)
    depth = job.schedule.depth() / T
    some = np.sign(test.X @ models[:: max(1, n // 50)].T) == test.y[:, None]
    return {
        "way": way.name,
        "accuracy": float(np.mean(np.sign(test.X @ models.mean(axis=0)) == test.y)),
        "worst of 50 devices": float(some.mean(axis=0).min()),
        "epsilon": made.statement.epsilon,
        "rounds": T,
        "exchanges a round": depth,
        "beta": made.public["beta"],
        "kilobytes a device": sent / 1e3,
        "minutes": (T * depth * LATENCY + sent / LINE) / 60,
        "processor seconds": time.process_time() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--ways", type=int, nargs="+", default=list(range(len(WAYS))), help="rows of the table")
    arguments = parser.parse_args()
    devices, epsilon = arguments.devices, arguments.epsilon
    sizes = sizes_of(devices)
    answers = np.random.default_rng(2).random(devices) >= SILENT
    sizes = sizes[answers]
    table = two_gaussians(int(sizes.sum()) + TEST, FEATURES, separation=2.0, seed=3)
    X, y = table.X.astype(np.float32), table.y
    test = Shards.of(X[:TEST], y[:TEST], np.array([0, TEST]))
    shards = Shards.of(X[TEST:], y[TEST:], np.concatenate([[0], np.cumsum(sizes)]))
    n, k = shards.n, (shards.n - 1) // 2
    print(
        f"{devices:,} devices, {SILENT:.0%} never answer: {n:,} with {sizes.min()} to {sizes.max()} records, "
        f"{sizes.sum():,} in all; {FEATURES} features; ε = {epsilon:g}, δ = {DELTA:g}; at best 0.841"
    )
    print(f"secrets with {PEERS} peers each: λ ≥ {linked(n - k, PEERS / (n - 1), FAILS):.1f} of {PEERS / 2:.0f}")
    for lost in (0.0, 1e-4, 1e-3, LOST, SILENT):
        ratio, noise = best_ratio(n, lost)
        print(f"  {lost:g} of the devices lost after sharing: r = {ratio:g}, {noise:.3g} of independent noise")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for way in (WAYS[at] for at in arguments.ways):
        row = run(way, shards, test, epsilon)
        print("| " + " | ".join(v if isinstance(v, str) else f"{v:.4g}" for v in row.values()) + " |", flush=True)
    print(f"\nmemory at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
