"""Fit the stand-ins to the real pieces in SOTTOVOCE_DATA, and print original and stand-in side by side.

    python benchmarks/fit_standins.py [--refit]

Without `--refit` only the comparison is printed, from the numbers typed in `sottovoce.data.standins`; with it, the
numbers to type come first. What was typed differs from them in places: `ODDS` lies between its two estimates, `WEAK`
is a sixth lower (the estimates gave too high a spectrum), `EXPECTED` and `WORDS` were made to fall and to rise, and
`SHARE` is the real line 'share of documents'. The topics' parameters (`TOPICS` … `WRONG`) were chosen by hand among
about fifteen, with seed 0, looking at the lines 'accuracy', 'spectrum' and 'class log-ratio' of this table.
"""

import sys

import numpy as np
from scipy.sparse.linalg import svds
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sottovoce.data import standins
from sottovoce.data.fetch import load_real
from sottovoce.data.standins import epsilon_like, rcv1_like

SHARES = 100 * np.array(standins.WORDS_AT)


def line(name, real, stand_in, digits=3):
    def text(values):
        return " ".join(f"{value:.{digits}f}" for value in np.atleast_1d(values))

    print(f"  {name:34} real     {text(real)}\n  {'':34} stand-in {text(stand_in)}")


# ---- epsilon


def real_epsilon():
    """Rows 1..5000 in 100 columns, their labels, and 200 whole rows; in units of 1/√m."""
    part = load_real("epsilon5000")
    used = np.flatnonzero(np.bincount(part.X.indices, minlength=2000))
    whole = np.vstack([load_real(name).X.toarray() for name in ("epsilon100", "epsilon100.t")])
    return part.X[:, used].toarray() * 2000**0.5, part.y, whole * 2000**0.5, used


def fit_epsilon():
    part, y, whole, used = real_epsilon()
    _, _, right = np.linalg.svd(whole, full_matrices=False)
    strong = right[0] * 2000**0.5
    t = whole @ strong / 2000
    if np.mean(t) < 0:
        strong, t = -strong, -t
    weights = strong[used] / np.maximum(1 - (strong[used] / standins.LOADING_LIMIT) ** 2, 0.05)
    estimate = np.clip(part @ weights / (weights @ strong[used]), -0.97, 0.97)
    at = 100 * np.array(standins.ODDS_AT)
    for name, score in (("ODDS of 200 whole rows", t), ("ODDS of 5000 rows, estimated", estimate)):
        print(f"  {name}: {np.percentile(score / np.sqrt(1 - score**2), at).round(3).tolist()}")
    print(f"  LOADINGS: {np.percentile(strong, np.arange(0, 101, 5)).round(3).tolist()}")
    across = part / np.sqrt(1 - estimate**2)[:, None]
    across -= np.outer(across @ weights / (weights @ strong[used]), strong[used])
    slope, level = np.polyfit(strong[used] ** 2, across.var(axis=0), 1)
    print(f"  LOADING_LIMIT: {np.sqrt(-level / slope):.3f}")
    # the sample of 200 rows lifts every eigenvalue by the rest's trace over 200
    residual = whole / 2000**0.5 - np.outer(t, strong / 2000**0.5)
    values = np.linalg.svd(residual, compute_uv=False)[:5] ** 2 / 200
    rest = np.mean(1 - t**2)
    print(f"  WEAK: {((values - rest / 200) / rest).round(4).tolist()}")
    d = (across[y > 0].mean(axis=0) - across[y < 0].mean(axis=0)) / across.std(axis=0)
    noise = 4 / len(y)
    signal = np.mean(d**2) - noise
    kurtosis = (np.mean(d**4) - 6 * signal * noise - 3 * noise**2) / signal**2
    print(f"  CARRIERS: {3 / kurtosis:.3f} (kurtosis {kurtosis:.1f})")


