"""One node by the defaults of version 0.1 and by today's, on real data, many seeds at once: for machines with a GPU.

    python benchmarks/defaults.py prepare runs/defaults     # data and plans, by the package; needs SOTTOVOCE_DATA
    python benchmarks/defaults.py run runs/defaults out.json  # a minute or two with CuPy; NumPy alone will do

`run` reads what `prepare` wrote and needs nothing else. It is a replica of the planned runs (full batches, the released
moments and the map of `run.shape`) and no substitute for benchmarks/utility.py: it tells within minutes what a change
of the planner does on every set. Each plan is also run with its τ multiplied by some factors, to see what hindsight
would have taken.
"""

import json
import sys
from pathlib import Path

import numpy as np

try:
    import cupy as xp
except ImportError:
    xp = np

EPSILONS, SEEDS, FACTORS = (0.2, 1.0, 4.0), 10, (1.0, 0.25, 0.5, 2.0)
DELTA = 1e-5


def prepare(folder):
    """The sets, in few bytes, and for each the two plans at every ε."""
    from scipy import sparse

    import utility_methods as methods

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in methods.DATA:
        data = methods.load(name)
        plans = {}
        for epsilon in EPSILONS:
            shards = data.deal(1, 0)
            new = methods.choose(methods.facts_of(tuple(shards.sizes.tolist()), data, epsilon, "central")).spec
            for version, spec in (
                ("first", methods.first_spec(tuple(shards.sizes.tolist()), data, epsilon)),
                ("new", new),
            ):
                m, T = spec.privacy.moments, spec.algorithm.rounds
                plans[f"{version} {epsilon}"] = {
                    "T": T, "gamma": float(spec.algorithm.gamma(1)[0]), "mu": spec.problem.h.modulus,
                    "B": spec.problem.intercept, "clip": methods.make_lipschitz(spec), "tail": version == "new",
                    "z1": methods.gaussian_multiplier(epsilon, DELTA), "shares": m.shares, "power": m.power,
                }  # fmt: skip
        parts = {"plans": np.array(json.dumps(plans)), "N": np.array(data.records.n_records)}
        if name == "odd":  # of the same pictures
            parts["rows"] = np.array("mnist")
        for side, table in (("train", data.records), ("test", data.held_out)):
            X, rows = table.X, slice(None)
            if X.shape[0] > 100_000:  # noise is that of all records all the same
                rows = np.random.default_rng(0).permutation(X.shape[0])[:100_000]
            X, y = X[rows], np.asarray(table.y)[rows]
            if name == "odd":
                pass
            elif sparse.issparse(X):
                parts |= {f"{side}_{k}": v for k, v in (("data", X.data.astype(np.float16)), ("at", X.indptr))}
                parts[f"{side}_columns"] = X.indices.astype(np.uint16)
            else:
                parts[f"{side}_dense"] = X.astype(np.float16)
            parts |= {f"{side}_y": y.astype(np.int8), f"{side}_shape": np.array(X.shape)}
        np.savez_compressed(folder / f"{name}.npz", **parts)
        print(name, (folder / f"{name}.npz").stat().st_size // 1000, "kB", plans["new 1.0"], flush=True)


def rows_of(saved, side):
    """Dense rows in float32."""
    if f"{side}_dense" in saved:
        return saved[f"{side}_dense"].astype(np.float32)
    X, at = np.zeros(saved[f"{side}_shape"], np.float32), saved[f"{side}_at"]
    X[np.repeat(np.arange(len(X)), np.diff(at)), saved[f"{side}_columns"]] = saved[f"{side}_data"]
    return X


def mapped(X, X_test, plan, N, rng):
    """`run.shape`, with one draw of the released moments."""
    (length, centre, scale), m = plan["shares"], X.shape[1]
    noise, floor = plan["z1"] / N, 0.1 / m
    square, taken, c, spread = 1.0, 0.0, None, None
    if length:
        deviation = noise / length**0.5
        square = float((X**2).sum(1).mean()) + deviation * rng.standard_normal()
        square = min(1.0, max(square, deviation))
    if centre:
        deviation = 2 * noise / centre**0.5
        c = np.asarray(host(X.mean(0)), dtype=float) + deviation * rng.standard_normal(m)
        energy, long = c @ c, c @ c - m * deviation**2
        c = c * (long / energy) if long >= 0.25 * square else None
        taken = 0.0 if c is None else float(c @ c)
    if scale:
        deviation = (2 / scale) ** 0.5 * noise
        spread = np.asarray(host((X**2).mean(0)), dtype=float) + deviation * rng.standard_normal(m)
        spread = spread - (0.0 if c is None else c**2)
        s = np.maximum(spread, max(2 * deviation, floor)) ** -plan["power"]
        left = float(np.sum(s**2 * np.maximum(spread, 0)))
    else:
        s, left = np.ones(m), square - taken
        if c is None and square + 2 * (noise / length**0.5 if length else 0) >= 0.7:
            left = 1.0
    s = xp.asarray(s / max(left, 1e-4 * float(s.min()) ** 2) ** 0.5, dtype=np.float32)
    offset = xp.asarray(0.0 if c is None else c, dtype=np.float32)
    if c is None and float(abs(s - 1).max()) == 0:
        return X, X_test
    rows, test = (X - offset) * s, (X_test - offset) * s
    return rows / xp.maximum(xp.linalg.norm(rows, axis=1, keepdims=True), 1), test


def host(values):
    return values.get() if xp is not np else values


def scores(X, y, X_test, plan, N, factor, seeds, K):
    """Scores of the test records, (records, seeds·K), after a whole run for each seed."""
    T, B, L = plan["T"], plan["B"], plan["clip"]
    mu, gamma = plan["mu"] / factor, plan["gamma"] / factor
    sigma = 2 * L * plan["z1"] * T**0.5 / N / (1 - sum(plan["shares"])) ** 0.5
    m, columns = X.shape[1], len(seeds) * K
    z, total = xp.zeros((m + 1, columns), np.float32), xp.zeros((m + 1, columns), np.float32)
    draws = [xp.random.RandomState(seed) for seed in seeds]
    lengths = xp.sqrt((X**2).sum(1, keepdims=True) + B * B)
    which = None if K == 1 else (y[:, None] == xp.arange(K)).astype(np.float32)
    for t in range(1, T + 1):
        x = -z / np.float32(mu * t + gamma)
        if not plan["tail"] or t > T - max(1, round(T / 2)):
            total += x
        u = X @ x[:-1] + B * x[-1]
        if K == 1:
            pull = -y[:, None] * (y[:, None] * u < 1)
        else:
            u = u.reshape(len(y), len(seeds), K)
            p = xp.exp(u - u.max(2, keepdims=True))
            pull = p / p.sum(2, keepdims=True) - which[:, None]
            size = xp.sqrt((pull**2).sum(2, keepdims=True)) * lengths[:, None]
            pull = (pull * xp.minimum(1, L / xp.maximum(size, 1e-12))).reshape(len(y), columns)
        pull = pull.astype(np.float32)
        g = xp.concatenate([X.T @ pull, B * pull.sum(0, keepdims=True)]) / len(y)
        noise = xp.concatenate([draw.standard_normal((m + 1, K)).astype(np.float32) for draw in draws], axis=1)
        z += g + np.float32(sigma) * noise
    return X_test @ total[:-1] + B * total[-1]


def area(score, positive):
    """Under the ROC curve, for each column."""
    ranks = xp.argsort(xp.argsort(score, axis=0), axis=0)
    count = float(positive.sum())
    return (ranks[positive].sum(0) - count * (count - 1) / 2) / (count * (len(positive) - count))


def judged(score, y, seeds, K):
    """Accuracy and AUC of each seed."""
    if K == 1:
        return host(((score >= 0) * 2 - 1 == y[:, None]).mean(0)), host(area(score, y > 0))
    by_class = score.reshape(len(y), seeds, K)
    right = host((by_class.argmax(2) == y[:, None]).mean(0))
    return right, np.mean([host(area(by_class[:, :, k], y == k)) for k in range(K)], axis=0)


def run(folder, out):
    found = {}
    for path in sorted(Path(folder).glob("*.npz")):
        saved = np.load(path)
        plans, N = json.loads(str(saved["plans"])), int(saved["N"])
        rows = np.load(path.with_name(f"{saved['rows']}.npz")) if "rows" in saved else saved
        X, X_test = (xp.asarray(rows_of(rows, side)) for side in ("train", "test"))
        y, y_test = (xp.asarray(saved[f"{side}_y"], dtype=np.float32) for side in ("train", "test"))
        K = 1 if int(saved["train_y"].min()) < 0 else int(saved["train_y"].max()) + 1
        for name, plan in plans.items():
            for factor in FACTORS if name.startswith("new") else (1.0,):
                if sum(plan["shares"][1:]) == 0:
                    score = scores(X, y, X_test, plan, N, factor, range(SEEDS), K)
                else:
                    each = []
                    for seed in range(SEEDS):
                        rows, test = mapped(X, X_test, plan, N, np.random.default_rng([seed, 7]))
                        each.append(scores(rows, y, test, plan, N, factor, [seed], K))
                    score = xp.concatenate(each, axis=1)
                accuracy, auc = judged(score, y_test, SEEDS, K)
                key = f"{path.stem} {name} {factor}"
                found[key] = {"accuracy": accuracy.tolist(), "auc": auc.tolist()}
                print(f"{key:32} {100 * accuracy.mean():6.2f} {100 * auc.mean():6.2f}", flush=True)
        Path(out).write_text(json.dumps(found))
    tell(found)


def tell(found):
    """Today's defaults against those of version 0.1, paired by seed, with a 95 % interval of the mean difference."""
    means = {}
    for key, new in found.items():
        name, version, epsilon, factor = key.split()
        if version != "new" or float(factor) != 1:
            continue
        old, said = found[f"{name} first {epsilon} 1.0"], []
        for what in ("accuracy", "auc"):
            gain = 100 * (np.array(new[what]) - np.array(old[what]))
            said.append(f"{gain.mean():+6.2f} ± {2.262 * gain.std(ddof=1) / len(gain) ** 0.5:4.2f}")
            means.setdefault((epsilon, what), []).append(gain.mean())
        print(f"{name:14} ε = {epsilon:4} accuracy {said[0]}   AUC {said[1]}")
    for (epsilon, what), gains in sorted(means.items()):
        print(f"mean of {len(gains)} sets, ε = {epsilon}: {what} {np.mean(gains):+.2f}")


if __name__ == "__main__":
    prepare(sys.argv[2]) if sys.argv[1] == "prepare" else run(*sys.argv[2:4])
