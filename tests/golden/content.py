"""The content of the golden files: commands in log entries, and one state in all stored forms.

A file has the stored bytes, and what they mean. A later release must read the bytes and find the
same meaning; it may know more fields.
"""

import io
import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import fields
from pathlib import Path

from taskraft.v1 import (
    feed_service_pb2,
    group_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    tube_service_pb2,
)
from taskraft_replication.core.types import LogIndex
from taskraft_service.backup.snapshot_file import (
    RecordDigests,
    SnapshotFileReader,
    SnapshotFileWriter,
    SnapshotInfo,
)
from taskraft_service.command_codecs.audit import RECORD_ACT, act_message
from taskraft_service.command_codecs.batch import BATCH
from taskraft_service.command_codecs.commit_cursor import COMMIT_CURSOR
from taskraft_service.command_codecs.groups import CREATE_GROUP
from taskraft_service.command_codecs.put import PUT, new_task
from taskraft_service.command_codecs.request_key import NO_KEY, RequestKey
from taskraft_service.command_codecs.schedules import CREATE_SCHEDULE
from taskraft_service.command_codecs.sessions import OPEN_SESSION, STARTUP
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import CREATE_TUBE, DROP_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import decode_entry, encode_entry
from taskraft_service.queue.entities.bulk_sweep import BULK_SWEEP_RECORD, BulkAction, BulkRequest
from taskraft_service.queue.entities.managed_act import ManagedAct
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.ownership import Ownership
from taskraft_service.queue.entities.task_view import Failure
from taskraft_service.queue.entities.tube_options import OPTION_ROWS, TubeKind, TubeOptions
from taskraft_service.queue.feed.chunk import cut, events_of, read_header
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.audit import RecordAct
from taskraft_service.queue.operations.bulk_sweeps import RunBulkSweep, StartBulkSweep
from taskraft_service.queue.operations.feed import CommitCursor
from taskraft_service.queue.operations.kick_bury_delete import Bury
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.registry import ManagedCommand
from taskraft_service.queue.operations.selection import ByIds
from taskraft_service.queue.operations.sessions import CloseSession, OpenSession
from taskraft_service.queue.operations.take import Take
from taskraft_service.queue.operations.tubes import CreateTube, DropTube
from taskraft_service.queue.persistence.record_digest import DIGESTS
from taskraft_service.queue.persistence.upgrade_chain import upgrade_store
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.keys import FEED, prefix_stop
from taskraft_service.storage.memory import MemoryStore
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.snapshot import RocksSnapshot, build
from taskraft_service.stubs.log.v1 import log_pb2
from taskraft_service.versions import FORMATS, HIGHEST
from tests.service.command_codecs.test_commands import CASES

EXAMPLES = (
    (STARTUP, log_pb2.Startup(member_id=1, feed_id="feed", feed_partitions=1)),
    (
        CREATE_TUBE,
        tube_service_pb2.CreateTubeRequest(
            tube={"name": "mail", "kind": tube_service_pb2.Tube.FIFOTTL}
        ),
    ),
    (
        CREATE_TUBE,
        tube_service_pb2.CreateTubeRequest(
            tube={"name": "sub", "kind": tube_service_pb2.Tube.UTUBE}
        ),
    ),
    (
        PUT,
        task_service_pb2.PutTasksRequest(
            request_id="r",
            tube="mail",
            tasks=[
                {"payload": b"a", "priority": 3},
                {"payload": b"b" * 2_000, "delay_ms": 60_000},
                {"payload": b"c"},
            ],
        ),
    ),
    (PUT, task_service_pb2.PutTasksRequest(tube="sub", tasks=[{"payload": b"d", "subqueue": "x"}])),
    (
        OPEN_SESSION,
        log_pb2.OpenSession(
            session_id="s", request=session_service_pb2.OpenSessionRequest(ttr_ms=60_000)
        ),
    ),
    (TAKE, task_service_pb2.TakeTasksRequest(sources=[{"tube": "mail"}], tasks_max=1)),
)
CACHE_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


