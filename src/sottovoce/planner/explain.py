"""Why a plan was chosen, in plain sentences, and what else there was."""

import math
from collections.abc import Iterable
from typing import Any

from sottovoce.notation import parse
from sottovoce.planner.facts import Facts, Plan
from sottovoce.privacy.sampling import make_sampling
from sottovoce.run.spec import Spec


def reasons(facts: Facts, given: dict[str, Any], plan: Plan, spec: Spec, shortest: bool) -> list[str]:
    """One sentence for each thing that was chosen or fixed."""
    n, total = facts.n, sum(facts.sizes)
    said = [
        f"ε = {facts.epsilon:g} and δ = {facts.delta:g} against '{facts.adversary}' leave noise of deviation "
        f"{plan.noise:.2g} in each coordinate of the mean gradient, however many rounds there are.",
        _activation(given, plan, n),
        _sampling(given, plan, total),
        _rounds(facts, given, plan, shortest),
        _steps(given, plan, spec),
    ]
    if spec.privacy.clip is not None and "clip" not in given:
        said.append(
            f"Each record's gradient is clipped at {spec.privacy.clip:.3g}, below the bound of the loss: few records "
            "are as steep, and the noise is made for the clip."
        )
    if "(" in spec.problem.weights and "weights" not in given:
        said.append(
            f"Nodes are weighed by their records, those with fewer than some {_kappa(spec)} less: their noise would "
            "drown what they have to say."
        )
    return said


def _kappa(spec: Spec) -> str:
    return f"{parse(spec.problem.weights).args[0]:.2g}"


def _activation(given: dict[str, Any], plan: Plan, n: int) -> str:
    if "activation" in given:
        return f"Who speaks in a round was fixed: {plan.activation}."
    if n == 1:
        return "A single node has nobody to wait for."
    if plan.activation == "everyone":
        return f"Everyone speaks in every round: the noise of {n} nodes averages out, and silence saves no privacy."
    return f"Nodes speak in pairs, {plan.activation}: that sends {n} messages a round and not {n * (n - 1)}."


def _sampling(given: dict[str, Any], plan: Plan, total: int) -> str:
    if "sampling" in given or "batch" in given:
        return f"How records are drawn was fixed: {plan.sampling}."
    if plan.sampling == "full":
        return f"All {total:,} records are used in every round: sampling would save work, but never noise."
    share = getattr(make_sampling(plan.sampling), "size", 1.0)
    return f"A round uses each record with probability {share:g}: hardly more noise than all of them, less work."


def _rounds(facts: Facts, given: dict[str, Any], plan: Plan, shortest: bool) -> str:
    sent = f"{plan.rounds:,} rounds send {plan.bytes / 1e6:,.1f} MB"
    if "rounds" in given:
        return f"{sent}: as fixed."
    if plan.rounds == facts.rounds or not shortest:
        return f"{sent}: as many as the budget allows."
    return f"{sent}: more would gain less than they cost, at a point of accuracy for ten minutes."


def _steps(given: dict[str, Any], plan: Plan, spec: Spec) -> str:
    chosen = [f"γ = {spec.algorithm.gamma}"] if "gamma" not in given else []
    chosen += [f"h = {spec.problem.h}"] if not {"h", "alpha"} & set(given) else []
    what = " and ".join(chosen) or "the fixed γ and h"
    return (
        f"With {what} the model follows the mean gradient for τ = {plan.reach:.3g}: shorter would miss the optimum by "
        f"more, longer would pick up more noise. Predicted loss of accuracy: {100 * plan.loss:.1f} points."
    )


def others(plans: Iterable[Plan], best: Plan, count: int = 8) -> list[dict[str, Any]]:
    """The chosen plan, and for each number of rounds near it the best of the rest."""
    near = sorted((p for p in plans if p is not best), key=lambda p: (abs(math.log(p.rounds / best.rounds)), p.loss))[
        : count - 1
    ]
    return [p._asdict() for p in (best, *sorted(near, key=lambda p: p.loss))]
