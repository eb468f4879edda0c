"""Tasks and Django transactions: puts after the commit, and the outbox with its relay."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections, transaction

from taskraft import Client, errors
from taskraft.integrations.django.models import OutboxRow
from taskraft.integrations.django.transactions import (
    put_in_transaction,
    put_on_commit,
    relay_of,
    with_connections,
)
from taskraft.worker.outbox import Outbox
from tests.clients.integrations.django_shop import app, welcome

ROOT = Path(__file__).parents[3]
ROWS = 900


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    """Create an empty database; processes that the test starts use the same one."""
    path = str(tmp_path / "shop.sqlite3")
    monkeypatch.setenv("SHOP_DATABASE", path)
    monkeypatch.setitem(connections["default"].settings_dict, "NAME", path)
    connections.close_all()
    call_command("migrate", verbosity=0)
    yield path
    connections.close_all()


@pytest.fixture
def shop(taskraft):
    app.create_tubes()
    return taskraft


def payloads(kit):
    return [task.json() for task in kit.tasks("mail")]


with_app = pytest.mark.taskraft(app=app)


@with_app
def test_a_call_is_put_after_the_commit(shop):
    with transaction.atomic():
        put_on_commit(welcome.plan("Anna"))
        assert payloads(shop) == []
    assert payloads(shop) == [{"name": "Anna"}]


@with_app
@pytest.mark.parametrize("put", [put_on_commit, put_in_transaction])
def test_a_rolled_back_transaction_puts_nothing(shop, put):
    with transaction.atomic():
        put(welcome.plan("Anna"))
        transaction.set_rollback(True)
    assert (relay_of(app).run_once(), payloads(shop)) == (0, [])


@with_app
def test_the_relay_puts_calls_of_the_outbox(shop):
    with transaction.atomic():
        put_in_transaction(welcome.plan("Anna"))
    assert OutboxRow.objects.get().tube == "mail"
    told = StringIO()
    call_command("taskraft_relay", once=True, stdout=told)
    assert (told.getvalue(), payloads(shop)) == ("1 calls were put\n", [{"name": "Anna"}])
    assert not OutboxRow.objects.exists()


@with_app
def test_a_relay_that_dies_after_the_put_puts_no_second_task(shop, monkeypatch):
    put_in_transaction(welcome.plan("Anna"))
    relay = relay_of(app)
    with monkeypatch.context() as patch:
        patch.setattr(relay._outbox, "end", killed)
        with pytest.raises(KeyboardInterrupt):
            relay.run_once()
    put_in_transaction(welcome.plan("Berta"))
    assert relay_of(app).run_once() == 2
    assert payloads(shop) == [{"name": "Anna"}, {"name": "Berta"}]


def killed(*_):
    raise KeyboardInterrupt


def test_the_migration_matches_the_model():
    told = StringIO()
    call_command("makemigrations", "taskraft", check=True, dry_run=True, stdout=told)
    assert told.getvalue() == "No changes detected in app 'taskraft'\n"


@pytest.mark.parametrize("named", ["nowhere:app", "json:loads", ""])
def test_an_app_that_cannot_be_imported_is_a_mistake_of_usage(named, settings_app):
    settings_app(named)
    with pytest.raises(CommandError):
        call_command("taskraft_relay", once=True)


@pytest.fixture
def settings_app(monkeypatch):
    return lambda named: monkeypatch.setattr(settings, "TASKRAFT_APP", named)


@with_app
def test_the_relay_locks_a_sqlite_database_before_it_reads(shop, database, monkeypatch):
    """A change between a read and a write would end the transaction as locked, without a wait."""
    put_in_transaction(welcome.plan("Anna"))
    begin, seen = Outbox.begin, []

    def begin_beside_a_writer(outbox, cursor):
        cursor.execute("SELECT COUNT(*) FROM taskraft_outbox")
        with closing(sqlite3.connect(database, timeout=0)) as writer:
            try:
                writer.execute("UPDATE taskraft_outbox SET refusal = ''")
            except sqlite3.OperationalError as error:
                seen.append(str(error))
        return begin(outbox, cursor)

    monkeypatch.setattr(Outbox, "begin", begin_beside_a_writer)
    assert relay_of(app).run_once() == 1
    assert seen == ["database is locked"] * 2


@with_app
def test_a_refused_call_keeps_back_no_later_call_of_its_transaction(shop, caplog):
    shop.client.update_tube("mail", put_paused=True)
    with transaction.atomic():
        put_on_commit(welcome.plan("Anna"))
        transaction.on_commit(lambda: shop.client.update_tube("mail", put_paused=False))
        put_on_commit(welcome.plan("Berta"))
    assert payloads(shop) == [{"name": "Berta"}]
    assert "put_call" in caplog.text
    assert "TubePaused" in caplog.text


@with_app
def test_a_call_without_a_transaction_raises_its_refusal(shop):
    shop.client.update_tube("mail", put_paused=True)
    with pytest.raises(errors.TubePaused):
        put_on_commit(welcome.plan("Anna"))


def test_connections_are_for_handlers_in_threads():
    async def ship(order_id: int) -> None: ...

    with pytest.raises(TypeError, match="ship is declared with async def"):
        with_connections(ship)


@with_app
def test_a_handler_closes_the_connections_of_its_thread(shop, monkeypatch):
    closed = []
    monkeypatch.setattr(
        "taskraft.integrations.django.transactions.close_old_connections",
        lambda: closed.append(True),
    )
    assert shop.run_task(welcome, "Anna") == "Hello Anna"
    assert len(closed) == 2


@contextmanager
def relay_process(node):
    command = [sys.executable, "-m", "django", "taskraft_relay", "--interval", "10ms"]
    with subprocess.Popen(
        command,
        env={**os.environ, "TASKRAFT_TARGET": node.target, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.cluster
def test_relays_that_are_killed_put_each_call_once(node):
    """Kill relays at changing moments of their work; the last one is stopped by SIGTERM."""
    with transaction.atomic():
        for number in range(ROWS):
            put_in_transaction(welcome.plan(f"guest {number}"))
    for left in (ROWS - 1, ROWS // 2, ROWS // 4):
        with relay_process(node):
            while OutboxRow.objects.count() > left:
                pass
    with relay_process(node) as process:
        assert process.stdout.readline() == "the relay runs\n"
        while OutboxRow.objects.exists():
            pass
        process.terminate()
        assert process.wait(30) == 0
    with Client(node.target) as client:
        tasks = client.tube("mail").take_many(1_000, wait=0, ttr="1h")
        assert [task.json()["name"] for task in tasks] == [f"guest {n}" for n in range(ROWS)]
        client.drop_tube("mail", force=True)
