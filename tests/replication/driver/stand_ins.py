"""Replace the neighbours of the driver's parts: a core, and a waiting client."""

from __future__ import annotations

from taskraft_replication.core.errors import DropReason, ProposalDropped
from taskraft_replication.core.types import Entry, LogIndex, MemberId, RaftRole, Term


class Waiting:
    """A result that a client waits for."""

    def __init__(self) -> None:
        self.result: object = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: object, /) -> None:
        self.result = result

    def set_exception(self, exception: BaseException, /) -> None:
        self.error = exception


class Leader:
    """Replaces a core that leads, and accepts every proposal while it leads."""

    def __init__(self, term: int = 1) -> None:
        self.role = RaftRole.LEADER
        self.term = Term(term)
        self.leader = MemberId(1)
        self.last_index = LogIndex(10)
        self.asked: list[bytes] = []

    def propose_unsent(self, data: bytes) -> Entry:
        if self.role is not RaftRole.LEADER:
            raise ProposalDropped(DropReason.NOT_LEADER)
        self.last_index = LogIndex(self.last_index + 1)
        return Entry(self.term, self.last_index, data)

    def read_index(self, context: bytes) -> None:
        self.asked.append(context)


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(Term(term), LogIndex(index), data)
