"""A snapshot of a running node is saved, checked and restored into a new cluster."""

import asyncio
import hashlib
import io
import json
import os
import re

import pyrage
import pytest
from click.testing import CliRunner

from taskraft import AsyncClient
from taskraft.cli import main
from taskraft.v1 import cluster_service_pb2 as cluster_pb
from taskraft.v1 import feed_service_pb2
from taskraft_service.backup import encryption
from taskraft_service.backup.snapshot_file import MAGIC
from taskraft_service.process.node_server import NodeServer
from taskraft_service.queue.persistence.record_digest import PARTS
from tests.service.conftest import ack, config_in, create, put, running, take
from tests.turns import turns_until
from tools.free_addresses import free_addresses

pytestmark = pytest.mark.real_time

OTHER = {"TASKRAFT_CLUSTER_ID": "restored"}


@pytest.fixture
def source(node):
    return node


async def call(*words, **environment):
    """Run a command of the command line on a thread, because it waits for the node."""
    runner = CliRunner()
    return await asyncio.to_thread(runner.invoke, main, words, env=environment)


async def snapshot(*words, **environment):
    return await call("snapshot", *map(str, words), **environment)


async def saved(node, file, *words):
    address = f"127.0.0.1:{node.server.client_port}"
    result = await snapshot("save", file, "--target", address, *words)
    assert result.exit_code == 0, result.output
    return file


async def interrupted(node, file):
    """Leave the part of a snapshot file behind, as a stopped command does; return its id."""
    stream = node.cluster.SaveSnapshot(cluster_pb.SaveSnapshotRequest())
    header = (await stream.read()).header
    piece = (await stream.read()).content
    stream.cancel()
    assert header.content_bytes > len(piece)
    values = {field.name: getattr(header, field.name) for field in header.DESCRIPTOR.fields}
    head = MAGIC + json.dumps(values).encode() + b"\n"
    file.with_name(f"{file.name}.part").write_bytes(head + piece[:1000])
    return header.snapshot_id


def restored_in(place, **settings):
    """Return the settings of a node, and the variables with the same settings."""
    config = config_in(place, cluster_id="restored", **settings)
    variables = {
        "TASKRAFT_NODE_NAME": config.node_name,
        "TASKRAFT_DATA_DIR": str(config.data_dir),
        "TASKRAFT_LISTEN": config.listen,
        "TASKRAFT_PEER_LISTEN": config.peer_listen,
        **OTHER,
    }
    return config, variables


def contents(directory):
    return {
        str(place.relative_to(directory)): place.read_bytes() if place.is_file() else None
        for place in sorted(directory.rglob("*"))
    }


async def feed_of(node):
    return await node.feed.DescribeFeed(feed_service_pb2.DescribeFeedRequest())


async def test_a_restored_cluster_has_all_tasks_leases_and_ids(source, tmp_path):
    await create(source)
    ids = (await put(source, *(b"%d" % number for number in range(50)))).task_ids
    first, *others = (await take(source, tasks_max=3)).tasks
    await ack(source, [first])
    old_feed = await feed_of(source)
    file = await saved(source, tmp_path / "f.snapshot")
    await put(source, b"after the snapshot")

    config, variables = restored_in(tmp_path / "new")
    assert (await snapshot("restore", file, **variables)).exit_code == 0
    index = source.queue.applied_index
    async with running(config) as new:
        assert new.server.node.status().first > 1, "the log continues at the index of the state"
        assert new.queue.applied_index > index - 10
        assert not (await ack(new, others)).errors, "leases survive"
        left = (await take(new, tasks_max=100)).tasks
        assert [task.id for task in left] == list(ids[3:])
        (following,) = (await put(new, b"x")).task_ids
        assert following == ids[-1] + 1
        new_feed = await feed_of(new)
        assert new_feed.feed_id != old_feed.feed_id
        state = await new.cluster.GetClusterState(cluster_pb.GetClusterStateRequest())
        assert (state.cluster_id, state.leader) == ("restored", "n0")
    async with running(config) as again:
        assert again.queue.last_id("emails") == following


