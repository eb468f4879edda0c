"""The C core of gRPC writes no line to the terminal: each line of stderr is one of this program."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress

import pytest

from taskraft import Client
from tests.authority import DAY, Authority
from tests.clients.worker import process_tasks
from tools.local_cluster import LocalCluster

pytestmark = pytest.mark.real_time

OWN_LINE = re.compile(r"(error: |hint:  |\d{4}-\d\d-\d\d[T ][\d:.,]+\S* +(INFO|WARNING|ERROR) )")
"""Beginning of a message of a command, or of a line of the log of a worker."""
SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def assert_own(text):
    """Check that a program has said something, and nothing else has."""
    assert text
    assert [line for line in text.splitlines() if not OWN_LINE.match(line)] == []


class Listener:
    """Accepts connections, and answers each in the same way in a thread of its own."""

    def __init__(self, answer):
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.target = f"localhost:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(5)
            with connection, suppress(OSError):
                self._answer(connection)


def tls(files, authority=None):
    """Return an answer that makes a TLS handshake; with a CA, clients need a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority)

    def answer(connection):
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1_000)

    return answer


def sending(data):
    def answer(connection):
        connection.sendall(data)
        connection.recv(1_000)

    return answer


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


SITUATIONS = {
    "plaintext to a TLS port": (lambda ca: tls(ca.server()), ()),
    "TLS to a plaintext port": (lambda _: sending(SETTINGS_FRAME), ("--ca", "{ca}")),
    "a port of another protocol": (lambda _: sending(HTTP_ANSWER), ()),
    "an unknown CA": (lambda ca: tls(ca.server()), ("--ca", "{other}")),
    "an expired certificate": (lambda ca: tls(ca.server("old", valid=-DAY)), ("--ca", "{ca}")),
    "another host name": (lambda ca: tls(ca.sign("else", "elsewhere")), ("--ca", "{ca}")),
    "no client certificate": (lambda ca: tls(ca.server(), ca.path), ("--ca", "{ca}")),
    "a malformed CA": (lambda ca: tls(ca.server()), ("--ca", "{malformed}")),
    "a key of another certificate": (
        lambda ca: tls(ca.server()),
        ("--ca", "{ca}", "--cert", "{cert}", "--cert-key", "{key}"),
    ),
}


def bare_environment():
    """Return the environment without settings of gRPC, which other tests may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}


def run(words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "taskraft", *words, "--timeout", "1500ms"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**bare_environment(), **environment},
    )


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_failed_connection_leaves_lines_of_the_command_only(situation, authority, tmp_path):
    answer_of, options = SITUATIONS[situation]
    (tmp_path / "malformed").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    files = {
        "ca": authority.path,
        "other": Authority(tmp_path, "other").path,
        "malformed": tmp_path / "malformed",
        "cert": authority.server("one").certificate,
        "key": authority.server("two").key,
    }
    with Listener(answer_of(authority)) as listener:
        words = [word.format(**files) for word in options]
        done = run(["tube", "list", "-t", listener.target, *words])
    assert done.returncode in (2, 5)
    assert_own(done.stderr)


@pytest.mark.parametrize("target", ["127.0.0.1:1", "nohost.invalid:7401"])
def test_an_unreachable_host_leaves_lines_of_the_command_only(target):
    done = run(["put", "emails", "a", "-t", target])
    assert done.returncode == 5
    assert_own(done.stderr)


def test_an_unusable_proxy_leaves_lines_of_the_command_only():
    done = run(["tube", "list", "-t", "nohost.invalid:7401"], grpc_proxy="nonsense://proxy")
    assert done.returncode == 5
    assert_own(done.stderr)


@pytest.fixture
def start():
    """Return a function that starts a command; the command ends with the test."""
    with ExitStack() as stack:

        def started(words, **environment):
            process = subprocess.Popen(
                [sys.executable, "-m", "taskraft", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**bare_environment(), **environment},
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def test_a_killed_node_leaves_lines_of_the_programs_only(start, tmp_path):
    """A command waits for a task, and a worker has subscribed and has forked a process."""
    cluster = LocalCluster(1, tmp_path / "c", {"TASKRAFT_AUTO_CREATE_TUBES": "true"})
    (node,) = cluster.nodes
    with cluster, Client(cluster.target) as client:
        tube = client.tube("waiting")
        client.create_tube("waiting")
        worker = start(["worker", f"{process_tasks.__name__}:app"], TASKRAFT_TARGET=cluster.target)
        default = client.tube("default")
        (task_id,) = default.put_many([process_tasks.where.plan("a")])
        (ended,) = default.wait(task_id, wait="60s")
        assert ended.outcome in ("PROCESSED", "NOT_KEPT")
        words = ["--wait", "10s", "--ack", "-t", cluster.target, "--timeout", "1s"]
        take = start(["take", "waiting", *words])
        cluster.wait_until(lambda: tube.stats().waiting == 1, "a take waits")
        node.kill()
        assert_own(take.communicate(timeout=60)[1])
        worker.send_signal(signal.SIGTERM)
        assert_own(worker.communicate(timeout=60)[1])
