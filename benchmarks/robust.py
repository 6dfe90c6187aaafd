"""What robust averaging costs in accuracy, and what it saves when a node lies (results/algorithms.md).

    python benchmarks/robust.py --data mushrooms --nodes 20 --epsilon 1 --seeds 5

Planned runs, everyone in every round; accuracy on held-out records, the mean over the honest nodes' models. One node
lies: it adds no noise, and sends `times` what it should, in the opposite direction. A radius is given in units of
σ√(2m), how far two honest releases are apart by their noise alone.
"""

import argparse
import math
from dataclasses import replace

import numpy as np

from sottovoce.engine.job import Job, choose
from sottovoce.planner import choose as plan
from sottovoce.run.build import prepare
from utility_methods import DATA, inputs_of

RADII, TRIMMED, LIES = (0.5, 1.0, 2.0), (1, 3), (0.0, 1.0, 30.0, 1000.0)


def lying(job: Job, times: float) -> Job:
    """The last node of the job says the opposite, so many times, and hides nothing."""
    if times == 0:
        return job
    scale, sigma = job.method.scale.copy(), (*job.release.sigma[:-1], 0.0)
    scale[-1] *= -times
    release = replace(job.release, sigma=sigma)
    method = replace(job.method, scale=scale)
    return replace(job, method=method, release=release, draws=replace(job.draws, release=release))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, default="mushrooms")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    data = DATA[arguments.data]()
    found: dict[tuple[str, float], list[float]] = {}
    for seed in range(arguments.seeds):
        shards = data.partition(arguments.nodes, seed)
        spec = plan(
            inputs_of(tuple(shards.sizes.tolist()), data, arguments.epsilon), activation="everyone"
        ).spec.replace(seed=seed)
        first = prepare(spec, shards).job
        apart = max(first.release.sigma) * math.sqrt(2 * first.problem.m)
        choices = {"gossip": "gossip"}
        choices |= {f"clipped, {r:g} σ√(2m)": f"clipped({r * apart!r})" for r in RADII}
        choices |= {f"trimmed({f})": f"trimmed({f})" for f in TRIMMED}
        for name, averaging in choices.items():
            honest = prepare(spec.replace(network__averaging=averaging), shards).job
            for times in LIES:
                job = lying(honest, times)
                (state,) = choose("compiled", job).run([job], [job.start()], 1, job.method.T)
                models = job.method.average(state, job.method.T)[:-1]
                right = job.problem.judge(models, data.test)[1]
                found.setdefault((name, times), []).append(float(np.mean(right)))
    print(f"{arguments.data}, {arguments.nodes} nodes, ε = {arguments.epsilon:g}, {arguments.seeds} seeds\n")
    print("| averaging | all honest |", " | ".join(f"one says −{t:g} times it" for t in LIES[1:]), "|")
    print("|---" * (1 + len(LIES)) + "|")
    for name in dict.fromkeys(key[0] for key in found):
        cells = (f"{np.mean(found[name, t]):.3f} ± {np.std(found[name, t]):.3f}" for t in LIES)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
