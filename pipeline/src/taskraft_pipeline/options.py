"""Parse the options of the data source; refuse unknown or malformed options before any call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from taskraft.v1.feed_service_pb2 import ChangeEvent
from taskraft_pipeline.errors import OptionInvalid
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.schema import COLUMNS, PAYLOAD, TASK_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
MS_PER_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
ENDPOINT: Final = re.compile(r"[^\s,:]+:\d+|\[[0-9a-fA-F:.]+\]:\d+")
KINDS: Final = tuple(name.lower() for name, number in ChangeEvent.Kind.items() if number)
"""Kinds of events."""
CONSUMER_BYTES_MAX: Final = 128
WORK_TUBES_MAX: Final = 64
WORK_TASKS_MAX: Final = 50_000
"""Maximum number of leased tasks per batch, whose leases Spark logs as one line."""
SNAPSHOT_TTL_MS_MAX: Final = MS_PER_UNIT["h"]
"""Maximum time for which a node keeps an unused snapshot."""


class Bound(Enum):
    """A position that is determined when the query starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Read(Enum):
    """Kind of the rows of a query: changes of tasks, current tasks, or tasks to work on."""

    CHANGES = "changes"
    TASKS = "tasks"
    WORK = "work"

    @property
    def types(self) -> Mapping[str, str]:
        """Spark type of each column, in order."""
        return COLUMNS if self is Read.CHANGES else TASK_COLUMNS


@dataclass(slots=True, frozen=True)
class Options:
    """Options of a query.

    Attributes:
        endpoints: first nodes to call, as "host:port"; the feed lists the other nodes.
        read: content of the rows: events of the feed, the current tasks, or leased tasks.
        starting: where a new query begins; None: earliest for a batch, latest for a stream.
        ending: where a batch query ends.
        tubes: only events or tasks of these tubes; the server filters. Empty: all.
        kinds: only events of these kinds; the server filters. Empty: all.
        columns: columns of the rows, in this order.
        events_per_trigger_max: maximum number of events per batch of a stream.
        events_per_task: maximum number of events, or about the number of tasks, per Spark task.
        is_loss_failure: fail if retention has removed unread events.
        consumer: name under which the query's progress delays retention. Empty: none.
        consumer_ttl_ms: time after a report of progress for which retention is delayed, in ms.
        poll_interval_ms: minimum time between two requests for the end of the feed, in ms.
        connect_timeout_ms: maximum time to connect to a node, in ms.
        read_timeout_ms: maximum time of a call, in ms.
        outage_max_ms: maximum time without an answer from any node, in ms; 0: one attempt per node.
        snapshot_ttl_ms: time for which a node keeps the snapshot of a query after its last use.
        tasks_per_trigger_max: maximum number of leased tasks per batch of a stream.
        lease_ms: duration of the lease of a task, in ms; a batch must take less time.
    """

    endpoints: tuple[str, ...]
    read: Read = Read.CHANGES
    starting: Bound | Offset | None = None
    ending: Bound | Offset = Bound.LATEST
    tubes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    columns: tuple[str, ...] = tuple(COLUMNS)
    events_per_trigger_max: int = 500_000
    events_per_task: int = 250_000
    is_loss_failure: bool = True
    consumer: str = ""
    consumer_ttl_ms: int = 7 * MS_PER_UNIT["d"]
    poll_interval_ms: int = 250
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 60_000
    outage_max_ms: int = 60_000
    snapshot_ttl_ms: int = 10 * MS_PER_UNIT["m"]
    tasks_per_trigger_max: int = 5_000
    lease_ms: int = 10 * MS_PER_UNIT["m"]


NAMES: Final = {
    name.lower(): name
    for name in (
        "endpoints",
        "read",
        "startingOffsets",
        "endingOffsets",
        "tubes",
        "kinds",
        "columns",
        "maxEventsPerTrigger",
        "targetEventsPerTask",
        "failOnDataLoss",
        "consumer",
        "consumerTtl",
        "minPollInterval",
        "connectTimeout",
        "readTimeout",
        "maxOutage",
        "snapshotTtl",
        "maxTasksPerTrigger",
        "leaseTime",
    )
}
"""Spelling of the options; Spark may pass them in any case."""
OWN: Final[Mapping[Read, Sequence[str]]] = {
    Read.CHANGES: (
        "startingOffsets", "endingOffsets", "kinds", "maxEventsPerTrigger", "targetEventsPerTask",
        "failOnDataLoss", "consumer", "consumerTtl", "minPollInterval",
    ),
    Read.TASKS: ("snapshotTtl", "targetEventsPerTask"),
    Read.WORK: ("maxTasksPerTrigger", "leaseTime", "minPollInterval"),
}  # fmt: skip
"""Options that apply only to some kinds of reads; all other options apply to each kind."""


