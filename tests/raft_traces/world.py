"""Simulate the cluster of an interaction trace: members, their disks, and one list of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from taskraft_replication.core.confchange import of_entry
from taskraft_replication.core.config import RaftConfig
from taskraft_replication.core.memory_log import MemoryLog
from taskraft_replication.core.raft import RaftCore
from taskraft_replication.core.trace import Fact
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    ConfState,
    Entry,
    HardState,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
    Snapshot,
    SnapshotMeta,
    Term,
)
from tests.raft_traces.writing import write_fact, write_message, write_ready

FACT_LEVELS = ("debug", "info")


class Output:
    """The output of a directive: indented, and empty at some log levels."""

    def __init__(self) -> None:
        self.level = "info"
        self._indent = ""
        self._lines: list[str] = []

    @property
    def is_quiet(self) -> bool:
        """Return whether only errors are printed."""
        return self.level == "none"

    def line(self, text: str) -> None:
        """Print one line."""
        if not self.is_quiet:
            self._lines.append(self._indent + text)

    def lines(self, texts: Sequence[str]) -> None:
        """Print several lines."""
        for text in texts:
            self.line(text)

    def error(self, text: str) -> None:
        """Print an error, at every log level."""
        self._lines.append(self._indent + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Print with a deeper indentation."""
        before, self._indent = self._indent, self._indent + "  "
        yield
        self._indent = before

    def take(self) -> str:
        """Return the output since the last call."""
        lines, self._lines = self._lines, []
        return "\n".join(lines) or "ok"


class Disk(MemoryLog):
    """A member's log, which returns the newest state as its snapshot."""

    def __init__(self, initial: Snapshot) -> None:
        super().__init__(initial.meta.conf_state)
        self.history = [initial]
        """The state after each applied entry: the concatenated payloads of all entries up to it."""
        if initial.meta.index:
            super().install(initial)

    def initial_state(self) -> tuple[HardState, ConfState]:
        hard_state, _ = super().initial_state()
        return hard_state, self.history[-1].meta.conf_state

    def snapshot(self) -> Snapshot:
        return self.history[-1]

    def install(self, snapshot: Snapshot) -> None:
        super().install(snapshot)
        self.history.append(snapshot)

    def apply(self, entry: Entry, content: bytes, configuration: ConfState | None) -> None:
        last = self.history[-1]
        assert entry.index == last.meta.index + 1, "each entry is applied once and in order"
        meta = SnapshotMeta(entry.index, entry.term, configuration or last.meta.conf_state)
        self.history.append(Snapshot(meta, last.data + content))


@dataclass(slots=True)
class Node:
    """One member with its disk and the pending work of its two workers."""

    config: RaftConfig
    disk: Disk
    core: RaftCore
    append_work: deque[Message] = field(default_factory=deque)
    apply_work: deque[Message] = field(default_factory=deque)

    @property
    def id(self) -> MemberId:
        """Return the member's id."""
        return self.config.member_id


