"""Write the output of a member in the notation of the traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from taskraft_replication.core.confchange import (
    ConfChange,
    MemberChange,
    MemberChangeKind,
    of_entry,
)
from taskraft_replication.core.progress import ProgressState
from taskraft_replication.core.status import ProgressStatus
from taskraft_replication.core.trace import (
    Fact,
    MessageDropped,
    MessageDropReason,
    Reconfigured,
    RoleTaken,
    SnapshotRestored,
)
from taskraft_replication.core.types import (
    APPEND_WORKER,
    APPLY_WORKER,
    ConfState,
    Entry,
    EntryKind,
    HardState,
    MemberId,
    Message,
    MessageKind,
    RaftRole,
    Ready,
    Snapshot,
)

MESSAGE_NAMES: Final = {
    MessageKind.HUP: "MsgHup",
    MessageKind.BEAT: "MsgBeat",
    MessageKind.PROPOSE: "MsgProp",
    MessageKind.APPEND: "MsgApp",
    MessageKind.APPEND_REPLY: "MsgAppResp",
    MessageKind.VOTE: "MsgVote",
    MessageKind.VOTE_REPLY: "MsgVoteResp",
    MessageKind.PRE_VOTE: "MsgPreVote",
    MessageKind.PRE_VOTE_REPLY: "MsgPreVoteResp",
    MessageKind.SNAPSHOT: "MsgSnap",
    MessageKind.HEARTBEAT: "MsgHeartbeat",
    MessageKind.HEARTBEAT_REPLY: "MsgHeartbeatResp",
    MessageKind.UNREACHABLE: "MsgUnreachable",
    MessageKind.SNAPSHOT_STATUS: "MsgSnapStatus",
    MessageKind.CHECK_QUORUM: "MsgCheckQuorum",
    MessageKind.TRANSFER_LEADER: "MsgTransferLeader",
    MessageKind.TIMEOUT_NOW: "MsgTimeoutNow",
    MessageKind.READ_INDEX: "MsgReadIndex",
    MessageKind.READ_INDEX_REPLY: "MsgReadIndexResp",
    MessageKind.FORGET_LEADER: "MsgForgetLeader",
    MessageKind.STORAGE_APPEND: "MsgStorageAppend",
    MessageKind.STORAGE_APPEND_REPLY: "MsgStorageAppendResp",
    MessageKind.STORAGE_APPLY: "MsgStorageApply",
    MessageKind.STORAGE_APPLY_REPLY: "MsgStorageApplyResp",
}
ROLE_NAMES: Final = {
    RaftRole.FOLLOWER: "StateFollower",
    RaftRole.PRE_CANDIDATE: "StatePreCandidate",
    RaftRole.CANDIDATE: "StateCandidate",
    RaftRole.LEADER: "StateLeader",
}
_ROLE_FACTS: Final = {
    RaftRole.FOLLOWER: "follower",
    RaftRole.PRE_CANDIDATE: "pre-candidate",
    RaftRole.CANDIDATE: "candidate",
    RaftRole.LEADER: "leader",
}
PROGRESS_NAMES: Final = {
    ProgressState.PROBE: "StateProbe",
    ProgressState.REPLICATE: "StateReplicate",
    ProgressState.SNAPSHOT: "StateSnapshot",
}
_ENTRY_NAMES: Final = {
    EntryKind.NORMAL: "EntryNormal",
    EntryKind.CONF_CHANGE: "EntryConfChange",
    EntryKind.CONF_CHANGE_V2: "EntryConfChangeV2",
}
_CHANGE_LETTERS: Final = {
    MemberChangeKind.ADD_VOTER: "v",
    MemberChangeKind.ADD_LEARNER: "l",
    MemberChangeKind.REMOVE: "r",
    MemberChangeKind.UPDATE: "u",
}


def parse_changes(words: Sequence[str]) -> tuple[MemberChange, ...]:
    """Parse membership changes in the notation ``v1 l2 r3 u4``."""
    kinds = {letter: kind for kind, letter in _CHANGE_LETTERS.items()}
    return tuple(MemberChange(kinds[each[0]], MemberId(int(each[1:]))) for each in words)


def write_change(change: ConfChange) -> str:
    """Format the members of a change."""
    return " ".join(f"{_CHANGE_LETTERS[each.kind]}{each.member}" for each in change.changes)


def write_entry(entry: Entry) -> str:
    """Format an entry: term and index, kind, content."""
    change = of_entry(entry)
    if change is None:
        content = '"' + entry.data.decode().replace('"', r"\"") + '"'
    else:
        content = write_change(change)
    return f"{entry.term}/{entry.index} {_ENTRY_NAMES[entry.kind]} {content}".rstrip()


def write_configuration(state: ConfState) -> str:
    """Format a configuration like a log line."""
    text = f"voters={_ids(state.voters)}"
    if state.voters_outgoing:
        text += f"&&{_ids(state.voters_outgoing)}"
    if state.learners:
        text += f" learners={_ids(state.learners)}"
    if state.learners_next:
        text += f" learners_next={_ids(state.learners_next)}"
    if state.auto_leave:
        text += " autoleave"
    return text


def write_snapshot(snapshot: Snapshot) -> str:
    """Format the metadata of a snapshot."""
    meta = snapshot.meta
    state = meta.conf_state
    lists = [
        f"Voters:{_list(state.voters)}",
        f"VotersOutgoing:{_list(state.voters_outgoing)}",
        f"Learners:{_list(state.learners)}",
        f"LearnersNext:{_list(state.learners_next)}",
        f"AutoLeave:{str(state.auto_leave).lower()}",
    ]
    return f"Index:{meta.index} Term:{meta.term} ConfState:{' '.join(lists)}"


def write_hard_state(state: HardState) -> str:
    """Format a hard state; the vote is left out if there is none."""
    vote = f" Vote:{state.vote}" if state.vote else ""
    return f"Term:{state.term}{vote} Commit:{state.commit}"


def write_message(message: Message) -> list[str]:
    """Format a message with its entries, its snapshot and the replies of its work."""
    term, vote, commit = message.term, message.vote, message.commit
    if message.hard_state is not None:
        state = message.hard_state
        term, vote, commit = state.term, state.vote, state.commit
    text = f"{_target(message.sender)}->{_target(message.to)} {MESSAGE_NAMES[message.kind]}"
    text += f" Term:{term} Log:{message.log_term}/{message.index}"
    if message.reject:
        text += f" Rejected (Hint: {message.reject_hint})"
    text += f" Commit:{commit}" if commit else ""
    text += f" Vote:{vote}" if vote else ""
    lines = [text]
    if len(message.entries) == 1:
        lines[-1] += f" Entries:[{write_entry(message.entries[0])}]"
    elif message.entries:
        lines[-1] += " Entries:["
        lines += [f"  {write_entry(entry)}" for entry in message.entries]
        lines.append("]")
    if message.snapshot is not None:
        lines.append(f"  Snapshot: {write_snapshot(message.snapshot)}")
    if message.replies:
        lines[-1] += " Responses:["
        lines += [f"  {line}" for reply in message.replies for line in write_message(reply)]
        lines.append("]")
    return lines


def write_ready(ready: Ready) -> list[str]:
    """Format all present parts of a Ready."""
    lines = []
    if ready.soft_state is not None:
        state = ready.soft_state
        lines.append(f"Lead:{state.leader} State:{ROLE_NAMES[state.role]}")
    if ready.hard_state is not None:
        lines.append(f"HardState {write_hard_state(ready.hard_state)}")
    lines += [f"ReadState {each.index} {each.context.decode()}" for each in ready.read_states]
    if ready.entries:
        lines += ["Entries:", *map(write_entry, ready.entries)]
    if ready.snapshot is not None:
        lines.append(f"Snapshot {write_snapshot(ready.snapshot)}")
    if ready.committed:
        lines += ["CommittedEntries:", *map(write_entry, ready.committed)]
    if ready.messages:
        lines += ["Messages:", *(line for each in ready.messages for line in write_message(each))]
    if not lines:
        return ["<empty Ready>"]
    return [f"Ready MustSync={str(ready.must_sync).lower()}:", *lines]


def write_progress(progress: ProgressStatus) -> str:
    """Format the leader's progress of a member."""
    text = f"{PROGRESS_NAMES[progress.state]} match={progress.match} next={progress.next}"
    text += " learner" if progress.is_learner else ""
    text += " paused" if progress.paused else ""
    text += f" pendingSnap={progress.pending_snapshot}" if progress.pending_snapshot else ""
    text += "" if progress.recent_active else " inactive"
    if progress.inflight_messages:
        text += f" inflight={progress.inflight_messages}"
        text += "[full]" if progress.inflight_full else ""
    return text


def write_fact(member: MemberId, fact: Fact) -> str | None:
    """Format a fact as a log line; return None for facts that the traces do not log."""
    match fact:
        case RoleTaken(role, term):
            return f"INFO {member} became {_ROLE_FACTS[role]} at term {term}"
        case Reconfigured(configuration):
            return f"INFO {member} switched to configuration {write_configuration(configuration)}"
        case SnapshotRestored(index, term):
            place = f"lastindex: {index}, lastterm: {term}"
            return f"INFO {member} [{place}] restored snapshot [index: {index}, term: {term}]"
        case MessageDropped(_, reason):
            return {
                MessageDropReason.UNKNOWN_PEER: "raft: cannot step as peer not found",
                MessageDropReason.PROPOSAL_DROPPED: "raft proposal dropped",
            }.get(reason)
        case _:
            assert_never(fact)


def _target(member: MemberId) -> str:
    if member == APPEND_WORKER:
        return "AppendThread"
    if member == APPLY_WORKER:
        return "ApplyThread"
    return str(member)


def _ids(members: Sequence[MemberId]) -> str:
    return f"({' '.join(map(str, members))})"


def _list(members: Sequence[MemberId]) -> str:
    return f"[{' '.join(map(str, members))}]"
