"""Serve a table of methods on the native edge, the distribution ``taskraft-edge``.

The edge does the work of TLS, HTTP/2 and gRPC on a thread of its own. This module runs the handlers
on the event loop: it takes the events of all calls at once, and sends the commands of one turn of
the event loop at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from enum import IntEnum
from functools import partial
from time import monotonic
from typing import Any, Final

import grpc
import structlog
import taskraft_edge

from taskraft_replication.tls.files import CurrentTls, Tls, TlsUnusable
from taskraft_service.access.authenticator import OPEN_AUTHENTICATOR
from taskraft_service.access.caller import Unauthenticated
from taskraft_service.api.rpc.answer_bytes import COUNTED_ANSWER_BYTES
from taskraft_service.api.rpc.method_table import CallKind, MethodTable, ServedMethod
from taskraft_service.api.rpc.native_call import Command, EdgeCommand, NativeCall
from taskraft_service.api.rpc.prompt_calls import PromptCall
from taskraft_service.api.rpc.rpc_server import PortTaken, ServerCounts, ServerLimits
from taskraft_service.api.rpc.server_context import CallEnded

log: Final = structlog.get_logger(__name__)

NO_CALL: Final = 0
"""The number of a call in events of the thread."""
TURN_SECONDS: Final = 0.005
"""Time after which the event loop runs other work before further events."""


class EdgeEvent(IntEnum):
    """Kinds of events of a call; the numbers are those of the crate."""

    OPENED = 0
    MESSAGE = 1
    LARGE = 2
    HALF_CLOSED = 3
    SENT = 4
    CANCELLED = 5
    STOPPED = 6
    FAILED = 7


OPENED: Final = int(EdgeEvent.OPENED)
"""The most frequent kind, as a plain number, which is faster to compare."""


class EdgeFailed(Exception):
    """The thread of the native edge has a bug; the node must stop, because calls are lost."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the native edge of the client port has a bug: {text}")


def _fail(text: str) -> None:
    """Raise an exception in the event loop, whose exception handler stops the node."""
    raise EdgeFailed(text)


def _is_authentic(method: ServedMethod, call: NativeCall) -> bool:
    """Return whether a call proves who the caller is; an open method proves nothing."""
    if method.authenticator is OPEN_AUTHENTICATOR:
        return False
    try:
        method.authenticator.authenticate(call)
    except Unauthenticated:
        return False
    return True


