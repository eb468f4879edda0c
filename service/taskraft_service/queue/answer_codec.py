"""Write answers so that a repeated request gets the first one again.

Compact, because they are kept for minutes at full rate: a put of consecutive ids is a first id and
a count. Leases, tubes and sessions are kept by name and shown as they are at the time of the
repetition.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from taskraft_service.queue.commands.batch import BatchResult
from taskraft_service.queue.commands.circulation import CountResult
from taskraft_service.queue.commands.groups import GroupResult
from taskraft_service.queue.commands.intervention import CancelResult
from taskraft_service.queue.commands.leadership import StartupResult
from taskraft_service.queue.commands.put import PutResult
from taskraft_service.queue.commands.schedules import ScheduleResult
from taskraft_service.queue.commands.sessions import KeepResult, SessionResult
from taskraft_service.queue.commands.settings import SettingsResult
from taskraft_service.queue.commands.settle import SettleResult, TouchedLease
from taskraft_service.queue.commands.take import TakeResult
from taskraft_service.queue.commands.tubes import TubeResult
from taskraft_service.queue.entities.refusal import ItemRefusal, Reason, Refusal
from taskraft_service.queue.values import value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft_service.queue.commands.batch import BatchOutcome
    from taskraft_service.queue.commands.command import Result


@value
class TakenBefore:
    """A take was answered with these leases."""

    tokens: Sequence[int]


@value
class TubeBefore:
    """A tube was answered."""

    name: str
    existed: bool


@value
class SessionBefore:
    """A session was answered."""

    session_id: str


@value
class ScheduleBefore:
    """A schedule was answered."""

    name: str


@value
class SettingsBefore:
    """The settings were answered."""


@value
class GroupBefore:
    """A group was answered."""

    name: str


Answer: TypeAlias = (
    PutResult
    | SettleResult
    | CountResult
    | CancelResult
    | BatchResult
    | TakenBefore
    | TubeBefore
    | SessionBefore
    | ScheduleBefore
    | SettingsBefore
    | GroupBefore
)
"""What is remembered of a result."""

_PUT_RUN: Final = 1
_PUT: Final = 2
_TAKE: Final = 3
_SETTLE: Final = 4
_COUNT: Final = 5
_TUBE: Final = 6
_SESSION: Final = 7
_SCHEDULE: Final = 8
_SETTINGS: Final = 9
_GROUP: Final = 10
_CANCEL: Final = 30
_BATCH: Final = 31

_run = Struct(">BQI")
_list = Struct(">BI")
_counted = Struct(">BQQ")
_cancelled = Struct(">BIIQ")
_number = Struct(">Q")
_count = Struct(">I")
_touched = Struct(">QQ?")
_existed = Struct(">B?")
_kind = Struct(">B")
_refusal = Struct(">IHI")
_texts = Struct(">I")


def encode(result: Result) -> bytes:  # noqa: C901, PLR0912 - one line per kind
    """Return a result in the kept form. Refused commands and empty takes are not for keeping."""
    match result:
        case PutResult(ids, refused, existing):
            if not refused and not existing and ids and len(ids) == ids[-1] - ids[0] + 1:
                return _run.pack(_PUT_RUN, ids[0], len(ids))
            there_before = _count.pack(len(existing)) + _numbers(existing)
            return _list.pack(_PUT, len(ids)) + _numbers(ids) + there_before + _refusals(refused)
        case TakeResult(tasks):
            tokens = [task.token for task in tasks]
            return _list.pack(_TAKE, len(tokens)) + _numbers(tokens)
        case SettleResult(refused, touched):
            leases = b"".join(
                _touched.pack(item.token, item.lease_until_ms, item.cancel_requested)
                for item in touched
            )
            return _list.pack(_SETTLE, len(touched)) + leases + _refusals(refused)
        case CountResult(count, refused, continue_after_id):
            return _counted.pack(_COUNT, count, continue_after_id) + _refusals(refused)
        case BatchResult(results):
            parts = [_list.pack(_BATCH, len(results))]
            for one in results:
                part = encode(one)
                parts += (_texts.pack(len(part)), part)
            return b"".join(parts)
        case CancelResult(asked, removed, refused, continue_after_id):
            head = _cancelled.pack(_CANCEL, asked, removed, continue_after_id)
            return head + _refusals(refused)
        case TubeResult(tube, existed):
            return _existed.pack(_TUBE, existed) + tube.name.encode()
        case SessionResult(session):
            return _kind.pack(_SESSION) + session.session_id.encode()
        case ScheduleResult(schedule):
            return _kind.pack(_SCHEDULE) + schedule.name.encode()
        case SettingsResult():
            return _kind.pack(_SETTINGS)
        case GroupResult(group):
            return _kind.pack(_GROUP) + group.name.encode()
        case KeepResult() | StartupResult() | Refusal():
            raise AssertionError(f"{type(result).__name__} is not kept")
        case _:
            assert_never(result)


def decode(record: bytes) -> Answer:  # noqa: C901 - one line per kind
    """Return what was kept."""
    kind = record[0]
    if kind == _PUT_RUN:
        _, first, count = _run.unpack(record)
        return PutResult(range(first, first + count))
    if kind == _TUBE:
        return TubeBefore(record[_existed.size :].decode(), bool(record[1]))
    if kind == _SESSION:
        return SessionBefore(record[_kind.size :].decode())
    if kind == _GROUP:
        return GroupBefore(record[_kind.size :].decode())
    if kind == _SCHEDULE:
        return ScheduleBefore(record[_kind.size :].decode())
    if kind == _SETTINGS:
        return SettingsBefore()
    if kind == _BATCH:
        return _read_batch(record)
    if kind == _COUNT:
        _, count, continue_after_id = _counted.unpack_from(record)
        return CountResult(count, _read_refusals(record, _counted.size), continue_after_id)
    if kind == _CANCEL:
        _, asked, removed, continue_after_id = _cancelled.unpack_from(record)
        refused = _read_refusals(record, _cancelled.size)
        return CancelResult(asked, removed, refused, continue_after_id)
    _, count = _list.unpack_from(record)
    at = _list.size
    if kind == _SETTLE:
        end = at + count * _touched.size
        touched = [TouchedLease(*lease) for lease in _touched.iter_unpack(record[at:end])]
        return SettleResult(_read_refusals(record, end), touched)
    end = at + count * _number.size
    numbers = [number for (number,) in _number.iter_unpack(record[at:end])]
    if kind == _TAKE:
        return TakenBefore(numbers)
    assert kind == _PUT
    (existing_count,) = _count.unpack_from(record, end)
    at = end + _count.size
    end = at + existing_count * _number.size
    existing = [number for (number,) in _number.iter_unpack(record[at:end])]
    return PutResult(numbers, _read_refusals(record, end), existing)


def _read_batch(record: bytes) -> BatchResult:
    _, count = _list.unpack_from(record)
    at = _list.size
    results: list[BatchOutcome] = []
    for _ in range(count):
        (length,) = _texts.unpack_from(record, at)
        at += _texts.size
        one = decode(record[at : at + length])
        assert isinstance(one, (PutResult, SettleResult, CountResult))
        results.append(one)
        at += length
    return BatchResult(results)


def _numbers(numbers: Sequence[int]) -> bytes:
    return Struct(f">{len(numbers)}Q").pack(*numbers)


def _refusals(refused: Sequence[ItemRefusal]) -> bytes:
    parts = [_count.pack(len(refused))]
    for item in refused:
        refusal = item.refusal
        texts = [refusal.message]
        for name, text in refusal.metadata.items():
            texts += (name, text)
        parts.append(_refusal.pack(item.item, refusal.reason, len(texts)))
        for text in texts:
            encoded = text.encode()
            parts += (_texts.pack(len(encoded)), encoded)
    return b"".join(parts)


def _read_refusals(record: bytes, at: int) -> Sequence[ItemRefusal]:
    (count,) = _count.unpack_from(record, at)
    at += _count.size
    refused = []
    for _ in range(count):
        item, reason, text_count = _refusal.unpack_from(record, at)
        at += _refusal.size
        texts = []
        for _ in range(text_count):
            (length,) = _texts.unpack_from(record, at)
            at += _texts.size
            texts.append(record[at : at + length].decode())
            at += length
        message, *pairs = texts
        metadata = dict(zip(pairs[::2], pairs[1::2], strict=True))
        refused.append(ItemRefusal(item, Refusal(Reason(reason), message, metadata)))
    return refused
