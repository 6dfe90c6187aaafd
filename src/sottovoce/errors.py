"""Public errors: one line that says what is wrong, what was expected and what to type.

Every one is a `ValueError`, so that callers who know nothing of sottovoce still catch them, and carries the exit
code of the command line.
"""

from typing import Any

from sottovoce._renamed import module_attribute


class SottovoceError(ValueError):
    """Something that the caller can fix; the message says how."""

    exit_code = 1


class Interrupted(SottovoceError):
    """The user stopped the work; what was done so far is kept where the message says."""

    exit_code = 130


class SpecError(SottovoceError):
    """A parameter, or a combination of parameters, that has no meaning."""

    exit_code = 2


class DataError(SottovoceError):
    """Records that cannot be used: missing, malformed, unlabeled, over the public bound."""

    exit_code = 3


class NetworkError(SottovoceError):
    """A peer that is gone, or a graph, weight matrix or activation scheme under which the nodes cannot agree."""

    exit_code = 4


class PeerTimeout(NetworkError):
    """A peer is gone; the run can go on when it is back."""

    def __init__(self, sentence: str, peer: str | None = None) -> None:
        super().__init__(sentence)
        self.peer = peer
        """The node that was waited for, if it is known."""


class UnknownPeer(NetworkError):
    """A peer that does not take part in the same run: nothing is exchanged with it."""


class ConflictingMessages(NetworkError):
    """A peer signed other messages than it sent: the run cannot be finished with it."""


class PeerEnded(NetworkError):
    """A peer ended the run and said why."""


class LeftOut(NetworkError):
    """The other nodes went on without this one."""


class TooFew(NetworkError):
    """More nodes are lost than the run was prepared for."""


class PrivacyError(SottovoceError):
    """A release that cannot be accounted for, or a guarantee that does not hold."""

    exit_code = 5


class StoreError(SottovoceError):
    """A node's folder that cannot be trusted: damaged, an old copy, in use, or without its key."""

    exit_code = 6


class FolderInUse(StoreError):
    """Another process has this node's folder open; it may be about to end."""


class StaleCopy(StoreError):
    """A folder that is behind what peers have seen from its node; it never goes on in this run."""


class Disputed(StoreError):
    """A peer holds messages in this node's name that this node's ledger does not know, and cannot prove them."""


class PrivacyLeakWarning(UserWarning):
    """Something that ought to be public was not given, and was inferred from the data or replaced by a default."""


class RepeatedReleaseWarning(UserWarning):
    """Several releases of the same records, which cost more together than one of them."""


class OwnerWarning(UserWarning):
    """Something about single records that their owner should know, and that is not for anybody else."""


def __getattr__(name: str) -> Any:
    """Return what a name of version 0.2 stands for."""
    return module_attribute(__name__, name)
