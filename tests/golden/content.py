"""The content of the golden files: commands in log entries, and one state in all stored forms.

A file has the stored bytes, and what they mean. A later release must read the bytes and find the
same meaning; it may know more fields.
"""

import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import fields
from pathlib import Path

from taskraft.v1 import session_service_pb2, task_service_pb2, tube_service_pb2
from taskraft_replication.core.types import LogIndex
from taskraft_replication.stubs.log.v1 import log_pb2
from taskraft_service.command_codecs.put import PUT, new_task
from taskraft_service.command_codecs.sessions import OPEN_SESSION, STARTUP
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.command_codecs.tubes import CREATE_TUBE
from taskraft_service.entries.encoded_command import encode_leader_command
from taskraft_service.entries.log_entry import decode_entry, encode_entry
from taskraft_service.queue.feed.chunk import cut, events_of, read_header
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.persistence.upgrade_chain import upgrade_store
from taskraft_service.queue.queue import Queue
from taskraft_service.queue.store.idempotency import NO_KEY
from taskraft_service.queue.store.keys import FEED, prefix_stop
from taskraft_service.storage.memory import MemoryStore
from taskraft_service.storage.rocks import RocksStore
from taskraft_service.storage.snapshot import RocksSnapshot, build
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


def shown(command):
    """Return the fields of a command as text, by name."""
    return {field.name: repr(getattr(command, field.name)) for field in fields(command)}


def log_content():
    """Return one entry for each example of a command, and what it means."""
    rows = {}
    for name, (codec, message, _) in CASES.items():
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
        assert {field: found[field] for field in row["fields"]} == row["fields"], name


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


def meaning(store):
    """Return what a state means: its tubes with their tasks, its sessions and schedules."""
    queue = Queue(store, Limits(), new_task)
    tubes = {}
    for name in sorted(queue.tube_names()):
        tasks = queue.get_tasks(name, range(1, 100))
        tubes[name] = [
            [task.id, task.state.name, task.priority] for task in tasks if task is not None
        ]
    return {
        "index": queue.applied_index,
        "now_ms": queue.now_ms,
        "tubes": tubes,
        "sessions": [session.session_id for session in queue.sessions()],
        "schedules": [schedule.name for schedule in queue.schedules()],
    }


def state_content():
    """Return the pairs of the golden state, and what they mean."""
    store = filled_store()
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
    """Check that the chunks of a golden file are read with the same events."""
    for row in json.loads(text):
        assert events(bytes.fromhex(row["chunk"])) == row["events"]


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
    snapshot = RocksSnapshot(LogIndex(len(EXAMPLES)), folder / "frozen", FORMATS[HIGHEST].snapshot)
    raw = snapshot.read(0, snapshot.content_bytes)
    content = b64encode(zlib.compress(raw, 9)).decode()
    return json.dumps({"content": content, "meaning": meaning(filled_store())}, indent=1)


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
