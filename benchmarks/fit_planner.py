"""Fit the planner's formula (src/sottovoce/planner/predict.py) on synthetic problems, and write its constants.

    python benchmarks/fit_planner.py measure runs.npz       # minutes with CuPy and a large GPU, a day on a CPU
    python benchmarks/fit_planner.py measure runs.npz 12    # the first twelve problems only
    python benchmarks/fit_planner.py fit runs.npz           # a minute or two; writes the constants into that file

A problem is made of its parameters alone. Dense ones have a spectrum that falls like a power and a mean off the origin,
correlated ones a few common factors, categorical ones are fields of one-hot levels, texts have Zipf words, pictures are
smooth and not negative; of the labels up to a quarter are wrong, and down to 7 % are positive. Rows have norm 1 and the
intercept's column beside them, as in the estimators.

Every one is run by noisy dual averaging at one place, hinge and clipped logistic, over a grid of reaches τ, noises c
and rounds T; what is put out is the average of the last half of the rounds. With exact averaging the problem of many
nodes is the same, with the noise that is left in their mean. All of (τ, c, seed) are runs side by side, on a device as
matrix products (engine 'gpu'). Measured: the share of wrong test records, and of wrongly ordered pairs.
"""

import pathlib
import sys
import time

import numpy as np

from sottovoce.algorithm.method import constant
from sottovoce.experiments.paper.runs import fastest_engine
from sottovoce.privacy.calibration import GivenNoise
from sottovoce.problem.shards import Shards
from sottovoce.run.solve import RunOptions, run_batch
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

try:
    import cupy as xp
except ImportError:
    xp = np

DEVICE, CPU = Execution("gpu", None), Execution("compiled", None)

REACHES, NOISES, ROUNDS = 10 ** np.arange(0.25, 4.51, 0.25), 10 ** np.arange(-5.0, -1.4, 0.5), (50, 200, 1000)
TRAIN, TEST, SEEDS = 16_000, 6_000, 2
INTERCEPT = 0.25
"""B, as in `estimators.settings`."""
SIZES = {
    "dense": (10, 20, 50, 100, 300, 1000, 3000),
    "correlated": (30, 100, 500, 2000),
    "categorical": (30, 60, 100, 300, 1000),
    "text": (300, 2000, 8000, 20_000),
    "picture": (100, 784),
}
HARDNESS = ((0.0, 0.5), (0.05, 0.5), (0.15, 0.25), (0.25, 0.5), (0.05, 0.07))
"""(share of labels that no classifier gets right, share of the positive class)."""


def unit_rows(X):
    return (X / np.maximum(np.linalg.norm(X, axis=1)[:, None], 1e-9)).astype(np.float32)


def dense(rng, rows, m, share):
    spectrum = np.arange(1, m + 1) ** -rng.choice([0.0, 0.5, 1.0, 1.5])
    spectrum /= spectrum.sum()
    X = rng.standard_normal((rows, m), dtype=np.float32) * (spectrum**0.5).astype(np.float32)
    mean = rng.standard_normal(m)
    X += (rng.choice([0.0, 1.0, 3.0]) * mean / np.linalg.norm(mean)).astype(np.float32)
    return X, rng.standard_normal(m) * spectrum ** -rng.choice([0.0, 0.25]), None


