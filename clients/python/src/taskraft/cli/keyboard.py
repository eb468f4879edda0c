"""Read single keys from a terminal, without echo."""

from __future__ import annotations

import errno
import os
import re
import select
import sys
import termios
import threading
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_BYTES: Final = 1024
_KEY: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
"""One key: the sequence of a key such as an arrow, or one character."""


def keys_of(text: str) -> list[str]:
    """Return the keys of what a terminal sends; the sequence of an arrow is one key."""
    return _KEY.findall(text)


class Keyboard:
    """The keys of a terminal, or no keys.

    Args:
        descriptor: file descriptor of the terminal; None: there is none.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def read(self, seconds_max: float | None) -> list[str]:
        """Wait for keys, and return them; empty after `seconds_max` (None: no limit).

        Raises:
            OSError: the terminal is closed.
        """
        if self._descriptor is None:
            threading.Event().wait(seconds_max)
            return []
        if not select.select([self._descriptor], [], [], seconds_max)[0]:
            return []
        data = os.read(self._descriptor, READ_BYTES)
        if not data:
            raise OSError(errno.EIO, "the terminal is closed")
        return keys_of(data.decode(errors="ignore"))


@contextmanager
def open_keyboard(*, is_wanted: bool) -> Iterator[Keyboard]:
    """Yield the keyboard of the standard input, and restore the terminal at the end.

    Ctrl-C and Ctrl-Z still send signals. Without a terminal, or if it is not wanted, the keyboard
    has no keys.
    """
    if not is_wanted or not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