ACT = ManagedAct("root", "ipv4:10.0.0.7:50122", "DropTube", ("mail",), "d")


def shown(command):
    """Return the fields of a command as text, by name."""
    return {field.name: repr(getattr(command, field.name)) for field in fields(command)}


def limits_content():
    """Return the limits of the queue that affect results, by name.

    Replicas of different releases apply the same entries, so a limit may change only with the
    cluster version. ``Limits`` has the limits that affect only memory use behind the others.
    """
    names = [field.name for field in fields(Limits)]
    results = names[: names.index("head_entries_max")]
    return json.dumps({name: getattr(Limits(), name) for name in results}, indent=1)


def read_limits(text):
    """Check that the limits of a golden file are in force."""
    assert limits_content() == text.rstrip(), "a changed limit needs a new cluster version"


def log_content():
    """Return one entry for each example of a command, and what it means."""
    rows = {}
    for name, (codec, message, _) in CASES.items():
        data = encode_entry(NOW_MS, [encode_leader_command(codec, message)])
        _, (command,) = decode_entry(data)
        rows[name] = {"entry": data.hex(), "type": type(command).__name__, "fields": shown(command)}
    return json.dumps(rows, indent=1, sort_keys=True)


def acts_content():
    """Return entries of commands that are acts of management, and what they mean."""
    drop = tube_service_pb2.DropTubeRequest(name="mail")
    message = log_pb2.RecordAct(act=act_message(ACT))
    rows = {}
    for name, encoded in (
        ("a drop", encode_leader_command(DROP_TUBE, drop, RequestKey(7, "root\0\0"), ACT)),
        ("a record", encode_leader_command(RECORD_ACT, message)),
    ):
        data = encode_entry(NOW_MS, [encoded])
        _, (command,) = decode_entry(data)
        rows[name] = {"entry": data.hex(), "type": type(command).__name__, "fields": shown(command)}
    return json.dumps(rows, indent=1, sort_keys=True)


def owners_content():
    """Return entries of commands that make or change objects with an owner."""
    put = task_service_pb2.PutTasksRequest(
        tube="mail", tasks=[{"unique_key": ["k"], "on_conflict": task_pb2.TaskSpec.FAIL}]
    )
    schedule = {"name": "nightly", "cron": "0 3 * * *", "tube": "mail"}
    rows = {}
    for name, codec, message in (
        ("a put", PUT, put),
        ("a batch", BATCH, task_service_pb2.ExecuteBatchRequest(operations=[{"put": put}])),
        ("a group", CREATE_GROUP, group_service_pb2.CreateGroupRequest(group={"name": "g"})),
        (
            "a schedule",
            CREATE_SCHEDULE,
            log_pb2.CreateSchedule(request={"schedule": schedule}, next_ms=5),
        ),
    ):
        key = RequestKey(7, "billing\0\0", Ownership("billing", changes_all=False))
        data = encode_entry(NOW_MS, [encode_leader_command(codec, message, key)])
        _, (command,) = decode_entry(data)
        rows[name] = {"entry": data.hex(), "type": type(command).__name__, "fields": shown(command)}
    return json.dumps(rows, indent=1, sort_keys=True)


def _owned_entry(name, codec, message, owner):
    """Return the entry of a command that belongs to a principal, and what it means."""
    key = RequestKey(owner=Ownership(owner, changes_all=False))
    data = encode_entry(NOW_MS, [encode_leader_command(codec, message, key)])
    _, (command,) = decode_entry(data)
    row = {"entry": data.hex(), "type": type(command).__name__, "fields": shown(command)}
    return json.dumps({name: row}, indent=1, sort_keys=True)


def takers_log_content():
    """Return the entry of a take that belongs to a principal, without a session."""
    take = task_service_pb2.TakeTasksRequest(sources=[{"tube": "mail"}], tasks_max=2)
    return _owned_entry("a take", TAKE, take, "mailer")


