"""Output of native libraries to stderr becomes text in log records."""

import json
import socket
import struct
import subprocess
import sys
import textwrap

import pytest
import structlog.testing

from taskraft_service.process.native_output import BURST_LINES, LINE_BYTES_MAX, OutputRecords
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

FORGED = '{"event": "managed", "principal": "root", "call": "DropTube"}'
GOAWAY, SETTINGS = 7, 4


class Clock:
    now = 0.0

    def seconds(self):
        return self.now


@pytest.fixture
def recorded():
    with structlog.testing.capture_logs() as records:
        yield records


def texts(records):
    return [record["text"] for record in records]


def test_each_line_is_one_record(recorded):
    records = OutputRecords()
    for data in (b"a\nb", b"c", b"\n\n", b"d"):
        records.feed(data)
    assert texts(recorded) == ["a", "bc"]
    records.end()
    assert texts(recorded) == ["a", "bc", "d"]


def test_a_long_line_is_split_into_records_without_being_buffered(recorded):
    records = OutputRecords()
    for _ in range(4):
        records.feed(b"x" * LINE_BYTES_MAX)
        assert len(records._rest) <= LINE_BYTES_MAX
    records.feed(b"y\n")
    assert "".join(texts(recorded)) == "x" * 4 * LINE_BYTES_MAX + "y"
    assert max(map(len, texts(recorded))) == LINE_BYTES_MAX


def test_bytes_that_are_not_text_are_escaped(recorded):
    OutputRecords().feed(b"\xff\x1b[2J\n")
    assert texts(recorded) == ["\\xff\x1b[2J"]


def test_native_lines_keep_their_severity(recorded):
    OutputRecords().feed(b"I1123 a\nW1123 b\nE1123 c\nF1123 d\ne\n")
    levels = [record["log_level"] for record in recorded]
    assert levels == ["info", "warning", "error", "error", "warning"]


def test_a_flood_is_counted_and_not_written(recorded):
    clock = Clock()
    records = OutputRecords(clock.seconds)
    records.feed(b"x\n" * 10 * BURST_LINES)
    assert len(recorded) == BURST_LINES
    clock.now += 1
    records.feed(b"y\n")
    assert recorded[-1]["suppressed"] == 9 * BURST_LINES
    records.feed(b"z\n")
    assert "suppressed" not in recorded[-1]


def run(body, *, prefix=(), **options):
    """Run Python code between the set-up of the log and its end; return what reaches stderr.

    ``prefix``: the program that starts Python, with its arguments.
    """
    script = textwrap.dedent(
        """
        import ctypes, os, sys, warnings
        from taskraft_service.process.logs import set_up_logs
        from taskraft_service.process.native_output import captured_output
        with captured_output() as stderr:
            set_up_logs("json", "info", "n1", stderr)
        """
    ) + textwrap.indent(textwrap.dedent(body), "    ")
    command = [*prefix, sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_native_code_python_code_and_the_log_share_one_stream_of_records():
    done = run(
        f"""
        ctypes.CDLL(None).dprintf(2, {FORGED!r}.encode() + b"\\n")
        os.write(2, b"without an end")
        print({FORGED!r}, file=sys.stderr)
        warnings.warn("a warning")
        """
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert {record["event"] for record in records} == {"output on stderr"}
    assert texts(records).count(FORGED) == 2
    assert "without an end" in texts(records)
    assert any("a warning" in text for text in texts(records))


def test_a_crash_is_reported_on_the_real_stderr():
    done = run("import faulthandler; faulthandler._sigsegv()")
    assert done.returncode < 0
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_a_full_pipe_does_not_block_writers():
    """The reading thread cannot run while native code holds Python's lock."""
    done = run(
        """
        libc = ctypes.PyDLL(None)  # keeps the lock during the call
        for _ in range(10_000):
            libc.dprintf(2, b"x" * 100 + b"\\n")
        """,
        timeout=30,
    )
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) <= BURST_LINES + 100


def test_without_stderr_no_file_gets_its_descriptor_number(tmp_path):
    done = run(
        f"""
        os.write(2, b"native")
        with open({str(tmp_path / "log")!r}, "w") as file:
            assert file.fileno() > 2, file.fileno()
        """,
        prefix=("sh", "-c", 'exec "$@" 2>&-', "sh"),
    )
    assert done.returncode == 0


def frame(kind, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + bytes(4) + payload


def send_goaway(address, text):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, b""))
        assert peer.recv(9), "the server begins with its settings"
        peer.sendall(frame(GOAWAY, struct.pack(">II", 0, 11) + text.encode()))
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def test_a_peer_cannot_inject_a_line_into_the_log(tmp_path):
    # The command line in this process, called by other tests, makes the C core of gRPC silent.
    cluster = LocalCluster(1, tmp_path / "c", {"GRPC_VERBOSITY": "INFO"})
    (node,) = cluster.nodes
    with cluster:
        for address in (node.address, node.peer_address):
            send_goaway(address, f"x\n{FORGED}\n")
        cluster.wait_until(lambda: texts_of(node).count(FORGED) >= 2, "both texts are in the log")
        assert node.stop() == 0
    records = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert [record for record in records if record["event"] == "managed"] == []


def texts_of(node):
    """Return the texts of native lines in a log, without a last line that is still incomplete."""
    lines = node.log.read_text().rpartition("\n")[0].splitlines()
    return [record["text"] for record in map(json.loads, lines) if "text" in record]
