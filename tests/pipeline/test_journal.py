"""Manifests, publishing and verification of journals; Parquet is written without Spark."""

import json
import threading
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskraft_pipeline.errors import JournalRefused
from taskraft_pipeline.journal.batch_content import inspect
from taskraft_pipeline.journal.journal import Journal, publish
from taskraft_pipeline.journal.manifest import (
    DataFile,
    HeldRange,
    LostRange,
    Manifest,
    manifest_problems,
)
from taskraft_pipeline.journal.verify import verify
from taskraft_pipeline.offsets import Offset

START = {0: 5, 1: 0}
MANIFEST = Manifest(
    journal="j",
    batch=0,
    query="q",
    held={0: HeldRange(5, 7, 3), 1: HeldRange(0, 1, 2)},
    next_seq={0: 8, 1: 2},
    first_ms=1_000,
    last_ms=5_000,
    files=(DataFile("raw/batch=0/a.parquet", 5, 100, "7e"),),
)


def write_batch(journal, batch, held):
    """Write the Parquet file of a batch from sequence numbers by partition."""
    folder = journal.batch_folder(batch) / "date=2026-05-28"
    folder.mkdir(parents=True)
    rows = [(partition, seq) for partition, numbers in held.items() for seq in numbers]
    table = pa.table(
        {
            "feed_partition": pa.array([partition for partition, _ in rows], pa.int32()),
            "seq": pa.array([seq for _, seq in rows], pa.int64()),
            "ts": pa.array([(10 + seq) * 1_000_000 for _, seq in rows], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, folder / "part-0.parquet")


def publish_batch(journal, batch, held, next_seq, lost=None, query="q"):
    write_batch(journal, batch, held)
    content = inspect(journal.batch_folder(batch), journal.root)
    manifest = Manifest(
        journal=journal.id(),
        batch=batch,
        query=query,
        held=content.held,
        next_seq=next_seq,
        first_ms=content.first_ms,
        last_ms=content.last_ms,
        files=content.files,
        lost=lost or {},
    )
    before = journal.manifest_before(batch)
    publish(
        journal.manifest_path(batch), manifest.chained(before.chain if before else "").to_json()
    )


@pytest.fixture
def journal(tmp_path):
    """Return a journal of two batches."""
    journal = Journal.at(tmp_path / "journal")
    journal.create(Offset("feed-1", START))
    (journal.checkpoint / "metadata").parent.mkdir(parents=True)
    (journal.checkpoint / "metadata").touch()
    publish_batch(journal, 0, {0: [6, 5, 7], 1: [0, 1]}, {0: 8, 1: 2})
    publish_batch(journal, 1, {0: range(8, 20)}, {0: 20, 1: 2})
    return journal


def test_a_manifest_is_read_as_it_was_written():
    assert Manifest.from_json(json.loads(json.dumps(MANIFEST.to_json()))) == MANIFEST
    assert MANIFEST.events == 5


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 1},
        {"journal": 7},
        {"chain": None},
        {"lost": {"0": [1]}},
        {"batch": "0"},
        {"query": None},
        {"ranges": {"0": [1]}},
        {"ranges": []},
        {"next_seq": {"0": "8"}},
        {"files": None},
        {"files": [{"path": "a"}]},
    ],
    ids=str,
)
def test_a_damaged_manifest_is_refused(damage):
    with pytest.raises(JournalRefused):
        Manifest.from_json({**MANIFEST.to_json(), **damage})
    with pytest.raises(JournalRefused):
        Manifest.from_json({"format": 3})


def test_a_batch_that_follows_has_no_problems():
    assert manifest_problems(MANIFEST, START) == []
    assert manifest_problems(replace(MANIFEST, next_seq={0: 8, 1: 2, 2: 0}), START) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"held": {0: HeldRange(5, 7, 2), 1: HeldRange(0, 1, 3)}}, "2 events of partition 0"),
        ({"held": {0: HeldRange(6, 7, 2), 1: HeldRange(0, 1, 2)}}, "begins at 6, not 5"),
        ({"held": {1: HeldRange(0, 1, 2)}}, "ends at 5, its manifest claims 8"),
        ({"next_seq": {0: 9, 1: 2}}, "ends at 8, its manifest claims 9"),
        ({"next_seq": {0: 8}}, "ends at 2, its manifest claims None"),
        ({"files": ()}, "0 events in its files, 5 in its ranges"),
    ],
)
def test_a_batch_with_wrong_counts_is_reported(change, said):
    assert any(said in problem for problem in manifest_problems(replace(MANIFEST, **change), START))


