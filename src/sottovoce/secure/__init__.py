"""The secure release: what leaves a node is (sum + noise), rounded once, as if computed with real numbers.

- `generator`: secret bits at public addresses, from a cryptographic generator; each uniform has no last bit.
- `noise`: Gaussian and Laplace noise that is known to 2⁻⁴⁰ at once and to any precision on demand, and the one correct
  rounding of a sum with all its noises; `balls` is the arithmetic that makes it certain, `compiled` makes it fast.
- `grids`: records, models and sums on public grids, powers of two, on which float64 arithmetic is exact.
- `sums`: sums of clipped subgradients that are exact, whatever the order, the blocks and the places of the records.
- `products`: sums of the products of records' numbers, in whole numbers.
- `sampling`: secret batches whose law is exactly the one that is accounted.

The theorem, its proof and every constant are in docs/secure.md.
"""

from typing import Any

from sottovoce._renamed import module_attribute
from sottovoce.secure.functions import logistic_slope, softmax_slope
from sottovoce.secure.generator import Generator, Purpose, fresh, generators
from sottovoce.secure.grids import GridRows, Grids, choose_grids, on_grid
from sottovoce.secure.noise import Layer, Noise, NoiseKind, release_grid, scale_of
from sottovoce.secure.sampling import fixed, poisson
from sottovoce.secure.sums import clipped_sum

__all__ = [
    "Generator",
    "GridRows",
    "Grids",
    "Layer",
    "Noise",
    "NoiseKind",
    "Purpose",
    "choose_grids",
    "clipped_sum",
    "fixed",
    "fresh",
    "generators",
    "logistic_slope",
    "on_grid",
    "poisson",
    "release_grid",
    "scale_of",
    "softmax_slope",
]


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for now."""
    return module_attribute(__name__, name)
