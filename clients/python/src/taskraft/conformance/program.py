"""Run the client program under test, and exchange JSON lines with it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

ANSWER_SECONDS: Final = 30.0
"""Maximum time until the program answers a command, in seconds."""
END_SECONDS: Final = 10.0
"""Maximum time until the program ends after its standard input was closed, in seconds."""
TARGET_VARIABLE: Final = "TASKRAFT_TARGET"
"""Environment variable with the addresses of the nodes, separated by commas."""


class RuleBroken(Exception):
    """The program breaks a rule of the contract, or of the exchange of JSON lines."""


class CaseSkipped(Exception):
    """The cluster has a setting under which the rule of a case does not apply."""


class ClientProgram:
    """A running client program.

    Args:
        command: the program with its arguments.
        addresses: addresses of the nodes, as the program shall use them.
    """

    def __init__(self, command: Sequence[str], addresses: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the caller chooses the program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, TARGET_VARIABLE: ",".join(addresses)},
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> ClientProgram:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the program if it still runs."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, call: str, **arguments: object) -> dict[str, Any]:
        """Send a command and return the answer, which may be an error.

        Raises:
            RuleBroken: there is no answer in time, or the answer is not a JSON object.
        """
        self.send(call, **arguments)
        return self.answer(call)

    def send(self, call: str, **arguments: object) -> None:
        """Send a command without waiting for the answer.

        Raises:
            RuleBroken: the program has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RuleBroken(f"the program ended before the command {call!r}") from error

    def answer(self, call: str) -> dict[str, Any]:
        """Return the answer to the last command; see `ask`."""
        try:
            line = self._lines.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise RuleBroken(f"no answer to {call!r} within {ANSWER_SECONDS:g} s") from None
        if line is None:
            raise RuleBroken(f"the program ended before it answered {call!r}")
        try:
            found = json.loads(line)
        except ValueError:
            raise RuleBroken(f"the answer to {call!r} is not JSON: {line.strip()!r}") from None
        if not isinstance(found, dict):
            raise RuleBroken(f"the answer to {call!r} is not a JSON object: {line.strip()!r}")
        return found

    def succeed(self, call: str, **arguments: object) -> dict[str, Any]:
        """Send a command that must succeed, and return the answer.

        Raises:
            RuleBroken: the answer is an error.
        """
        found = self.ask(call, **arguments)
        if "error" in found:
            raise RuleBroken(f"{call!r} failed: {found['error']}")
        return found

    def fail(self, call: str, **arguments: object) -> Mapping[str, Any]:
        """Send a command that must fail, and return the error.

        Raises:
            RuleBroken: the command succeeded.
        """
        found = self.ask(call, **arguments)
        error: object = found.get("error")
        if not isinstance(error, dict):
            raise RuleBroken(f"{call!r} succeeded, but the server refused the call: {found}")
        return error

    def end(self) -> None:
        """Close the standard input, and wait until the program has ended with status 0.

        Raises:
            RuleBroken: the program does not end in time, or with another status.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            text = f"the program runs {END_SECONDS:g} s after the end of its standard input"
            raise RuleBroken(text) from None
        if status:
            raise RuleBroken(f"the program ended with status {status}, not 0")


def encoded(payload: bytes) -> str:
    """Return bytes as Base64 text, the form that commands and answers contain."""
    return base64.b64encode(payload).decode()


def decoded(text: object) -> bytes:
    """Return the bytes of an answer.

    Raises:
        RuleBroken: the text is not Base64.
    """
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        raise RuleBroken(f"not Base64: {text!r}") from None