def compare_epsilon():
    part, y, whole, used = real_epsilon()
    table = epsilon_like(5200, test=False)
    X, labels = table.X.astype(np.float64) * 2000**0.5, table.y
    mine, mine_whole = X[:5000][:, used], X[5000:]
    print("epsilon")
    quantiles = [0, 10, 25, 50, 75, 90, 100]
    for name, of in (("column means ×√m", lambda A: A.mean(axis=0)), ("column variances ×m", lambda A: A.var(axis=0))):
        line(f"{name}, quantiles", np.percentile(of(part), quantiles), np.percentile(of(mine), quantiles))

    def spectrum(A):
        return np.linalg.eigvalsh(np.cov(A.T))[::-1][[0, 1, 2, 3, 5, 10, 25, 50, 75, 90]]

    line("spectrum, 100 columns", spectrum(part), spectrum(mine), 2)
    values = [
        np.linalg.svd(A - A.mean(axis=0), compute_uv=False)[[0, 1, 2, 4, 9, 49]] ** 2 for A in (whole, mine_whole)
    ]
    line("spectrum, 200 whole rows", *(v / 200 / 2000 for v in values), 4)
    line("labels: share of +1", np.mean(y > 0), np.mean(labels > 0))
    line(
        "norms of whole rows",
        np.linalg.norm(whole, axis=1).mean() / 2000**0.5,
        np.linalg.norm(X, axis=1).mean() / 2000**0.5,
    )
    sizes = (1000, 2000, 4000)
    # 100 of 2000 columns hold more or less of the signal: several draws of them for the stand-in
    rng = np.random.default_rng(0)
    choices = [used, *(rng.choice(2000, 100, replace=False) for _ in range(7))]
    drawn = [[score(X[:5000][:, c], labels[:5000], n) for n in sizes] for c in choices]
    line("accuracy, 100 columns", [score(part, y, n) for n in sizes], np.mean(drawn, axis=0))
    held = epsilon_like(8192, test=True)
    train = epsilon_like(32_768)
    for n in (4096, 16_384, 32_768):
        for model in (LinearSVC(C=1.0), LogisticRegression(C=10.0, max_iter=500)):
            reached = model.fit(train.X[:n], train.y[:n]).score(held.X, held.y)
            print(f"  stand-in, all columns, {n} rows: {type(model).__name__} {reached:.3f} held out")
    law = standins._epsilon(2000, 0)
    best = np.mean(np.where(held.X @ (law.shift / law.spread**2) > 0, 1, -1) == held.y)
    print(f"  stand-in, the law's own weights: {best:.3f}; meant to be {standins.EPSILON_ACCURACY}")


def score(A, y, n):
    return LogisticRegression(C=100.0, max_iter=2000).fit(A[:n], y[:n]).score(A[4000:], y[4000:])


# ---- rcv1


def lengths(X):
    return np.percentile(np.diff(X.indptr), SHARES)


def frequencies(X):
    """Share of the documents that hold the word of each of RANKS, averaged over the ranks around."""
    sorted_ = np.sort(np.bincount(X.indices, minlength=X.shape[1]))[::-1] / X.shape[0]
    ends = [(int(0.85 * rank), max(int(1.15 * rank), int(0.85 * rank) + 1)) for rank in standins.RANKS]
    return np.array([np.mean(sorted_[start:stop]) for start, stop in ends])


def counts(X):
    """Shares of the counts 1, 2, …, 11, more; a row's scale is taken from its lower quartile, which counts 1."""
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    usual = frequency[X.indices] > 100
    ratio = np.where(usual, X.data / np.log(X.shape[0] / np.maximum(frequency, 1))[X.indices], np.nan)
    found = []
    for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        row = ratio[start:stop][usual[start:stop]]
        if len(row):
            found.append(np.exp(row / np.percentile(row, 25) - 1))
    whole = np.clip(np.rint(np.concatenate(found)), 1, 12).astype(int)
    return np.bincount(whole, minlength=13)[1:] / len(whole)