def parse(given: Mapping[str, str]) -> Options:
    """Return the options of a query.

    Raises:
        OptionInvalid: an option is unknown, missing, or has an invalid value.
    """
    texts = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(texts) - set(NAMES))
    if unknown:
        known = ", ".join(NAMES.values())
        raise OptionInvalid(f"unknown option {', '.join(unknown)}; the options are: {known}")
    default = Options(endpoints=())
    read = _read(texts)
    return Options(
        endpoints=_endpoints(texts.get("endpoints", "")),
        read=read,
        starting=_position("startingOffsets", texts.get("startingoffsets")),
        ending=_position("endingOffsets", texts.get("endingoffsets")) or default.ending,
        tubes=tuple(_items(texts.get("tubes", ""))),
        kinds=_kinds(texts.get("kinds", "")),
        columns=_columns(texts.get("columns", ""), read),
        events_per_trigger_max=_count(texts, "maxEventsPerTrigger", default.events_per_trigger_max),
        events_per_task=_count(texts, "targetEventsPerTask", default.events_per_task),
        is_loss_failure=_switch(texts, "failOnDataLoss", default=default.is_loss_failure),
        consumer=_consumer(texts.get("consumer", "")),
        consumer_ttl_ms=_duration(texts, "consumerTtl", default.consumer_ttl_ms),
        poll_interval_ms=_duration(texts, "minPollInterval", default.poll_interval_ms),
        connect_timeout_ms=_duration(texts, "connectTimeout", default.connect_timeout_ms),
        read_timeout_ms=_duration(texts, "readTimeout", default.read_timeout_ms),
        outage_max_ms=_duration(texts, "maxOutage", default.outage_max_ms),
        snapshot_ttl_ms=_snapshot_ttl(texts, default.snapshot_ttl_ms),
        tasks_per_trigger_max=_tasks_per_trigger(texts, default.tasks_per_trigger_max),
        lease_ms=_lease(texts, default.lease_ms),
    )


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Return the addresses of a list such as "10.0.0.1:7301,10.0.0.2:7301"."""
    return _endpoints(text)


def _items(text: str) -> Iterable[str]:
    return (item.strip() for item in text.split(",") if item.strip())


def _endpoints(text: str) -> tuple[str, ...]:
    found = tuple(_items(text))
    wrong = [endpoint for endpoint in found if not ENDPOINT.fullmatch(endpoint)]
    if wrong or not found:
        raise OptionInvalid(f"endpoints must be host:port,host:port; got {text!r}")
    return found


def _read(texts: Mapping[str, str]) -> Read:
    text = texts.get("read", Read.CHANGES.value).lower()
    if text not in {read.value for read in Read}:
        raise OptionInvalid(f"read must be changes, tasks or work; got {text!r}")
    read = Read(text)
    limited = dict.fromkeys(name for names in OWN.values() for name in names)
    wrong = [name for name in limited if name.lower() in texts and name not in OWN[read]]
    if wrong:
        raise OptionInvalid(f"{', '.join(wrong)} cannot be combined with read={text}")
    if read is Read.WORK and not 1 <= len(list(_items(texts.get("tubes", "")))) <= WORK_TUBES_MAX:
        raise OptionInvalid(f"read=work needs the option tubes with 1 to {WORK_TUBES_MAX} tubes")
    return read


def _snapshot_ttl(texts: Mapping[str, str], default_ms: int) -> int:
    found = _duration(texts, "snapshotTtl", default_ms)
    if not 1 <= found <= SNAPSHOT_TTL_MS_MAX:
        raise OptionInvalid(f"snapshotTtl must be from 1ms to 1h; got {found} ms")
    return found


def _tasks_per_trigger(texts: Mapping[str, str], default: int) -> int:
    found = _count(texts, "maxTasksPerTrigger", default)
    if found > WORK_TASKS_MAX:
        raise OptionInvalid(f"maxTasksPerTrigger must be at most {WORK_TASKS_MAX}; got {found}")
    return found


def _lease(texts: Mapping[str, str], default_ms: int) -> int:
    found = _duration(texts, "leaseTime", default_ms)
    if not 1_000 <= found <= MS_PER_UNIT["d"]:
        raise OptionInvalid(f"leaseTime must be from 1s to 1d; got {found} ms")
    return found


def _kinds(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(item.lower() for item in _items(text)))
    wrong = [kind for kind in found if kind not in KINDS]
    if wrong:
        raise OptionInvalid(f"unknown kind {', '.join(wrong)}; the kinds are: {', '.join(KINDS)}")
    return found


def _columns(text: str, read: Read) -> tuple[str, ...]:
    usual = [name for name in read.types if name != PAYLOAD or read is Read.WORK]
    found = tuple(_items(text)) or tuple(usual)
    wrong = [name for name in found if name not in read.types]
    if wrong:
        raise OptionInvalid(
            f"unknown column {', '.join(wrong)}; the columns are: {', '.join(read.types)}"
        )
    if len(set(found)) != len(found):
        raise OptionInvalid(f"a column is named twice: {text}")
    return found


def _position(name: str, text: str | None) -> Bound | Offset | None:
    if text is None:
        return None
    if text.lower() in {bound.value for bound in Bound}:
        return Bound(text.lower())
    if not text.lstrip().startswith("{"):
        raise OptionInvalid(f"{name} must be earliest, latest or an offset; got {text!r}")
    return Offset.from_json(text)


def _count(texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise OptionInvalid(f"{name} must be a number of at least 1; got {text!r}")
    return int(text)


def _switch(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise OptionInvalid(f"{name} must be true or false; got {text!r}")
    return text.lower() == "true"


def _duration(texts: Mapping[str, str], name: str, default_ms: int) -> int:
    text = texts.get(name.lower())
    return default_ms if text is None else parse_duration(name, text)


def parse_duration(name: str, text: str) -> int:
    """Return the milliseconds of a duration such as "250ms".

    Raises:
        OptionInvalid: the text is not a duration.
    """
    found = DURATION.fullmatch(text.strip())
    if not found:
        raise OptionInvalid(
            f"{name} must be a duration such as 250ms, 60s, 10m or 7d; got {text!r}"
        )
    return int(found[1]) * MS_PER_UNIT[found[2]]


def _consumer(text: str) -> str:
    if len(text.encode()) > CONSUMER_BYTES_MAX:
        raise OptionInvalid(f"consumer must have at most {CONSUMER_BYTES_MAX} bytes")
    return text
