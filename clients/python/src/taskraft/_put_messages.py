"""Split many payloads into messages of the maximum size."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from taskraft._arguments import wrong_type
from taskraft._payload import Payload
from taskraft._planned_task import PlannedTask
from taskraft._put_options import spec_of
from taskraft._request_batcher import MESSAGE_BYTES_MAX, MESSAGE_ITEMS_MAX

if TYPE_CHECKING:
    from taskraft.v1 import task_pb2

SPEC_BYTES: Final = 16
"""Approximate size of a task in a message, without payload, headers and dependencies."""
HEADER_BYTES: Final = 64
"""Size with which a header counts: the tasks of one message have at most 40 000 headers."""
DEPENDENCY_BYTES: Final = 1024
"""Size with which a dependency counts: the tasks of one message have at most 2 000 dependencies."""


def counted_bytes(spec: task_pb2.TaskSpec) -> int:
    """Return the size in bytes with which a task counts in a message."""
    return (
        len(spec.payload)
        + SPEC_BYTES
        + HEADER_BYTES * len(spec.headers)
        + DEPENDENCY_BYTES * len(spec.depends_on)
    )


def spec_of_item(
    tube: str, item: Payload | PlannedTask, shared: task_pb2.TaskSpec | None
) -> task_pb2.TaskSpec:
    """Return the message of a payload with the shared options, or of a planned task of the tube.

    Raises:
        TypeError: a planned task comes with shared options.
        ValueError: a planned task is for another tube, or depends on planned tasks.
    """
    if not isinstance(item, PlannedTask):
        return spec_of(item, shared)
    if shared is not None:
        raise TypeError("options of a put do not apply to planned tasks, which have their own")
    if item.tube != tube:
        raise ValueError(f"a task that is planned for {item.tube} cannot be put in {tube}")
    return item.alone()


class _SpecPacker:
    """Collects tasks until a message is full."""

    def __init__(self, tube: str, shared: task_pb2.TaskSpec | None) -> None:
        self._tube = tube
        self._shared = shared
        self._specs: list[task_pb2.TaskSpec] = []
        self._size_bytes = 0

    def add(self, payload: Payload | PlannedTask) -> bool:
        """Add a task; return whether the message is full."""
        spec = spec_of_item(self._tube, payload, self._shared)
        self._specs.append(spec)
        self._size_bytes += counted_bytes(spec)
        return len(self._specs) >= MESSAGE_ITEMS_MAX or self._size_bytes >= MESSAGE_BYTES_MAX

    def take(self) -> list[task_pb2.TaskSpec]:
        """Return the collected tasks, and start a new message."""
        specs, self._specs, self._size_bytes = self._specs, [], 0
        return specs


async def put_messages(
    tube: str,
    payloads: Iterable[Payload | PlannedTask] | AsyncIterable[Payload | PlannedTask],
    shared: task_pb2.TaskSpec | None,
) -> AsyncIterator[list[task_pb2.TaskSpec]]:
    """Yield lists of task messages, each as large as one put message may be.

    Raises:
        TypeError: `payloads` is a single payload, such as a str or a mapping; or a planned task
            comes with options.
        ValueError: a planned task is for another tube, or depends on planned tasks.
    """
    if isinstance(payloads, str | bytes | bytearray | memoryview | Mapping):
        raise wrong_type("payloads", "several payloads (`put` takes a single one)", payloads)
    if not isinstance(payloads, Iterable | AsyncIterable):
        raise wrong_type("payloads", "an iterable of payloads", payloads)
    packer = _SpecPacker(tube, shared)
    if isinstance(payloads, AsyncIterable):
        async for payload in payloads:
            if packer.add(payload):
                yield packer.take()
    else:
        for payload in payloads:
            if packer.add(payload):
                yield packer.take()
    if rest := packer.take():
        yield rest