def tube_owners_log_content():
    """Return the entry of a tube that belongs to a principal."""
    create = tube_service_pb2.CreateTubeRequest(
        tube={"name": "mail", "kind": tube_service_pb2.Tube.FIFO}
    )
    return _owned_entry("a tube", CREATE_TUBE, create, "billing")


def consumer_owners_log_content():
    """Return the entry of the first cursor of a feed consumer that belongs to a principal."""
    cursor = feed_service_pb2.FeedCursor(next_seq={0: 0})
    commit = feed_service_pb2.CommitCursorRequest(consumer="lake", cursor=cursor)
    return _owned_entry("a feed consumer", COMMIT_CURSOR, commit, "billing")


def bulk_log_content():
    """Return entries of the commands on bulk sweeps, and what they mean."""
    names = (
        "a bulk sweep",
        "a step of a bulk sweep",
        "the end of a bulk sweep",
        "a stop of a bulk sweep",
    )
    rows = {}
    for name in names:
        codec, message, _ = CASES[name]
        data = encode_entry(NOW_MS, [encode_leader_command(codec, message)])
        _, (command,) = decode_entry(data)
        rows[name] = {"entry": data.hex(), "type": type(command).__name__, "fields": shown(command)}
    return json.dumps(rows, indent=1, sort_keys=True)


def read_log(text):
    """Check that the entries of a golden file are read with the same meaning."""
    for name, row in json.loads(text).items():
        now_ms, (command,) = decode_entry(bytes.fromhex(row["entry"]))
        assert (now_ms, type(command).__name__) == (NOW_MS, row["type"]), name
        found = shown(command)
        known = row["fields"]
        assert {field: without_later(found[field], known[field]) for field in known} == known, name


def without_later(found, known):
    """Return a command's field as text without later options of a tube at their defaults."""
    for row in OPTION_ROWS:
        if f"{row.name}=" not in known:
            found = found.replace(f", {row.name}={row.default!r}", "")
    return found


def filled_store():
    """Return a store that holds the golden state."""
    store = MemoryStore()
    queue = Queue(store, Limits(), new_task)
    for index, (codec, message) in enumerate(EXAMPLES, start=1):
        command = codec.build(message, message.SerializeToString(), NO_KEY)
        queue.apply(index, NOW_MS + index, [command])
    store.write(queue.collect_writes())
    return store


def pairs_of(store):
    """Return all pairs of a store, as text."""
    return {key.hex(): value.hex() for key, value in store.scan(b"", b"\xff")}


def returned_states(queue):
    """Return the states of the tasks after the last step of long work; None: there is none."""
    if queue.next_deadline_ms() != queue.now_ms:
        return None
    index, now_ms = queue.applied_index, queue.now_ms
    while queue.next_deadline_ms() == now_ms:
        index += 1
        queue.apply(index, now_ms, [])
    tasks = queue.get_tasks("mail", range(1, 100))
    return [[task.id, task.state.name] for task in tasks if task is not None]


