"""Errors that are part of the interface: one sentence saying what was wrong, what was expected, what to do.

Every one is a `ValueError`, so that callers who know nothing of sottovoce still catch them, and carries the exit
code of the command line.
"""


class SottovoceError(ValueError):
    """Something that the caller can mend; the message says how."""

    exit_code = 1


class Interrupted(SottovoceError):
    """The user stopped the work; what was done so far is kept where the message says."""

    exit_code = 130


class SpecError(SottovoceError):
    """A parameter, or a combination of parameters, that has no meaning."""

    exit_code = 2


class DataError(SottovoceError):
    """Records that cannot be used: missing, malformed, unlabelled, over the public bound."""

    exit_code = 3


class NetworkError(SottovoceError):
    """A graph, weight matrix or activation scheme under which the nodes cannot agree."""

    exit_code = 4


class Paused(NetworkError):
    """A peer is gone; the run can go on when it is back."""


class Stranger(NetworkError):
    """A peer that does not take part in the same run: nothing is exchanged with it."""


class PrivacyError(SottovoceError):
    """A release that cannot be accounted for, or a guarantee that does not hold."""

    exit_code = 5


class StoreError(SottovoceError):
    """A node's folder that cannot be trusted: damaged, an old copy, in use, or without its key."""

    exit_code = 6


class FolderInUse(StoreError):
    """Another process has this node's folder open; it may be about to end."""


class OldCopy(StoreError):
    """A folder that is behind what peers have seen from its node; it never goes on in this run."""


class PrivacyLeakWarning(UserWarning):
    """Something that ought to be public was not given, and was inferred from the data or replaced by a default."""
