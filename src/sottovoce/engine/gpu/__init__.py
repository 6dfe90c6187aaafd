"""Algorithm 1 on a CUDA device: the same counters and trajectories, many runs in one launch.

Chapters: `rounds.cu` (the kernels, one source for the device and for tests on the host), `formulas` and `source` (that
source as text, with the losses of the table), `machine` (where kernels run), `rounds` (one run a thread block),
`spans` with `spans.cu` (states that do not fit the chip, over CSR rows), `products` (everybody with batches, as matrix
products over all runs) and `judge` (all runs' models in one reading).
"""
