"""What the fresh processes of `processes.py` do; each can be run by itself.

`child.py first-call` imports, prepares, and runs a few rounds; `child.py peak dense 100000` (or
`csr`) makes data shard by shard, trains, and prints the peak memory.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np

NODES = 20


def first_call() -> None:
    """The least that runs a compiled job: no accounting, no file."""
    from sottovoce.engine import compiled
    from sottovoce.problem.shards import Shards
    from sottovoce.run.build import prepare
    from sottovoce.run.presets import paper_l2

    X = np.eye(40, dtype=np.float32)
    shards = Shards.of(X, np.where(np.arange(40) % 2, 1.0, -1.0), np.arange(0, 41, 2))
    job = prepare(paper_l2(100).replace(privacy__noise="gaussian(0.06)", seed=0), shards).job
    compiled.run(job, job.start(), 1, 100)


def megabytes(now: bool = False) -> float:
    """The most memory that this process has had, or what it has now.

    Not `ru_maxrss` where there is a choice: it begins with what the parent had.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wanted = "VmRSS:" if now else "VmHWM:"
    return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith(wanted))


def peak(storage: str, records: int) -> None:
    """Memory of a run that examines all of its data twice, accounting included."""
    from sottovoce import Execution, Shards, solve
    from sottovoce.run.presets import paper_l2

    first_call()  # the interpreter, with all that a run loads
    before = megabytes(now=True)
    X, data = _dense(records) if storage == "dense" else _csr(records)
    y = np.where(np.random.default_rng(1).random(records) < 0.5, 1.0, -1.0)
    shards = Shards.of(X, y, np.linspace(0, records, NODES + 1).astype(np.int64))
    solve(paper_l2(2000).replace(privacy__noise="gaussian(0.06)", seed=0), shards, execution=Execution("compiled", 2))
    print(json.dumps({"before": before, "peak": megabytes(), "data": data / 2**20}))


def _dense(records: int, m: int = 2000) -> tuple[np.ndarray, int]:
    rng, X = np.random.default_rng(0), np.empty((records, m), np.float32)
    for shard in np.array_split(X, NODES):
        for row in shard:
            rng.standard_normal(dtype=np.float32, out=row)
            row /= 1.00001 * np.linalg.norm(row)
    return X, X.nbytes


def _csr(records: int, m: int = 47_236, words: int = 73) -> tuple[object, int]:
    from scipy import sparse

    rng, starts = np.random.default_rng(0), np.arange(0, records * words + 1, words, dtype=np.int32)
    values, indices = np.full(records * words, words**-0.5, np.float32), np.empty((records, words), np.int32)
    for shard in np.array_split(indices, NODES):
        shard[:] = np.sort(rng.integers(m - words, size=shard.shape), axis=1) + np.arange(words)
    X = sparse.csr_array((values, indices.ravel(), starts), shape=(records, m))
    return X, values.nbytes + indices.nbytes + starts.nbytes


if __name__ == "__main__":
    if sys.argv[1] == "first-call":
        first_call()
    else:
        peak(sys.argv[2], int(sys.argv[3]))