def correlated(rng, rows, m, share):
    factors = max(3, m // int(rng.choice([5, 20])))
    loads = rng.standard_normal((factors, m)) * (np.arange(1, factors + 1)[:, None] ** -0.5)
    X = rng.standard_normal((rows, factors), dtype=np.float32) @ loads.astype(np.float32)
    X += X.std() * rng.choice([0.3, 1.0]) * rng.standard_normal((rows, m), dtype=np.float32)
    return X, rng.standard_normal(m), None


def categorical(rng, rows, m, share):
    fields, X, truth = max(2, min(int(rng.choice([8, 14, 22])), m // 3)), np.zeros((rows, m), np.float32), []
    for levels in np.array_split(np.arange(m), fields):
        chance = np.arange(1, len(levels) + 1) ** -rng.choice([0.7, 1.0, 1.5])
        X[np.arange(rows), levels[rng.choice(len(levels), rows, p=chance / chance.sum())]] = 1
        truth += list(rng.gamma(0.5) ** 0.5 * rng.standard_normal(len(levels)))
    return X, np.array(truth), None


def text(rng, rows, m, share):
    words, chance, y = int(rng.choice([30, 75, 150])), 1 / np.arange(1, m + 1), rng.random(rows) < share
    tilt = rng.standard_normal(m) * (rng.random(m) < 0.3) * rng.choice([0.3, 0.6, 1.0])
    X = np.zeros((rows, m), np.float32)
    for side in (False, True):
        mine, p = np.flatnonzero(y == side), np.cumsum(chance * np.exp(tilt if side else -tilt))
        drawn = np.searchsorted(p, p[-1] * rng.random((len(mine), words)))
        for row, some in zip(mine.tolist(), drawn, strict=True):
            found, times = np.unique(some, return_counts=True)
            X[row, found] = np.log1p(times) * (1 - np.log(chance[found] / chance.sum()))
    return X, None, np.where(y, 1, -1)


def smooth(noise, width):
    """Fields of noise, smoothed by a Gaussian of this width, around the edges too."""
    side = noise.shape[-1]
    frequency = np.minimum(np.arange(side), side - np.arange(side)) / side
    keep = np.exp(-2 * (np.pi * width) ** 2 * (frequency[:, None] ** 2 + frequency**2)).astype(np.float32)
    return np.fft.ifft2(np.fft.fft2(noise) * keep).real


def picture(rng, rows, m, share):
    side, kind = int(m**0.5), rng.integers(10, size=rows)
    shapes = smooth(rng.standard_normal((10, side, side)), side / 8)
    noise = smooth(rng.standard_normal((rows, side, side), dtype=np.float32), side / 12)
    X = shapes[kind] / shapes.std() + rng.choice([0.6, 1.0]) * noise / noise.std() - 0.5
    return np.maximum(X, 0).reshape(rows, -1), None, np.where(kind < max(1, 10 * share), 1, -1)


def problem(kind, m, hardness, seed):
    """Rows of unit norm and labels ±1, to train on; and to test on, with the intercept's column."""
    (wrong, share), rng = hardness, np.random.default_rng([seed, m])
    X, truth, y = globals()[kind](rng, TRAIN + TEST, m, share)
    X = unit_rows(X)
    if y is not None:
        y = np.where(rng.random(len(y)) < wrong / 2, -y, y)
    else:  # labels by a logistic curve, as steep as makes the wanted share of them wrong
        score = X @ truth.astype(np.float32)
        score = (score - np.quantile(score, 1 - share)) / score.std()
        steep = min(
            np.exp(np.arange(-7, 7, 0.05)),
            key=lambda k: abs(np.mean(1 / (1 + np.exp(np.minimum(50, k * abs(score))))) - wrong),
        )
        y = np.where(rng.random(len(score)) < 1 / (1 + np.exp(np.clip(-steep * score, -50, 50))), 1, -1)
    shards = Shards.of(X[:TRAIN], y[:TRAIN], np.array([0, TRAIN]))
    shards.norms  # noqa: B018 - once for all runs
    tests = np.concatenate([X[TRAIN:], np.full((TEST, 1), INTERCEPT, np.float32)], axis=1)
    return shards, xp.asarray(tests), xp.asarray(y[TRAIN:], dtype=np.float32)


def models(shards, reach, noise, T, seeds, smooth_loss):
    """The average of the last half of T rounds with a_t = 1 and γ = T/τ; a column for each (τ, c, seed).

    τ and c are in units of the bounds: gradients and rows within 1. A seed's noise is the same, up to its size, for all
    (τ, c).
    """
    row = float(np.hypot(1, INTERCEPT))
    clip = row / 2 if smooth_loss else row  # half of the logistic slope's bound, as in the plans
    spec = Spec(AlgorithmSpec(T, a="constant(1)", counted="tail(0.5)")).replace(
        problem__loss="logistic" if smooth_loss else "hinge", problem__h="none", problem__intercept=INTERCEPT,
        network__activation="everyone", privacy__sampling="full", privacy__clip=clip,
    )  # fmt: skip
    each = [
        spec.replace(algorithm__gamma=constant(T * row * clip / tau), privacy__noise=GivenNoise((clip * c * T**0.5,)))
        for tau, c in zip(reach.tolist(), noise.tolist(), strict=True)
    ]
    if fastest_engine() == "gpu":
        on = RunOptions(Execution("gpu", None))
        runs = run_batch([one.replace(seed=s) for one in each for s in range(seeds)], shards, on)
    else:  # seed by seed, by what shares the draws of one
        found = [run_batch([one.replace(seed=s) for one in each], shards, RunOptions(CPU)) for s in range(seeds)]
        runs = [run for same in zip(*found, strict=True) for run in same]
    return xp.asarray(np.stack([run.models[0] for run in runs], axis=1), dtype=np.float32)


def judged(total, X, y):
    """Shares of wrong records and of wrongly ordered pairs, one for each column."""
    score = X @ total
    wrong = ((score >= 0) * 2 - 1 != y[:, None]).mean(0)
    ranks = xp.argsort(xp.argsort(score, axis=0), axis=0)
    positive = y > 0
    count = float(positive.sum())
    above = ranks[positive].sum(0) - count * (count - 1) / 2
    return wrong, 1 - above / (count * (len(y) - count))


def measured(data, smooth_loss, T):
    """(2, reaches, noises): shares of wrong records and pairs, the mean over the seeds."""
    shards, X_test, y_test = data
    reach, noise = (v.ravel() for v in np.meshgrid(REACHES, NOISES, indexing="ij"))
    found = judged(models(shards, reach, noise, T, SEEDS, smooth_loss), X_test, y_test)
    shaped = [f.reshape(len(REACHES), len(NOISES), SEEDS).mean(2) for f in found]
    return np.stack([s.get() if xp is not np else s for s in shaped])


def measure(path, most=None, seconds=440.0):
    """Every problem, in an order that mixes kinds, until the time is over."""
    began = time.time()
    jobs = [(k, m, h, s) for s in (1, 2) for k, ms in SIZES.items() for m in ms for h in HARDNESS]
    jobs = [jobs[i] for i in np.random.default_rng(0).permutation(len(jobs))][:most]
    rows, kinds = [], []
    for number, (kind, m, hardness, seed) in enumerate(jobs):
        data = problem(kind, m, hardness, 1000 * seed + number)
        for T in ROUNDS:
            for smooth_loss in (False, True):
                rows.append((number, m, T, smooth_loss, measured(data, smooth_loss, T)))
        kinds.append(f"{kind}({m}) {hardness}")
        print(f"{number + 1} of {len(jobs)}: {kinds[-1]}, {time.time() - began:.0f} s", flush=True)
        if time.time() - began > seconds:
            break
    number, m, T, smooth_loss, found = (np.array(part) for part in zip(*rows, strict=True))
    np.savez_compressed(
        path, problem=number, m=m, rounds=T, smooth=smooth_loss, found=found.astype(np.float32), kinds=np.array(kinds),
        reaches=REACHES, noises=NOISES,
    )  # fmt: skip


NAMES = ("b", "tau0", "p", "k", "u", "v", "tau1", "e", "d", "w", "s")
START = (0.16, 14.0, 0.5, 4.0, 0.9, 0.4, 3.0, 0.3, 20.0, 2.0, 0.15)
FORMULA = pathlib.Path(__file__).parent.parent / "src/sottovoce/planner/predict.py"


def formula(log_constants, tau, c, m, T):
    """`planner.predict.loss`, with constants as they are fitted."""
    b, tau0, p, k, u, v, tau1, e, d, w, s = np.exp(log_constants)
    x = k * c**2 * m**v * (tau + tau1) ** u
    y = (tau / (d * T)) ** w
    return b * (1 + tau / tau0) ** -p + e * x / (1 + x) + s * y / (1 + y)


def fit(path):
    """Constants with the least Poisson deviance, which keeps means right, and the least regret of the τ they choose.

    The regret is the mean of what the chosen τ loses in accuracy and in ordering, against the best τ in hindsight.
    """
    from scipy.optimize import minimize

    runs = np.load(path)
    wrong, disordered = runs["found"][:, 0].astype(float), runs["found"][:, 1].astype(float)
    number, m, T = (runs[key] for key in ("problem", "m", "rounds"))
    log_tau, noises = np.log10(runs["reaches"]), runs["noises"]
    least = np.array([wrong[number == i].min() for i in range(number.max() + 1)])[number]
    m, T = m[:, None, None], T[:, None, None]
    fine = np.arange(log_tau[0], log_tau[-1] + 1e-9, 0.05)
    place = (fine - log_tau[0]) / (log_tau[1] - log_tau[0])
    left = np.minimum((place + 1e-9).astype(int), len(log_tau) - 2)
    share = (place - left)[None, :, None]
    between = [v[:, left] * (1 - share) + v[:, left + 1] * share for v in (wrong, disordered)]
    each = [v - v.min(axis=1, keepdims=True) for v in between]
    regrets, seen = (each[0] + each[1]) / 2, np.maximum(wrong - least[:, None, None], 0.0)

    def choice(constants):
        return formula(constants, 10 ** fine[None, :, None], noises, m, T)

    def cost(constants):
        p = formula(constants, runs["reaches"][:, None], noises, m, T)
        foreseen = choice(constants)
        chance = np.exp((foreseen.min(axis=1, keepdims=True) - foreseen) / 0.004)  # a smooth argmin
        regret = np.mean(np.sum(chance * regrets, axis=1) / np.sum(chance, axis=1))
        tame = np.sum(np.maximum(0, np.abs(constants - np.log(START)) - 2.5) ** 2)
        return 10 * np.mean(p - seen * np.log(p)) + 40 * regret + 0.1 * tame

    constants = np.log(START)
    for _ in range(3):
        constants = minimize(cost, constants, method="Powell", options={"maxiter": 6}).x
    at = choice(constants).argmin(axis=1)
    picked = [np.take_along_axis(v, at[:, None], 1)[:, 0] for v in each]
    print("c                ", *(f"{c:8.1e}" for c in noises))
    for rounds in np.unique(T):
        mine = T[:, 0, 0] == rounds
        met = np.take_along_axis(between[0], at[:, None], 1)[:, 0] - least[:, None]
        for name, values in (
            ("τ, median", np.median(10 ** fine[at[mine]], axis=0)),
            ("regret, points", 100 * picked[0][mine].mean(axis=0)),
            ("in AUC", 100 * picked[1][mine].mean(axis=0)),
            ("loss, points", 100 * met[mine].mean(axis=0)),
            ("predicted", 100 * choice(constants).min(axis=1)[mine].mean(axis=0)),
        ):
            print(f"T = {rounds:<5} {name:15}", *(f"{v:7.2f} " for v in values))
    block = written(np.exp(constants))
    FORMULA.write_text(replaced(FORMULA.read_text(), block))
    print(block)


def written(constants):
    """The block of constants as it stands in the formula's file."""
    body = "".join(f'    "{name}": {value:.4g},\n' for name, value in zip(NAMES, constants, strict=True))
    return f"FITTED = {{\n{body}}}\n"


def replaced(text, block):
    """The formula's file with other constants."""
    before, start, rest = text.partition("FITTED = {\n")
    _, end, after = rest.partition("}\n")
    if not start or not end:
        sys.exit(f"{FORMULA} has no block that begins with 'FITTED = {{': put this into it\n{block}")
    return before + block + after


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        fit(sys.argv[2])
