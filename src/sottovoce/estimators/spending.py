"""What several fits cost together, where each goes on from the model of the one before (`warm_start`).

Every fit releases anew, so a record that was in all of them has been spoken of in all of them. Releases of one node
compose: their privacy-loss distributions are accounted together, node by node, at one δ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sottovoce.privacy.accounting import Mechanism, account
from sottovoce.privacy.event import Event
from sottovoce.privacy.statement import PrivacyStatement, number


@dataclass(frozen=True)
class Spent:
    """The guarantee of all fits together, for a record that was in every one of them."""

    epsilon: float
    delta: float
    adversary: str
    adjacency: str
    fits: int

    def verdict(self) -> str:
        """One line."""
        fits = f"{self.fits} fit{'s' * (self.fits > 1)}"
        if math.isinf(self.epsilon):
            return f"NOT PRIVATE: among {fits} is one without noise."
        return (
            f"All {fits} together: (ε = {number(self.epsilon)}, δ = {self.delta:g})-differential privacy against "
            f"'{self.adversary}' ({self.adjacency})."
        )


def spent(statements: Sequence[PrivacyStatement]) -> Spent:
    """The joint cost of fits over the same nodes, at the last one's δ.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PrivateClassifier
    >>> X, y = np.eye(100), np.arange(100) % 2
    >>> model = PrivateClassifier(1.0, row_norm=1.0, classes=[0, 1], warm_start=True, random_state=0)
    >>> model.fit(X, y).spent_.epsilon == model.privacy_.epsilon
    True
    >>> print(model.fit(X, y).spent_.verdict())
    All 2 fits together: (ε = 1.47, δ = 1e-05)-differential privacy against 'transcript' (replace ...
    """
    last = statements[-1]
    if len(statements) == 1:
        epsilon = last.epsilon
    else:
        histories = zip(*(_events(statement) for statement in statements), strict=True)
        epsilon = max(_together(events, last.delta) for events in set(histories))
    return Spent(epsilon, last.delta, last.adversary, last.adjacency, len(statements))


def _events(statement: PrivacyStatement) -> list[Event]:
    """The event of each node, in the nodes' order."""
    whose = {node: group.event for group in statement.groups for node in group.nodes}
    return [whose[node] for node in sorted(whose)]


def _together(events: tuple[Event, ...], delta: float) -> float:
    spoken = [event for event in events if event.rounds > 0]
    if any(event.sigma == 0 for event in spoken):
        return math.inf
    return account([Mechanism.of(event) for event in spoken], delta).epsilon if spoken else 0.0
