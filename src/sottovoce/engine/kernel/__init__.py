"""Algorithm 1 in Numba's loops: what the compiled engine runs.

Chapters: `arguments` (what a run is to the kernel), `draws` (records and normals from counters), `steps` (eq. (6) and
its sums over rounds slept), `slopes` and `entries` (losses' slopes and sparse rows, in blocks), `data` (slopes, clips
and pulls of records), `wake` and `speak` (the parts of a round), `rounds` (all of them in turn: the way in).

One compilation serves every run, so the kernel branches on whole numbers. This page says which, and so what the kernel
knows at all, without loading Numba: the engine's record reads it (`sottovoce.engine`), and so do the chapters.
"""

from collections import ChainMap
from typing import cast

from sottovoce.network.averaging import Clipped, Exact, Trimmed
from sottovoce.network.mixing import Gossip
from sottovoce.privacy.sampling import Cyclic, Fixed, Full, Poisson
from sottovoce.problem.losses import LOSSES as TABLE
from sottovoce.problem.losses import Loss
from sottovoce.problem.regularisers import L1Ball, L2Ball, Separable, Simplex

FIXED, POISSON, FULL, CYCLIC, INJECTED = range(5)
SAMPLERS: dict[type, int] = {Fixed: FIXED, Poisson: POISSON, Full: FULL, Cyclic: CYCLIC}
"""Where records come from; INJECTED are those that somebody else has drawn."""

SEPARABLE, L2_BALL, L1_BALL, SIMPLEX, ENTROPY = range(5)
KINDS: dict[type, int] = {Separable: SEPARABLE, L2Ball: L2_BALL, L1Ball: L1_BALL, Simplex: SIMPLEX}
"""Kinds of steps, by the regulariser; the entropy's is ENTROPY, whatever the regulariser."""

MATRIX, CLIPPED, TRIMMED = range(3)
AVERAGINGS: dict[type, int] = {Gossip: MATRIX, Exact: MATRIX, Clipped: CLIPPED, Trimmed: TRIMMED}
"""How messages are averaged: by a matrix of the round, or so that liars are bounded."""

LOSSES: ChainMap[str, Loss] = ChainMap({}, cast("dict[str, Loss]", TABLE))
"""Losses by name: the rows of the table, whichever there are; from the moment that the kernel is loaded (`data`) those
that it has compiled in, and no others."""
