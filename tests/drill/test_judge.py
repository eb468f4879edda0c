"""The judge finds each kind of violation, and reports no history that some order explains."""

import itertools
import json

import pytest

from tests.drill.history import MalformedHistory, history_of, read_history
from tests.drill.judge import judge, summary

SECOND = 1_000_000_000
TUBES = {
    "t": {"type": "fifottl", "ttr": 10.0},
    "u": {"type": "utubettl", "ttr": 10.0},
    "old": {"type": "fifottl", "ttr": 10.0, "ttl": 60.0},
}
CONFIG = {"session_ttr": 100.0, "tubes": TUBES, "ttl_max_late": 1.0}


class Story:
    """A history under construction; times of operations are in seconds."""

    def __init__(self, **config):
        self.lines = []
        self._numbers = itertools.count(1)
        self._config = {**CONFIG, **config}

    def add(self, f, times, value=None, answer=None, outcome="ok", error="", node=None):
        """Add an operation; ``times`` is one time, or the times of invocation and answer."""
        begun, ended = times if isinstance(times, tuple) else (times, times + 0.1)
        head = {"process": f"p{next(self._numbers)}", "f": f}
        if node:
            head["node"] = node
        value = value or {}
        self._line({**head, "type": "invoke", "value": value}, begun)
        closing = {**head, "type": outcome, "value": answer or {} if outcome == "ok" else value}
        if error:
            closing["error"] = error
        if ended is not None:
            self._line(closing, ended)
        return self

    def _line(self, line, seconds):
        self.lines.append({**line, "time": round(seconds * SECOND)})

    def put(self, times, number, uid=None, tube="t", outcome="ok", **value):
        value = {"tube": tube, "uid": uid or f"u{number}", **value}
        return self.add("put", times, value, {"id": number}, outcome)

    def take(self, times, number, token=0, tube="t", session="s", uid=None, outcome="ok", **value):
        answer = {"id": None}
        if number is not None:
            answer = {"id": number, "uid": uid or f"u{number}", "token": token}
        return self.add("take", times, {"tube": tube, "session": session, **value}, answer, outcome)

    def settle(self, f, times, number, token, outcome="ok", error="", tube="t", **value):
        value = {"tube": tube, "id": number, "token": token, "session": "s", **value}
        return self.add(f, times, value, outcome=outcome, error=error)

    def list(self, times, *numbers, tube="t", state="r"):
        tasks = [{"id": number, "uid": f"u{number}", "state": state} for number in numbers]
        return self.add("snapshot", times, {"tube": tube}, {"tasks": tasks, "complete": True})

    def found(self):
        """Return the codes of the violations."""
        config = {"process": "harness", "type": "info", "f": "config", "time": 0}
        lines = [{**config, "value": self._config}, *self.lines]
        return {one.code for one in judge(history_of(enumerate(lines))).violations}


def peek(story, times, number, state, **answer):
    return story.add("peek", times, {"tube": "t", "id": number}, {"state": state, **answer})


def kick(story, times):
    return story.add("kick", times, {"tube": "t", "count": 1}, {"count": 1})


def digest(story, times, node, applied, text, **value):
    return story.add("digest", times, value, {"applied": applied, "digest": text}, node=node)


def held(story=None):
    """A history in which session "s" takes task 1 with token 5 at second 2."""
    return (story or Story()).put(1, 1).take(2, 1, 5)


