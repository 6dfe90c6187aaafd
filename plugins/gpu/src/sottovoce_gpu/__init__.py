"""The GPU engine of sottovoce: Algorithm 1 on a CUDA device, with the same counters and trajectories as elsewhere.

Modules: `engine` (what sottovoce registers), the `.cu` files (the kernels, one source for the device and for tests on
the host), `formulas` and `source` (that source as text, with the losses of the table), `machine` (where kernels run),
`layout` (jobs as flat arrays), `rounds` (one run per thread block), `all_nodes`, `clusters` and `blocked_csr` (many
runs that share draws), `products` (large batches as matrix products over all runs), `judge` (risk and accuracy
of all models) and `minimize` (points near the optimum).
"""

from sottovoce_gpu.engine import ENGINE, make_engine, register

__all__ = ["ENGINE", "make_engine", "register"]
