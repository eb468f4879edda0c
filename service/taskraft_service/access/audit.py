"""Write down who was refused, and who has changed what others rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from google.protobuf.message import Message

log: Final = structlog.get_logger("taskraft.audit")


def denied(principal: str, request: Message, verb: str, name: str) -> None:
    """Note a call that lacked a right."""
    log.warning("denied", principal=principal, call=_call(request), verb=verb, name=name)


def managed(principal: str, request: Message, names: Sequence[str]) -> None:
    """Note a call that was done under the right to manage."""
    log.info("managed", principal=principal, call=_call(request), names=names)


def _call(request: Message) -> str:
    return request.DESCRIPTOR.name.removesuffix("Request")