GUILTY = {
    "lost": Story().put(1, 1).list(2),
    "lost-after-take": held().settle("release", 3, 1, 5).list(4),
    "phantom": Story().take(1, 1, 5),
    "failed-put-visible": Story().put(1, 1, outcome="fail").take(2, 1, 5),
    "payload-mismatch": Story().put(1, 1).take(2, 1, 5, uid="other").put(0, 2, uid="other"),
    "wrong-tube": Story().put(1, 9, uid="u1", tube="old", outcome="info").take(2, 1, 5),
    "observed-before-put": Story().take(1, 1, 5).put(2, 1),
    "double-holder": held().take(3, 1, 6, session="other"),
    "token-order": held(Story(session_ttr=0)).take(15, 1, 4),
    "unowned-op": held(Story(session_ttr=0)).take(15, 1, 6).settle("touch", 16, 1, 5),
    "resurrected": held().settle("ack", 3, 1, 5).take(4, 1, 6),
    "double-ack": held().settle("ack", 3, 1, 5).settle("ack", 4, 1, 5),
    "buried-taken": held().settle("bury", 3, 1, 5).take(4, 1, 6),
    "fifo": Story().put(1, 1).put(2, 2).take(3, 2, 5),
    "utube-concurrent": Story()
    .put(1, 1, tube="u", utube="a")
    .put(2, 2, tube="u", utube="a")
    .take(3, 1, 5, tube="u")
    .take(4, 2, 6, tube="u"),
    "id-order": Story().put(1, 2).put(2, 1),
    "duplicate-enqueue": Story().put(1, 1, request_id="r").take(2, 2, 5, uid="u1"),
    "retry-different-id": Story().put(1, 1, request_id="r").put(2, 2, uid="u1", request_id="r"),
    "rid-reuse-accepted": Story().put(1, 1, request_id="r").put(2, 2, request_id="r"),
    "id-collision": Story().put(1, 1).put(2, 1, uid="other"),
    "session-lost": held().add("heartbeat", 3, {"session": "s"}, None, "fail", "session_expired"),
    "session-resurrected": Story(session_ttr=1)
    .add("heartbeat", 1, {"session": "s"}, None, "fail", "session_expired")
    .add("heartbeat", 2, {"session": "s"}),
    "use-after-close": Story()
    .add("session_close", 1, {"session": "s"})
    .add("heartbeat", 2, {"session": "s"}),
    "hold-lost": held().settle("ack", 3, 1, 5, "fail", "stale_token"),
    "stale-empty": Story().put(1, 1).take(2, None),
    "stale-read": peek(held(), 3, 1, "r"),
    "rev-order": Story()
    .add("kick", 1, {"tube": "t"}, {"rev": 9})
    .add("kick", 2, {"tube": "t"}, {"rev": 8}),
    "rev-duplicate": Story(rev_unique=True)
    .add("kick", 1, {"tube": "t"}, {"rev": 9})
    .add("kick", 2, {"tube": "t"}, {"rev": 9}),
    "early-delay": Story().put(1, 1, delay=5).take(2, 1, 5),
    "served-after-ttl": Story().put(1, 1, tube="old").take(70, 1, 5, tube="old"),
    "replica-divergence": digest(digest(Story(), 1, "n1", 7, "a"), 2, "n2", 7, "b"),
}

