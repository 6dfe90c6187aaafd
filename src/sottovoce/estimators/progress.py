"""What `verbose` prints during a fit: public numbers alone, and no times, which depend on records."""

from sottovoce.planner import Choice
from sottovoce.privacy.statement import PrivacyStatement

PARTS = 4
"""Lines of progress in a fit."""


class FitReport:
    """Lines about one fit, on the screen."""

    def __init__(self, name: str) -> None:
        self._name, self._parts = name, 0

    def plan(self, choice: Choice) -> None:
        """The plan and its reasons, which follow from public numbers."""
        self._print("the plan, from public numbers alone:")
        for reason in choice.reasons:
            self._print(f"- {reason}")

    def progress(self, done: int, rounds: int, _observation: object) -> None:
        """How many rounds are done, now and then."""
        parts = PARTS * done // rounds
        if parts > self._parts:
            self._parts = parts
            self._print(f"{done:,} of {rounds:,} rounds")

    def done(self, statement: PrivacyStatement) -> None:
        """The guarantee."""
        self._print(statement.verdict())

    def _print(self, text: str) -> None:
        print(f"[{self._name}] {text}", flush=True)
