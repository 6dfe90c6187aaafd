"""The paper's runs at full size with the compiled engine: wall time and peak memory against the data's own size.

python benchmarks/paper_size.py epsilon            # 600,000 rounds on 400,000 × 2,000
python benchmarks/paper_size.py rcv1               # 1,016,070 rounds on 677,399 × 47,236
"""

import argparse
import resource
import time

import numpy as np

from sottovoce import Execution, Shards, solve
from sottovoce.data.standins import epsilon_like, rcv1_like
from sottovoce.problem.shards import even
from sottovoce.run.build import rounds_for_epochs
from sottovoce.run.presets import PRESETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=("epsilon", "rcv1"))
    parser.add_argument("--records", type=int)
    parser.add_argument("--preset", choices=tuple(PRESETS), default="paper-l2")
    parser.add_argument("--noise", default="theorem1(0.8, 0.01)")
    parser.add_argument("--observations", type=int, default=4)
    arguments = parser.parse_args()
    began = time.perf_counter()
    size = {} if arguments.records is None else {"n_records": arguments.records}
    table = epsilon_like(**size) if arguments.data == "epsilon" else rcv1_like(**size)
    X = table.X
    bytes_of_data = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(f"made {X.shape[0]:,} × {X.shape[1]:,} in {time.perf_counter() - began:.0f} s, {bytes_of_data / 1e9:.2f} GB")
    shards = Shards.of(X, table.y, even(len(table.y), 20)[0])
    spec = PRESETS[arguments.preset](1).but(privacy__noise=arguments.noise, seed=1)
    spec = spec.but(algorithm__rounds=rounds_for_epochs(spec, shards.sizes, 3.0))
    began = time.perf_counter()
    result = solve(spec, shards, execution=Execution("compiled", arguments.observations))
    seconds, rounds = time.perf_counter() - began, spec.algorithm.rounds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{rounds:,} rounds in {seconds:.1f} s with {arguments.observations} looks at all the data "
        f"({seconds / rounds * 1e6:.1f} µs a round); peak memory {peak / 1e9:.2f} GB = "
        f"{peak / bytes_of_data:.2f} × the data"
    )
    print({k: round(v, 5) for k, v in result.history.last.items()}, result.statement.verdict())


if __name__ == "__main__":
    main()