def test_what_is_published_is_never_replaced(tmp_path):
    path = tmp_path / "a" / "b.json"
    publish(path, {"first": 1})
    with pytest.raises(FileExistsError):
        publish(path, {"second": 2})
    assert json.loads(path.read_text()) == {"first": 1}
    assert [one.name for one in path.parent.iterdir()] == ["b.json"]


def test_a_remote_url_is_refused_as_a_journal():
    with pytest.raises(JournalRefused, match="mounted"):
        Journal.at("s3://bucket/journal")
    assert Journal.at("file:///tmp/j").root == Journal.at("/tmp/j").root


def test_only_one_export_runs_at_a_time(tmp_path):
    journal = Journal.at(tmp_path)
    with journal.locked(), pytest.raises(JournalRefused, match="another export"), journal.locked():
        pass
    with journal.locked():
        pass


def test_the_content_of_a_batch_is_read(journal):
    content = inspect(journal.batch_folder(0), journal.root, is_synced=True)
    assert content.held == {0: HeldRange(5, 7, 3), 1: HeldRange(0, 1, 2)}
    assert (content.first_ms, content.last_ms) == (10_000, 17_000)
    (file,) = content.files
    assert file.events == 5
    assert file.bytes == (journal.root / file.path).stat().st_size


def test_a_batch_without_files_holds_nothing(journal):
    content = inspect(journal.batch_folder(9), journal.root)
    assert (content.held, content.files) == ({}, ())


@pytest.mark.parametrize("numbers", [[5, 6, 8], [5, 6, 6, 7], [5, 5, 7]])
def test_gaps_and_repeats_are_found_although_the_count_is_right(journal, numbers):
    write_batch(journal, 2, {0: numbers})
    with pytest.raises(JournalRefused, match="missing or duplicate"):
        inspect(journal.batch_folder(2), journal.root)


def test_a_whole_journal_is_verified(journal):
    for is_deep in (False, True):
        verdict = verify(journal, is_deep=is_deep)
        assert (verdict.batches, verdict.events, verdict.problems) == (2, 17, [])
        assert (verdict.feed_id, verdict.next_seq) == ("feed-1", {0: 20, 1: 2})


def parquet_of(journal, batch):
    (path,) = journal.batch_folder(batch).rglob("*.parquet")
    return path


def rewrite(journal, batch, **change):
    path = journal.manifest_path(batch)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def test_a_missing_manifest_is_found(journal):
    journal.manifest_path(0).unlink()
    verdict = verify(journal)
    assert "batch 0: the manifest is missing" in verdict.problems
    assert any("begins at 8, not 5" in problem for problem in verdict.problems)
    with pytest.raises(JournalRefused, match="no manifest of batch 0"):
        journal.manifest_before(1)


def test_a_missing_or_shorter_file_is_found(journal):
    parquet_of(journal, 0).unlink()
    with parquet_of(journal, 1).open("r+b") as file:
        file.truncate(50)
    first, second = verify(journal).problems
    assert "missing" in first
    assert "does not have" in second


