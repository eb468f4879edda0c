"""Let processes with the real queue crash: each is a fork of a process with all imports done.

Started as ``python -m tests.service.crash_child``; reads one request per line and answers each with
one line, both in JSON. A request names a directory and the work in it::

    {"work": "prepare", "place": ...}               make the snapshot of the story, and its digest
    {"work": "live", "place": ..., "rules": ...}    run the story, to its end or to a failpoint
    {"work": "restart", "place": ...}               restart, compare, and finish the story
    {"work": "harm", "place": ..., "file": ..., "kind": ..., "at": ...}
                                                    the same on a copy with one damaged file

This process opens no RocksDB database, only its children do: the threads of RocksDB do not survive
a fork.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_replication.core.types import Entry, LogIndex, MemberId, Term
from taskraft_replication.errors import ReplicationError
from taskraft_replication.storage.filesystem import DiskFileSystem
from taskraft_service.command_codecs.put import PUT
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.sessions import STARTUP
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import encode_entry
from taskraft_service.machine.collect_policy import CollectPolicy
from taskraft_service.machine.state_machine import QueueMachine
from taskraft_service.queue.limits import Limits
from taskraft_service.storage.directory import StateDirectory, StateForeign, StateMissing
from taskraft_service.storage.rocks import TABLES_OPEN_MAX, StateDamaged
from taskraft_service.stubs.log.v1 import log_pb2
from tests.failpoints.failing_storage import failing_storage
from tests.failpoints.failpoints import Failpoints, parse_rules
from tests.replication.promising_member import Promises, PromisingMember
from tests.replication.whole_story import LAST, SNAPSHOT_AT, Story

MIB = 1 << 20
SNAPSHOT = "snapshot"
PROMISES = "promises"
SECTOR_BYTES = 512
HANG_SECONDS = 60
"""Maximum duration of a child, far above the normal duration on a busy machine."""


def command_at(index: int) -> bytes:
    """Return the commands of the entry at an index: puts, takes, acknowledgements."""
    now_ms = 1_000 * index
    if index == 2:
        startup = log_pb2.Startup(member_id=1, feed_id="f", feed_partitions=2)
        return encode_entry(now_ms, [encode_leader_command(STARTUP, startup)])
    if index == 3:
        tube = tube_service_pb2.Tube(name="t", kind=tube_service_pb2.Tube.FIFOTTL)
        create = tube_service_pb2.CreateTubeRequest(tube=tube)
        return encode_entry(now_ms, [encode_leader_command(CREATE_TUBE, create)])
    put = pb.PutTasksRequest(
        request_id=f"r{index}",
        tube="t",
        tasks=[task_pb2.TaskSpec(payload=b"p%d" % index, delay_ms=index % 3 * 20_000)] * 3,
    )
    take = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="t")], tasks_max=2)
    ack = pb.Settlement(tokens=[index // 2, index // 2 - 1], ack=pb.Settlement.Ack())
    settle = pb.SettleTasksRequest(settlements=[ack])
    return encode_entry(
        now_ms,
        [
            encode_leader_command(PUT, put, RequestKey(5)),
            encode_leader_command(TAKE, take),
            encode_leader_command(SETTLE, settle),
        ],
    )


def machine_in(place: Path, failpoints: Failpoints) -> QueueMachine:
    """Open the queue of a member."""
    storage = failing_storage(failpoints)
    return QueueMachine(
        StateDirectory(place / "state", "t", 1, storage.open_files),
        lambda path: storage.open_store(path, MIB, MIB, TABLES_OPEN_MAX),
        Limits(),
        CollectPolicy(7, 1_000_000),
        lambda: 0,
    )


def apply_all(machine: QueueMachine, entries: Sequence[Entry]) -> None:
    """Apply entries; one call of ``apply`` ends early after many tasks."""
    while entries:
        entries = entries[len(machine.apply(entries)) :]


def ready(place: Path) -> Story:
    """Return the story, whose snapshot was prepared before."""
    return Story(command_at, (place.parent / SNAPSHOT).read_bytes())


def prepare(place: Path) -> str:
    """Write the snapshot next to ``place``; return the digest of the whole story."""
    story = Story(command_at)
    machine = machine_in(place, Failpoints())
    apply_all(machine, story.committed[:SNAPSHOT_AT])
    machine.collect()
    snapshot = machine.open_snapshot()
    content = b""
    while piece := snapshot.read(len(content), MIB):
        content += piece
    (place.parent / SNAPSHOT).write_bytes(content)
    apply_all(machine, story.committed[SNAPSHOT_AT:])
    machine.apply([Entry(Term(4), LogIndex(LAST + 1))])
    digest = machine.queue.digest()
    machine.abandon()
    return digest.hex()


def live(place: Path, rules: str) -> dict[str, int]:
    """Run the story; promises are written to a file that outlives the process."""
    place.mkdir(exist_ok=True)
    failpoints = Failpoints(parse_rules(rules))
    with (place.parent / f"{place.name}.{PROMISES}").open("w", buffering=1) as notes:

        def told(kind: str, one: int, other: int) -> None:
            notes.write(json.dumps([kind, one, other]) + "\n")

        (place / "log").mkdir(exist_ok=True)
        member = PromisingMember(
            DiskFileSystem(place / "log"), machine_in(place, failpoints), failpoints, Promises(told)
        )
        ready(place).tell(member)
    return failpoints.crossings


def restart(place: Path) -> str:
    """Restart, check that all promises are known, finish the story, and return the digest."""
    story = ready(place)
    promises = Promises()
    by_name = {(entry.index, entry.term): entry for entry in story.committed}
    for line in (place.parent / f"{place.name}.{PROMISES}").read_text().splitlines():
        kind, one, other = json.loads(line)
        if kind == "term":
            promises.term = Term(one)
        elif kind == "vote":
            promises.votes[Term(one)] = MemberId(other)
        elif (one, other) in by_name:
            # Entries that were replaced later are not committed.
            upto = [entry for entry in story.committed if entry.index <= one]
            promises.entries |= {entry.index: entry for entry in upto}
    failpoints = Failpoints()
    machine = machine_in(place, failpoints)
    member = PromisingMember(DiskFileSystem(place / "log"), machine, failpoints, promises)
    promises.check(member)
    story.finish(member)
    digest = machine.queue.digest().hex()
    member.close()
    machine.close()
    return digest


def harm(place: Path, file: str, kind: str, at: int) -> str:
    """Restart on a copy of ``place`` with a damaged file; return the digest or the refusal.

    ``at`` is the offset of a byte, or for ``flip`` the number of a bit.
    """
    copy = place.parent / "harmed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy)
    shutil.copy(f"{place}.{PROMISES}", f"{copy}.{PROMISES}")
    content = bytearray((copy / file).read_bytes())
    if kind == "flip":
        content[at // 8] ^= 1 << at % 8
    elif kind == "cut":
        del content[at:]
    else:
        assert kind == "wipe"
        content[at : at + SECTOR_BYTES] = bytes(len(content[at : at + SECTOR_BYTES]))
    (copy / file).write_bytes(content)
    signal.alarm(HANG_SECONDS)
    try:
        return restart(copy)
    except (ReplicationError, StateDamaged, StateForeign, StateMissing) as error:
        return f"refused: {error}"


def in_child(work: Callable[[], object]) -> dict[str, object]:
    """Run ``work`` in a forked process; return its result, or its signal or traceback."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer: dict[str, object] = {"result": work()}
        except BaseException:  # noqa: BLE001 - the test reports any exception of the child
            answer = {"error": traceback.format_exc()}
        os.write(write_end, json.dumps(answer).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    found: dict[str, object] = json.loads(said)
    return found


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        place = Path(request["place"])
        works: dict[str, Callable[[], object]] = {
            "prepare": lambda place=place: prepare(place),
            "live": lambda place=place, request=request: live(place, request["rules"]),
            "restart": lambda place=place: restart(place),
            "harm": lambda place=place, request=request: harm(
                place, request["file"], request["kind"], request["at"]
            ),
        }
        print(json.dumps(in_child(works[request["work"]])), flush=True)


if __name__ == "__main__":
    main()