class World:
    """All members and all messages in flight."""

    def __init__(self) -> None:
        self.output = Output()
        self.nodes: dict[MemberId, Node] = {}
        self.messages: list[Message] = []

    def add(self, make_config: Callable[[MemberId], RaftConfig], initial: Snapshot) -> None:
        """Start a member with the next id from the snapshot ``initial``."""
        member = MemberId(len(self.nodes) + 1)
        disk = Disk(initial)
        config = make_config(member)
        self.nodes[member] = Node(config, disk, self._start(config, disk))

    def restart(self, node: Node) -> None:
        """Crash ``node``: pending work of its workers is lost, the disk is kept."""
        node.append_work.clear()
        node.apply_work.clear()
        self.messages = [m for m in self.messages if not (m.to == node.id and _is_local(m))]
        applied = node.disk.history[-1].meta.index
        settings = {name: getattr(node.config, name) for name in RaftConfig.__slots__}
        node.config = RaftConfig(**{**settings, "applied": applied})
        node.core = self._start(node.config, node.disk)

    def _start(self, config: RaftConfig, disk: Disk) -> RaftCore:
        def tell(fact: Fact) -> None:
            text = write_fact(config.member_id, fact)
            if text is not None and (
                self.output.level in FACT_LEVELS or not text.startswith("INFO")
            ):
                self.output.line(text)

        # Use the longest election timeout, so that no member campaigns by accident.
        return RaftCore(config, disk, lambda n: n - 1, tell)

    # Ready

    def process_ready(self, node: Node) -> None:
        """Process one Ready of ``node``."""
        ready = node.core.ready()
        self.output.lines(write_ready(ready))
        if not node.config.async_storage_writes:
            node.disk.store(ready.hard_state, ready.entries, ready.snapshot)
            self._apply(node, ready.committed)
        for message in ready.messages:
            if message.to == APPEND_WORKER:
                node.append_work.append(message)
            elif message.to == APPLY_WORKER:
                node.apply_work.append(message)
            else:
                self.messages.append(message)
        if not node.config.async_storage_writes:
            node.core.advance()

    def process_append(self, node: Node) -> None:
        """Let the append worker of ``node`` do one item of its work."""
        if not node.append_work:
            self.output.line("no append work to perform")
            return
        work = node.append_work.popleft()
        self._show_work(work)
        node.disk.store(work.hard_state, work.entries, work.snapshot)
        self.messages += work.replies

    def process_apply(self, node: Node) -> None:
        """Let the apply worker of ``node`` do one item of its work."""
        if not node.apply_work:
            self.output.line("no apply work to perform")
            return
        work = node.apply_work.popleft()
        self._show_work(work)
        self._apply(node, work.entries)
        self.messages += work.replies

    def _show_work(self, work: Message) -> None:
        bare = Message(
            work.kind,
            work.to,
            work.sender,
            entries=work.entries,
            snapshot=work.snapshot,
            hard_state=work.hard_state,
        )
        self.output.lines(["Processing:", *write_message(bare), "Responses:"])
        for reply in work.replies:
            self.output.lines(write_message(reply))

    def _apply(self, node: Node, entries: Sequence[Entry]) -> None:
        for entry in entries:
            change = of_entry(entry)
            if change is None:
                node.disk.apply(entry, entry.data, None)
            else:
                node.disk.apply(entry, change.context, node.core.apply_conf_change(change))

    # Messages

    def waiting(self, node: Node) -> bool:
        """Return whether a message to ``node`` is in flight."""
        return any(message.to == node.id for message in self.messages)

    def deliver(
        self,
        to: MemberId,
        kind: MessageKind | None = None,
        sender: MemberId | None = None,
        *,
        drop: bool = False,
    ) -> int:
        """Deliver or drop the messages in flight to ``to``; return their number.

        ``kind`` and ``sender`` restrict the messages. Messages of a member to itself are never
        dropped.
        """

        def concerned(message: Message) -> bool:
            return (
                message.to == to
                and kind in (None, message.kind)
                and sender in (None, message.sender)
                and not (drop and _is_local(message))
            )

        chosen = [message for message in self.messages if concerned(message)]
        self.messages = [message for message in self.messages if not concerned(message)]
        for message in chosen:
            first, *rest = write_message(message)
            self.output.lines([("dropped: " if drop else "") + first, *rest])
            if not drop:
                self.nodes[to].core.step(message)
        return len(chosen)

    def stabilize(self, nodes: Sequence[Node]) -> None:
        """Let ``nodes`` work until nothing is left to do."""
        phases: list[tuple[str, Callable[[Node], bool], Callable[[Node], object]]] = [
            ("handling Ready", lambda node: node.core.has_ready(), self.process_ready),
            ("receiving messages", self.waiting, lambda node: self.deliver(node.id)),
            ("processing append thread", lambda node: bool(node.append_work), self._append_all),
            ("processing apply thread", lambda node: bool(node.apply_work), self._apply_all),
        ]
        moved = True
        while moved:
            moved = False
            for name, has_work, work in phases:
                for node in nodes:
                    if has_work(node):
                        moved = True
                        self.output.line(f"> {node.id} {name}")
                        with self.output.indented():
                            work(node)

    def _append_all(self, node: Node) -> None:
        while node.append_work:
            self.process_append(node)

    def _apply_all(self, node: Node) -> None:
        while node.apply_work:
            self.process_apply(node)


def initial_snapshot(index: int, configuration: ConfState, content: bytes) -> Snapshot:
    """Return the snapshot that a member starts from; index 0 means an empty member."""
    meta = SnapshotMeta(LogIndex(index), Term(1 if index else 0), configuration)
    return Snapshot(meta, content)


def _is_local(message: Message) -> bool:
    return message.sender == message.to or message.sender in (APPEND_WORKER, APPLY_WORKER)