def meaning(store):
    """Return what a state means: its tubes with their tasks, its sessions and schedules."""
    queue = Queue(store, Limits(), new_task)
    tubes = {}
    for name in sorted(queue.tube_names()):
        tasks = queue.get_tasks(name, range(1, 100))
        tubes[name] = [
            [task.id, task.state.name, task.priority] for task in tasks if task is not None
        ]
    sweeps = [BULK_SWEEP_RECORD.write(sweep).hex() for sweep in queue.bulk_sweeps()]
    acts = [repr(record) for _, record in queue.audit_records(1 << 62)]
    tokens = range(1, queue.last_token + 1)
    lost = {
        name: queue.strange_leases(tokens, lambda _: True, lambda owner, own=name: owner == own)
        for name in ("mailer", "rival")
    }
    own = sorted(lost["rival"] - lost["mailer"])
    owners = {name: queue._state.tube_owners.of(queue.tube_number(name)) for name in tubes}
    owned = {name: owner for name, owner in owners.items() if owner}
    remembered = queue._state.requests.find("r")
    revision = remembered[1] if remembered else 0
    labels = {one.session_id: dict(one.labels) for one in queue.sessions() if one.labels}
    consumers = {one.name: one.owner for one in queue._state.consumers if one.owner}
    found = {
        **({"consumer_owners": consumers} if consumers else {}),
        **({"labels": labels} if labels else {}),
        **({"revision_of_put": revision} if revision else {}),
        **({"tube_owners": owned} if owned else {}),
        **({"leases_of_mailer": own} if own else {}),
        **({"audit": acts} if acts else {}),
        **({"bulk_sweeps": sweeps} if sweeps else {}),
        "index": queue.applied_index,
        "now_ms": queue.now_ms,
        "tubes": tubes,
        "sessions": [session.session_id for session in queue.sessions()],
        "schedules": [schedule.name for schedule in queue.schedules()],
    }
    states = returned_states(queue)
    return found | ({"after_the_returns": states} if states else {})


def state_content():
    """Return the pairs of the golden state, and what they mean.

    ``state.json`` is older than the revisions in the records of requests.
    """
    store = filled_store()
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def audit_content():
    """Return the pairs of the golden state with two acts of management, and what they mean."""
    store = filled_store()
    queue = Queue(store, Limits(), new_task)
    index = len(EXAMPLES) + 1
    drop = ManagedCommand(DropTube("gone"), ACT)
    queue.apply(index, NOW_MS + index, [RecordAct(ACT), drop])
    store.write(queue.collect_writes())
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def bulk_content():
    """Return the pairs of the golden state with a bulk sweep, and what they mean."""
    store = filled_store()
    queue = Queue(store, Limits(), new_task)
    index = len(EXAMPLES) + 1
    request = BulkRequest("mail", "", (2, 99), BulkAction.BURY, "", "why", 9, "root")
    change = Bury("mail", ByIds([2, 99]), Failure("", "why"))
    commands = [StartBulkSweep(request), RunBulkSweep(1, 0, change)]
    queue.apply(index, NOW_MS + index, commands)
    store.write(queue.collect_writes())
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def takers_content():
    """Return the pairs of the golden state with a lease of a principal, and what they mean."""
    store = filled_store()
    queue = Queue(store, Limits(), new_task)
    index = len(EXAMPLES) + 1
    queue.apply(index, NOW_MS + index, [Take(["mail"], taker="mailer")])
    store.write(queue.collect_writes())
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def _state_after(command):
    """Return the pairs of the golden state after one more command, and what they mean."""
    store = filled_store()
    queue = Queue(store, Limits(), new_task)
    index = len(EXAMPLES) + 1
    queue.apply(index, NOW_MS + index, [command])
    store.write(queue.collect_writes())
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def tube_owners_content():
    """Return the golden state with a tube of a principal."""
    return _state_after(CreateTube("own", TubeKind.FIFO, TubeOptions(), owner="billing"))


def consumer_owners_content():
    """Return the golden state with a feed consumer of a principal."""
    return _state_after(CommitCursor("lake", "", {0: 0}, 60_000, owner="billing"))


def labels_content():
    """Return the golden state with a session that has labels."""
    return _state_after(OpenSession("labelled", labels=(("host", "box-7"), ("pid", "4711"))))


def returns_content():
    """Return the pairs of the golden state while the leases of an ended session return in steps.

    The meaning includes the tasks after the last step.
    """
    store = filled_store()
    queue = Queue(store, Limits(steps_beside_max=1, steps_max=1), new_task)
    index = len(EXAMPLES) + 1
    commands = [OpenSession("large"), Put("mail", [NewTask(b"x", 1)] * 4)]
    take = Take(["mail"], "large", tasks_max=4)
    queue.apply(index, NOW_MS + index, [*commands, take, CloseSession("large")])
    store.write(queue.collect_writes())
    return json.dumps({"pairs": pairs_of(store), "meaning": meaning(store)}, indent=1)


