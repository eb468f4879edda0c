"""Bound the bytes of the answers that a node holds, in total and for one principal.

The bytes of an answer count from the moment at which its content is about to be read until the
transport has taken the answer. A call whose answer has no room waits for its turn. The principals
come one after another, each with the call that has asked first.

The bytes of answers also count in the bytes of calls (``CallLoad.held_bytes``).
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from taskraft.v1 import error_pb2
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.leader.principal_counts import PrincipalCounts

if TYPE_CHECKING:
    from taskraft_service.api.rpc.call_load import CallLoad

COUNTED_ANSWER_BYTES: Final = 16 * 1024
"""Size of an answer above which its bytes count. ``calls_max`` bounds the smaller answers."""
ANSWERS_SHARE: Final = 4
"""Answers may use the budget of calls divided by this number. Streams may use half of the budget,
so that slow readers of both kinds leave a quarter to requests."""
ROOM_WAIT_SECONDS: Final = 10.0
"""Maximum time for which a call waits for room; then the call is refused."""


class AnswerRoom:
    """The bytes of answers that a node holds, and the calls that wait for room.

    A principal that holds no answer may exceed its share with one answer, and one answer may exceed
    the maximum of the node while the node holds no other answer.

    Args:
        load: the calls in progress, whose bytes include the answers.
        bytes_max: maximum number of bytes.
        share_max: maximum number of bytes of one principal.
    """

    def __init__(self, load: CallLoad, bytes_max: int, share_max: int) -> None:
        self._load = load
        self.bytes_max: Final = bytes_max
        self.share_max: Final = share_max
        self.held: Final = PrincipalCounts()
        self._waiting: dict[str, dict[asyncio.Future[None], int]] = {}
        """The waiting calls of each principal with the sizes of their answers, in order; the
        principal that comes next is the first."""

    @property
    def has_waiting(self) -> bool:
        """Return whether calls wait for room."""
        return bool(self._waiting)

    def add(self, more_bytes: int, principal: str) -> None:
        """Count bytes, or no longer count them if the number is negative."""
        self.held.add(more_bytes, principal)
        self._load.held_bytes += more_bytes
        if more_bytes < 0 and self._waiting:
            self._let_in()

    async def enter(self, size: int, principal: str) -> None:
        """Wait until an answer has room, and count its bytes.

        Raises:
            CallRefused: OVERLOADED, there was no room within ``ROOM_WAIT_SECONDS``.
        """
        if not self._waiting and self._exceeded(size, principal) is None:
            self.add(size, principal)
            return
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, {})[entered] = size
        self._let_in()
        try:
            async with asyncio.timeout(ROOM_WAIT_SECONDS):
                await entered
        except BaseException as error:
            if entered.done() and not entered.cancelled():
                self.add(-size, principal)
            else:
                self._forget(entered, principal)
            if isinstance(error, TimeoutError):
                raise self._overloaded(size, principal) from None
            raise

    def _exceeded(self, size: int, principal: str) -> str | None:
        """Return the name of the limit that an answer of a principal exceeds now, or None."""
        total, own = self.held.count_with(size, principal)
        if principal and own > max(self.share_max, size):
            return "answer_bytes_share_max"
        return "answer_bytes_max" if total > max(self.bytes_max, size) else None

    def _let_in(self) -> None:
        """Let waiting calls continue in turns until the answer that comes next has no room.

        A principal that has its share does not delay the others.
        """
        passed = 0
        while passed < len(self._waiting):
            principal = next(iter(self._waiting))
            waiting = self._waiting[principal]
            entered, size = next(iter(waiting.items()))
            is_cancelled = entered.done()
            exceeded = None if is_cancelled else self._exceeded(size, principal)
            if exceeded == "answer_bytes_max":
                return
            del self._waiting[principal]
            if exceeded is None:
                del waiting[entered]
                passed = 0
                if not is_cancelled:
                    self.held.add(size, principal)
                    self._load.held_bytes += size
                    entered.set_result(None)
            else:
                passed += 1
            if waiting:
                self._waiting[principal] = waiting

    def _forget(self, entered: asyncio.Future[None], principal: str) -> None:
        """Remove a call that no longer waits; a smaller answer behind it may have room."""
        waiting = self._waiting.get(principal, {})
        if waiting.pop(entered, None) is not None and not waiting:
            del self._waiting[principal]
        self._let_in()

    def _overloaded(self, size: int, principal: str) -> CallRefused:
        limit = self._exceeded(size, principal) or "answer_bytes_max"
        metadata, whose, most = {"limit": limit}, "this node", self.bytes_max
        if limit == "answer_bytes_share_max":
            metadata["principal"] = principal
            whose, most = f'principal "{principal}"', self.share_max
        return CallRefused(
            error_pb2.Error.OVERLOADED,
            f"{whose} has answers of almost {most} bytes that clients have not received, and an "
            f"answer of {size} bytes would exceed this maximum; receive them, ask for less, or "
            "retry later",
            {**metadata, "value": str(most)},
        )


class AnswerBytes:
    """The bytes that the answer of one call holds.

    Args:
        room: the answers of the node.
    """

    __slots__ = ("_bytes", "_room", "principal")

    def __init__(self, room: AnswerRoom) -> None:
        self._room = room
        self._bytes = 0
        self.principal = ""
        """The principal of the caller; set before the first bytes count."""

    async def reserve(self, size: int) -> None:
        """Count an answer before its content is read, and wait until the answer has room.

        Small answers do not count. A call reserves room once.

        Raises:
            CallRefused: OVERLOADED.
        """
        if size > COUNTED_ANSWER_BYTES and not self._bytes:
            await self._room.enter(size, self.principal)
            self._bytes = size

    def set(self, size: int) -> None:
        """Count an answer that is in memory instead of the reserved bytes; 0: no answer is held."""
        if size != self._bytes:
            self._room.add(size - self._bytes, self.principal)
            self._bytes = size


answer_of_call: Final[ContextVar[AnswerRoom | AnswerBytes | None]] = ContextVar(
    "answer_of_call", default=None
)
"""The bytes of the answer of the call that a task serves, or the room of the node while no bytes
count; None in a task of the node itself."""


def begun_answer() -> AnswerBytes | None:
    """Return the bytes of the answer of the call that the current task serves."""
    answer = answer_of_call.get()
    if isinstance(answer, AnswerRoom):
        answer = AnswerBytes(answer)
        answer_of_call.set(answer)
    return answer


def name_principal(principal: str) -> None:
    """Set the principal for whom the bytes of the answer of the current task count."""
    answer = begun_answer()
    if answer is not None:
        answer.principal = principal


def count_answer(size: int) -> None:
    """Count the answer of the current task, which is in memory; 0: no answer is held any more."""
    answer = begun_answer()
    if answer is not None:
        answer.set(size)


async def reserve_answer(size: int) -> None:
    """Count the answer of the current task before its content is read, once there is room.

    Raises:
        CallRefused: OVERLOADED, too many bytes of answers are held.
    """
    answer = begun_answer()
    if answer is not None:
        await answer.reserve(size)