def log_ratios(X, y):
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    by_class = [np.bincount(X[y == c].indices, minlength=X.shape[1]) / np.sum(y == c) + 1e-4 for c in (1, -1)]
    ratio = np.log(by_class[0] / by_class[1])[np.argsort(-frequency)]
    return [np.std(ratio[a:b]) for a, b in ((0, 50), (50, 200), (200, 1000), (1000, 3000), (3000, 8000))]


def fit_rcv1(rounds=4):
    """Fixed point: whatever comes out too low is raised, until the stand-in's frequencies are the real ones."""
    X = load_real("rcv1").X
    for _ in range(rounds):
        standins._rcv1.cache_clear()
        mine = rcv1_like(X.shape[0]).X
        with np.errstate(divide="ignore", invalid="ignore"):
            lift = frequencies(X) / frequencies(mine)
        lift[~np.isfinite(lift)] = 1.0
        lift[-1] = lift[-2]  # beyond the sample's reach
        standins.EXPECTED = tuple(np.array(standins.EXPECTED) * lift)
        words = np.maximum.accumulate(np.array(standins.WORDS) * lengths(X) / lengths(mine))
        middle = np.interp(np.linspace(0, 1, 10_001), standins.WORDS_AT, words).mean() * np.cosh(standins.LONGER)
        standins.WORDS = tuple(words / middle)
        shares = np.array(standins.COUNTS) * counts(X) / counts(mine)
        standins.COUNTS = tuple(shares / np.sum(shares))
    for name in ("EXPECTED", "WORDS", "COUNTS"):
        print(f"  {name} = {tuple(float(f'{value:.3g}') for value in getattr(standins, name))}")


def compare_rcv1():
    table = load_real("rcv1")
    order = np.random.default_rng(0).permutation(table.n_records)
    X, y = table.X[order], table.y[order]
    made, held = rcv1_like(table.n_records), rcv1_like(8192, test=True)
    print("rcv1")
    sizes = np.diff(X.indptr), np.diff(made.X.indptr)
    line("nonzeros a row: mean, deviation", *([s.mean(), s.std()] for s in sizes), 1)
    line("nonzeros a row, quantiles", lengths(X), lengths(made.X), 0)
    line(
        "nonzeros a row by class (+1, −1)",
        *([s[t > 0].mean(), s[t < 0].mean()] for s, t in zip(sizes, (y, made.y), strict=True)),
        1,
    )
    line("words that occur at all", *(np.sum(np.bincount(A.indices) > 0) for A in (X, made.X)), 0)
    line("share of documents, by rank", frequencies(X), frequencies(made.X), 5)
    line("counts 1, 2, …", counts(X), counts(made.X))
    line("weights, quantiles", np.percentile(X.data, SHARES), np.percentile(made.X.data, SHARES))
    line("labels: share of +1", np.mean(y > 0), np.mean(made.y > 0))
    line("class log-ratio of words, by rank", log_ratios(X, y), log_ratios(made.X, made.y), 2)
    values = [
        np.sort(svds(A[:10_000].astype(np.float64), k=30, return_singular_vectors=False))[::-1] ** 2
        for A in (X, made.X)
    ]
    line("spectrum", *(v[[0, 1, 2, 3, 5, 9, 19, 29]] / 10_000 for v in values), 4)
    for n in (500, 1000, 2000, 5000, 10_000, 19_000):
        for model in (LinearSVC(C=1.0), LogisticRegression(C=10.0, max_iter=500)):
            real = model.fit(X[:n], y[:n]).score(X[19_000:], y[19_000:])
            mine = model.fit(made.X[:n], made.y[:n]).score(held.X, held.y)
            print(f"  accuracy, {n:6} rows, {type(model).__name__:18} real {real:.3f}, stand-in {mine:.3f}")


if __name__ == "__main__":
    if "--refit" in sys.argv:
        fit_epsilon()
        fit_rcv1()
    compare_epsilon()
    compare_rcv1()