INNOCENT = {
    "an acknowledged task is gone": held().settle("ack", 3, 1, 5).list(4),
    "an acknowledgement of unknown outcome explains the absence": held()
    .settle("ack", 3, 1, 5, "info")
    .list(4),
    "a node that stopped had forwarded a take, and gave the task back": Story()
    .put(1, 1)
    .put(1.5, 2)
    .add("take", (3, 5), {"tube": "t", "session": "q"}, None, "fail", "draining")
    .take((4, 6), 2, 5),
    "a late deletion explains the absence": Story()
    .put(1, 1)
    .add("delete", (2, None), {"tube": "t", "id": 1}, outcome="info")
    .list(30),
    "a listing that began before the put had ended": Story().put((1, 3), 1).list((2, 4)),
    "the end of the time to live explains the absence": Story()
    .put(1, 1, tube="old")
    .list(70, tube="old"),
    "a put of unknown outcome took effect late": Story().put(1, 1, outcome="info").take(9, 1, 5),
    "a put of unknown outcome never took effect": Story().put(1, 1, outcome="info").list(9),
    "a lease that expired": held().take(12.5, 1, 6),
    "a lease whose session ended": held(Story(session_ttr=1)).take(4, 1, 6, session="other"),
    "a lease whose settlement may have happened": held()
    .settle("release", 3, 1, 5, "info")
    .take(4, 1, 6),
    "a take within the time of a release": held()
    .settle("release", (3, 6), 1, 5)
    .take((4, 5), 1, 6),
    "a refusal after the lease expired": held().settle("ack", 13, 1, 5, "fail", "stale_token"),
    "a refusal after a release of unknown outcome": held()
    .settle("release", 3, 1, 5, "info", request_id="r")
    .settle("ack", 4, 1, 5, "fail", "stale_token", request_id="q"),
    "a repeated acknowledgement with the same request id": held()
    .settle("ack", 3, 1, 5, "info", request_id="r")
    .settle("ack", 4, 1, 5, request_id="r"),
    "a repeated put with the same request id": Story()
    .put(1, 1, request_id="r")
    .put(2, 1, request_id="r")
    .take(3, 1, 5),
    "two puts of one content with two request ids": Story()
    .put(1, 1, uid="u", request_id="r")
    .put(2, 2, uid="u", request_id="q"),
    "a touch prolongs the lease": held().settle("touch", 8, 1, 5, restart=True).take(19, 1, 6),
    "a buried task after a kick": kick(held().settle("bury", 3, 1, 5), 4).take(5, 1, 6),
    "a buried task after a kick of unknown outcome": held()
    .settle("bury", 3, 1, 5)
    .add("kick", (4, None), {"tube": "t", "count": 1}, outcome="info")
    .take(9, 1, 6),
    "tasks of puts of unknown outcome, whose one content hides their sub-queues": Story()
    .put(1, 1, uid="u", tube="u", utube="a", outcome="info")
    .put(2, 2, uid="u", tube="u", utube="b", outcome="info")
    .put(3, 3, tube="u", utube="a")
    .take(4, 1, 5, uid="u", tube="u")
    .settle("ack", 5, 1, 5, tube="u")
    .take(6, 3, 6, tube="u")
    .take(7, 2, 7, uid="u", tube="u"),
    "nothing there, because the sub-queue of a taken task is unknown": Story()
    .put(1, 1, uid="u", tube="u", utube="a", outcome="info")
    .put(2, 1, uid="u", tube="u", utube="b", outcome="info")
    .put(3, 3, tube="u", utube="b")
    .take(4, 1, 5, uid="u", tube="u")
    .take(6, None, tube="u"),
    "tasks of puts of unknown outcome, whose one content hides their priorities": Story()
    .put(1, 1, uid="u", pri=5, outcome="info")
    .put(2, 2, uid="u", pri=1, outcome="info")
    .put(3, 3, pri=3)
    .take(4, 2, 5, uid="u"),
    "the first task came during the take": Story()
    .put(1, 1, pri=1)
    .put((2, 4), 2, pri=0)
    .take(3, 1, 5),
    "the more urgent task goes first": Story().put(1, 1, pri=1).put(2, 2, pri=0).take(3, 2, 5),
    "a take of unknown outcome holds the first task": Story()
    .put(1, 1)
    .put(2, 2)
    .take((3, None), None, outcome="info")
    .take(4, 2, 5),
    "a repeated take found its lease expired": Story()
    .put(1, 1)
    .put(2, 2)
    .take(3, None, outcome="info", request_id="r")
    .take(4, None, request_id="r")
    .take(5, 2, 5),
    "sub-queues have no order between them": Story()
    .put(1, 1, tube="u", utube="a")
    .put(2, 2, tube="u", utube="b")
    .take(3, 2, 5, tube="u"),
    "nothing there, because the sub-queue is busy": Story()
    .put(1, 1, tube="u", utube="a")
    .put(2, 2, tube="u", utube="a")
    .take(3, 1, 5, tube="u")
    .take(4, None, tube="u"),
    "nothing there, because an unseen take may block the sub-queue": Story()
    .put(1, 1, tube="u", utube="a")
    .put(2, 2, tube="u", utube="a")
    .put(2, 3, tube="u", utube="a")
    .take((3, None), None, tube="u", outcome="info")
    .take(4, None, tube="u"),
    "nothing there, before the put had ended": Story().put((1, 3), 1).take((2, 4), None),
    "two tasks of a sub-queue, one after the other": Story()
    .put(1, 1, tube="u", utube="a")
    .put(2, 2, tube="u", utube="a")
    .take(3, 1, 5, tube="u")
    .settle("ack", 4, 1, 5, tube="u")
    .take(5, 2, 6, tube="u"),
    "a session after its time to run": Story(session_ttr=1)
    .add("heartbeat", 1, {"session": "s"})
    .add("heartbeat", 3, {"session": "s"}, None, "fail", "session_expired"),
    "concurrent puts in any order of ids": Story().put((1, 4), 2).put((2, 3), 1),
    "concurrent positions in any order": Story()
    .add("kick", (1, 4), {"tube": "t"}, {"rev": 9})
    .add("kick", (2, 3), {"tube": "t"}, {"rev": 8}),
    "a peek during a release": peek(held().settle("release", (3, 6), 1, 5), (4, 5), 1, "r"),
    "a retry after a take of unknown outcome": peek(
        Story().put(1, 1).take(2, None, outcome="info"), 9, 1, "~", uid="u1"
    ),
    "a taken task in a peek": peek(held(), 3, 1, "t", uid="u1"),
    "different positions, different states": digest(
        digest(Story(), 1, "n1", 7, "a"), 2, "n2", 8, "b"
    ),
}


