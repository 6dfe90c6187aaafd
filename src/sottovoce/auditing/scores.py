"""Scores: what an attacker makes of a transcript, a number a run: the larger, the more it resembles the second record.

`likelihood` is the likelihood ratio of the whole transcript under the stated law, in closed form: for Gaussian noise on
all records a sum of squares, for records that are drawn a sum of log-mixtures, for Laplace noise a sum of absolute
values; noise that is shared between rounds or nodes is whitened by its covariance first. No test beats it, as long as
the law is the stated one.

A defect is noise that is not of that law: reused, shared, or on a lattice. Its likelihood ratio is blind to that. So
there are others beside it, none of which believes the statement:

`uneven`: by how much the mean over rounds is off their median. Noise that is the same in every round drops out, and a
record that is drawn now and then is left.
`between nodes`: the difference of two nodes' releases. Noise that both have drops out.
`whitened`: the best straight line through what was seen, by means and covariances of runs that were set apart for it:
whatever cancels between rounds and nodes, it finds.
`equal noise`: with which record two nodes' noises, or two rounds', come closer to being the same.
`lattice`: with which record the noise lies on the points that 32-bit words can make.
`final model`: the same straight line, for an attacker who sees nothing but the model at the end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sottovoce._types import Array, IntArray
from sottovoce.auditing.runner import AuditRunner, Transcript
from sottovoce.privacy.pairs import Pairs
from sottovoce.privacy.release import NoiseTerm, Tree

LIKELIHOOD, UNEVEN, BETWEEN, EQUAL, LATTICE = "likelihood", "uneven", "between nodes", "equal noise", "lattice"
WHITENED, FINAL = "whitened", "final model"
BINS = 12
"""Stretches of rounds whose means are distinguished."""
WORDS = 32
"""Bits of the angle of a Box-Muller pair of `sottovoce.streams`."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """What is kept of some runs.

    Attributes
    ----------
    worlds : (R,) the truth
    scores : by name, (R,) each
    features : by the name of the line that is put through them, (R, d)
    """

    worlds: IntArray
    scores: Mapping[str, Array]
    features: Mapping[str, Array]

    @classmethod
    def stacked(cls, sheets: Sequence["Sheet"]) -> "Sheet":
        """Of all runs."""
        first = sheets[0]
        return cls(
            np.concatenate([s.worlds for s in sheets]),
            {name: np.concatenate([s.scores[name] for s in sheets]) for name in first.scores},
            {name: np.concatenate([s.features[name] for s in sheets]) for name in first.features},
        )


def sheet(stage: AuditRunner, seen: Transcript, lattice: bool) -> Sheet:
    """All scores of some runs; whether noise is on a lattice is required of releases that claim not to be."""
    if stage.whole:
        return Sheet(seen.worlds, {}, {FINAL: seen.final})
    along, other = _along(stage, seen)
    scores = {LIKELIHOOD: likelihood(stage, seen)}
    if along.shape[1] > 2:
        scores[UNEVEN] = np.mean(along, axis=1) - np.median(along, axis=1)
    known = ~np.isnan(other).any(axis=0)
    if known.any():
        scores[BETWEEN] = np.mean(along[:, known] - other[:, known], axis=1)
        scores[EQUAL] = equal_noise(stage, seen)
    if lattice:
        scores[LATTICE] = lattice_fit(stage, seen)
    lines = np.concatenate([_binned(along), _binned(other[:, known])], axis=1)
    return Sheet(seen.worlds, scores, {WHITENED: lines, FINAL: seen.final})


def _along(stage: AuditRunner, seen: Transcript) -> tuple[Array, Array]:
    """(R, k) what the record's node released in the record's own direction, without what is known; and another node."""
    c = np.zeros((stage.worst.problem.outputs, seen.zeta.shape[-1] // stage.worst.problem.outputs))
    c[:, : stage.worst.features] = stage.worst.row / np.linalg.norm(stage.worst.row)
    way = np.mean((seen.second - seen.first) * c.ravel(), axis=(0, 1))  # which outputs it moves, and whither
    norm = float(np.linalg.norm(way))
    way = way / norm if norm > 0 else c.ravel()
    return (seen.zeta - seen.absent) @ way, seen.others @ way


def _binned(rows: Array) -> Array:
    """Means over at most so many stretches of rounds."""
    if rows.shape[1] <= BINS:
        return rows
    return np.stack([part.mean(axis=1) for part in np.array_split(rows, BINS, axis=1)], axis=1)


def likelihood(stage: AuditRunner, seen: Transcript) -> Array:
    """log of how much likelier the transcript is with the second record, by the stated law."""
    law = stage.job.release.law
    if not isinstance(law, Tree):
        return np.asarray(np.sum(by_round(stage, seen), axis=1))
    # noise of one round is made of that of others
    shared = np.linalg.inv(covariance(law.noise_terms(np.zeros(len(stage.rounds), np.int64), stage.rounds)))
    shift, middle = seen.second - seen.first, (seen.first + seen.second) / 2
    return np.asarray(np.einsum("rkm,kl,rlm->r", shift, shared, seen.zeta - middle) / stage.spreads[0] ** 2)


def by_round(stage: AuditRunner, seen: Transcript) -> Array:
    """The same of each round on its own, where noise is fresh in each: (R, k)."""
    release, scales, rate = stage.job.release, stage.spreads, stage.means.rate
    if any(np.any(np.isnan(part)) for part in (seen.zeta, seen.absent)):
        raise AssertionError("a release was not seen")
    if release.law.unit == "laplace":
        off = [np.abs(seen.zeta - mean).sum(axis=-1) for mean in (seen.first, seen.second)]
        return np.asarray((off[0] - off[1]) / scales)
    keep = stage.means.silent(seen.zeta.shape[-1])
    zeta, absent, first, second = (part[..., keep] for part in (seen.zeta, seen.absent, seen.first, seen.second))
    if isinstance(release.law, Pairs):
        others, scales = _between_pairs(stage, seen)
        zeta = zeta + others[..., keep]
    logs = []
    for mean in (second, first):
        on = -np.sum(np.square(zeta - mean), axis=-1) / (2 * scales**2)
        if rate < 1:
            out = -np.sum(np.square(zeta - absent), axis=-1) / (2 * scales**2)
            on = np.logaddexp(math.log(rate) + on, math.log1p(-rate) + out)
        logs.append(on)
    return np.asarray(logs[0] - logs[1])


def covariance(noise_terms: Sequence[NoiseTerm]) -> Array:
    """Of the noises of several releases, in units of their scale, from the noise terms that each is made of.

    Examples
    --------
    >>> covariance(Tree(4).noise_terms(np.zeros(4, np.int64), np.arange(1, 5)))
    array([[ 1., -1.,  0.,  0.],
           [-1.,  2.,  0., -1.],
           [ 0.,  0.,  1., -1.],
           [ 0., -1., -1.,  3.]])
    """
    size = 1 + max(int(source.rows.max(initial=-1)) for source in noise_terms)
    places: dict[tuple[bool, int, int], Array] = {}
    for source in noise_terms:
        for row, owner, t, factor in zip(*(part.tolist() for part in source[:4]), strict=True):
            places.setdefault((source.shared, owner, t), np.zeros(size))[row] += factor
    made = np.stack(list(places.values()))
    return made.T @ made


def _between_pairs(stage: AuditRunner, seen: Transcript) -> tuple[Array, Array]:
    """What other nodes' releases reveal the record's node's noise, taken out; and the scale of what is left.

    Of Gaussian noises with precision P, node i's given all others is theirs times −P_ij/P_ii, and its variance 1/P_ii.
    """
    law, sigma, order = stage.job.release.law, stage.job.release.sigma, np.array(stage.kept)
    assert isinstance(law, Pairs)
    factors = 1.0 / np.take(sigma, order) if law.scale is None else law.scale[order]
    known = np.zeros((len(seen.worlds), len(stage.rounds), seen.zeta.shape[-1]))
    scales = np.empty(len(stage.rounds))
    for k, t in enumerate(stage.rounds.tolist()):
        here = [0, *(p for p in range(1, len(order)) if not np.isnan(seen.nodes[:, k, p]).any())]
        between = law.covariance(stage.coalition, sigma, t)[np.ix_(order[here], order[here])]
        precision = np.linalg.inv(between / np.outer(factors[here], factors[here]))
        for p, weight in zip(here[1:], (precision[0, 1:] / precision[0, 0]).tolist(), strict=True):
            known[:, k] += weight * seen.nodes[:, k, p]
        scales[k] = precision[0, 0] ** -0.5
    return known, scales


def equal_noise(stage: AuditRunner, seen: Transcript) -> Array:
    """How much closer to another node's noise, in units of its scale, the second record brings what is left."""
    sigma = np.take(stage.job.release.sigma, stage.kept)
    theirs = seen.others / sigma[min(1, len(sigma) - 1)]
    off = [np.nanmin(np.abs((seen.zeta - mean) / stage.spreads[:, None] - theirs).max(axis=-1), axis=1)
           for mean in (seen.first, seen.second)]  # fmt: skip
    return np.asarray(np.log(np.maximum(off[0], 1e-300)) - np.log(np.maximum(off[1], 1e-300)))


