"""The keys of `taskraft top`: the view in memory, and one run on a terminal."""

import functools
import os
import pty
import signal
import subprocess
import sys
import termios
from contextlib import suppress

import grpc
import pytest

from taskraft.cli.keyboard import keys_of
from taskraft.cli.top_view import HELP, SORT_KEYS, TopView, TubeRow, arranged, pressed

ROWS = [
    TubeRow("mail", ready=5, taken=1, buried=2, put=1, take=3, ack=2, fail=0, age_ms=9, waiting=0),
    TubeRow("bulk", ready=7, taken=0, buried=0, put=9, take=0, ack=0, fail=1, age_ms=4, waiting=2),
    TubeRow("dead", ready=5, taken=4, buried=9, put=0, take=1, ack=5, fail=2, age_ms=0, waiting=1),
]


def after(text, view=None):
    """Return the view after the keys that a terminal sends."""
    return functools.reduce(pressed, keys_of(text), view or TopView())


def names(view):
    return [row.name for row in arranged(ROWS, view)]


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ("", "bulk dead mail"),
        ("R", "mail dead bulk"),
        ("RR", "bulk dead mail"),
        ("r", "bulk dead mail"),
        ("rR", "dead mail bulk"),
        ("rRr", "bulk dead mail"),
        ("t", "dead mail bulk"),
        ("b", "dead mail bulk"),
        ("p", "bulk mail dead"),
        ("k", "mail dead bulk"),
        ("c", "dead mail bulk"),
        ("f", "dead bulk mail"),
        ("o", "mail bulk dead"),
        ("w", "bulk dead mail"),
        ("bn", "bulk dead mail"),
        ("b\x1b[A\x1bOPx", "dead mail bulk"),
    ],
)
def test_keys_sort_the_tubes(keys, order):
    assert names(after(keys)) == order.split()


@pytest.mark.parametrize(
    ("keys", "shown", "filtered"),
    [
        ("/l", "bulk mail", "l"),
        ("/ma\r", "mail", "ma"),
        ("/max\x7f\r", "mail", "ma"),
        ("/nq r?\r", "", "nq r?"),
        ("/ma\n/d\x1b", "mail", "ma"),
        ("/ma\n/\x7f\x7f\r", "bulk dead mail", ""),
        ("/\x7f\x1b[A\x00\r", "bulk dead mail", ""),
    ],
)
def test_a_filter_is_typed_kept_or_dropped(keys, shown, filtered):
    view = after(keys)
    assert (names(view), view.filter) == (shown.split(), filtered)
    assert (view.is_ended, view.is_paused, view.sort) == (False, False, "name")


def test_keys_pause_explain_and_end():
    assert after(" ").is_paused
    assert not after("  ").is_paused
    assert not after("? ").is_ended
    assert after("/x\rq").is_ended
    assert not after("/q").is_ended


def test_the_status_tells_the_mode():
    assert after("").status == "sort: name   ? help"
    assert after("bR/x\r ").status == "sort: buried reversed   filter: x   paused   ? help"
    assert after("/x").status.startswith("filter: x_")
    assert after("?").status == HELP
    assert all(f"{key} {name}" in HELP for key, name in SORT_KEYS.items())


class Screen:
    """A terminal with `taskraft top` on it."""

    def __init__(self, target):
        self.controller, self.terminal = pty.openpty()
        termios.tcsetwinsize(self.terminal, (24, 120))
        self.before = termios.tcgetattr(self.terminal)
        command = [sys.executable, "-m", "taskraft", "top", "--interval", "50ms", "-t", target]
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), self.terminal)
        self.child = subprocess.Popen(command, **ends, start_new_session=True)
        self.seen = b""

    def wait_for(self, text):
        """Read until the screen has shown a text, and forget what was read."""
        while text.encode() not in self.seen:
            self.seen += os.read(self.controller, 10_000)
        self.seen = b""

    def press(self, keys):
        os.write(self.controller, keys.encode())

    def end(self):
        """Return the exit code, and whether the terminal is as before."""
        os.set_blocking(self.controller, False)
        code = None
        while code is None:
            self._drain()
            code = self.child.poll()
        self._drain()
        is_restored = termios.tcgetattr(self.terminal) == self.before
        return code, is_restored, b"\x1b[?1049l" in self.seen

    def _drain(self):
        with suppress(BlockingIOError):
            self.seen += os.read(self.controller, 10_000)

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.controller)
        os.close(self.terminal)


@pytest.fixture
def screen(cluster):
    one = Screen(cluster.target)
    yield one
    one.close()


@pytest.mark.real_time
def test_keys_change_the_screen(screen, blocking_client):
    blocking_client.create_tube("orders")
    screen.wait_for("orders")
    assert termios.tcgetattr(screen.terminal) != screen.before
    screen.press("b")
    screen.wait_for("sort: buried")
    screen.press("/ema\r ")
    screen.wait_for("filter: ema   paused")
    screen.press("?")
    screen.wait_for("space pause")
    screen.press("q")
    assert screen.end() == (0, True, True)


@pytest.mark.real_time
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_restores_the_terminal(screen, number, code):
    screen.wait_for("PUT/S")
    screen.child.send_signal(number)
    assert screen.end() == (code, True, True)


@pytest.mark.real_time
def test_an_error_restores_the_terminal(screen, cluster):
    screen.wait_for("PUT/S")
    cluster.refuse("GetStatistics", "PERMISSION_DENIED", grpc.StatusCode.PERMISSION_DENIED)
    assert screen.end() == (1, True, True)
    assert b"error: PERMISSION_DENIED" in screen.seen
