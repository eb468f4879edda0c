"""List the codecs of all commands by their number in the log.

The leader decodes a command before it proposes it, and each replica decodes it from the log, with
the same function; so all replicas see equal commands. The API has checked the requests before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from taskraft_service.command_codecs import (
    audit,
    batch,
    bulk_sweeps,
    commit_cursor,
    groups,
    put,
    schedules,
    selected_tasks,
    sessions,
    settle,
    take,
    tubes,
)
from taskraft_service.command_codecs.command_codec import CommandCodec
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.queue.operations.registry import Command

_MODULES: Final = (
    audit,
    batch,
    bulk_sweeps,
    commit_cursor,
    groups,
    put,
    schedules,
    selected_tasks,
    sessions,
    settle,
    take,
    tubes,
)
CODECS: Final[Mapping[int, CommandCodec[Any]]] = {
    codec.number: codec
    for module in _MODULES
    for codec in vars(module).values()
    if isinstance(codec, CommandCodec)
}
"""Codecs by field number: each constant of the modules above that is a ``CommandCodec``."""

DECODERS: Final[Mapping[int, Callable[[bytes, RequestKey, int, int, int], Command]]] = {
    number: codec.decode for number, codec in CODECS.items()
}
"""Decoders by field number; each takes the bytes, the request's key, and the cluster version."""
