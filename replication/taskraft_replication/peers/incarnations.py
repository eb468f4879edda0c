"""Track the starts of the peers, and refuse a process that another start has replaced."""

from __future__ import annotations

from dataclasses import dataclass

from taskraft_replication.core.types import Roster
from taskraft_replication.peers.contract import Membership
from taskraft_replication.peers.handshake import Expulsion, PeerExpelled, check_peer
from taskraft_replication.stubs.raft.v1 import raft_pb2 as pb


@dataclass(slots=True, frozen=True)
class _Start:
    """One start of a member."""

    directory_id: str
    incarnation: int
    start_id: int


class PeerIncarnations:
    """Tracks the newest incarnation of each peer, since the start of this process."""

    def __init__(self) -> None:
        self._current: dict[tuple[int, int], _Start] = {}

    def check_hello(
        self, hello: pb.Hello, own: Membership, roster: Roster, *, is_connected: bool = False
    ) -> None:
        """Check the introduction of a peer and record its incarnation.

        ``is_connected``: a stream of the peer is open. A process with a copy of the peer's
        directory has a later incarnation than the peer, so it is refused while the stream is open.

        Raises:
            PeerRefused: no common protocol version, wrong cluster or receiver, or other founders.
            PeerExpelled: the member was removed, has another data directory or an outdated
                incarnation, or another process of the member is connected.
        """
        check_peer(hello, own, roster)
        now = _start_in(hello)
        key = (hello.group_id, hello.sender)
        _check_start(hello, self._current.get(key, now), is_connected=is_connected)
        self._current[key] = now

    def is_current(self, hello: pb.Hello) -> bool:
        """Return whether no later incarnation of the peer has connected since."""
        return self._current[hello.group_id, hello.sender] == _start_in(hello)


def _start_in(hello: pb.Hello) -> _Start:
    return _Start(hello.directory_id, hello.incarnation, hello.start_id)


def _check_start(hello: pb.Hello, current: _Start, *, is_connected: bool) -> None:
    """Check that a start of a peer is ``current`` or follows it.

    Each directory counts its own starts. A start with another directory passed the check of the
    directory, so it is the start of a founder whose data was deleted before the group existed. It
    is no copy of the directory of ``current``, even if the stream of ``current`` still looks open.

    Raises:
        PeerExpelled: the start is outdated, or the process of ``current`` is still connected.
    """
    now = _start_in(hello)
    if now == current or now.directory_id != current.directory_id:
        return
    if now.incarnation <= current.incarnation:
        later = "another process" if now.incarnation == current.incarnation else "a later one"
        raise PeerExpelled(
            Expulsion.OUTDATED,
            f"incarnation {now.incarnation} of member {hello.sender} is outdated: {later} has "
            f"connected as incarnation {current.incarnation}; the data directory is an older copy, "
            f"which may lack acknowledged data: use the newest copy, or remove the member and let "
            f"its node join with an empty directory",
        )
    if is_connected and now.start_id != current.start_id:
        raise PeerExpelled(
            Expulsion.SECOND,
            f"another process of member {hello.sender} is connected to member {hello.receiver}; "
            f"run one process of a member, with one copy of its data directory",
        )
