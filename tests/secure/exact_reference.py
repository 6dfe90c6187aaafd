"""What the secure release must equal, bit for bit: slow, and without any of its short cuts."""

from fractions import Fraction

import numpy as np
from flint import arb, ctx

from sottovoce.secure.grids import GridRows
from sottovoce.secure.noise import Noise, NoiseKind
from sottovoce.secure.sums import truncated

LEVELS = 8  # continuations that are read at once: more than 500 bits of every uniform


def releases(noise: Noise, sums, sum_grid: float):
    """round((S + Σ a N)/g) with all bits from the start and intervals throughout; every rounding must be certain."""
    out = np.empty(np.shape(sums), dtype=object)
    blocks = noise.law.blocks(noise.m)
    words = [
        [[layer.generator.words(layer.nodes, layer.rounds, 0, blocks, level) for level in range(LEVELS + 1)], layer]
        for layer in noise.layers
    ]
    with ctx.workprec(1024):
        for row in range(len(out)):
            noise_terms = [
                (levels, place, layer.scales[place])
                for levels, layer in words
                for place in np.flatnonzero(layer.rows == row).tolist()
            ]
            for j in range(noise.m):
                total = _ball(Fraction(int(sums[row][j])) * Fraction(sum_grid))
                for levels, place, scale in noise_terms:
                    total += arb(float(scale)) * _unit(noise.law, blocks, levels, place, j)
                n = (total / arb(float(noise.grids[row])) + arb(0.5)).floor().unique_fmpz()
                assert n is not None, "not even 500 bits decide"
                out[row, j] = int(n)
    return out


def _ball(value: Fraction):
    return arb(value.numerator) / value.denominator


def _unit(law: NoiseKind, blocks: int, levels, place: int, j: int):
    block = j % blocks if law is NoiseKind.GAUSSIAN else j
    first, second = levels[0][place, block].tolist()
    split = {NoiseKind.GAUSSIAN: 16, NoiseKind.LAPLACE: 63}[law]
    u, v = (first << split) + second % 2**split, second >> split
    bits, turns = 64 + split, 64 - split
    for level in levels[1:]:
        one, other = level[place, block].tolist()
        u, v, bits, turns = (u << 64) + one, (v << 64) + other, bits + 64, turns + 64
    u, top = arb(u) / arb(2) ** bits, v >> (turns - 1)
    if law is NoiseKind.LAPLACE:
        return (1 - 2 * top) * -u.log()
    angle = arb.pi() * 2 * (arb(v) / arb(2) ** turns)
    return (-2 * u.log()).sqrt() * (angle.sin() if j >= blocks else angle.cos())


def parts(data: GridRows, x, y, slope, rows):
    """Each row's clipped subgradient by itself, in whole numbers: margins and products by Python's integers."""
    grids = data.grids
    model = grids.model(np.asarray(x, dtype=np.float64))
    unit = Fraction(2) ** -600
    weights = [[int(Fraction(float(w)) / unit) for w in one] for one in np.atleast_2d(model)]
    dense = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    found = []
    for row in rows:
        features = [Fraction(float(c)) / Fraction(grids.feature) for c in dense[row]]
        if grids.intercept:
            features.append(Fraction(grids.intercept) / Fraction(grids.feature))
        assert all(c.denominator == 1 for c in features)
        features = [c.numerator for c in features]
        margins = [sum(c * w for c, w in zip(features, one, strict=True)) for one in weights]
        u = np.array([float(Fraction(margin) * unit * Fraction(grids.feature)) for margin in margins])
        u = u if np.ndim(model) == 1 else u[None]
        whole = truncated(slope(u, y[row : row + 1]), data.caps[row : row + 1], grids)
        found.append([[int(s) * c for c in features] for s in np.atleast_1d(whole[0])])
    return found


def total(found):
    """Sums of such parts, as an array of Python's integers."""
    return np.sum(np.array(found, dtype=object), axis=0)


def length(part) -> Fraction:
    """The squared length, exactly."""
    return sum(int(v) ** 2 for v in np.ravel(np.array(part, dtype=object)))
