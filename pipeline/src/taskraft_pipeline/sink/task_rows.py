"""Convert rows into tasks: check the columns of a query, then the values of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskraft.v1.task_pb2 import TaskSpec
from taskraft_pipeline.errors import OptionInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

CHUNK_TASKS: Final = 1_000
"""Maximum number of tasks of one put."""
CHUNK_BYTES: Final = 1 << 20
"""Size of the payloads at which a put is complete."""

INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
TYPES: Final[Mapping[str, Sequence[str]]] = {
    "tube": ("string",),
    "payload": ("binary", "string"),
    "priority": INTEGERS,
    "delay_ms": INTEGERS,
    "ttl_ms": INTEGERS,
    "ttr_ms": INTEGERS,
    "subqueue": ("string",),
    "type": ("string",),
    "content_type": ("string",),
    "headers": ("map<string,string>", "map<string,binary>"),
}
"""Types that each column may have, in the notation of Spark's ``simpleString``."""


def check_columns(found: Mapping[str, str], tube: str) -> None:
    """Check the columns of a query.

    Args:
        found: type of each column.
        tube: default tube; empty: there is none.

    Raises:
        OptionInvalid: a column is missing or unknown, or has a wrong type.
    """
    unknown = [name for name in found if name not in TYPES]
    if unknown:
        raise OptionInvalid(
            f"unknown column {', '.join(unknown)}; the columns of a task are: {', '.join(TYPES)}"
        )
    for name, kind in found.items():
        if kind not in TYPES[name]:
            raise OptionInvalid(f"column {name} must be {' or '.join(TYPES[name])}; it is {kind}")
    if "payload" not in found:
        raise OptionInvalid("the column payload is missing")
    if not tube and "tube" not in found:
        raise OptionInvalid("the column tube is missing; add the column or set the option tube")


@dataclass(slots=True, frozen=True)
class Reject:
    """A row that is not a valid task.

    Attributes:
        row: values of the columns that the row has.
        reason: reason of the refusal, such as "PAYLOAD_TOO_LARGE".
        message: description of the error.
    """

    row: Mapping[str, Any]
    reason: str
    message: str


@dataclass(slots=True)
class Chunk:
    """Tasks of one put, with the rows that they were made of."""

    tube: str
    specs: list[TaskSpec] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    payload_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the put is complete."""
        return len(self.specs) >= CHUNK_TASKS or self.payload_bytes >= CHUNK_BYTES


class TaskRows:
    """Collects the rows of one Spark task into puts; the rows of a tube keep their order.

    Args:
        tube: tube of the rows that name no tube.

    Attributes:
        rejects: rows without a tube or a payload.
    """

    def __init__(self, tube: str) -> None:
        self._tube = tube
        self._open: dict[str, Chunk] = {}
        self.rejects: list[Reject] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[Chunk]:
        """Add rows; yield the puts that are complete."""
        for row in batch.to_pylist():
            given = {name: found for name, found in row.items() if found is not None}
            tube = given.get("tube") or self._tube
            if not tube or "payload" not in given:
                missing = "payload" if tube else "tube"
                self.rejects.append(Reject(given, "INVALID_FIELD", f"{missing}: is null"))
                continue
            chunk = self._open.setdefault(tube, Chunk(tube))
            spec = task_spec(given)
            chunk.specs.append(spec)
            chunk.rows.append(given)
            chunk.payload_bytes += len(spec.payload)
            if chunk.is_full:
                yield self._open.pop(tube)

    def rest(self) -> Iterator[Chunk]:
        """Yield the remaining puts."""
        yield from self._open.values()
        self._open.clear()


def task_spec(row: Mapping[str, Any]) -> TaskSpec:
    """Return the task of a row; columns that are null keep the defaults of the tube."""
    values = {name: found for name, found in row.items() if name not in {"tube", "headers"}}
    values["payload"] = _as_bytes(row["payload"])
    headers = {name: _as_bytes(text) for name, text in row.get("headers", ())}
    return TaskSpec(**values, headers=headers)


def _as_bytes(found: str | bytes) -> bytes:
    return found.encode() if isinstance(found, str) else found
