"""Records from files, bundled sets and seeded generators, each as a `Table`."""

from sottovoce.data.embedded import EMBEDDED
from sottovoce.data.synthetic import two_gaussians
from sottovoce.data.tables import Table
from sottovoce.matrices import unit_rows

__all__ = ["EMBEDDED", "Table", "two_gaussians", "unit_rows"]
