"""What tests of problems have in common."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def kkt_residual():
    """‖x − prox_h(x − g)‖, zero exactly where 0 ∈ g + ∂h(x).

    g is built from the given dual slopes (as `optimum` returns them), or else from the loss's own slopes at x: enough
    for a smooth loss, but at the kinks of a hinge only the dual knows the right element.
    """

    def residual(problem, x, slopes=None):
        g = problem.combined(problem.slopes(x) if slopes is None else slopes)
        prox = problem.h.step(g - x, 1.0, 1.0)  # argmin h + ‖· − (x − g)‖²/2
        return float(np.linalg.norm(x - prox))

    return residual