@pytest.mark.parametrize("code", GUILTY)
def test_each_kind_of_violation_is_found(code):
    assert code in GUILTY[code].found()


@pytest.mark.parametrize("reason", INNOCENT)
def test_a_history_that_some_order_explains_has_no_violation(reason):
    assert INNOCENT[reason].found() == set()


def test_a_put_of_unknown_outcome_hides_no_sub_queue_of_an_acknowledged_put():
    story = Story().put(0, 9, uid="u1", tube="u", utube="b", outcome="info")
    story.lines += GUILTY["utube-concurrent"].lines
    assert story.found() == {"utube-concurrent"}


def test_a_task_that_nobody_may_have_taken_waits_for_no_retry():
    assert peek(Story().put(1, 1), 9, 1, "~", uid="u1").found() == {"stale-read"}


def test_each_guilty_history_breaks_no_promise_without_its_last_operation():
    """The last operation shows the violation, and the judge needs the operations before it."""
    unexplained = {"payload-mismatch", "observed-before-put", "phantom"}
    for code, story in GUILTY.items():
        shorter = Story()
        shorter._config, shorter.lines = story._config, story.lines[:-2]
        assert shorter.found() == set() or code in unexplained, code


def test_violations_are_counted_by_code():
    lines = Story().put(1, 1).put(2, 2).list(3).lines
    assert summary(judge(history_of(enumerate(lines, start=1))).violations) == "2 lost"


def test_a_cut_short_last_line_is_ignored(tmp_path):
    path = tmp_path / "h.jsonl"
    lines = [json.dumps(line) for line in Story().put(1, 1).lines]
    path.write_text("\n".join(lines) + '\n{"process": "p')
    assert [one.outcome for one in read_history(path).operations] == ["ok"]


@pytest.mark.parametrize(
    "bad", ["{", '{"process": "p"}', '{"process":"p","type":"ok","f":"put","time":1}']
)
def test_any_other_unreadable_line_is_refused(tmp_path, bad):
    path = tmp_path / "h.jsonl"
    path.write_text(bad + "\n" + json.dumps(Story().put(1, 1).lines[0]) + "\n")
    with pytest.raises(MalformedHistory, match="line 1"):
        read_history(path)
