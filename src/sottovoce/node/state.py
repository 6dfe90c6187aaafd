"""The states of a run at one node: what enters each, what leaves it, and what it says.

`sottovoce consortium status` and the watch page show the state; `DurableNode` moves it along `NEXT` and no other way.
A state without a successor is final for the process. CONTRADICTED is final for the run: it is in the ledger, and the
node goes on telling its peers when it is started again. From the other final states a start leads back to MEETING, if
what the state names was put right.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class RunState(StrEnum):
    """Where a run stands at a node."""

    MEETING = "meeting"
    EXCHANGING = "exchanging"
    WAITING = "waiting"
    FREEZING = "freezing"
    FINISHING = "finishing"
    DONE = "done"
    PAUSED = "paused"
    CONTRADICTED = "contradicted"
    DISPUTED = "disputed"
    OLD_COPY = "old copy"
    PEER_ENDED = "peer ended"
    LEFT_OUT = "left out"
    TOO_FEW = "too few"

    @property
    def final(self) -> bool:
        """Whether a process does not leave this state."""
        return not NEXT[self]


_ENDS = frozenset(
    {
        RunState.PAUSED,
        RunState.CONTRADICTED,
        RunState.DISPUTED,
        RunState.OLD_COPY,
        RunState.PEER_ENDED,
        RunState.LEFT_OUT,
        RunState.TOO_FEW,
    }
)
NEXT: MappingProxyType[RunState, frozenset[RunState]] = MappingProxyType(
    {
        RunState.MEETING: _ENDS | {RunState.EXCHANGING, RunState.FREEZING, RunState.FINISHING},
        RunState.EXCHANGING: _ENDS | {RunState.FREEZING, RunState.FINISHING},
        RunState.WAITING: _ENDS | {RunState.EXCHANGING},
        RunState.FREEZING: _ENDS | {RunState.MEETING},
        RunState.FINISHING: _ENDS | {RunState.FREEZING, RunState.DONE},
        **dict.fromkeys((RunState.DONE, *_ENDS), frozenset[RunState]()),
    }
)
"""Which states a process may enter from each. WAITING is EXCHANGING with a peer that is late, by `shown`."""


class Row(NamedTuple):
    """One state, in words."""

    entered_by: str
    left_by: str
    says: str


TABLE: MappingProxyType[RunState, Row] = MappingProxyType(
    {
        RunState.MEETING: Row("the node starts", "every peer has said hello", "greeting its peers"),
        RunState.EXCHANGING: Row("every peer has said hello", "the last round is mixed", "exchanging messages"),
        RunState.WAITING: Row("a peer's message is late", "the message comes, or the time-out", "waits for a peer"),
        RunState.FREEZING: Row(
            "a quorum says that a peer is lost",
            "every member that is left says the same",
            "leaves out a lost peer",
        ),
        RunState.FINISHING: Row(
            "the last round is on the disk", "every peer is done", "waits until its peers are done"
        ),
        RunState.DONE: Row("every peer is done, or the time-out", "final", "done"),
        RunState.PAUSED: Row(
            "the time-out, a full disk, a stop, or a peer that paused", "a start", "all is on the disk; start it again"
        ),
        RunState.CONTRADICTED: Row(
            "a peer's signature that contradicts its messages", "final", "a peer signed other messages than it sent"
        ),
        RunState.DISPUTED: Row(
            "a peer that mixed messages which this node never made",
            "a start, with the right folder and key",
            "a peer holds messages in this node's name that it never made",
        ),
        RunState.OLD_COPY: Row(
            "a peer's proof of a message that the ledger lacks", "a start with the right folder", "an old folder"
        ),
        RunState.PEER_ENDED: Row("a peer's notice", "final where the peer contradicts", "a peer ended the run"),
        RunState.LEFT_OUT: Row("a quorum that says this node was lost", "final", "the others go on without this node"),
        RunState.TOO_FEW: Row("more lost nodes than the run may lose", "final", "too few nodes are left"),
    }
)
"""What enters a state, what leaves it, and what it says."""

LATE = 2.0
"""Seconds after which a node that lacks a message is shown as waiting."""


def shown(state: RunState, waited: float) -> RunState:
    """Return the state that `status` shows of a node that has waited so many seconds for a message.

    Examples
    --------
    >>> shown(RunState.EXCHANGING, 0.1).value, shown(RunState.EXCHANGING, 3.0).value, shown(RunState.DONE, 3.0).value
    ('exchanging', 'waiting', 'done')
    """
    return RunState.WAITING if state is RunState.EXCHANGING and waited >= LATE else state
