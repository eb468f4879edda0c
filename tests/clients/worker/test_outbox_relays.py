"""Two relays put each row once, in whatever order their steps follow each other."""

import sqlite3
from itertools import combinations

import pytest

from taskraft.v1 import task_pb2
from taskraft.worker.outbox import Outbox

ROWS = 2
STEPS = ("begin", "put", "end")
ROUNDS = 2


class Server:
    """Answers each request id once, as the cluster does; the tube is full at the first puts."""

    def __init__(self, full_puts):
        self.full_puts = full_puts
        self.answers = {}
        self.tasks = {}

    def put(self, message):
        known = self.answers.get(message.request_id)
        if known is not None:
            return known
        is_full = len(self.answers) < self.full_puts
        if not is_full:
            for row in message.ids:
                self.tasks[row] = self.tasks.get(row, 0) + 1
        answer = list(message.ids) if is_full else []
        self.answers[message.request_id] = answer
        return answer


class Relay:
    """One relay, which does one step at a time."""

    def __init__(self, outbox, connection, server):
        self.outbox, self.connection, self.server = outbox, connection, server
        self.message, self.postponed = None, []

    def step(self, name):
        cursor = self.connection.cursor()
        if name == "begin":
            self.message = self.outbox.begin(cursor)
        elif self.message is not None and name == "put":
            self.postponed = self.server.put(self.message)
        elif self.message is not None:
            self.outbox.end(cursor, self.message, {}, self.postponed)
        self.connection.commit()


def orders():
    """Return each order in which the steps of two relays can follow each other."""
    steps = STEPS * ROUNDS
    for places in combinations(range(2 * len(steps)), len(steps)):
        yield [0 if place in places else 1 for place in range(2 * len(steps))]


@pytest.mark.parametrize("full_puts", [0, 1, 2])
def test_two_relays_put_each_row_once(full_puts):
    for order in orders():
        outbox = Outbox()
        connection = sqlite3.connect(":memory:")
        connection.execute(outbox.ddl("sqlite"))
        for _ in range(ROWS):
            spec = task_pb2.TaskSpec(payload=b"x").SerializeToString()
            connection.execute(
                f"INSERT INTO {outbox.table} (tube, spec) VALUES ('mail', ?)", (spec,)
            )
        server = Server(full_puts)
        relays = [Relay(outbox, connection, server) for _ in range(2)]
        steps = [iter(STEPS * ROUNDS) for _ in range(2)]
        for place in order:
            relays[place].step(next(steps[place]))
        for _ in range(full_puts + 1):
            for name in STEPS:
                relays[0].step(name)
        left = connection.execute(f"SELECT COUNT(*) FROM {outbox.table}").fetchone()
        connection.close()
        assert (server.tasks, left) == ({1: 1, 2: 1}, (0,)), (order, full_puts)
