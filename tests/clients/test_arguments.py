"""Arguments that cannot be sent are refused with their name, the allowed values and the value."""

import re

import pytest

from taskraft import AsyncClient, Batch, Client, Keys, Retry

DURATION = 'a number of seconds from 0, or a string like "250ms", "10s", "5m" or "1h30m"'
INT64 = f"a whole number from {-(2**63)} to {2**63 - 1}"
CONFLICTS = "fail, return_existing, restart_if_finished, replace_if_waiting"
KINDS = "one of fifo, fifottl, limfifottl, utube, utubettl, custom"
TASKS = "an id, several ids, Keys(...) or Where(...)"
PLANNED = 'a planned task, made by client.tube("emails").task(...)'


@pytest.fixture(scope="module")
def client():
    with Client("127.0.0.1:1", timeout="1ms") as one:
        yield one


def refusals(*cases):
    return pytest.mark.parametrize(("call", "expected"), cases, ids=[each for _, each in cases])


@refusals(
    (lambda tube: tube.put("x", priority="5"), f"priority must be {INT64}, not '5'"),
    (lambda tube: tube.put("x", priority=2**70), f"priority must be {INT64}, not {2**70}"),
    (lambda tube: tube.put("x", delay="soon"), f"delay must be {DURATION}, not 'soon'"),
    (lambda tube: tube.put("x", ttl=-1), f"ttl must be {DURATION}, not -1"),
    (lambda tube: tube.put("x", ttr=b"1s"), f"ttr must be {DURATION}, not b'1s'"),
    (lambda tube: tube.put("x", timeout="never"), f"timeout must be {DURATION}, not 'never'"),
    (lambda tube: tube.put("x", type=5), "type must be a string, not 5"),
    (
        lambda tube: tube.put("x", headers="a=1"),
        "headers must be a mapping of names to strings or bytes, not 'a=1'",
    ),
    (
        lambda tube: tube.put("x", headers={"a": 1}),
        "the header 'a' must be a string or bytes, not 1",
    ),
    (lambda tube: tube.put("x", key=("a", 1)), "key must be a string or several strings, not 1"),
    (lambda tube: tube.put("x", position="top"), "position must be one of front, back, not 'top'"),
    (
        lambda tube: tube.put("x", on_conflict="ignore"),
        f"on_conflict must be one of {CONFLICTS}, not 'ignore'",
    ),
    (lambda tube: tube.put("x", retry=3), "retry must be a Retry(...), not 3"),
    (lambda tube: tube.put("x", retry=Retry(backoff="x")), f"backoff must be {DURATION}, not 'x'"),
    (lambda tube: tube.put("x", retry=Retry(factor="2")), "factor must be a number, not '2'"),
    (
        lambda tube: tube.put("x", retry=Retry(exhausted="drop")),
        "exhausted must be one of bury, dead_letter, remove, not 'drop'",
    ),
    (lambda tube: tube.put("x", prio=5), "put has no option prio; did you mean priority?"),
    (lambda tube: tube.put_atomic("x", room_wait="x"), f"room_wait must be {DURATION}, not 'x'"),
    (lambda tube: tube.put_and_wait("x", wait="x"), f"wait must be {DURATION}, not 'x'"),
    (lambda tube: tube.take(wait="x"), f"wait must be {DURATION}, not 'x'"),
    (lambda tube: tube.take(wait=0, types=[5]), "types must be a string or several strings, not 5"),
    (lambda tube: tube.take(wait=0, touch_max="x"), f"touch_max must be {DURATION}, not 'x'"),
    (lambda tube: tube.take(wait=0, session="a"), "session must be True or False, not 'a'"),
    (
        lambda tube: tube.graph("1"),
        f"task_id must be a whole number from 1 to {2**63 - 1}, not '1'",
    ),
    (
        lambda tube: tube.graph(1, depth_max=0),
        "depth_max must be a whole number from 1 to 5, not 0",
    ),
    (
        lambda tube: tube.graph(1, tasks_max=True),
        "tasks_max must be a whole number from 1 to 500, not True",
    ),
    (
        lambda tube: tube.take_many("10", wait=0),
        f"tasks_max must be a whole number from {-(2**31)} to {2**31 - 1}, not '10'",
    ),
    (lambda tube: tube.delete("17"), f"tasks must be {TASKS}, not '17'"),
    (lambda tube: tube.delete(2**64), f"tasks must be {TASKS}, not {2**64}"),
    (lambda tube: tube.peek(key=5), "key must be a string or several strings, not 5"),
    (lambda tube: tube.list(5).__next__(), "filter must be a string, not 5"),
    (
        lambda tube: tube.switch(1, "gone"),
        "state must be one of ready, delayed, buried, done, zombie, not 'gone'",
    ),
    (lambda tube: tube.update(1, priority="5"), f"priority must be {INT64}, not '5'"),
    (lambda tube: tube.update(1, delay="x"), f"delay must be {DURATION}, not 'x'"),
    (lambda tube: tube.bury(1, reason=5), "reason must be a string or an exception, not 5"),
)
def test_a_method_of_a_tube_names_the_argument_that_it_refuses(client, call, expected):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(expected)}$"):
        call(client.tube("emails"))


