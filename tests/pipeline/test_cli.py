"""Run the commands of the pipeline.

Commands that start Spark run only in cases that fail at once.
"""

import json
import signal
import subprocess

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from taskraft_pipeline import doctor, java
from taskraft_pipeline.cli import pipeline
from taskraft_pipeline.doctor import examine
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.outage_watch import OutageWatch, wait_for_end
from taskraft_pipeline.offsets import Offset
from taskraft_pipeline.options import parse
from taskraft_pipeline.spark_failures import NOT_INSTALLED, failure_text
from taskraft_pipeline.spark_session import BRIEF_JVM, ENDLESS_JVM, first_error
from tests.pipeline.test_journal import publish_batch


@pytest.fixture
def journal(tmp_path):
    journal = Journal.at(tmp_path / "journal")
    journal.create(Offset("feed-1", {0: 0}))
    publish_batch(journal, 0, {0: range(10)}, {0: 10, 1: 0})
    return journal


def run(*arguments):
    return CliRunner().invoke(pipeline, arguments, catch_exceptions=False)


def test_a_whole_journal_is_verified(journal):
    result = run("verify", str(journal.root), "--deep")
    assert result.exit_code == 0
    assert "10 events in 1 batches of feed feed-1: the files have every event" in result.output
    assert "digest: " in result.output


def test_a_journal_whose_files_were_not_read_has_words_and_an_exit_code_of_its_own(journal):
    (file,) = journal.manifest(0).files
    data = bytearray((journal.root / file.path).read_bytes())
    data[len(data) // 2] ^= 1
    (journal.root / file.path).write_bytes(data)
    result = run("verify", str(journal.root))
    assert result.exit_code == 4
    assert "the content of the files was not read (--deep reads it)" in result.output
    assert run("verify", str(journal.root), "--deep").exit_code == 1


@pytest.mark.real_time
def test_a_journal_is_compared_with_the_feed_of_a_cluster(cluster, journal):
    target = cluster.endpoints
    assert run("verify", str(journal.root), "--deep", "--target", target).exit_code == 0
    cluster.feed.feed_id = "feed-2"
    result = run("verify", str(journal.root), "--target", target)
    assert result.exit_code == 1
    assert "the journal is of feed feed-1, the cluster has feed feed-2" in result.output
    cluster.feed.feed_id = "feed-1"
    cluster.feed.partitions[0] = cluster.feed.partitions[0][:5]
    result = run("verify", str(journal.root), "--target", target)
    assert result.exit_code == 1
    assert "events of partition 0 up to 9, the cluster has events up to 4" in result.output


def test_an_empty_journal_has_its_own_exit_code(tmp_path):
    journal = Journal.at(tmp_path / "empty")
    journal.create(Offset("feed-1", {0: 0}))
    result = run("verify", str(journal.root))
    assert result.exit_code == 3
    assert "empty, so nothing is verified" in result.output


def test_a_broken_journal_is_reported_by_text_and_exit_code(journal):
    path = journal.manifest_path(0)
    path.write_text(json.dumps({**json.loads(path.read_text()), "next_seq": {"0": 11}}))
    result = run("verify", str(journal.root))
    assert result.exit_code == 1
    assert "problem: batch 0: partition 0 ends at 10, its manifest claims 11" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "/nonexistent"),
        ("export", "--journal", "s3://bucket/journal"),
        ("export", "--journal", "unused", "--target", "nowhere"),
        ("export", "--journal", "unused", "-o", "nonsense=1"),
        ("export", "--journal", "unused", "-o", "columns=tube"),
        ("export", "--journal", "unused", "-o", "columns=tube,nonsense"),
        ("export", "--journal", "unused", "-o", "TUBES=mail"),
        ("export", "--journal", "unused", "-o", "read=tasks"),
        ("export", "--journal", "unused", "-o", "endingOffsets=latest"),
        ("report", "--conf", "spark.no.value"),
    ],
)
def test_a_refusal_is_one_line(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code in {1, 2}
    assert "Traceback" not in result.output
    assert "Error: " in result.output.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_without_java_one_line_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run("report")
    assert result.exit_code == 1
    assert result.output == f"Error: {java.HINT}\n"
    assert not java.is_sufficient()


def test_an_export_that_cannot_start_spark_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    folder = tmp_path / "journal"
    assert run("export", "--journal", str(folder)).output == f"Error: {java.HINT}\n"
    monkeypatch.undo()
    monkeypatch.setattr(java, "is_sufficient", lambda: True)
    monkeypatch.setitem(doctor.VERSIONS, "pyspark", ((9,), None))
    result = run("export", "--journal", str(folder))
    assert result.output.startswith("Error: pyspark: ")
    assert "required: at least 9" in result.output
    assert not folder.exists()


@pytest.mark.real_time
@pytest.mark.skipif(not java.is_sufficient(), reason=java.HINT)
@pytest.mark.parametrize("options", [BRIEF_JVM, ENDLESS_JVM], ids=["brief", "endless"])
def test_the_jvm_accepts_its_options(options):
    done = subprocess.run(["java", *options, "-version"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"warning" not in done.stderr.lower()


def test_the_first_line_of_sparks_output_says_why_it_did_not_start():
    output = "WARNING: Using incubator modules\nInvalid maximum heap size: -Xmxabc\nError: no JVM\n"
    assert first_error(output) == "Invalid maximum heap size: -Xmxabc"
    output = 'Using a profile\nException in thread "main" SparkException: no such master\n\tat ...'
    assert first_error(output) == "SparkException: no such master"
    assert first_error("WARNING: a module\n\n") == ""


def test_an_error_of_the_source_is_printed_without_its_traceback():
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):\n"
        '  File "feed_client.py", line 1, in call\n'
        "taskraft_pipeline.errors.FeedUnreachable: no answer after 11 attempts\n"
    )
    assert failure_text(AnalysisException(text)) == "no answer after 11 attempts"
    assert failure_text(AnalysisException("no such column")) == "no such column"
    assert failure_text(ValueError("a bug")) is None


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            StreamingQueryException(
                "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n"
                '  File "batch_writer.py", line 78, in write\n'
                "OSError: [Errno 28] No space left on device\n"
                "\nJVM stacktrace:\norg.apache.spark.SparkException\n\tat Query.run\n"
            ),
            "OSError: [Errno 28] No space left on device",
        ),
        (
            PythonException(
                "Job aborted.\n\tat Writer.write\nCaused by: SparkException: task\n\tat Task.run\n"
                "Caused by: java.io.IOException: read-only\n\tat File.create\n"
            ),
            "java.io.IOException: read-only",
        ),
        (PythonException("\nout of memory\n\tat Task.run\n"), "out of memory"),
    ],
    ids=["Python", "Java", "first line"],
)
def test_an_unexpected_error_is_one_line_and_a_file_with_the_whole_text(error, cause, tmp_path):
    line = failure_text(error, tmp_path)
    (file,) = tmp_path.iterdir()
    assert line == f"Spark failed: {cause}; the whole text is in {file}"
    assert file.read_text() == str(error)


