"""An outbox puts committed calls exactly once, whatever happens to its relay."""

import sqlite3
import threading
from contextlib import contextmanager
from functools import partial

import pytest

from taskraft import errors
from taskraft.worker import App
from taskraft.worker.outbox import Outbox
from taskraft.worker.outbox_relay import OutboxRelay

app = App("shop")
app.tube("mail")
app.tube("paper")


@app.task(tube="mail")
def welcome(name: str) -> None: ...


@app.task(tube="paper", key=lambda number: f"invoice-{number}")
def invoice(number: int) -> None: ...


pytestmark = pytest.mark.taskraft(app=app)


class Shop:
    """A database with an outbox, and its relay."""

    def __init__(self, kit):
        self.kit = kit
        self.outbox = Outbox()
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(self.outbox.ddl("sqlite"))
        app.create_tubes()
        self.relay = OutboxRelay(self.outbox, app, self.outbox.transactions(self.connection))

    def store(self, *plans):
        for plan in plans:
            self.outbox.put(self.connection, plan)
        self.connection.commit()

    def rows(self):
        return self.connection.execute("SELECT tube, refusal FROM taskraft_outbox").fetchall()

    def payloads(self, tube):
        return [task.json() for task in self.kit.tasks(tube)]


@pytest.fixture
def shop(taskraft):
    shop = Shop(taskraft)
    yield shop
    shop.connection.close()


def test_committed_calls_are_put_in_order_and_their_rows_deleted(shop):
    shop.store(*(welcome.plan(f"guest {n}") for n in range(150)), invoice.plan(7))
    assert shop.relay.run_once() == 151
    assert shop.payloads("mail") == [{"name": f"guest {n}"} for n in range(150)]
    assert shop.payloads("paper") == [{"number": 7}]
    assert shop.rows() == []
    assert shop.relay.run_once() == 0


def test_a_call_of_a_rolled_back_transaction_is_not_put(shop):
    shop.outbox.put(shop.connection, welcome.plan("nobody"))
    shop.connection.rollback()
    assert shop.relay.run_once() == 0


def test_a_relay_that_dies_before_the_rows_are_deleted_puts_no_second_task(shop, monkeypatch):
    shop.store(welcome.options(headers={"a": "1", "b": "2", "c": "3"}).plan("Anna"))
    with monkeypatch.context() as patch:
        patch.setattr(shop.outbox, "end", killed)
        with pytest.raises(KeyboardInterrupt):
            shop.relay.run_once()
    assert shop.payloads("mail") == [{"name": "Anna"}]
    shop.store(welcome.plan("Berta"))
    assert shop.relay.run_once() == 2
    assert shop.payloads("mail") == [{"name": "Anna"}, {"name": "Berta"}]


def killed(*_):
    raise KeyboardInterrupt


def test_a_lost_answer_puts_no_second_task(shop):
    shop.store(welcome.plan("Anna"))
    with shop.kit.lost_answers(), pytest.raises(errors.TaskraftError):
        shop.relay.run_once()
    assert shop.relay.run_once() == 1
    assert shop.payloads("mail") == [{"name": "Anna"}]


def test_a_row_whose_unique_key_is_in_use_counts_as_put(shop):
    shop.store(invoice.plan(7), invoice.plan(7), invoice.plan(8))
    assert shop.relay.run_once() == 3
    assert shop.payloads("paper") == [{"number": 7}, {"number": 8}]


def test_a_refused_row_stays_with_its_reason_and_can_be_put_again(shop):
    shop.kit.client.drop_tube("paper")
    shop.store(invoice.plan(7), welcome.plan("Anna"))
    assert shop.relay.run_once() == 1
    ((tube, refusal),) = shop.rows()
    assert (tube, refusal.startswith("TUBE_NOT_FOUND")) == ("paper", True)
    assert shop.relay.run_once() == 0
    app.create_tubes()
    shop.outbox.retry_refused(shop.connection)
    shop.connection.commit()
    assert shop.relay.run_once() == 1


def test_one_invalid_row_does_not_hold_up_the_others(shop):
    shop.store(welcome.options(subqueue="x" * 500).plan("Anna"), welcome.plan("Berta"))
    assert shop.relay.run_once() == 1
    assert shop.payloads("mail") == [{"name": "Berta"}]
    assert len(shop.rows()) == 1


def test_rows_wait_while_the_tube_is_full(shop):
    shop.kit.client.drop_tube("mail")
    shop.kit.client.create_tube("mail", capacity_tasks=1)
    shop.store(welcome.plan("Anna"), welcome.plan("Berta"))
    assert shop.relay.run_once() == 1
    assert shop.rows() == [("mail", "")]
    shop.kit.client.tube("mail").take(wait=0).ack()
    assert shop.relay.run_once() == 1


def test_a_relay_waits_for_an_unreachable_cluster(shop, caplog):
    shop.store(welcome.plan("Anna"))
    stopping = Countdown(2)
    with shop.kit.unreachable():
        shop.relay.run(stopping)
    assert "trying again" in caplog.text
    shop.relay.run(Countdown(1))
    assert shop.payloads("mail") == [{"name": "Anna"}]


class Countdown(threading.Event):
    """An event that is set after some waits, without waiting."""

    def __init__(self, waits):
        super().__init__()
        self.left = waits

    def wait(self, timeout=None):
        self.left -= 1
        if not self.left:
            self.set()
        return self.is_set()


def test_a_relay_tries_again_after_a_transient_error_of_the_database(shop, caplog):
    shop.store(welcome.plan("Anna"))
    failures = [sqlite3.OperationalError("database is locked"), sqlite3.DatabaseError("malformed")]
    transaction = shop.outbox.transactions(shop.connection)

    @contextmanager
    def failing(due):
        if due:
            raise due.pop()
        with transaction() as cursor:
            yield cursor

    def relay(due):
        return OutboxRelay(
            shop.outbox, app, partial(failing, due), transient=sqlite3.OperationalError
        )

    relay(failures[:1]).run(Countdown(2))
    assert shop.payloads("mail") == [{"name": "Anna"}]
    assert "the database of the outbox failed; trying again: database is locked" in caplog.text
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        relay(failures[1:]).run(Countdown(2))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql"])
def test_the_table_has_the_same_columns_in_each_dialect(dialect):
    ddl = Outbox("calls").ddl(dialect)
    assert [name in ddl for name in ("calls", "tube", "spec", "request_id", "refusal")] == [
        True
    ] * 5


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="identifier"):
        Outbox("a; DROP TABLE b")
    with pytest.raises(ValueError, match="oracle"):
        Outbox().ddl("oracle")