def test_a_changed_byte_is_found_only_by_a_deep_verification(journal):
    path = parquet_of(journal, 0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert verify(journal).problems == []
    assert verify(journal, is_deep=True).problems != []


def test_a_file_with_other_events_is_found_by_a_deep_verification(journal):
    parquet_of(journal, 1).unlink()
    parquet_of(journal, 0).parent.rename(journal.batch_folder(1) / "date=2026-05-28-old")
    problems = verify(journal, is_deep=True).problems
    assert any("batch 1: the files hold" in problem for problem in problems)


def test_a_changed_manifest_breaks_the_chain(journal):
    rewrite(journal, 0, query="another")
    assert verify(journal).problems == [
        "batch 0: this manifest or an earlier manifest was changed",
    ]


def test_the_digest_of_a_journal_covers_all_its_manifests_and_files(journal):
    before = verify(journal).chain
    publish_batch(journal, 2, {1: [2]}, {0: 20, 1: 3})
    after = verify(journal)
    assert (after.problems, len(after.chain)) == ([], 64)
    assert after.chain != before


def test_a_manifest_of_another_journal_is_found(journal, tmp_path):
    other = Journal.at(tmp_path / "other")
    other.create(Offset("feed-1", START))
    publish_batch(other, 0, {0: [6, 5, 7], 1: [0, 1]}, {0: 8, 1: 2})
    other.manifest_path(0).rename(journal.manifest_path(0))
    assert "batch 0: belongs to another journal" in verify(journal).problems


def test_a_doubled_file_is_found_without_reading_it(journal):
    path = parquet_of(journal, 0)
    path.with_name("copy.parquet").write_bytes(path.read_bytes())
    (problem,) = verify(journal).problems
    assert problem.endswith("copy.parquet is not in the manifest")


def test_files_that_do_not_belong_to_the_journal_are_named(journal):
    (journal.root / "raw" / "batch=7.old").mkdir()
    (journal.root / "raw" / "notes.txt").touch()
    (journal.root / "old").mkdir()
    (journal.root / "events" / "old").mkdir(parents=True)
    (journal.root / "events" / "old" / "part.parquet").touch()
    (journal.root / "events" / "gen=000000000001").mkdir()
    (journal.batch_folder(0) / "notes.txt").touch()
    (journal.batch_folder(0) / "_SUCCESS").touch()
    assert verify(journal).notes == [
        "events/old: does not belong to the journal",
        "old: does not belong to the journal",
        "raw/batch=000000000000/notes.txt: does not belong to the journal",
        "raw/batch=7.old: does not belong to the journal",
        "raw/notes.txt: does not belong to the journal",
        "gen=000000000001: not published yet",
    ]


def test_a_new_checkpoint_continues_the_journal_with_a_note(journal):
    publish_batch(journal, 2, {1: [2]}, {0: 20, 1: 3}, query="later")
    verdict = verify(journal)
    assert verdict.problems == []
    assert verdict.notes == ["batch 2: the first batch of a new checkpoint"]


def test_a_lost_checkpoint_is_noted(journal):
    (journal.checkpoint / "metadata").unlink()
    assert "the checkpoint is lost" in verify(journal).notes[0]


def test_a_recorded_gap_is_no_problem_and_is_counted_and_named(journal):
    publish_batch(
        journal, 2, {0: [25]}, {0: 26, 1: 9}, lost={0: LostRange(20, 24), 1: LostRange(2, 8)}
    )
    verdict = verify(journal, is_deep=True)
    assert (verdict.problems, verdict.events, verdict.events_lost) == ([], 18, 12)
    assert "events 2 to 8 of partition 1" in verdict.notes[1]
    assert "except 12 events that retention removed" in verdict.conclusion


@pytest.mark.parametrize("lost", [LostRange(19, 24), LostRange(20, 23), LostRange(20, 25)])
def test_a_recorded_gap_must_fit_between_the_batches(journal, lost):
    publish_batch(journal, 2, {0: [25]}, {0: 26, 1: 2}, lost={0: lost})
    assert verify(journal).problems


def test_the_conclusion_says_what_was_looked_at(journal, tmp_path):
    assert "content of the files was not read" in verify(journal).conclusion
    assert verify(journal, is_deep=True).conclusion == "the files have every event exactly once"
    empty = Journal.at(tmp_path / "empty")
    empty.create(Offset("feed-1", START))
    assert verify(empty).conclusion == "empty, so nothing is verified"


def test_a_commit_without_a_manifest_is_found_and_an_unpublished_batch_is_harmless(journal):
    (journal.checkpoint / "commits").mkdir(parents=True)
    for batch in (1, 2):
        (journal.checkpoint / "commits" / str(batch)).touch()
    write_batch(journal, 3, {0: [20]})
    verdict = verify(journal)
    assert verdict.problems == [
        "batch 2: committed in Spark's checkpoint, but the manifest is missing"
    ]
    assert verdict.notes == ["batch=000000000003: not published yet"]


def test_a_folder_without_a_journal_is_refused(tmp_path):
    with pytest.raises(JournalRefused, match="contains no journal"):
        verify(Journal.at(tmp_path / "nowhere"))


def test_the_end_of_a_batch_is_read_from_the_offset_log_of_spark(journal):
    folder = journal.checkpoint / "offsets"
    folder.mkdir(parents=True)
    offset = Offset("feed-1", {0: 8})
    (folder / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset.to_json())}')
    assert journal.planned(0) == offset
    journal.start_checkpoint(5)
    assert journal.planned(5) == offset
    journal.start_checkpoint(0)
    (folder / "1").write_text("v2\n{}\n{}")
    with pytest.raises(JournalRefused, match="unknown form"):
        journal.planned(1)


def test_one_of_two_concurrent_publishers_succeeds(tmp_path):
    path = tmp_path / "manifest.json"
    barrier = threading.Barrier(8)
    outcomes = []

    def try_it(number):
        barrier.wait()
        try:
            publish(path.with_name("manifest.json"), {"by": number})
            outcomes.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 1
    assert json.loads(path.read_text()) == {"by": outcomes[0]}