@refusals(
    (lambda client: client.tube(5), "name must be a string, not 5"),
    (
        lambda client: client.subscribe("emails", credit="10"),
        "credit must be a whole number from 1 to 100000, not '10'",
    ),
    (
        lambda client: client.subscribe("emails", credit=0),
        "credit must be a whole number from 1 to 100000, not 0",
    ),
    (lambda client: client.subscribe("emails", ttr="x"), f"ttr must be {DURATION}, not 'x'"),
    (lambda client: client.subscribe("emails", session=5), "session must be a string, not 5"),
    (
        lambda client: client.stats(changed_since="5"),
        f"changed_since must be a whole number from 0 to {2**63 - 1}, not '5'",
    ),
    (
        lambda client: client.subscribe({"emails": "2"}),
        f"the weight of emails must be a whole number from {-(2**31)} to {2**31 - 1}, not '2'",
    ),
    (lambda client: client.create_tube("emails", "lifo"), f"kind must be {KINDS}, not 'lifo'"),
    (lambda client: client.create_tube("emails", ttr="x"), f"ttr must be {DURATION}, not 'x'"),
    (
        lambda client: client.create_tube("emails", on_ack="drop"),
        "on_ack must be one of remove, keep, retain, not 'drop'",
    ),
    (
        lambda client: client.create_tube("emails", put_paused="yes"),
        "put_paused must be True or False, not 'yes'",
    ),
    (
        lambda client: client.create_tube("emails", subqueue_weights=["a"]),
        "subqueue_weights must be a mapping of names to integers, not ['a']",
    ),
    (
        lambda client: client.create_tube("emails", if_not_exists="yes"),
        "if_not_exists must be True or False, not 'yes'",
    ),
    (lambda client: client.drop_tube(5), "name must be a string, not 5"),
    (lambda client: client.settle("17"), "tokens must be an integer or several integers, not '17'"),
    (lambda client: client.configure(session_ttr="x"), f"session_ttr must be {DURATION}, not 'x'"),
    (
        lambda client: client.configure(auto_create_kind="lifo"),
        f"auto_create_kind must be {KINDS}, not 'lifo'",
    ),
    (
        lambda client: client.groups.create("g", end_task="x"),
        f"end_task must be {PLANNED}, not 'x'",
    ),
    (
        lambda client: client.schedules.create("s", "* * * * *", "x"),
        f"task must be {PLANNED}, not 'x'",
    ),
    (
        lambda client: client.schedules.create(
            "s", "* * * * *", client.tube("emails").task("x"), overlap="never"
        ),
        "overlap must be one of allow, skip, cancel_before, not 'never'",
    ),
    (lambda client: Batch().kick(5, 1), "tube must be a string, not 5"),
    (
        lambda client: Batch().ack(1, keep="for ever"),
        "keep must be one of remove, done, zombie, not ",
    ),
    (lambda client: Batch().release(1, "x"), f"delay must be {DURATION}, not 'x'"),
    (lambda client: Keys(5), "key must be a string or several strings, not 5"),
    (lambda client: AsyncClient(5), 'target must be "host:port" or a comma-separated list of '),
    (lambda client: AsyncClient(timeout="x"), f"timeout must be {DURATION}, not 'x'"),
    (lambda client: AsyncClient(session_ttr=-1), f"session_ttr must be {DURATION}, not -1"),
)
def test_a_client_names_the_constructor_argument_that_it_refuses(client, call, expected):
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(expected)}"):
        call(client)


def test_an_error_for_an_unknown_option_lists_all_options(client):
    with pytest.raises(TypeError, match="take has no option colour; the options are bytes_max, "):
        client.tube("emails").take(colour="red")


def test_a_long_value_is_cut(client):
    with pytest.raises(TypeError) as refused:
        client.tube("emails").put("x", priority="y" * 10_000)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"type": "\ud800"}, "type"),
        ({"key": "\ud800"}, "key"),
        ({"key": ["a", "\ud800"]}, "key"),
        ({"headers": {"a": "\ud800"}}, "the header 'a'"),
        ({"headers": {"\ud800": "a"}}, "the name of a header"),
        ({"request_id": "\ud800"}, "request_id"),
    ],
)
def test_a_string_that_utf8_cannot_encode_is_refused_with_its_name(client, options, named):
    with pytest.raises(ValueError, match=f"{named} must be a string that UTF-8 can encode"):
        client.tube("emails").put("a", **options)
