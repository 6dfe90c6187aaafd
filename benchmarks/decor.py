"""DECOR's experiment on a9a, beside ours at the same guarantee: python benchmarks/decor.py [--whole].

Allouah et al. 2024 (their repository was read): logistic loss with l2(1e-5), 16 users on a ring, a grid (a torus) and
the complete graph, gradient descent with steps of 0.1, a user's mean gradient clipped to 0.1, ε = 3 … 40 at δ = 1e-5
*for a whole user*: what is replaced is everything that a node holds. Here all of a user's records are used in every
round, where they draw 64; at user level that makes no difference to privacy. All noise is calibrated by our accountant.

Everybody takes the same steps. What differs is who shares noise with whom, how it is averaged, and who may collude:

independent    no secrets: each node's own noise, and gossip over the graph
decor          neighbours share noise, and gossip over the graph; as they have it, for outsiders; with one curious node;
               and with a minority that colludes (what it cuts off is priced as what it is)
ours           all share with all, and the mean is made exactly; with one curious node, and with such a minority
centre         one trusted place adds noise once

The ratio of shared to own noise is the best of RATIOS for each row, by F: a choice that looks at the data, and favours
whoever needs it most. Without --whole a small part is run, in a minute or two; all of it takes hours.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sottovoce.data.fetch import load_real
from sottovoce.figure import Interval
from sottovoce.problem.optimum import optimum
from sottovoce.problem.shards import Shards, even
from sottovoce.run.build import make_problem
from sottovoce.run.solve import solve
from sottovoce.run.spec import AlgorithmSpec, Execution, Spec

USERS = 16
STEP, CLIP, DELTA = 0.1, 0.1, 1e-5
GRAPHS = ("complete", "torus", "ring")
RATIOS = (1, 3, 10, 30)
MAY_COLLUDE = ("secret_pairs", "secret_pairs(1)", "secret_pairs(majority)")
MANY = 10**6  # so many runs that whatever can be compiled is


class Case(NamedTuple):
    """One row: what is run, on which graph, and the ratios that are tried."""

    name: str
    graph: str
    adversary: str
    laws: tuple[str, ...]
    averaging: str = "gossip"


def cases(ratios: tuple[int, ...]) -> Iterator[Case]:
    """All rows, from the one that needs no trust at all."""
    for graph in GRAPHS:
        yield Case("independent", graph, "transcript", ("gaussian",))
    for adversary in MAY_COLLUDE:
        outsiders = adversary == "secret_pairs"
        for graph in GRAPHS:
            along = "" if outsiders else f", graph={graph}, cut=priced"
            yield Case("decor", graph, adversary, tuple(f"pairs({r}{along})" for r in ratios))
        if not outsiders:
            yield Case("ours", "complete", adversary, tuple(f"pairs({r})" for r in ratios), "exact")
    yield Case("centre", "complete", "central", ("gaussian",))


def users(n: int, seed: int) -> Shards:
    """a9a, dealt out to users by chance; a user is one unit with all of its rows, at its own node or in one place."""
    data = load_real("a9a")
    offsets, _ = even(len(data.y), USERS)
    order = np.random.default_rng(seed).permutation(len(data.y))
    ids = np.repeat(np.arange(USERS), np.diff(offsets))
    return Shards.of(data.X[order], data.y[order], offsets if n > 1 else offsets[[0, -1]], units=ids)


def spec_of(case: Case, law: str, epsilon: float, rounds: int) -> Spec:
    """What is run."""
    return Spec(AlgorithmSpec(rounds, "descent", eta=f"constant({STEP})")).but(
        problem__loss="logistic",
        problem__h="l2(1e-5)",
        problem__row_norm=4.0,
        network__graph=case.graph,
        network__activation="everyone",
        network__averaging=case.averaging,
        privacy__sampling="full",
        privacy__clip=CLIP,
        privacy__delta=DELTA,
        privacy__noise=f"private({epsilon})",
        privacy__law=law,
        privacy__adversary=case.adversary,
    )


def measured(case: Case, law: str, epsilon: float, rounds: int, seeds: int, f_star: float) -> tuple[Interval, str]:
    """F − F* over seeds, and against whom."""
    found = []
    for seed in range(seeds):
        shards = users(1 if case.name == "centre" else USERS, seed)
        how = Execution(observations=1, runs=MANY)
        result = solve(spec_of(case, law, epsilon, rounds).but(seed=seed), shards, f_star=f_star, execution=how)
        found.append(result.history.last["suboptimality"])
    return Interval.of(np.array(found)), result.statement.adversary


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true", help="everything, 2,000 rounds and 5 seeds; hours")
    whole = parser.parse_args().whole
    rounds, seeds = (2000, 5) if whole else (100, 1)
    budgets = (3, 5, 7, 10, 15, 20, 25, 30, 40) if whole else (3, 40)
    pooled = users(1, 0)
    f_star = optimum(make_problem(spec_of(Case("", "complete", "central", ()), "gaussian", 1, 1).problem, pooled)).value
    print(
        f"a9a, {USERS} users, {rounds} rounds, δ = {DELTA:g} for a whole user, {seeds} seeds; F − F*, F* = {f_star:.4f}"
    )
    print("| | graph | against | ratio |", *(f"ε = {e} |" for e in budgets))
    print("|---|---|---|---|", *("---|" for _ in budgets), sep="")
    for case in cases(RATIOS if whole else (1, 10)):
        best, said = {}, ""
        for epsilon, law in itertools.product(budgets, case.laws):
            found, said = measured(case, law, epsilon, rounds, seeds, f_star)
            ratio = law.removeprefix("pairs(").partition(",")[0].rstrip(")") if law != "gaussian" else "–"
            if epsilon not in best or found.mean < best[epsilon][0].mean:
                best[epsilon] = found, ratio
        graph = "any" if case.averaging == "exact" or case.name == "centre" else case.graph
        cells = (str(best[e][0]) if seeds > 1 else f"{best[e][0].mean:.4f}" for e in budgets)
        ratios = ", ".join(dict.fromkeys(best[e][1] for e in budgets))
        print(f"| {case.name} | {graph} | {said} | {ratios} |", *(f"{cell} |" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
