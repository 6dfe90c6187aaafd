"""Fit the planner's formula (src/sottovoce/planner/predict.py) on synthetic problems, and write its constants.

    python benchmarks/fit_planner.py measure runs.jsonl     # hours on a CPU; four minutes with CuPy and a large GPU
    python benchmarks/fit_planner.py fit runs.jsonl         # a minute; writes the constants into that file

A problem is made of its parameters alone. Dense ones have a spectrum that falls like a power and a mean off the origin,
categorical ones are fields of one-hot levels, texts have Zipf words, pictures are smooth and not negative. Every one
is run, with everyone active and exact averaging, over a grid of reaches τ, noise levels c and rounds T. What is
measured is the share of wrong test records beyond the least that any of the problem's runs had.
"""

import json
import pathlib
import sys
import time

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.optimize import minimize

try:
    import cupy as xp
except ImportError:
    xp = np

REACHES, NOISES, ROUNDS = 10 ** np.arange(0.5, 4.6, 0.5), 10 ** np.arange(-4.5, -1.4, 0.5), (10, 30, 100, 300, 1000)
TRAIN, TEST, SEEDS = 8000, 4000, 3
SIZES = {
    "dense": (10, 20, 30, 100, 200, 300, 1000),
    "categorical": (30, 60, 100, 300, 1000),
    "text": (300, 3000, 20000),
    "picture": (100, 784),
}
HARDNESS = ((0.05, 0.5), (0.15, 0.25), (0.25, 0.5))
"""(share of labels that no classifier gets right, share of the positive class)."""


def dense(rng, rows, m, share):
    spectrum = np.arange(1, m + 1) ** -rng.choice([0.0, 0.5, 1.0, 1.5])
    spectrum /= spectrum.sum()
    X = rng.standard_normal((rows, m)) * spectrum**0.5
    mean = rng.standard_normal(m)
    X += rng.choice([0.0, 1.0, 3.0]) * mean / np.linalg.norm(mean)
    return X, rng.standard_normal(m) * spectrum ** -rng.choice([0.0, 0.25]), None