class NativeServer:
    """The ``RpcServer`` of the native edge; create it in a running event loop."""

    def __init__(self, table: MethodTable, limits: ServerLimits) -> None:
        self._table = table
        self._loop = asyncio.get_running_loop()
        reads = {path: one.kind is CallKind.BIDIRECTIONAL for path, one in table.items()}
        knows_clients = all(one.authenticator is OPEN_AUTHENTICATOR for one in table.values())
        self._edge = taskraft_edge.Edge(reads, asdict(limits), knows_clients)
        self._calls: dict[int, NativeCall] = {}
        self._events: deque[Sequence[Any]] = deque()
        """Events that the edge has handed over, in order."""
        self._commands: list[Command] = []
        self._stopped: asyncio.Future[None] | None = None
        """The end of the edge; None: the edge has not started."""

    def listen(self, address: str, tls: CurrentTls | None = None) -> int:
        """Bind the server to an address; return the port.

        Raises:
            PortTaken: the address is in use or invalid.
            TlsUnusable: the certificates cannot be used.
        """
        if tls is not None:
            try:
                self._use(tls.tls)
            except ValueError as error:
                raise TlsUnusable(f"the certificate of the client port: {error}") from error
            tls.listen(self._renewed)
        try:
            return self._edge.listen(address)
        except OSError as error:
            raise PortTaken(address) from error

    def _use(self, tls: Tls) -> None:
        self._edge.set_tls(tls.chain, tls.key, tls.authority)

    def _renewed(self, tls: Tls) -> None:
        try:
            self._use(tls)
        except ValueError as error:
            log.warning("the client port keeps its certificate", reason=str(error))

    async def start(self) -> None:
        """Start to accept connections."""
        self._edge.start()
        self._stopped = self._loop.create_future()
        self._loop.add_reader(self._edge.fileno(), self._take_events)

    async def stop(self, grace_seconds: float) -> None:
        """Accept no further call, wait for the calls in progress, then cancel them."""
        if self._stopped is None:
            return
        self._edge.stop(grace_seconds)
        await self._stopped
        self._loop.remove_reader(self._edge.fileno())
        work = [call.work for call in self._calls.values() if call.work is not None]
        for number in list(self._calls):
            self._cancel(number)
        if work:
            await asyncio.wait(work)
        self._edge.join()

    def counts(self) -> ServerCounts:
        """Return what the edge holds, and how often each limit has acted."""
        return ServerCounts(self._edge.in_use(), self._edge.limited())

    # ------------------------------------------------------------------------------ events

    def _take_events(self) -> None:
        """Handle the events of the edge; the rest, after some ms, in the next turn of the loop."""
        events = self._events
        if not events:
            # Otherwise the edge keeps the next events, and bounds their number.
            events.extend(self._edge.take())
        until = monotonic() + TURN_SECONDS
        while events:
            event = events.popleft()
            if event[0] == OPENED:
                self._open(event)
            else:
                self._handle(event)
            if monotonic() >= until and events:
                self._loop.call_soon(self._take_events)
                return

    def _handle(self, event: Sequence[Any]) -> None:
        """Handle an event of a call that was opened before, or of the thread."""
        kind, number = event[0], event[1]
        call = self._calls.get(number)
        if call is None:
            if number == NO_CALL:
                self._thread_event(event)
            return  # the handler has ended the call meanwhile
        if kind == EdgeEvent.MESSAGE:
            call.message_came(event[2])
        elif kind == EdgeEvent.SENT:
            call.bytes_sent(event[2])
        elif kind == EdgeEvent.LARGE:
            call.large_came()
        elif kind == EdgeEvent.HALF_CLOSED:
            call.half_closed()
        else:
            self._cancel(number)

    def _open(self, event: Sequence[Any]) -> None:
        """Begin to serve a call."""
        _, number, path, metadata, timeout, peer, certificate, is_known, message = event
        now = self._loop.time()
        deadline = None if timeout is None else now + timeout
        method = self._table[path]
        flushes = method.kind is CallKind.WRITTEN_ANSWER
        call = NativeCall(
            number, metadata, deadline, peer, certificate, self._command, flushes=flushes
        )
        self._calls[number] = call
        if not is_known and _is_authentic(method, call):
            self._command((EdgeCommand.KNOWN, number))
        if method.prompt is not None and message is not None:
            prompt = method.prompt.begin(message, deadline, now, call)
            if prompt is not None:
                call.work = prompt.outcome
                prompt.when_known(partial(self._end_prompt, path, number, prompt))
                return
        # Without a message, the handler reads the messages, after it authenticated the caller.
        handler = (
            partial(method.guarded, None, call)
            if message is None
            else partial(method.handle, message, call)
        )
        call.work = self._loop.create_task(self._serve(path, number, call, handler))

    def _thread_event(self, event: Sequence[Any]) -> None:
        """Note the end of the thread, or a bug of the thread."""
        if event[0] == EdgeEvent.FAILED:
            self._loop.call_soon(_fail, event[2])
        elif self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _cancel(self, number: int) -> None:
        call = self._calls.pop(number)
        call.end()
        if call.work is not None:
            call.work.cancel()

    # ------------------------------------------------------------------------------ handlers

    def _end_prompt(
        self, path: str, number: int, prompt: PromptCall, _outcome: asyncio.Future[Any]
    ) -> None:
        """Answer a prompt call, or serve what is left of the call with a task."""
        call = self._calls.get(number)
        try:
            answer = prompt.answer()
        except asyncio.CancelledError:
            return  # the client has ended the call
        except Exception as error:  # noqa: BLE001 - every error gets a status
            if call is not None:
                rest = self._serve(path, number, call, partial(prompt.rest, error))
                call.work = self._loop.create_task(rest)
            return
        if call is None:
            return
        if len(answer) > COUNTED_ANSWER_BYTES:
            sending = self._serve(path, number, call, partial(prompt.deliver, answer))
            call.work = self._loop.create_task(sending)
            return
        call.finish(grpc.StatusCode.OK, "", call.trailing, answer)
        del self._calls[number]

    async def _serve(
        self,
        path: str,
        number: int,
        call: NativeCall,
        handler: Callable[[], Coroutine[Any, Any, bytes | None]],
    ) -> None:
        """Run the handler of a call and send its status."""
        try:
            answer = await handler()
        except CallEnded:
            pass
        except Exception:
            log.exception("a handler failed because of a bug", method=path)
            call.finish(grpc.StatusCode.UNKNOWN, "the server has a bug; see its log", (), None)
        else:
            call.finish(grpc.StatusCode.OK, "", call.trailing, answer)
        finally:
            self._calls.pop(number, None)

    # ------------------------------------------------------------------------------ commands

    def _command(self, command: Command) -> None:
        if not self._commands:
            self._loop.call_soon(self._send_commands)
        self._commands.append(command)

    def _send_commands(self) -> None:
        commands, self._commands = self._commands, []
        self._edge.send(commands)