def read_state(text):
    """Check that the state of a golden file is read with the same meaning."""
    found = json.loads(text)
    store = MemoryStore()
    store.write((bytes.fromhex(key), bytes.fromhex(value)) for key, value in found["pairs"].items())
    upgrade_store(store)
    assert meaning(store) == found["meaning"]


def events(frame):
    """Return the events in a chunk of the feed, as lists."""
    return [list(event) for event in events_of(cut(frame, 0, read_header(frame).rows))]


def feed_content():
    """Return the chunks of the golden state's feed, with their events."""
    chunks = [value for _, value in filled_store().scan(FEED, prefix_stop(FEED))]
    assert chunks, "the golden state has no events"
    rows = [{"chunk": chunk.hex(), "events": events(chunk)} for chunk in chunks]
    return json.dumps(rows, indent=1)


def read_feed(text):
    """Check that the chunks of a golden file are read with the same events.

    Fields that the format of the file does not have are empty.
    """
    for row in json.loads(text):
        found = events(bytes.fromhex(row["chunk"]))
        fields = len(row["events"][0])
        assert [event[:fields] for event in found] == row["events"]
        assert not any(value for event in found for value in event[fields:])


def snapshot_content(folder):
    """Return a snapshot of the golden state, compressed."""
    written = RocksStore(folder / "written", CACHE_BYTES, CACHE_BYTES)
    written.write(
        (bytes.fromhex(key), bytes.fromhex(value))
        for key, value in pairs_of(filled_store()).items()
    )
    written.flush()
    written.freeze(folder / "frozen")
    written.close()
    snapshot = RocksSnapshot(LogIndex(len(EXAMPLES)), folder / "frozen", FORMATS[HIGHEST])
    raw = snapshot.read(0, snapshot.content_bytes)
    content = b64encode(zlib.compress(raw, 9)).decode()
    return json.dumps({"content": content, "meaning": meaning(filled_store())}, indent=1)


def snapshot_file_content(folder):
    """Return a snapshot file of the golden state, compressed."""
    raw = zlib.decompress(b64decode(json.loads(snapshot_content(folder))["content"]))
    info = SnapshotInfo("id", "shop", "n1", len(EXAMPLES), 3, NOW_MS, "0.1.0", len(raw))
    version = FORMATS[HIGHEST].digest
    file = io.BytesIO()
    writer = SnapshotFileWriter(file)
    writer.begin(info)
    writer.add(raw)
    writer.finish(RecordDigests(version, tuple(digests(filled_store(), version))))
    content = b64encode(zlib.compress(file.getvalue(), 9)).decode()
    return json.dumps({"content": content, "meaning": meaning(filled_store())}, indent=1)


def digests(store, version):
    """Return the digests of the records of a store."""
    steps = DIGESTS[version](lambda prefix: store.scan(prefix, prefix_stop(prefix)))
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        return stop.value


def read_snapshot_file(text, folder):
    """Check that the snapshot file of a golden file is restored with the same meaning."""
    found = json.loads(text)
    raw = zlib.decompress(b64decode(found["content"]))
    reader = SnapshotFileReader(io.BytesIO(raw))
    content = b"".join(reader.content())
    assert reader.info.index == found["meaning"]["index"]
    read_snapshot(
        json.dumps({**found, "content": b64encode(zlib.compress(content)).decode()}), folder
    )
    version = reader.records.version
    assert not version or list(reader.records.parts) == digests(filled_store(), version)


def read_snapshot(text, folder):
    """Check that the snapshot of a golden file is installed with the same meaning."""
    found = json.loads(text)
    place = Path(folder) / "installed"
    build(place, [zlib.decompress(b64decode(found["content"]))])
    store = RocksStore(place, CACHE_BYTES, CACHE_BYTES)
    try:
        upgrade_store(store)
        assert meaning(store) == found["meaning"]
    finally:
        store.close()