@pytest.mark.real_time
def test_an_export_of_a_trimmed_position_ends_in_one_line_before_spark_starts(
    cluster, journal, monkeypatch
):
    monkeypatch.setattr(java, "is_sufficient", lambda: True)
    cluster.feed.low[0] = 15
    before = sorted(journal.root.rglob("*"))
    result = run("export", "--journal", str(journal.root), "--target", cluster.endpoints)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith("Error: CURSOR_TRIMMED: retention has removed event 10 of partition 0")
    assert "-o failOnDataLoss=false" in line
    assert sorted(journal.root.rglob("*")) == sorted([*before, journal.root / "_lock"])


@pytest.mark.real_time
def test_an_export_of_another_clusters_journal_ends_in_one_line_before_spark_starts(
    cluster, journal, monkeypatch
):
    monkeypatch.setattr(java, "is_sufficient", lambda: True)
    cluster.feed.feed_id = "feed-2"
    before = sorted(journal.root.rglob("*"))
    result = run("export", "--journal", str(journal.root), "--target", cluster.endpoints)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith("Error: FEED_MISMATCH: ")
    assert sorted(journal.root.rglob("*")) == sorted([*before, journal.root / "_lock"])


def findings(*arguments):
    return {finding.subject: finding for finding in examine(*arguments)}


@pytest.mark.real_time
def test_the_doctor_looks_at_versions_nodes_and_the_journal(cluster, journal):
    cluster.nodes[1].server.stop(0).wait()
    first, second, _ = (node.address for node in cluster.nodes)
    found = findings(cluster.endpoints, str(journal.root))
    assert found["pyspark"].is_well
    assert found[first].is_well
    assert not found[second].is_well
    assert "UNAVAILABLE" in found[second].text
    behind = cluster.feed.events - 10
    assert f"{behind:,} behind the feed" in found["journal"].text


