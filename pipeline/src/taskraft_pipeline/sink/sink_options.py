"""Parse the options of a write; refuse unknown or malformed options before any call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from taskraft_pipeline.errors import OptionInvalid
from taskraft_pipeline.options import MS_PER_UNIT, Options, parse_duration, parse_endpoints

if TYPE_CHECKING:
    from collections.abc import Mapping

APP_BYTES_MAX: Final = 200
"""Maximum size of ``txnAppId``, which is a part of a unique key."""
TTL_MS_MAX: Final = 366 * MS_PER_UNIT["d"]
NAMES: Final = {
    name.lower(): name
    for name in (
        "endpoints",
        "tube",
        "txnAppId",
        "txnVersion",
        "rejects",
        "stageTtl",
        "txnTtl",
        "connectTimeout",
        "readTimeout",
        "maxOutage",
    )
}
SPARK_OPTIONS: Final = frozenset({"checkpointlocation"})
"""Options of a streaming query that Spark itself uses and passes on."""


@dataclass(slots=True, frozen=True)
class SinkOptions:
    """Options of a write.

    Attributes:
        connection: addresses of the nodes, and time limits of calls.
        tube: tube of the rows that name no tube. Empty: each row names its tube.
        app: name of the writer, in whose scope versions count. Empty: the id of the streaming
            query, or a random name for a batch.
        version: version of a batch; a version is committed once.
        rejects: folder for the rows that are not valid tasks. Empty: such a row fails the query.
        stage_ttl_ms: time after which the tasks of an unfinished attempt are removed.
        txn_ttl_ms: time for which a committed version is remembered.
    """

    connection: Options
    tube: str = ""
    app: str = ""
    version: int = 0
    rejects: str = ""
    stage_ttl_ms: int = MS_PER_UNIT["h"]
    txn_ttl_ms: int = 30 * MS_PER_UNIT["d"]


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write.

    Raises:
        OptionInvalid: an option is unknown, missing, or has an invalid value.
    """
    texts = {name.lower(): value for name, value in given.items()}
    unknown = sorted(set(texts) - set(NAMES) - SPARK_OPTIONS)
    if unknown:
        known = ", ".join(NAMES.values())
        raise OptionInvalid(
            f"unknown option {', '.join(unknown)}; the options of a write are: {known}"
        )
    default = Options(endpoints=())
    app, version = texts.get("txnappid", ""), texts.get("txnversion")
    if len(app.encode()) > APP_BYTES_MAX:
        raise OptionInvalid(f"txnAppId must have at most {APP_BYTES_MAX} bytes")
    if version is not None and not (app and version.isdecimal()):
        raise OptionInvalid(
            f"txnVersion must be a number from 0, together with txnAppId; got {version!r}"
        )
    return SinkOptions(
        connection=Options(
            endpoints=parse_endpoints(texts.get("endpoints", "")),
            connect_timeout_ms=_duration(texts, "connectTimeout", default.connect_timeout_ms),
            read_timeout_ms=_duration(texts, "readTimeout", default.read_timeout_ms),
            outage_max_ms=_duration(texts, "maxOutage", default.outage_max_ms),
        ),
        tube=texts.get("tube", ""),
        app=app,
        version=int(version or 0),
        rejects=texts.get("rejects", ""),
        stage_ttl_ms=_ttl(texts, "stageTtl", MS_PER_UNIT["h"]),
        txn_ttl_ms=_ttl(texts, "txnTtl", 30 * MS_PER_UNIT["d"]),
    )


def _duration(texts: Mapping[str, str], name: str, default_ms: int) -> int:
    text = texts.get(name.lower())
    return default_ms if text is None else parse_duration(name, text)


def _ttl(texts: Mapping[str, str], name: str, default_ms: int) -> int:
    found = _duration(texts, name, default_ms)
    if not 1 <= found <= TTL_MS_MAX:
        raise OptionInvalid(f"{name} must be from 1ms to 366d; got {found} ms")
    return found
