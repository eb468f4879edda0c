"""The failure of a handler whose own exception cannot pass through the code that runs handlers."""

from __future__ import annotations

import asyncio
from typing import Final


class HandlerError(Exception):
    """A handler, or other code of the app, has raised an exception that cannot be passed on.

    `KeyboardInterrupt`, `SystemExit` and `GeneratorExit` would end an event loop or a thread, a
    future cannot hold `StopIteration`, and `asyncio.CancelledError` would look like a cancellation
    by the worker. Some exceptions cannot be sent between processes. The attempt fails with type and
    text of the original exception, which is the `__cause__` unless it was raised in another
    process.
    """

    def __init__(self, kind: str, text: str, *, is_fatal: bool = False) -> None:
        """Store type and text of the exception, and whether it is one of the `fatal` ones."""
        super().__init__(kind, text)
        self.kind: Final = kind
        """Name of the type of the original exception."""
        self.text: Final = text
        """Text of the original exception."""
        self.is_fatal: Final = is_fatal
        """Whether the process of the handler has found the exception among the `fatal` ones."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def ordinary(error: BaseException) -> Exception:
    """Return an exception of a handler if every caller can receive it, else a HandlerError."""
    is_ordinary = isinstance(error, Exception) and not isinstance(
        error, StopIteration | StopAsyncIteration
    )
    if is_ordinary and _text_of(error) is not None:
        assert isinstance(error, Exception)
        return error
    return handler_error(error)


def handler_error(error: BaseException, *, is_fatal: bool = False) -> HandlerError:
    """Return a HandlerError whose cause is `error`."""
    text = _text_of(error)
    if text is None:
        text = "the exception has no readable text"
    elif not text:
        is_cancellation = isinstance(error, asyncio.CancelledError)
        text = "cancelled by its own code" if is_cancellation else "raised without a text"
    found = HandlerError(type(error).__name__, text, is_fatal=is_fatal)
    found.__cause__ = error
    return found


def _text_of(error: BaseException) -> str | None:
    """Return the text of an exception; None if its `__str__` fails."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - code of the app
        return None