@pytest.mark.real_time
def test_the_doctor_finds_a_journal_of_another_feed_or_passed_by_retention(cluster, journal):
    cluster.feed.low[0] = 11
    found = findings(cluster.endpoints, str(journal.root))["journal"]
    assert not found.is_well
    assert "removed unread events of partitions [0]" in found.text
    cluster.feed.feed_id = "feed-2"
    assert "FEED_MISMATCH" in findings(cluster.endpoints, str(journal.root))["journal"].text
    assert not findings("nowhere", None)["endpoints"].is_well


@pytest.mark.real_time
def test_the_doctor_exits_with_an_error_if_something_is_wrong(cluster, monkeypatch):
    target = cluster.nodes[0].address
    assert run("doctor", "--target", target).exit_code == (0 if java.is_sufficient() else 1)
    monkeypatch.setitem(doctor.VERSIONS, "pandas", ((1,), (2,)))
    result = run("doctor", "--target", target)
    assert result.exit_code == 1
    assert "required: at least 1, below 2" in result.output


def test_an_executor_without_the_package_is_named_in_one_line():
    assert failure_text(AnalysisException("[DATA_SOURCE_NOT_FOUND] taskraft")) == NOT_INSTALLED
    text = "ModuleNotFoundError: No module named 'taskraft_pipeline'"
    assert failure_text(AnalysisException(text)) == NOT_INSTALLED


def test_an_export_over_spark_connect_is_refused(tmp_path):
    result = run("export", "--journal", str(tmp_path / "j"), "--master", "sc://127.0.0.1:1")
    assert result.exit_code == 2
    assert "run it on the server" in result.output


@pytest.mark.real_time
def test_an_outage_is_told_once_repeated_and_ended(cluster):
    now, told = [0.0], []
    watch = OutageWatch(parse({"endpoints": cluster.endpoints}), told.append, lambda: now[0])
    watch.check()
    assert told == []
    for node in cluster.nodes:
        node.dies_after = 0
    for now[0] in (10.0, 20.0, 39.0, 41.0):
        watch.check()
    first, second = (text.partition(":")[0] for text in told)
    assert (first, second) == ("waiting for the nodes", "waiting for the nodes since 31 s")
    assert "UNAVAILABLE" in told[0]
    for node in cluster.nodes:
        node.dies_after = None
    now[0] = 50.0
    watch.check()
    assert told[-1] == "the nodes answer again after 40 s"


class EndlessQuery:
    """A streaming query that ends by itself after some looks at it, or by `stop`."""

    def __init__(self, looks):
        self.looks = looks
        self.calls = []

    @property
    def isActive(self):  # noqa: N802 - Spark's name
        self.looks -= 1
        return self.looks >= 0

    def stop(self):
        self.calls.append("stop")

    def awaitTermination(self):  # noqa: N802 - Spark's name
        self.calls.append("awaitTermination")


class Checks:
    def __init__(self):
        self.count = 0

    def check(self):
        self.count += 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_an_export_without_a_call_that_waits_for_the_jvm(number):
    query, checks, before = EndlessQuery(1_000), Checks(), signal.getsignal(number)

    def pause(_):
        if query.looks < 900:
            signal.raise_signal(number)

    wait_for_end(query, checks, pause)
    assert query.calls == ["stop"]
    assert checks.count == 4
    assert signal.getsignal(number) is before


def test_the_failure_of_a_query_that_ended_is_raised():
    query = EndlessQuery(3)
    wait_for_end(query, Checks(), lambda _: None)
    assert query.calls == ["awaitTermination"]


@pytest.mark.parametrize(
    ("command", "more"), [("compact", ()), ("analyse", ()), ("erase", ("mail", "1"))]
)
def test_work_on_a_folder_without_a_journal_fails_in_one_line(tmp_path, command, more):
    result = run(command, str(tmp_path), *more)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "contains no journal" in result.output


@pytest.mark.parametrize("command", ["compact", "analyse"])
def test_work_beside_the_driver_is_refused_over_spark_connect(journal, command):
    result = run(command, str(journal.root), "--master", "sc://127.0.0.1:1")
    assert result.exit_code == 2
    assert "run it on the server" in result.output
