"""The map of columns of a published model, in plain NumPy: what a reader without sottovoce writes."""

import numpy as np


def expanded(rows, m):
    """Functions of columns in plain NumPy, by the words of model.json."""
    low, high = (np.array([c[end] for c in m["numeric"]]) for end in ("low", "high"))
    t = np.clip((rows[:, [c["place"] for c in m["numeric"]]] - (low + high) / 2) / ((high - low) / 2), -1, 1)
    u = (1 + t) / 2
    F = (
        u
        if m["distribution"] is None
        else np.column_stack([np.interp(x, m["centers"], F) for x, F in zip(u.T, m["distribution"], strict=True)])
    )
    others = rows[:, m["others"]]
    others = others * np.minimum(1, m["rest"] / np.maximum(np.linalg.norm(others, axis=1, keepdims=True), 1e-300))
    inner = u if m["distribution_is_a_feature"] else (u + F) / 2
    k = np.arange(1, m["degree"] + 1)
    functions = np.cos(np.pi * inner[:, :, None] * k) * k ** -m["decay"]
    parts = [t, others, *([2 * F - 1] if m["distribution_is_a_feature"] else []), functions.reshape(len(rows), -1)]
    P = np.polynomial.legendre.legvander(t, 3)[:, :, 1:] / [1, 2, 3]
    products = [P[:, i, :, None] * P[:, j, None, :] for i, j in m["pairs"]]
    return np.hstack([*parts, *(m["pair_weight"] * each.reshape(len(rows), 9) for each in products)])
