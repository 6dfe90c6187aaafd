"""What a reader may decide by looking at records: one policy for `train`, `evaluate`, `tune`, `predict` and nodes.

With a guarantee (no seed) nothing about a file is decided by its records: separator, decimal mark, encoding, first
index, number of features, classes and categories come from a schema or from options, or are fixed defaults. Each
record is read by itself. A record that cannot be used keeps its place and contributes nothing, because a refusal is an
output: anyone who sees it learns something of one record.
"""

from collections.abc import Callable
from dataclasses import dataclass

Note = Callable[[str, int], None]
"""Called with what is wrong and with how many records; what it does with them must stay with their owner."""


@dataclass(frozen=True)
class ReadPolicy:
    """How a reader treats unstated settings and unusable records.

    Attributes
    ----------
    guess : whether to infer separator, decimal mark, encoding and first index from the records
    refuse : whether a record that cannot be used is an error; else it is kept with no contribution
    note : called with a message to the owner about unusable records; None for no messages
    """

    guess: bool
    refuse: bool
    note: Note | None = None

    @classmethod
    def of(cls, guarantee: bool, note: Note | None = None) -> "ReadPolicy":
        """The policy of a run with a guarantee, or of a simulation.

        Examples
        --------
        >>> ReadPolicy.of(guarantee=True) == GUARANTEE, ReadPolicy.of(guarantee=False) == SIMULATION
        (True, True)
        """
        return cls(guess=not guarantee, refuse=not guarantee, note=note)

    def notify_owner(self, what: str, records: int) -> None:
        """Pass on what the owner should know of some records."""
        if self.note is not None and records:
            self.note(what, records)


GUARANTEE = ReadPolicy(guess=False, refuse=False)
"""Nothing is guessed, and no record is refused."""
SIMULATION = ReadPolicy(guess=True, refuse=True)
"""What is not stated is guessed, and a record that cannot be used is an error that names it."""
PREDICTION = ReadPolicy(guess=False, refuse=True)
"""For records to predict: read like those of the run, and an error where there is nothing to predict from."""
