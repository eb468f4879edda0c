"""The next handler begins before the last settlement is answered, in each pool."""

import asyncio

import pytest

from taskraft._request_batcher import CLOSE_SECONDS_MAX
from taskraft._stream_settlements import StreamSettlements
from taskraft.worker import slots
from taskraft.worker.life_cycle import ExitReason
from tests.clients.worker import handlers
from tests.clients.worker.handlers import events, pass_virtual, running
from tests.turns import turns_until

WAIT = "30s"
TURNS = 300
"""Number of turns of the event loop in which a handler would begin."""


class Answers:
    """Holds the answers to settlements back between `hold` and `let_go`."""

    def __init__(self, deliver):
        self.held = []
        self._deliver = deliver
        self._is_holding = False

    def hold(self):
        self._is_holding = True

    def arrived(self, stream, settled):
        if self._is_holding:
            self.held.append((stream, settled))
        else:
            self._deliver(stream, settled)

    def let_go(self):
        self._is_holding = False
        while self.held:
            self._deliver(*self.held.pop(0))

    def lose(self):
        self._is_holding = False
        self.held.clear()


@pytest.fixture
def answers(monkeypatch):
    one = Answers(StreamSettlements.answered)

    def answered(stream, settled):
        one.arrived(stream, settled)

    monkeypatch.setattr(StreamSettlements, "answered", answered)
    return one


def note_in_thread(word: str) -> None:
    events.append(word)


async def note_all(words: list[str]) -> None:
    events.extend(words)


def declared(app, kind):
    match kind:
        case "async":
            return app.task(handlers.note)
        case "thread":
            return app.task(note_in_thread)
        case _:
            return app.batch_task(size=1)(note_all)


ONE_SLOT = {"async_slots": 1, "threads": 1}


@pytest.mark.parametrize("kind", ["async", "thread", "batch"])
async def test_the_next_handler_begins_before_the_answer(app, answers, kind):
    task = declared(app, kind)
    async with running(app, **ONE_SLOT):
        answers.hold()
        await task.aput("first")
        await turns_until(lambda: answers.held)
        await task.aput("second")
        await turns_until(lambda: events == ["first", "second"])
        assert len(answers.held) == 1
        answers.let_go()


@pytest.mark.parametrize("kind", ["async", "thread", "batch"])
async def test_the_number_of_unanswered_settlements_has_a_bound(app, answers, kind, monkeypatch):
    monkeypatch.setattr(slots, "UNANSWERED_MIN", 2)
    task = declared(app, kind)
    async with running(app, **ONE_SLOT) as worker:
        answers.hold()
        for word in "abcde":
            await task.aput(word)
        await turns_until(lambda: len(events) == 3)  # the last handler waits in its slot
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(events) == 3
        answers.let_go()
        await turns_until(lambda: len(events) == 5)
        assert not worker.done()


async def test_a_drain_waits_for_the_answers(app, answers):
    task = app.task(handlers.note)
    async with running(app) as worker:
        answers.hold()
        await task.aput("a")
        await turns_until(lambda: answers.held)
        app.stop()
        await pass_virtual(CLOSE_SECONDS_MAX + 1)  # of the virtual clock
        assert not worker.done()
        answers.let_go()
        assert await worker is ExitReason.DRAINED


async def test_a_settlement_without_an_answer_is_sent_again_after_a_lost_connection(
    app, answers, ataskraft, caplog
):
    task = app.task(handlers.note)
    async with running(app, **ONE_SLOT) as worker:
        answers.hold()
        handles = [await task.aput(word) for word in "ab"]
        await turns_until(lambda: events == ["a", "b"])
        with ataskraft.unreachable():
            answers.lose()
            await pass_virtual(1)
        assert [await one.aresult(WAIT) for one in handles] == ["a", "b"]
        app.stop()
        assert await worker is ExitReason.DRAINED
    assert events == ["a", "b"]
    assert "not settled" not in caplog.text


async def test_a_settlement_that_waits_is_refused_after_the_end_of_its_lease(
    app, answers, monkeypatch, caplog
):
    monkeypatch.setattr(slots, "UNANSWERED_PER_SLOT", 1)
    monkeypatch.setattr(slots, "UNANSWERED_MIN", 1)
    task = app.task(handlers.note)
    async with running(app, **ONE_SLOT):
        answers.hold()
        first, late = [await task.aput(word) for word in "ab"]
        await turns_until(lambda: events == ["a", "b"])
        await app.clients.here().tube(task.tube).snatch(late.id)
        answers.let_go()
        assert [await one.aresult(WAIT) for one in (first, late)] == ["a", "b"]
        assert (await late.astatus()).attempt == 2
    assert events == ["a", "b", "b"]
    assert f"{late}: the lease has ended; another worker can take it" in caplog.messages
