"""Table 1's last row, measured: how the utility lost grows with m, n, q, ι and ε, beside what the paper claims."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.experiments.paper.measure import Setting, Slope, cost, key, slope
from sottovoce.run.result import write_atomically

BASE = Setting()
AXES: dict[str, list[Setting]] = {
    "m": [replace(BASE, m=m) for m in (10, 20, 40, 80)],
    "n": [replace(BASE, n=n, active=n // 10) for n in (20, 40, 80)],
    "q": [replace(BASE, q=q) for q in (250, 500, 1000, 2000)],
    "ι": [replace(BASE, active=active) for active in (2, 4, 8, 16)],
    "ε": [replace(BASE, epsilon=epsilon) for epsilon in (0.125, 0.25, 0.5, 1.0)],
}
VALUES: dict[str, Callable[[Setting], float]] = {
    "m": lambda s: s.m,
    "n": lambda s: s.n,
    "q": lambda s: s.q,
    "ι": lambda s: s.active / s.n,
    "ε": lambda s: s.epsilon,
}
CLAIMED: dict[str, dict[str, float]] = {
    "l2": {"m": 1, "n": 0, "q": -2, "ι": 2, "ε": -2},
    "l1": {"m": 0.5, "n": 0, "q": -1, "ι": 0.5, "ε": -1},
}
"""Table 1: mι²/(q²ε²) where h is strongly convex, √(mι)/(qε) where it is convex only."""
CORRECTED: dict[tuple[str, str], dict[str, float | None]] = {
    ("l2", "paper"): {"m": 1, "n": -1, "q": -2, "ι": 1, "ε": -2},
    ("l2", "honest"): {"m": 1, "n": -1, "q": -1, "ι": 0, "ε": None},
    ("l1", "paper"): {"m": 1, "n": -1, "q": -1.5, "ι": 1.5, "ε": -2},
    ("l1", "honest"): {"m": 1, "n": -1, "q": -0.5, "ι": 0.5, "ε": None},
}
"""At three passes, T = 3q/ι: for l2 the variance of the noise in the mean model, 4mσ²/(9nqμ²); for l1 the noise's term
in the sharper form of Theorem 2, mσ²/(nγ√T). σ² is 96 ι log(2/δ₀)/(qε²) for the paper's noise and hardly depends on q
and ι for the honest one; None where no power law is to be expected."""
SEEDS = {"tiny": 3, "small": 20, "full": 60}


@dataclass(frozen=True)
class Row:
    """One exponent."""

    h: str
    noise: str
    quantity: str
    claimed: float
    corrected: float | None
    measured: Slope


def table1(size: str, out: Path, done: Callable[[int, int, str], None] | None = None) -> list[Row]:
    """All exponents; what was measured is kept, so that interrupted work goes on where it was."""
    kinds, seeds = ("l2",) if size == "tiny" else ("l2", "l1"), SEEDS[size]
    axes = {name: points[:2] if size == "tiny" else points for name, points in AXES.items()}
    work = [(replace(s, h=h), seed) for h in kinds for points in axes.values() for s in points for seed in range(seeds)]
    path = out / "table1" / "costs.json"
    known: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    wanted = [(s, seed) for s, seed in dict.fromkeys(work) if key(s, seed) not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    for count, (setting, seed) in enumerate(wanted, 1):
        known[key(setting, seed)] = cost(setting, seed)
        if count % 20 == 0 or count == len(wanted):
            write_atomically(path, json.dumps(known).encode())
        if done:
            done(count, len(wanted), f"{setting.h}, seed {seed}")
    rows = []
    for h in kinds:
        for noise in ("paper", "honest"):
            for name, points in axes.items():
                costs = np.array([[known[key(replace(s, h=h), i)][noise] for i in range(seeds)] for s in points])
                found = slope(np.array([VALUES[name](s) for s in points], dtype=float), costs)
                rows.append(Row(h, noise, name, CLAIMED[h][name], CORRECTED[h, noise][name], found))
    return rows


def as_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Flat, for a table."""
    return [
        {
            "h": row.h,
            "noise": row.noise,
            "in": row.quantity,
            "claimed": row.claimed,
            "corrected": row.corrected,
            "measured": row.measured.value,
            "low": row.measured.low,
            "high": row.measured.high,
        }
        for row in rows
    ]
