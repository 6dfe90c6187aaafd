"""The kernels' one source as text for either compiler, and its structs as NumPy's: the C says what is in them."""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from sottovoce.problem.losses import BUILT_IN
from sottovoce_gpu.formulas import known, slopes
from sottovoce_gpu.layout import CYCLIC, FIXED, FULL, POISSON

RUNGS = known(BUILT_IN)
"""The losses that are compiled in; a loss's code is its place."""
CODES = {"FIXED": FIXED, "POISSON": POISSON, "FULL": FULL, "CYCLIC": CYCLIC}
PLAIN = {"int": np.int32, "u32": np.uint32, "float": np.float32, "i64": np.int64, "double": np.float64}
"""Types of fields; anything with a star is an address."""


@cache
def source() -> str:
    """All of it, with the slopes of the table."""
    folder = files("sottovoce_gpu")
    names = ("rounds", "all_nodes", "clusters", "blocked_csr", "products")
    rounds, all_nodes, clusters, spans, products = ((folder / f"{name}.cu").read_text("utf-8") for name in names)
    text = f"{rounds}{all_nodes}{clusters}#ifndef DENSE\n{spans}#endif\n{products}"
    head = "".join(f"#define SAMPLER_{name} {code}\n" for name, code in CODES.items())
    head += "#if defined(SPARSE) && !SPARSE\n#define DENSE  // no spans, which take a while to compile\n#endif\n"
    return head + text.replace("//FORMULAS", slopes(RUNGS))


def code_of(loss: str) -> int:
    """By what number the kernels call a loss that they know."""
    return list(RUNGS).index(loss)


@cache
def struct(name: str) -> np.dtype[np.void]:
    """A struct of the source, with the compiler's own gaps.

    Examples
    --------
    >>> struct("Place").itemsize, struct("Numbers").names
    (48, ('scale', 'threshold', 'weight', 'push'))
    """
    found = re.search(rf"struct {name} {{(.*?)}};", source(), re.DOTALL)
    assert found is not None
    fields: list[tuple[str, type]] = []
    for line in re.sub(r"//.*", "", found[1]).split(";"):
        kind, _, names = line.strip().removeprefix("const ").partition(" ")
        for each in names.split(",") if names else []:
            address = "*" in each or "*" in kind
            fields.append((each.strip(" *"), np.uint64 if address else PLAIN[kind]))
    return np.dtype(fields, align=True)


def joined(structs: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Structs end to end; NumPy would go through their fields for each pair of arrays."""
    return np.concatenate([each.view(np.uint8) for each in structs]).view(structs[0].dtype)


def filled(name: str, count: int = 1) -> NDArray[np.void]:
    """Structs of zeros."""
    return np.zeros(count, struct(name))
