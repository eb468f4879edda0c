"""The commands that put tasks of an app: `taskraft task put` and `taskraft outbox`."""

import json
import os
import signal
import sqlite3
import sys
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from taskraft.cli import main
from taskraft.worker import App, JsonCodec, Outbox, WrappedCodec
from tests.clients.worker import handlers

ZIPPED = WrappedCodec(JsonCodec(), zlib.compress, zlib.decompress, content_type="application/zip")
app = App("shop", defaults={"tube": "mail"})
add = app.task(name="add", priority=4)(handlers.add)
zipped = app.task(name="zipped", codec=ZIPPED)(handlers.subtract)
single = app.task(
    name="single", payload="single", on_conflict="return_existing", key=lambda word: word
)(handlers.note)
index = app.batch_task(name="index")(handlers.index)
database_file = Path("unused")
refusals = []
"""What the next calls of `connect` do instead."""

pytestmark = pytest.mark.taskraft(app=app)
APP = f"{__name__}:app"


def connect():
    if refusals:
        return refusals.pop(0)()
    return sqlite3.connect(database_file)


def refuse():
    raise sqlite3.OperationalError("no disk")


def broken():
    class Broken(sqlite3.Connection):
        def cursor(self):
            raise sqlite3.InterfaceError("the connection is gone")

    return sqlite3.connect(database_file, factory=Broken)


def last():
    os.kill(os.getpid(), signal.SIGTERM)
    return sqlite3.connect(database_file)


def ran(*arguments):
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


@pytest.fixture
def tasks(taskraft):
    """Return a function that returns the tasks of the tube `mail`."""
    app.create_tubes()
    return lambda: taskraft.tasks("mail")


@pytest.mark.parametrize(
    ("name", "given", "payload"),
    [
        ("add", '{"a": 1}', b'{"a":1}'),
        ("add", '{"b": 3, "a": 1}', b'{"a":1,"b":3}'),
        ("zipped", '{"a": 5, "b": 3}', zlib.compress(b'{"a":5,"b":3}')),
        ("single", '{"word": "x"}', b'"x"'),
        ("index", '{"rows": 7}', b"7"),
    ],
)
def test_a_task_is_put_by_its_name_with_the_codec_of_the_app(tasks, name, given, payload):
    code, output = ran("task", "put", name, "--app", APP, "--json", given, "-o", "name")
    (task,) = tasks()
    assert (code, output) == (0, f"mail/{task.id}\n")
    spec = task.message.spec
    assert (spec.type, spec.payload) == (name, payload)
    assert spec.content_type == app.tasks[name].payloads.codec.content_type


def test_the_options_of_the_command_hold_before_those_of_the_task(tasks, monkeypatch):
    monkeypatch.setenv("TASKRAFT_APP", APP)
    code, output = ran(
        "task", "put", "add", "--json", '{"a": 1}', "--priority", "9", "--delay", "5s"
    )
    (task,) = tasks()
    assert (code, output) == (0, f"mail/{task.id}  DELAYED\n")
    assert (task.priority, task.state) == (9, "DELAYED")
    ran("task", "put", "add", "--json", '{"a": 1}', "-o", "name")
    assert {task.priority for task in tasks()} == {9, 4}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("ad", "{}", "The app shop has no task ad. Did you mean add?"),
        ("add", "{", "not JSON"),
        ("add", "[1]", "expected an object with the arguments by name"),
        ("add", "{}", "lacks the arguments: a"),
        ("add", '{"a": 1, "c": 2}', "has no parameter c"),
        ("add", '{"a": "one"}', "a: must be int, not 'one'"),
    ],
)
def test_arguments_that_do_not_fit_are_a_mistake_of_usage(tasks, name, given, told):
    code, output = ran("task", "put", name, "--app", APP, "--json", given)
    assert (code, told in output) == (2, True), output
    assert tasks() == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_the_statement_of_the_table_is_that_of_the_outbox(dialect):
    expected = Outbox("calls").ddl(dialect)
    code, output = ran("outbox", "ddl", "--dialect", dialect, "--table", "calls")
    assert (code, output) == (0, f"{expected};\n")
    assert ran("outbox", "ddl")[1] == f"{Outbox().ddl('postgresql')};\n"


def test_a_bad_name_of_a_table_is_a_mistake_of_usage():
    code, output = ran("outbox", "ddl", "--table", "a; drop")
    assert (code, "must be an identifier" in output) == (2, True), output


@pytest.fixture
def database(tmp_path, monkeypatch):
    """Return a connection to a database whose outbox has one row."""
    monkeypatch.setattr(sys.modules[__name__], "database_file", tmp_path / "shop.db")
    refusals.clear()
    connection = sqlite3.connect(database_file)
    connection.executescript(ran("outbox", "ddl", "--dialect", "sqlite")[1])
    Outbox().put(connection, add.plan(1))
    connection.commit()
    yield connection
    connection.close()


def relayed(*options):
    return ran("outbox", "relay", APP, "--database", f"{__name__}:connect", *options)


def test_the_relay_puts_the_rows_of_the_table(tasks, database):
    assert relayed("--once") == (0, "1 calls were put\n")
    assert [json.loads(task.payload) for task in tasks()] == [{"a": 1}]
    assert database.execute("SELECT * FROM taskraft_outbox").fetchall() == []
    assert relayed("--once") == (0, "0 calls were put\n")


def test_a_database_that_fails_is_told_without_a_traceback(tasks, database):
    refusals.append(refuse)
    told = "error: the database cannot be opened: OperationalError: no disk\n"
    assert relayed("--once") == (1, told)
    assert relayed("--once", "--table", "other") == (
        1,
        "error: the database failed: no such table: other\n",
    )
    assert relayed("--once")[0] == 0


@pytest.mark.parametrize("connect", [lambda: None, lambda: 5])
def test_a_function_that_returns_no_connection_is_told(tasks, monkeypatch, connect):
    monkeypatch.setattr(sys.modules[__name__], "connect", connect)
    told = f"returned {type(connect()).__name__}, which is no connection"
    code, output = relayed("--once")
    assert (code, told in output) == (1, True), output


@pytest.mark.real_time  # the relay waits between two attempts
def test_the_relay_connects_again_and_ends_after_a_signal(tasks, database, caplog):
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    refusals.extend([broken, refuse, last])
    try:
        code, output = relayed("--interval", "1ms")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (code, "the relay runs\n" in output) == (0, True), output
    assert len(tasks()) == 1
    told = [record.getMessage() for record in caplog.records if record.name == "taskraft.outbox"]
    assert [line.rpartition(": ")[2] for line in told] == ["the connection is gone", "no disk"]


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("connect", "does not name a function like shop.database:connect"),
        (f"{__name__}:absent", "has no attribute"),
        (f"{__name__}:APP", "is not a function but str"),
    ],
)
def test_a_database_that_cannot_be_imported_is_a_mistake_of_usage(reference, told):
    code, output = ran("outbox", "relay", APP, "--database", reference)
    assert (code, told in output) == (2, True), output
