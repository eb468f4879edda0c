"""Histories that break their format are refused, with the line and the field."""

import json

import pytest

from tests.drill.history_format import faults_of

TUBES = {"t": {"type": "fifottl", "ttr": 3, "ttl": None}}


def line(kind, f, value, op=1, process="p", **fields):
    return {"process": process, "type": kind, "f": f, "value": value, "op": op, **fields}


def pair(f, value, answer, op, **fields):
    return [line("invoke", f, value, op, **fields), line("ok", f, answer, op, **fields)]


def right():
    config = {"session_ttr": 3.0, "tubes": TUBES}
    return [
        {"process": "harness", "type": "info", "f": "config", "value": config},
        *pair("put", {"tube": "t", "uid": "u", "request_id": "r", "delay": 1}, {"id": 1}, 1),
        *pair("peek", {"tube": "t", "id": 1}, {"state": "~", "uid": "u", "rev": 5}, 2),
        *pair("take", {"tube": "t", "session": "s"}, {"id": 1, "uid": "u", "token": 7}, 3),
        *pair("take", {"tubes": ["t"], "session": "s"}, {"id": None}, 4),
        *pair("touch", {"tube": "t", "id": 1, "token": 7, "restart": True}, {"rev": [6, 0]}, 5),
        line("invoke", "ack", {"tube": "t", "id": 1, "token": 7}, 6),
        line("fail", "ack", {"tube": "t", "id": 1, "token": 7}, 6, error="stale_token"),
        {"process": "nemesis", "type": "info", "f": "kill", "value": {"hit": ["n1"]}},
        *pair("snapshot", {"tube": "t"}, {"tasks": [], "complete": True}, 7),
        *pair("digest", {"final": True}, {"applied": 9, "digest": "d"}, 8, node="n1"),
    ]


def found(tmp_path, lines, end="\n"):
    path = tmp_path / "h.jsonl"
    timed = ({"time": place, **one} for place, one in enumerate(lines))
    path.write_text("\n".join(json.dumps(one) for one in timed) + end)
    return faults_of(path)


def test_a_right_history_has_no_faults(tmp_path):
    assert found(tmp_path, right()) == []


def test_a_repeated_put_has_the_content_of_the_first_one(tmp_path):
    again = pair("put", {"tube": "t", "uid": "u", "request_id": "r", "delay": 1}, {"id": 1}, 9)
    assert found(tmp_path, [*right(), *again]) == []


def test_only_the_last_line_may_be_cut_short(tmp_path):
    assert found(tmp_path, right(), '\n{"process":') == []
    assert found(tmp_path, right(), '\n{"process":\n') == [f"line {len(right()) + 1}: no JSON"]
    assert found(tmp_path, right(), "\n[]\n") == [f"line {len(right()) + 1}: no object"]


def harmed(place, **changes):
    lines = right()
    lines[place] = {**lines[place], **changes}
    return lines


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (harmed(1, type="begin"), "line 2: type is 'begin'"),
        (harmed(1, time=0.5), "line 2: time is 0.5"),
        (harmed(1, number=1), "line 2: number is unknown"),
        (harmed(1, f="steal"), "line 2: steal is no operation"),
        (harmed(1, value={"tube": "t"}), "line 2: put: uid is missing"),
        (harmed(2, value={"id": "1"}), "line 3: put: id is '1'"),
        (harmed(2, value={"id": True}), "line 3: put: id is True"),
        (harmed(2, op=99), "line 3: p has no such operation open"),
        ([*right()[:2], *right()[1:]], "line 3: p has this operation open already"),
        (harmed(4, value={"state": "DELAYED"}), "line 5: peek: state is 'DELAYED'"),
        (harmed(4, value={"state": "r", "rev": [1]}), "line 5: peek: rev is [1]"),
        (harmed(6, value={"id": 1}), "line 7: take: uid is missing"),
        (harmed(7, value={"tube": "t", "tubes": ["t"]}), "line 8: take: not exactly one of tube, "),
        (harmed(9, value={"tube": "t", "id": 1}), "line 10: touch: not exactly one of increment, "),
        (harmed(2, type="info", value={}), "line 4: p goes on after an unknown outcome"),
        (harmed(0, value={"tubes": TUBES}), "config: session_ttr is missing"),
        (harmed(0, value={"session_ttr": 3, "tubes": {"t": {}}}), "config: tubes is {'t': {}}"),
        (right()[1:], "0 lines of configuration"),
        (harmed(15, value={"tasks": [{"id": 1}], "complete": True}), "line 16: snapshot: tasks is"),
        (harmed(15, value={"tasks": [], "complete": False}), "no complete listing of t"),
        (harmed(16, value={}), "no final digest"),
        (right()[:-2], "no final digest"),
        (
            harmed(1, value={"tube": "t", "uid": "u"}),
            "task 1 of t is delayed, and no request says until when",
        ),
        (
            [*right(), *pair("put", {"tube": "t", "uid": "u"}, {"id": 2}, 9)],
            f"line {len(right()) + 1}: an earlier put has the content u",
        ),
    ],
)
def test_a_history_that_breaks_the_format_is_refused(tmp_path, lines, fault):
    faults = found(tmp_path, lines)
    assert any(each.startswith(fault) for each in faults), faults