async def test_a_node_joins_a_restored_cluster(source, tmp_path):
    await create(source)
    await put(source, b"a", b"b")
    file = await saved(source, tmp_path / "f.snapshot")
    peer, client, peer_of_second, client_of_second = free_addresses(4)
    config, variables = restored_in(tmp_path / "new", listen=client, peer_listen=peer)
    assert (await snapshot("restore", file, **variables)).exit_code == 0
    joining = config_in(
        tmp_path / "second",
        node_name="n1",
        cluster_id="restored",
        join=client,
        listen=client_of_second,
        peer_listen=peer_of_second,
    )
    async with running(config) as first:
        second = await NodeServer.open(joining)
        await second.start()
        try:
            async with AsyncClient(client) as admin:
                assert (await admin.promote_member("n1")).joined
            copy = second.machine
            await turns_until(lambda: copy.queue.applied_index == first.queue.applied_index)
            assert copy.queue.digest() == first.queue.digest()
            assert list(copy.queue.tube_names()) == ["emails"]
        finally:
            await second.stop()


async def test_a_snapshot_has_everything_acknowledged_before(source, tmp_path):
    await create(source)
    for number in range(5):
        await put(source, b"%d" % number)
        acknowledged = source.queue.applied_index
        file = await saved(source, tmp_path / f"{number}.snapshot")
        shown = await snapshot("inspect", file, "-o", "json")
        found = json.loads(shown.output)
        assert (found["tubes"], found["tasks"]) == (1, number + 1)
        assert found["index"] >= acknowledged
    verified = await snapshot("verify", file)
    assert verified.output.startswith("ok: 5 tasks in 1 tubes")
    assert re.search(r"taken_at +20\d\d-", (await snapshot("inspect", file)).output)
    assert file.stat().st_mode & 0o077 == 0, "only the owner may read payloads"


async def test_a_file_is_not_replaced_unless_asked(source, tmp_path):
    file = tmp_path / "f.snapshot"
    file.write_bytes(b"mine")
    address = f"127.0.0.1:{source.server.client_port}"
    refused = await snapshot("save", file, "--target", address)
    assert refused.exit_code == 1
    assert "exists" in refused.output
    assert file.read_bytes() == b"mine"
    await saved(source, file, "--overwrite")
    assert (await snapshot("verify", file)).exit_code == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "appended", "empty", "foreign"])
async def test_a_damaged_file_changes_nothing(source, tmp_path, damage):
    await create(source)
    await put(source, b"x" * 1000)
    file = await saved(source, tmp_path / "f.snapshot")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(
        {
            "cut": file.read_bytes()[:-100],
            "flipped": bytes(raw),
            "appended": file.read_bytes() + b"x",
            "empty": b"",
            "foreign": b"PK\x03\x04" * 100,
        }[damage]
    )
    config, variables = restored_in(tmp_path / "new")
    config.data_dir.mkdir(parents=True)
    for words in (("restore", file), ("verify", file), ("inspect", file)):
        result = await snapshot(*words, **variables)
        assert result.exit_code == 1, result.output
        assert len(result.output.strip().splitlines()) == 1
    assert not contents(config.data_dir)


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        (b"taskraft state 3\n", "the snapshot has format 3, and this release reads format 2"),
        (b"taskraft state 1\n", "the snapshot has format 1, and this release reads format 2"),
        (
            b"taskraft snapshot file 3\n",
            "the snapshot file has format 3, and this release reads format 1, 2",
        ),
    ],
)
async def test_a_file_of_another_format_changes_nothing(source, tmp_path, line, refusal):
    await create(source)
    file = await saved(source, tmp_path / "f.snapshot")
    own, count = re.subn(line[:-2] + rb"\d\n", line, file.read_bytes(), count=1)
    assert count == 1
    file.write_bytes(own)
    config, variables = restored_in(tmp_path / "new")
    config.data_dir.mkdir(parents=True)
    for word in ("restore", "verify", "inspect"):
        result = await snapshot(word, file, **variables)
        assert result.exit_code == 1
        (shown,) = result.output.strip().splitlines()
        assert refusal in shown
    assert not contents(config.data_dir)


async def test_records_that_differ_from_the_state_of_the_node_are_found(source, tmp_path):
    """The digest of the file is right: the file says what it was written with."""
    await create(source)
    await put(source, b"x" * 1000)
    file = await saved(source, tmp_path / "f.snapshot")
    before, line, _ = re.split(rb"(\{\"version\": \d+, .*\}\n)", file.read_bytes())
    records = json.loads(line)
    assert len(records["parts"]) == PARTS
    records["parts"][0] ^= 1
    raw = before + json.dumps(records).encode() + b"\n"
    file.write_bytes(raw + hashlib.sha256(raw).digest())
    config, variables = restored_in(tmp_path / "new")
    for words in (("restore", file), ("verify", file)):
        result = await snapshot(*words, **variables)
        assert result.exit_code == 1
        assert "differ from the state of the node that was saved, in sessions" in result.output
    assert not config.data_dir.exists()


