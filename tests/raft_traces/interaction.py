"""Execute the directives of interaction traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from taskraft_replication.core.confchange import ConfChange, ConfChangeTransition
from taskraft_replication.core.config import UNLIMITED, RaftConfig, ReadOnly
from taskraft_replication.core.errors import ProposalDropped
from taskraft_replication.core.membership import voters
from taskraft_replication.core.types import (
    ConfState,
    EntryKind,
    LogIndex,
    MemberId,
    Message,
    MessageKind,
)
from tests.raft_traces.options import OPTIONS
from tests.raft_traces.script import Directive, ScriptError
from tests.raft_traces.world import Node, World, initial_snapshot
from tests.raft_traces.writing import (
    MESSAGE_NAMES,
    ROLE_NAMES,
    parse_changes,
    write_entry,
    write_message,
    write_progress,
)

ELECTION_TICKS: Final = 3
HEARTBEAT_TICKS: Final = 1


class Interaction:
    """The cluster of a script; each directive acts on the state that earlier directives left."""

    def __init__(self) -> None:
        self._world = World()

    def run(self, directive: Directive) -> str:
        """Execute ``directive``; return its output.

        Raises: ScriptError: the directive has an option that its command does not know.
        """
        unknown = directive.options - OPTIONS.get(directive.command, frozenset()) - {"log-level"}
        if unknown:
            raise ScriptError(f"unknown options {', '.join(sorted(unknown))}")
        output = self._world.output
        before = output.level
        output.level = directive.value("log-level", before).lower()
        _COMMANDS[directive.command](self._world, directive)
        if directive.command != "log-level":
            output.level = before
        return output.take()

    @staticmethod
    def knows(command: str) -> bool:
        """Return whether ``command`` is a command of interaction traces."""
        return command in _COMMANDS


def _ids(words: Sequence[str]) -> list[MemberId]:
    return [MemberId(int(word)) for word in words]


def _node(world: World, directive: Directive) -> Node:
    return world.nodes[MemberId(int(directive.words[0]))]


def _log_level(world: World, directive: Directive) -> None:
    world.output.level = directive.words[0].lower()


def _add_nodes(world: World, directive: Directive) -> None:
    index = directive.number("index", 0)
    configuration = ConfState(
        voters=tuple(_ids(directive.values("voters"))),
        learners=tuple(_ids(directive.values("learners"))),
    )

    def make_config(member: MemberId) -> RaftConfig:
        read_only = directive.value("read-only", "safe").replace("-", "_")
        return RaftConfig(
            member,
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=HEARTBEAT_TICKS,
            pre_vote=directive.flag("prevote"),
            check_quorum=directive.flag("checkquorum"),
            async_storage_writes=directive.flag("async-storage-writes"),
            message_bytes_max=directive.number("max-size-per-msg", UNLIMITED),
            inflight_messages_max=directive.number("inflight", UNLIMITED),
            inflight_bytes_max=directive.number("inflight-bytes", UNLIMITED),
            committed_bytes_max=directive.number("max-committed-size-per-ready", UNLIMITED),
            uncommitted_bytes_max=directive.number("max-uncommitted-size", UNLIMITED),
            step_down_on_removal=directive.flag("step-down-on-removal"),
            read_only=ReadOnly(read_only),
            disable_conf_change_validation=directive.flag("disable-conf-change-validation"),
            forward_proposals=not directive.flag("disable-proposal-forwarding"),
            applied=LogIndex(index),
        )

    content = directive.value("content", "").encode()
    for _ in range(int(directive.words[0])):
        world.add(make_config, initial_snapshot(index, configuration, content))


def _stabilize(world: World, directive: Directive) -> None:
    chosen = _ids(directive.words) or sorted(world.nodes)
    world.stabilize([world.nodes[member] for member in chosen])


def _each(world: World, directive: Directive, title: str, act: Callable[[Node], None]) -> None:
    members = _ids(directive.words)
    for member in members:
        if len(members) == 1:
            act(world.nodes[member])
            continue
        world.output.line(f"> {member} {title}")
        with world.output.indented():
            act(world.nodes[member])


def _process_ready(world: World, directive: Directive) -> None:
    _each(world, directive, "handling Ready", world.process_ready)


def _process_append(world: World, directive: Directive) -> None:
    _each(world, directive, "processing append thread", world.process_append)


def _process_apply(world: World, directive: Directive) -> None:
    _each(world, directive, "processing apply thread", world.process_apply)


def _deliver(world: World, directive: Directive) -> None:
    kinds = {name: kind for kind, name in MESSAGE_NAMES.items()}
    name = directive.value("type", "")
    kind = kinds[name] if name else None
    # This option is ours; etcd-io/raft has no such option.
    senders = _ids(directive.values("from"))
    sender = senders[0] if senders else None
    count = 0
    for argument in directive.arguments:
        if argument.key == "drop":
            for to in _ids(argument.values):
                count += world.deliver(to, kind, sender, drop=True)
        elif not argument.values:
            count += world.deliver(MemberId(int(argument.key)), kind, sender)
    if not count:
        world.output.line("no messages")


def _campaign(world: World, directive: Directive) -> None:
    _node(world, directive).core.campaign()


def _propose(world: World, directive: Directive) -> None:
    try:
        _node(world, directive).core.propose(directive.arguments[1].key.encode())
    except ProposalDropped:
        world.output.error("raft proposal dropped")


def _propose_conf_change(world: World, directive: Directive) -> None:
    kind = EntryKind.CONF_CHANGE if directive.flag("v1") else EntryKind.CONF_CHANGE_V2
    transition = {
        "auto": ConfChangeTransition.AUTO,
        "implicit": ConfChangeTransition.JOINT_IMPLICIT,
        "explicit": ConfChangeTransition.JOINT_EXPLICIT,
    }[directive.value("transition", "auto")]
    changes = parse_changes([word for line in directive.input for word in line.split()])
    if directive.flag("v1") and (len(changes) > 1 or transition is not ConfChangeTransition.AUTO):
        world.output.error("v1 conf change can only have one operation and no transition")
        return
    try:
        change = ConfChange(changes, transition)
        _node(world, directive).core.propose_conf_change(change, kind)
    except ProposalDropped:
        world.output.error("raft proposal dropped")


def _raft_state(world: World, _directive: Directive) -> None:
    for member, node in world.nodes.items():
        status = node.core.status()
        votes = "Voter" if member in voters(status.configuration) else "Non-Voter"
        soft = status.soft_state
        term = status.hard_state.term
        world.output.line(
            f"{member}: {ROLE_NAMES[soft.role]} ({votes}) Term:{term} Lead:{soft.leader}"
        )


def _status(world: World, directive: Directive) -> None:
    for peer, progress in _node(world, directive).core.status().progress.items():
        world.output.line(f"{peer}: {write_progress(progress)}")


def _show_log(world: World, node: Node) -> None:
    disk = node.disk
    first, last = disk.first_index(), disk.last_index()
    if last < first:
        world.output.line(f"log is empty: first index={first}, last index={last}")
        return
    world.output.lines(
        [write_entry(each) for each in disk.entries(first, LogIndex(last + 1), UNLIMITED)]
    )


def _raft_log(world: World, directive: Directive) -> None:
    _show_log(world, _node(world, directive))


def _compact(world: World, directive: Directive) -> None:
    node = _node(world, directive)
    index = LogIndex(int(directive.words[1]))
    if index < node.disk.first_index():
        world.output.error("requested index is unavailable due to compaction")
        return
    node.disk.compact(index)
    _show_log(world, node)


def _tick_heartbeat(world: World, directive: Directive) -> None:
    for _ in range(HEARTBEAT_TICKS):
        _node(world, directive).core.tick()


def _tick_election(world: World, directive: Directive) -> None:
    for _ in range(ELECTION_TICKS):
        _node(world, directive).core.tick()


def _set_election_timeout(world: World, directive: Directive) -> None:
    # The core has no call for this directive: each reset draws the timeout again.
    member = _node(world, directive).core._member
    member.election_timeout_ticks = directive.number("timeout", ELECTION_TICKS)


def _forget_leader(world: World, directive: Directive) -> None:
    _node(world, directive).core.forget_leader()


def _transfer(world: World, directive: Directive) -> None:
    node = world.nodes[MemberId(directive.number("from", 0))]
    node.core.transfer_leader(MemberId(directive.number("to", 0)))


def _report_unreachable(world: World, directive: Directive) -> None:
    at, peer = _ids(directive.words)
    world.nodes[at].core.report_unreachable(peer)


def _send_snapshot(world: World, directive: Directive) -> None:
    sender, to = _ids(directive.words)
    node = world.nodes[sender]
    snapshot = node.disk.snapshot()
    message = Message(MessageKind.SNAPSHOT, to, sender, node.core.term, snapshot=snapshot)
    world.messages.append(message)
    world.output.lines(write_message(message))


# Our own commands, for cases that the traces of etcd-io/raft cannot express.


def _restart(world: World, directive: Directive) -> None:
    for member in _ids(directive.words):
        world.restart(world.nodes[member])


def _read_index(world: World, directive: Directive) -> None:
    _node(world, directive).core.read_index(directive.words[1].encode())


def _duplicate(world: World, directive: Directive) -> None:
    for to in _ids(directive.words):
        world.messages += [message for message in world.messages if message.to == to]


def _reverse(world: World, directive: Directive) -> None:
    for to in _ids(directive.words):
        concerned = [message for message in world.messages if message.to == to]
        others = [message for message in world.messages if message.to != to]
        world.messages = others + concerned[::-1]


def _report_snapshot(world: World, directive: Directive) -> None:
    at, peer = _ids(directive.words)
    world.nodes[at].core.report_snapshot(peer, directive.flag("ok", default=True))


def _breakpoint(_world: World, _directive: Directive) -> None:
    """Do nothing: the place for a debugger's breakpoint in a long script."""


_COMMANDS: Final[Mapping[str, Callable[[World, Directive], None]]] = {
    "_breakpoint": _breakpoint,
    "add-nodes": _add_nodes,
    "campaign": _campaign,
    "compact": _compact,
    "deliver-msgs": _deliver,
    "duplicate-msgs": _duplicate,
    "forget-leader": _forget_leader,
    "log-level": _log_level,
    "process-append-thread": _process_append,
    "process-apply-thread": _process_apply,
    "process-ready": _process_ready,
    "propose": _propose,
    "propose-conf-change": _propose_conf_change,
    "raft-log": _raft_log,
    "raft-state": _raft_state,
    "read-index": _read_index,
    "report-snapshot": _report_snapshot,
    "report-unreachable": _report_unreachable,
    "restart": _restart,
    "reverse-msgs": _reverse,
    "send-snapshot": _send_snapshot,
    "set-randomized-election-timeout": _set_election_timeout,
    "stabilize": _stabilize,
    "status": _status,
    "tick-election": _tick_election,
    "tick-heartbeat": _tick_heartbeat,
    "transfer-leadership": _transfer,
}

COMMANDS: Final = frozenset(_COMMANDS)
"""The names of all commands."""