def lattice_fit(stage: AuditRunner, seen: Transcript) -> Array:
    """How much better the second record puts what is left on the lattice of 2³² angles; the best round counts."""
    fits = []
    for mean in (seen.first, seen.second):
        noise = (seen.zeta - mean) / stage.spreads[:, None]
        half = (noise.shape[-1] + 1) // 2
        cosines, sines = noise[..., : noise.shape[-1] - half], noise[..., half:]
        steps = np.arctan2(sines, cosines) / (2 * np.pi) * 2.0**WORDS
        fits.append(np.abs(steps - np.rint(steps)).mean(axis=-1).min(axis=1))
    return np.asarray(fits[0] - fits[1])


class Line:
    """A straight line through features: Fisher's, from runs that were set apart for it."""

    def __init__(self, features: Array, worlds: IntArray) -> None:
        groups = [features[worlds == w] for w in (0, 1)]
        means = [group.mean(axis=0) for group in groups]
        centered = np.concatenate([group - mean for group, mean in zip(groups, means, strict=True)])
        size = np.maximum(np.sqrt(np.mean(np.square(centered), axis=0)), 1e-300)
        spread = (centered / size).T @ (centered / size) / len(centered)
        values, ways = np.linalg.eigh(spread)
        gap = ways.T @ ((means[1] - means[0]) / size)
        self.weights = (ways @ (gap / np.maximum(values, 1e-13))) / size

    def __call__(self, features: Array) -> Array:
        """The score of each run."""
        return np.asarray(features @ self.weights)
