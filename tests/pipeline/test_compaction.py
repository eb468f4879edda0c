"""Compact a journal, load parts of it, and erase tasks; the journal still verifies."""

import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from taskraft_pipeline.cli import pipeline
from taskraft_pipeline.errors import JournalRefused, OptionInvalid
from taskraft_pipeline.journal import compaction, erasure
from taskraft_pipeline.journal.compaction import compact
from taskraft_pipeline.journal.erasure import erase
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.loading import Selection, load, selected_files
from taskraft_pipeline.journal.sequence_digest import SequenceDigest
from taskraft_pipeline.journal.verify import verify
from tests.pipeline.conftest import SECOND_DAY_SEQ
from tests.pipeline.history import EPOCH_MS
from tests.pipeline.rows import expected_rows, found_rows

pytestmark = pytest.mark.spark

FIRST_DAY = datetime.fromtimestamp(EPOCH_MS / 1_000, UTC).date()


@pytest.fixture
def journal(compacted, tmp_path):
    """Return a copy of the journal, which a test may change."""
    shutil.copytree(compacted.root, tmp_path / "journal")
    return Journal.at(tmp_path / "journal")


def test_compacted_and_later_events_are_loaded_together(spark, compacted, two_days):
    assert found_rows(load(spark, compacted)) == expected_rows(two_days)
    verdict = verify(compacted, is_deep=True)
    assert (verdict.problems, verdict.events) == ([], len(two_days))
    assert "compacted into 3 files of generation 1" in verdict.notes[0]


def test_only_files_that_can_have_wanted_events_are_read(spark, compacted, two_days):
    noon = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=1)
    files, raw = selected_files(compacted, Selection(until=noon, tubes=("mail",)))
    assert [path.split("/")[2:4] for path in files] == [[f"date={FIRST_DAY}", "tube=mail"]]
    assert raw == []
    files, raw = selected_files(compacted, Selection(since=noon))
    assert files == []
    assert raw
    wanted = [event for event in two_days if event.seq < SECOND_DAY_SEQ and event.tube == "mail"]
    found = load(spark, compacted, until=noon, tubes=["mail"], columns=["feed_partition", "seq"])
    assert sorted(map(tuple, found.collect())) == sorted(
        (event.partition, event.seq) for event in wanted
    )
    with pytest.raises(OptionInvalid, match="must have a time zone"):
        Selection(since=noon.replace(tzinfo=None))


def test_a_compaction_keeps_the_files_of_other_dates_and_deletes_replaced_files(
    spark, journal, two_days
):
    before = journal.generation()
    done = compact(spark, journal, file_bytes=20_000, grace_ms=0)
    after = journal.generation()
    assert set(before.files) < set(after.files)
    assert len(after.files) > 6  # 20 kB files: more than one for a date and tube
    assert done.deleted > 0
    assert list((journal.root / "raw").iterdir()) == []
    assert [one.number for one in journal.generations()] == [2]
    assert verify(journal, is_deep=True).problems == []
    assert found_rows(load(spark, journal)) == expected_rows(two_days)
    again = compact(spark, journal)
    assert (again.generation, again.batches, again.deleted) == (2, 0, 0)


def test_a_compaction_that_loses_an_event_publishes_nothing(spark, journal, monkeypatch):
    write = compaction._write
    monkeypatch.setattr(
        compaction, "_write", lambda rows, *more: write(rows.where("seq <> 777"), *more)
    )
    with pytest.raises(JournalRefused, match="nothing was published"):
        compact(spark, journal)
    assert journal.generation().number == 1
    assert verify(journal).problems == []


def edited(journal, edit):
    """Rewrite a compacted file; return its path."""
    path = journal.root / journal.generation().files[0].path
    edit(path)
    return path


def without_last_row(path):
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(0, len(table) - 1), path)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda path: path.unlink(), "is missing"),
        (without_last_row, "does not have"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "differs from the written"),
        (lambda path: shutil.copy(path, path.with_name("a.parquet")), "is not in a manifest"),
    ],
)
def test_damage_of_a_compacted_file_is_found(journal, edit, problem):
    edited(journal, edit)
    (found,) = verify(journal, is_deep=True).problems
    assert found.startswith("generation 1: ")
    assert problem in found


def test_a_changed_batch_that_is_compacted_is_found(journal):
    path = journal.manifest_path(0)
    path.write_text(path.read_text().replace('"query": "', '"query": "x'))
    assert any("changed" in problem for problem in verify(journal).problems)


def test_erased_tasks_have_no_texts_and_the_journal_verifies(spark, journal):
    with pytest.raises(JournalRefused, match="compact first"):
        erase(journal, "mail", [1])
    compact(spark, journal)
    failed = load(spark, journal).where("tube = 'mail' AND reason IS NOT NULL")
    task_id = failed.first().task_id
    arguments = ["erase", str(journal.root), "mail", str(task_id)]
    answer = CliRunner().invoke(pipeline, arguments, catch_exceptions=False)
    assert answer.output.endswith(" events of 1 tasks changed\n")
    rows = load(spark, journal).where(f"tube = 'mail' AND task_id = {task_id}").collect()
    assert len(rows) > 2
    assert {(row.reason, row.session, row.message, row.type) for row in rows} == {(None,) * 4}
    assert list((journal.root / "raw").iterdir()) == []
    verdict = verify(journal, is_deep=True)
    assert verdict.problems == []
    assert "the texts of 1 tasks were erased" in verdict.notes


@pytest.mark.parametrize("step", ["sync", "publish"])
def test_an_erasure_that_is_interrupted_changes_nothing_and_can_be_repeated(
    spark, journal, monkeypatch, step
):
    compact(spark, journal)
    before = found_rows(load(spark, journal))
    task_id = load(spark, journal).where("tube = 'mail' AND reason IS NOT NULL").first().task_id

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(erasure, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            erase(journal, "mail", [task_id])
    (journal.root / "events" / "gen=old").mkdir()
    (journal.root / "events" / "gen=old" / "part.parquet").touch()
    verdict = verify(journal, is_deep=True)
    assert verdict.problems == []
    assert verdict.notes[-2:] == [
        "events/gen=old: does not belong to the journal",
        "gen=000000000003: not published yet",
    ]
    assert found_rows(load(spark, journal)) == before
    assert erase(journal, "mail", [task_id]) > 2
    verdict = verify(journal, is_deep=True)
    assert verdict.problems == []
    assert "the texts of 1 tasks were erased" in verdict.notes


def test_a_digest_finds_missing_and_repeated_numbers():
    def digest(*numbers):
        found = SequenceDigest()
        for part in numbers:
            found.add(0, np.array(part, np.int64))
        return found

    assert digest([1, 2, 3]) == digest([3], [1, 2])
    for other in ([1, 2], [1, 2, 4], [1, 3, 3], [1, 2, 3, 3]):
        assert digest([1, 2, 3]).differing(digest(other)) == [0]
