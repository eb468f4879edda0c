"""Parse the options of the data source; refuse unknown or malformed options before any call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import OptionInvalid
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h)")
MS_PER_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
ENDPOINT: Final = re.compile(r"[^\s,:]+:\d+|\[[0-9a-fA-F:.]+\]:\d+")
CONSUMER_BYTES_MAX: Final = 128


class Bound(Enum):
    """A position that is determined when the query starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(slots=True, frozen=True)
class Options:
    """Options of a query.

    Attributes:
        endpoints: first nodes to call, as "host:port"; the feed lists the other nodes.
        starting: where a new query begins; None: earliest for a batch, latest for a stream.
        ending: where a batch query ends.
        tubes: only events of these tubes; the server filters. Empty: all.
        columns: columns of the rows, in this order.
        events_per_trigger_max: maximum number of events per batch of a stream.
        events_per_task: maximum number of events per Spark task.
        is_loss_failure: fail if retention has removed unread events.
        consumer: name under which the query's progress delays retention. Empty: none.
        poll_interval_ms: minimum time between two requests for the end of the feed, in ms.
        connect_timeout_ms: maximum time to connect to a node, in ms.
        read_timeout_ms: maximum time of a call, in ms.
        retries_max: maximum number of consecutive failures without progress.
    """

    endpoints: tuple[str, ...]
    starting: Bound | Offset | None = None
    ending: Bound | Offset = Bound.LATEST
    tubes: tuple[str, ...] = ()
    columns: tuple[str, ...] = tuple(COLUMNS)
    events_per_trigger_max: int = 500_000
    events_per_task: int = 250_000
    is_loss_failure: bool = True
    consumer: str = ""
    poll_interval_ms: int = 250
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 60_000
    retries_max: int = 10


NAMES: Final = {
    name.lower(): name
    for name in (
        "endpoints",
        "startingOffsets",
        "endingOffsets",
        "tubes",
        "columns",
        "maxEventsPerTrigger",
        "targetEventsPerTask",
        "failOnDataLoss",
        "consumer",
        "minPollInterval",
        "connectTimeout",
        "readTimeout",
        "maxRetries",
    )
}
"""Spelling of the options; Spark may pass them in any case."""


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
    return Options(
        endpoints=_endpoints(texts.get("endpoints", "")),
        starting=_position("startingOffsets", texts.get("startingoffsets")),
        ending=_position("endingOffsets", texts.get("endingoffsets")) or default.ending,
        tubes=tuple(_items(texts.get("tubes", ""))),
        columns=_columns(texts.get("columns", "")),
        events_per_trigger_max=_count(texts, "maxEventsPerTrigger", default.events_per_trigger_max),
        events_per_task=_count(texts, "targetEventsPerTask", default.events_per_task),
        is_loss_failure=_switch(texts, "failOnDataLoss", default=default.is_loss_failure),
        consumer=_consumer(texts.get("consumer", "")),
        poll_interval_ms=_duration(texts, "minPollInterval", default.poll_interval_ms),
        connect_timeout_ms=_duration(texts, "connectTimeout", default.connect_timeout_ms),
        read_timeout_ms=_duration(texts, "readTimeout", default.read_timeout_ms),
        retries_max=_count(texts, "maxRetries", default.retries_max, least=0),
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


def _columns(text: str) -> tuple[str, ...]:
    found = tuple(_items(text)) or tuple(COLUMNS)
    wrong = [name for name in found if name not in COLUMNS]
    if wrong:
        raise OptionInvalid(
            f"unknown column {', '.join(wrong)}; the columns are: {', '.join(COLUMNS)}"
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


def _count(texts: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = texts.get(name.lower())
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise OptionInvalid(f"{name} must be a number of at least {least}; got {text!r}")
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
    if text is None:
        return default_ms
    found = DURATION.fullmatch(text.strip())
    if not found:
        raise OptionInvalid(f"{name} must be a duration such as 250ms or 60s; got {text!r}")
    return int(found[1]) * MS_PER_UNIT[found[2]]


def _consumer(text: str) -> str:
    if len(text.encode()) > CONSUMER_BYTES_MAX:
        raise OptionInvalid(f"consumer must have at most {CONSUMER_BYTES_MAX} bytes")
    return text
