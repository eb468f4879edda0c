"""`taskraft export` and `taskraft import`: exact restoration, or a refusal that names the field."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskraft import Client, Retry
from taskraft.v1 import task_pb2

NEW_FIELDS = ("tube", "id", "created_ms", "since_ms")
"""Fields of a new task: its place, and the instants of its put and of its state."""
DEADLINE = ("ttl_ms",)
"""Counted from the put, so the rest of a time to live is another number."""


@pytest.fixture
def pair(taskraft, emails):
    """Return a tube with tasks to export, and a tube with other defaults that is empty."""
    client = taskraft.client
    client.create_tube("source", "utubettl", priority=7, ttr="30s")
    client.create_tube(
        "copy", "utubettl", priority=1, ttr="5s", ttl="9m", delay="2m", on_ack="keep"
    )
    return client.tube("source"), client.tube("copy")


def exported(run, options=""):
    done = run(f"export source {options}")
    assert done.exit_code == 0, done.output
    return done.stdout


def comparable(task, *left_out):
    """Return the fields of a task that an import restores.

    The options of the put whose effect other fields show are left out.
    """
    message = task_pb2.Task()
    message.CopyFrom(task.message)
    for field in (*NEW_FIELDS, *DEADLINE, *left_out):
        message.ClearField(field)
    for field in ("priority", "delay_ms", "visible_at_ms", "ttl_ms", "ttr_ms"):
        message.spec.ClearField(field)
    if task.message.spec.delay_ms:
        message.spec.ClearField("position")  # a put with a delay ignores the position
    for failure in message.failures:
        failure.ClearField("at_ms")
    return message


def assert_restored(source, copy):
    before, after = [*source.list()], [*copy.list()]
    assert [comparable(task) for task in after] == [comparable(task) for task in before]
    ids = {first.id: second.id for first, second in zip(before, after, strict=True)}
    for order in ("taking", "kicking"):
        places = [ids[task.id] for task in source.list(order_by=order)]
        assert [task.id for task in copy.list(order_by=order)] == places


def put_every_kind(tube):
    """Put a task with each option, and leave tasks in all states that a put can restore."""
    tube.put(b"\xff\x00", headers={"a": b"\xfe", "traceparent": "x"}, type="mail")
    tube.put({"n": 1}, priority=-3, key=("order", "1"), on_conflict="return_existing")
    tube.put("text", ttr="7s", ttl="1h", subqueue="eu", content_type="text/x")
    tube.put("own policy", retry=Retry(attempts_max=3, backoff="1s", position="back"))
    tube.put("first", position="front")
    tube.put("unique", key="k", key_states=["READY", "DONE"], key_window="1h")
    tube.put("later", delay="10m", ttl="1m", position="front")
    buried = [
        tube.put("buried", priority=2),
        tube.put("buried with time", ttl="50m", delay="1s"),
        tube.put("buried and fatal"),
    ]
    tube.bury(buried[0])
    tube.bury(buried[1], reason=KeyError("no such order" * 100))
    tube.bury(buried[2], reason=task_pb2.Failure(type="Poison", message="m", fatal=True))
    changed = tube.put("changed", priority=4, ttl="1s")
    tube.update(changed, priority=9, ttl="20m", ttr="1m")


def test_tasks_are_restored_with_each_option_state_and_time(pair, run, taskraft):
    source, copy = pair
    put_every_kind(source)
    taskraft.advance(45)
    lines = exported(run)
    assert len(lines.splitlines()) == 11
    taskraft.advance(30)
    assert run("import copy - --dry-run", input=lines).stdout == "11 would be imported\n"
    assert [*copy.list()] == []
    done = run("import copy -", input=lines)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "11 imported\n", "")
    assert_restored(source, copy)


def test_a_restored_delay_ends_when_the_first_would_have_ended(pair, run, taskraft):
    source, copy = pair
    source.put("later", delay="60s", ttl="30s")
    lines = exported(run)
    taskraft.advance(50)
    assert run("import copy -", input=lines).exit_code == 0
    assert [task.state for task in copy.list()] == ["DELAYED"]
    taskraft.advance(10)
    assert [task.state for task in (*source.list(), *copy.list())] == ["READY", "READY"]
    taskraft.advance(30)
    assert [*source.list(), *copy.list()] == []


def test_a_delay_that_has_ended_is_not_restarted(pair, run, taskraft):
    source, copy = pair
    source.put("later", delay="60s")
    lines = exported(run)
    taskraft.advance(61)
    assert run("import copy -", input=lines).exit_code == 0
    assert [task.state for task in copy.list()] == ["READY"]


def test_a_buried_task_is_never_ready_and_is_kicked_as_before(pair, run, taskraft):
    source, copy = pair
    source.bury(source.put("a", ttl="10m"), reason="broken")
    assert run("import copy -", input=exported(run)).exit_code == 0
    (task,) = copy.list()
    states = [event.to_state for event in copy.events(task.id).events]
    assert "READY" not in [str(state) for state in states]
    assert copy.kick(1) == 1
    assert copy.take(wait=0).payload == b"a"


def test_an_interruption_names_the_tasks_that_are_not_buried(pair, run, monkeypatch):
    source, copy = pair
    source.bury(source.put("a"))
    lines = exported(run)
    monkeypatch.setattr(Client, "execute", interrupted)
    done = run("import copy -", input=lines)
    (task,) = copy.list()
    assert (done.exit_code, task.state) == (130, "DELAYED")
    assert f"of the tasks {task.id} to {task.id} of copy, those to bury" in done.stderr
    assert "at least 1 tasks were put" in done.stderr


def interrupted(*_):
    raise KeyboardInterrupt


def test_finished_tasks_are_exported_only_when_asked_for(run, emails, taskraft):
    emails.put("done")
    emails.take(wait=0).ack()
    emails.put("waiting")
    done = run("export emails")
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == ["READY"]
    assert done.stderr == "1 finished tasks were left out; see --finished\n"
    everything = run("export emails --finished")
    assert [json.loads(line)["state"] for line in everything.stdout.splitlines()] == [
        *("DONE", "READY")
    ]
    assert everything.stderr == ""
    refused = run("import emails -", input=everything.stdout)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("error: line 1: emails/1: state DONE: ")
    assert len([*emails.list()]) == 2


def make_taken(tube, client):
    tube.put("a")
    tube.take(wait=0)


def make_retried(tube, client):
    tube.put("a")
    tube.take(wait=0).release(reason="no answer")


def make_kicked(tube, client):
    tube.bury(tube.put("a"))
    tube.kick(1)


def make_grouped(tube, client):
    client.groups.create("g")
    tube.put("a", group="g")


def make_dependent(tube, client):
    other = client.tube("emails").put("b")
    tube.put("a", depends_on=[f"emails/{other}"])


def make_expired(tube, client):
    tube.put("a", ttl="100s")


LOST = [
    (make_taken, ("lease", "history"), ("state TAKEN", "attempt 1")),
    (make_retried, ("history",), ("attempt 1", "failed_attempts 1", "failures")),
    (make_kicked, ("history",), ("times_buried 1",)),
    (make_grouped, ("group",), ("group g",)),
    (make_dependent, ("dependencies",), ("depends_on",)),
    (make_expired, ("expired",), ("expire_at_ms",)),
]


@pytest.mark.parametrize(("make", "options", "fields"), LOST)
def test_what_cannot_be_restored_is_refused_by_name(pair, run, taskraft, make, options, fields):
    source, copy = pair
    make(source, taskraft.client)
    (task,) = source.list()
    good = json.dumps({"format": "taskraft.task.v2", "tube": "x", "id": 5, "state": "READY"})
    lines = f"{good}\n{exported(run)}"
    taskraft.advance(101)
    refused = run("import copy -", input=lines)
    assert (refused.exit_code, refused.stdout) == (2, "")
    named = refused.stderr.splitlines()[:-1]
    assert all(line.startswith(f"error: line 2: {task}: ") for line in named)
    assert all(any(field in line for line in named) for field in fields)
    assert run("import copy - --dry-run", input=lines).stderr == refused.stderr
    assert [*copy.list()] == []
    chosen = " ".join(f"--without {option}" for option in options)
    done = run(f"import copy - {chosen}", input=lines)
    assert done.exit_code == 0, done.output
    left_out = int("expired" in options)
    held = {"group", "dependencies"}.intersection(options)
    states = [each.state for each in copy.list()]
    # The put of a HELD task may have had no delay of its own; then that of the tube begins.
    assert states == ["READY", "DELAYED" if held else "READY"][: 2 - left_out]
    assert done.stdout == f"{len(states)} imported{', 1 left out' * left_out}\n"


def test_a_dead_letter_keeps_its_failure_only_as_the_reason_of_its_burial(pair, run, taskraft):
    source, copy = pair
    source.put("a")
    source.take(wait=0).bury(reason=ValueError("bad"))
    lines = exported(run)
    assert run("import copy -", input=lines).exit_code == 2
    assert run("import copy - --without history", input=lines).exit_code == 0
    (task,) = copy.list()
    assert (task.state, task.attempt, task.failure) == ("BURIED", 0, "ValueError: bad")


@pytest.mark.parametrize(
    ("kind", "line", "text"),
    [
        ("fifo", {"priority": "4"}, "priority 4 is not supported in the tube plain of kind fifo"),
        ("fifo", {"state": "BURIED", "times_buried": 1}, "pause the takes of the tube"),
        ("fifottl", {"spec": {"subqueue": "eu"}}, "subqueue eu is not supported"),
        ("fifottl", {"state": "ZOMBIE"}, "state ZOMBIE"),
        (
            "fifottl",
            {"state": "BURIED", "times_buried": 1, "spec": {"position": "FRONT"}},
            "BURIED",
        ),
    ],
)
def test_what_the_tube_does_not_support_is_refused_before_the_put(run, taskraft, kind, line, text):
    taskraft.client.create_tube("plain", kind)
    fields = {"format": "taskraft.task.v2", "tube": "a", "id": "7", "state": "READY", **line}
    done = run("import plain -", input=json.dumps(fields))
    assert done.exit_code == 2
    assert done.stderr.startswith("error: line 1: a/7: ")
    assert text in done.stderr
    assert [*taskraft.client.tube("plain").list()] == []


def test_buried_tasks_are_imported_into_a_tube_without_delays_while_takes_are_paused(run, taskraft):
    client = taskraft.client
    client.create_tube("source", "fifo")
    client.create_tube("copy", "fifo", take_paused=True)
    source, copy = client.tube("source"), client.tube("copy")
    source.bury(source.put("a"), reason="r")
    source.put("b")
    assert run("import copy -", input=exported(run)).exit_code == 0
    assert_restored(source, copy)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"put_paused": True}, "puts into small are paused"),
        ({"capacity_tasks": 1}, "capacity_tasks of small is 1, 0 are in use and 2 are needed"),
        ({"capacity_bytes": 1}, "capacity_bytes"),
        ({"buried_max": 1}, "buried_max"),
    ],
)
def test_a_tube_that_is_too_small_is_refused_before_the_first_put(
    pair, run, taskraft, options, text
):
    source, _ = pair
    for payload in ("a", "b"):
        source.bury(source.put(payload))
    taskraft.client.create_tube("small", "utubettl", **options)
    done = run("import small - --dry-run", input=exported(run))
    assert done.exit_code == 2
    assert text in done.stderr


def test_a_key_in_use_is_refused_and_not_taken_for_the_task(pair, run):
    source, copy = pair
    source.put("a", key="k", on_conflict="return_existing")
    source.put("b")
    there = copy.put("other", key="k")
    done = run("import copy -", input=exported(run))
    assert done.exit_code == 2
    assert f"line 1: source/1: unique_key k is in use by copy/{there}" in done.stderr
    assert [task.payload for task in copy.list()] == [b"other"]


@pytest.mark.parametrize(
    "line", ["{", "{}", '{"format": "x"}', '{"format": "taskraft.task.v2", "spec": {"typo": 1}}']
)
def test_a_wrong_line_stops_an_import_before_the_first_put(calls, run, line):
    good = '{"format": "taskraft.task.v2", "spec": {"payload": "YQ=="}}'
    done = run("import emails -", input=f"{good}\n{line}\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "line 2" in done.stderr
    assert not calls.calls


def test_an_export_of_an_earlier_format_is_refused(run):
    line = (
        '{"format": "taskraft.task.v1", "tube": "a", "state": "READY", "spec": {"payload": "YQ=="}}'
    )
    done = run("import emails -", input=line)
    assert done.exit_code == 2
    assert "export the tasks again" in done.stderr


def test_an_export_has_no_rights_of_a_holder(pair, run):
    source, _ = pair
    source.put("a")
    source.take(wait=0)
    (line,) = exported(run).splitlines()
    assert {"token", "session_id"}.isdisjoint(json.loads(line))


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(-(2**63), 2**63 - 1),
        "delay": st.integers(0, 500),
        "ttl": st.integers(500, 10_000),
        "ttr": st.integers(1, 500),
        "type": st.text("ab", max_size=2),
        "subqueue": st.text("ab", max_size=2),
        "position": st.sampled_from(["front", "back"]),
        "headers": st.dictionaries(st.text("ab", min_size=1), st.binary(max_size=3), max_size=2),
    },
)
"""Options of a put, durations in seconds."""


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tasks=st.lists(st.tuples(OPTIONS, st.booleans()), max_size=6), pause=st.integers(0, 400))
def test_any_task_without_attempts_is_restored_or_refused(pair, run, taskraft, tasks, pause):
    source, copy = pair
    for tube in pair:
        if ids := [task.id for task in tube.list()]:
            tube.delete(ids)
    for options, is_buried in tasks:
        task_id = source.put("x", **options)
        if is_buried and ("position" not in options or options.get("delay")):
            source.bury(task_id, reason="r")
    lines = exported(run)
    taskraft.advance(pause)
    done = run("import copy -", input=lines)
    assert done.exit_code == 0, done.output
    assert_restored(source, copy)