async def test_a_restore_needs_an_empty_directory_and_another_cluster_id(source, tmp_path):
    await create(source)
    file = await saved(source, tmp_path / "f.snapshot")
    config, variables = restored_in(tmp_path / "new")
    config.data_dir.mkdir(parents=True)
    (config.data_dir / "notes.txt").write_text("mine")
    before = contents(config.data_dir)
    result = await snapshot("restore", file, **variables)
    assert (result.exit_code, "is not empty" in result.output) == (1, True)
    assert contents(config.data_dir) == before
    (config.data_dir / "notes.txt").unlink()

    same = {**variables, "TASKRAFT_CLUSTER_ID": source.server.config.cluster_id}
    result = await snapshot("restore", file, **same)
    assert (result.exit_code, "--same-cluster-id" in result.output) == (1, True)
    assert not contents(config.data_dir)
    result = await snapshot("restore", file, "--same-cluster-id", **same)
    assert result.exit_code == 0, result.output
    result = await snapshot("restore", file, **variables)
    assert "is not empty" in result.output


async def test_an_identity_file_that_others_can_read_is_refused(tmp_path):
    key = pyrage.x25519.Identity.generate()
    identity, file = tmp_path / "key", tmp_path / "f.age"
    identity.write_text(f"{key}\n")
    identity.chmod(0o644)
    file.write_bytes(pyrage.encrypt(b"x", [key.to_public()]))
    result = await snapshot("verify", file, "--identity", identity)
    assert result.exit_code != 0
    assert f"run: chmod 600 {identity}" in result.output


@pytest.mark.parametrize("content", [b"\xff\xfe\x00key", None])
def test_an_unusable_file_of_keys_is_named_in_one_line(tmp_path, content):
    identity = tmp_path / "key"
    if content is None:
        identity.mkdir()
    else:
        identity.write_bytes(content)
    with pytest.raises(encryption.KeyUnusable) as refused:
        encryption.decrypt(io.BytesIO(), io.BytesIO(), identity)
    assert str(refused.value).startswith(str(identity))
    assert "\n" not in str(refused.value)


async def test_an_encrypted_file_needs_its_key(source, tmp_path):
    await create(source)
    await put(source, b"a secret payload")
    key, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    for name, identity in (("key", f"# made for a test\n{key}\n"), ("other", f"{other}\n")):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(identity)
    file = await saved(source, tmp_path / "f.age", "--recipient", str(key.to_public()))
    assert b"a secret payload" not in file.read_bytes()
    assert (await snapshot("verify", file)).exit_code == 1
    wrong = await snapshot("verify", file, "--identity", tmp_path / "other")
    assert (wrong.exit_code, "cannot be decrypted" in wrong.output) == (1, True)
    result = await snapshot("verify", file, "--identity", tmp_path / "key")
    assert (result.exit_code, "1 tasks in 1 tubes" in result.output) == (0, True)
    config, variables = restored_in(tmp_path / "new")
    result = await snapshot("restore", file, "--identity", tmp_path / "key", **variables)
    assert result.exit_code == 0, result.output
    async with running(config) as new:
        (task,) = (await take(new)).tasks
        assert task.spec.payload == b"a secret payload"
    bad = await snapshot("save", tmp_path / "g.age", "--recipient", "age1nonsense")
    assert (bad.exit_code, "not an age public key" in bad.output) == (1, True)
    assert not (tmp_path / "g.age.part").exists()


async def test_an_incomplete_file_is_completed(source, tmp_path):
    await create(source)
    await put(source, *(os.urandom(100_000) for _ in range(20)))
    file = tmp_path / "f.snapshot"
    snapshot_id = await interrupted(source, file)
    await put(source, b"after the snapshot")
    await saved(source, file)
    shown = json.loads((await snapshot("inspect", file, "-o", "json")).output)
    assert shown["snapshot_id"] == snapshot_id, "the same snapshot was continued"
    assert shown["tasks"] == 20
    assert not (tmp_path / "f.snapshot.part").exists()