def categorical(rng, rows, m, share):
    fields, X, truth = max(2, min(int(rng.choice([8, 14, 22])), m // 3)), np.zeros((rows, m)), []
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
        mine, p = np.flatnonzero(y == side), chance * np.exp(tilt if side else -tilt)
        np.add.at(X, (np.repeat(mine, words), rng.choice(m, len(mine) * words, p=p / p.sum())), 1)
    return np.log1p(X) * (1 - np.log(chance / chance.sum())).astype(np.float32), None, np.where(y, 1, -1)


def picture(rng, rows, m, share):
    side, kind = int(m**0.5), rng.integers(10, size=rows)
    shapes = gaussian_filter(rng.standard_normal((10, side, side)), (0, side / 8, side / 8))
    noise = gaussian_filter(rng.standard_normal((rows, side, side)), (0, side / 12, side / 12))
    X = shapes[kind] / shapes.std() + rng.choice([0.6, 1.0]) * noise / noise.std() - 0.5
    return np.maximum(X, 0).reshape(rows, -1), None, np.where(kind < 10 * share, 1, -1)


def problem(kind, m, hardness, seed):
    """Rows of unit norm and labels ±1, to train and to test."""
    (wrong, share), rng = hardness, np.random.default_rng([seed, m])
    X, truth, y = globals()[kind](rng, TRAIN + TEST, m, share)
    X = (X / np.maximum(np.linalg.norm(X, axis=1)[:, None], 1e-9)).astype(np.float32)
    if y is not None:
        y = np.where(rng.random(len(y)) < wrong / 2, -y, y)
    else:  # labels by a logistic curve, as steep as makes the wanted share of them wrong
        score = X @ truth
        score = (score - np.quantile(score, 1 - share)) / score.std()
        steep = min(
            np.exp(np.arange(-7, 7, 0.01)),
            key=lambda k: abs(np.mean(1 / (1 + np.exp(np.minimum(50, k * abs(score))))) - wrong),
        )
        y = np.where(rng.random(len(score)) < 1 / (1 + np.exp(np.clip(-steep * score, -50, 50))), 1, -1)
    X, y = xp.asarray(X), xp.asarray(y, dtype=np.float32)
    return X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:]


def errors(data, smooth, T):
    """Share of wrong test records, (reaches, noises), of T rounds with a_t = 1 and γ = T/τ."""
    X, y, X_test, y_test = data
    reach, noise = (v.ravel() for v in np.meshgrid(REACHES, NOISES, indexing="ij"))
    step, sigma = (xp.asarray(np.repeat(v, SEEDS), dtype=np.float32) for v in (reach / T, noise * T**0.5))
    z = xp.zeros((X.shape[1], len(step)), np.float32)
    total, signs = xp.zeros_like(z), y[:, None]
    xp.random.seed(T)
    for _ in range(T):
        x = -z * step
        total += x
        margin = signs * (X @ x)
        steepness = xp.minimum(2 / (1 + xp.exp(xp.clip(margin, -50, 50))), 1) if smooth else margin < 1
        unit = xp.random.standard_normal((X.shape[1], SEEDS)).astype(np.float32)
        z += xp.tile(unit, (1, len(reach))) * sigma - X.T @ (signs * steepness) / len(y)
    wrong = ((X_test @ total >= 0) * 2 - 1 != y_test[:, None]).mean(0).reshape(len(REACHES), len(NOISES), SEEDS).mean(2)
    return wrong.get() if xp is not np else wrong


def measure(path):
    began, jobs = time.time(), [(k, m, h, s) for s in (1, 2) for k, ms in SIZES.items() for m in ms for h in HARDNESS]
    with open(path, "w") as out:
        for number, (kind, m, hardness, seed) in enumerate(jobs):
            data = problem(kind, m, hardness, 100 * seed + number)
            for T in ROUNDS:
                for smooth in (False, True):
                    row = {"problem": number, "kind": kind, "m": m, "smooth": smooth, "rounds": T}
                    out.write(json.dumps(row | {"errors": errors(data, smooth, T).round(5).tolist()}) + "\n")
            print(f"{number + 1} of {len(jobs)}: {kind}, {m} columns, {time.time() - began:.0f} s", flush=True)


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
    """Constants with the least Poisson deviance, which keeps means right, and the least regret of the τ they choose."""
    rows = [json.loads(line) for line in open(path)]
    wrong = np.array([row["errors"] for row in rows])
    number, m, T = (np.array([row[key] for row in rows]) for key in ("problem", "m", "rounds"))
    least = np.array([wrong[number == i].min() for i in range(number.max() + 1)])[number]
    m, T = m[:, None, None], T[:, None, None]
    fine = np.arange(0.5, 4.51, 0.05)
    left = np.minimum(((fine - 0.5) / 0.5 + 1e-9).astype(int), len(REACHES) - 2)
    share = ((fine - 0.5) / 0.5 - left)[None, :, None]
    between = wrong[:, left] * (1 - share) + wrong[:, left + 1] * share
    regrets = between - wrong.min(axis=1, keepdims=True)
    seen = np.maximum(wrong - least[:, None, None], 0.0)

    def choice(constants):
        return formula(constants, 10 ** fine[None, :, None], NOISES, m, T)

    def cost(constants):
        p = formula(constants, REACHES[:, None], NOISES, m, T)
        foreseen = choice(constants)
        chance = np.exp((foreseen.min(axis=1, keepdims=True) - foreseen) / 0.004)  # a smooth argmin
        regret = np.mean(np.sum(chance * regrets, axis=1) / np.sum(chance, axis=1))
        tame = np.sum(np.maximum(0, np.abs(constants - np.log(START)) - 2.5) ** 2)
        return 20 * np.mean(p - seen * np.log(p)) + 20 * regret + 0.1 * tame

    constants = np.log(START)
    for _ in range(3):
        constants = minimize(cost, constants, method="Powell", options={"maxiter": 6}).x
    at = choice(constants).argmin(axis=1)
    regret = np.take_along_axis(regrets, at[:, None], 1)[:, 0]
    print("c           ", *(f"{c:8.1e}" for c in NOISES))
    print("mean regret ", *(f"{100 * r:7.2f} " for r in regret.mean(axis=0)), "points")
    for rounds in ROUNDS:
        mine = T[:, 0, 0] == rounds
        met = np.take_along_axis(between, at[:, None], 1)[:, 0] - least[:, None]
        print(f"T = {rounds:<5} loss", *(f"{100 * r:7.2f} " for r in met[mine].mean(axis=0)))
        print("   predicted   ", *(f"{100 * r:7.2f} " for r in choice(constants).min(axis=1)[mine].mean(axis=0)))
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
    {"measure": measure, "fit": fit}[sys.argv[1]](sys.argv[2])
