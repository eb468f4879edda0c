"""Tell a span which node has answered its call.

The caller of a method and the code that chooses a node are far apart, and a message can have
several callers. The address therefore travels in the context of the call.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


class AnsweringNode:
    """The node that was called last for one or several spans."""

    __slots__ = ("address",)

    def __init__(self) -> None:
        self.address = ""
        """Address of the node, "host:port"; empty before the first call."""


_current: ContextVar[AnsweringNode | None] = ContextVar("taskraft_answering_node", default=None)


_NOBODY: Final = nullcontext()


def current() -> AnsweringNode | None:
    """Return what the calls of this context report to; None: no span needs the node."""
    return _current.get()


def note(address: str) -> None:
    """Report the node that is called."""
    node = _current.get()
    if node is not None:
        node.address = address


def reported_to(node: AnsweringNode | None) -> AbstractContextManager[None]:
    """Let the calls of a block report their node; None: no span of the block needs the node."""
    return _NOBODY if node is None else _reported_to(node)


@contextmanager
def _reported_to(node: AnsweringNode) -> Iterator[None]:
    token = _current.set(node)
    try:
        yield
    finally:
        _current.reset(token)
