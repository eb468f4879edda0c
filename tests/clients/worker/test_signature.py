"""Signatures of handlers and their options are checked at import, and arguments at the put."""

import pytest

from taskraft.worker import App, Context, Depends, EncodeError, InvalidTask
from tests.clients.worker import handlers


@pytest.fixture
def app():
    return App("test")


class Holder:
    def method(self, a: int) -> None: ...


def untyped(a): ...


def unresolved(a: "Missing") -> None: ...  # noqa: F821 - the point of the test


def many(*args: int) -> None: ...


def complicated(a: complex) -> None: ...


def two(a: int, b: int) -> None: ...


def generator(a: int):
    yield a


async def async_generator(a: int):
    yield a


def nested():
    def inner(a: int) -> None: ...

    return inner


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a, "module level"),
        (nested(), "module level"),
        (generator, "a generator"),
        (async_generator, "a generator"),
        (Holder.method, "module level"),
        (untyped, "the parameter a needs a type"),
        (unresolved, "cannot be resolved"),
        (many, "not supported"),
        (complicated, "JSON cannot represent"),
        (print, "must be a function"),
    ],
)
def test_a_function_that_cannot_be_a_task_is_refused_at_import(app, function, told):
    with pytest.raises(InvalidTask, match=told):
        app.task(function)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tubes": "x"}, "no option"),
        ({"fatal": ValueError}, "tuple of exception classes"),
        ({"version": 0}, "from 1"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"pool": "fibre"}, "pool"),
        ({"tube": "mail*"}, "1 to 128 of the characters"),
        ({"tube": ""}, "1 to 128 of the characters"),
        ({"tube": "m" * 129}, "1 to 128 of the characters"),
        ({"pool": "async"}, "plain function"),
        ({"payload": "single"}, "exactly one parameter"),
        ({"key": lambda c: c}, "names c"),
        ({"name": ""}, "name must have 1 to 128 bytes, not 0"),
        ({"name": "n" * 127, "version": 2}, "name must have 1 to 128 bytes, not 129"),
        ({"name": "\ud800"}, "name must be a string that UTF-8 can encode"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"headers": {"a": 1}}, "the header 'a' must be a string or bytes"),
        ({"retry": 3}, "retry must be a Retry"),
        ({"on_conflict": "maybe"}, "on_conflict must be one of"),
        ({"key": lambda a: f"key {a}", "key_states": ("LOST",)}, "key_states must be one of"),
        ({"codec": "json"}, "'json' is not a Codec"),
        ({"also_reads": ["json"]}, "'json' is not a Codec"),
        ({"key": str}, "key must be a function of named arguments"),
        ({"subqueue": "a"}, "subqueue must be a function of named arguments"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_at_import(app, options, told):
    with pytest.raises(InvalidTask, match=told):
        app.task(**options)(two)


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ({"cron": "0 0 31 2 *"}, "cron is not valid: Bad day-of-month"),
        ({"cron": "0 0 31 4,6 */2"}, "cron is not valid: Bad day-of-month"),
        ({"cron": "99 0 * * *"}, "cron is not valid: Bad minute"),
        ({"cron": "*/61 0 * * *"}, "cron has the number 61 in minute, which is too large"),
        ({"cron": "\ud800 * * * *"}, "a string that UTF-8 can encode"),
        ({"cron": None}, "cron must be a string"),
        ({"cron": "0 0 * * *", "time_zone": "Europe/Nowhere"}, "is not a known time zone"),
        ({"cron": "0 0 * * *", "time_zone": "localtime"}, "is a setting of one machine"),
        ({"cron": "0 0 * * *", "time_zone": 1}, "time_zone must be a string"),
    ],
)
def test_a_schedule_that_has_no_times_is_refused_at_import(app, schedule, told):
    with pytest.raises(InvalidTask, match=told):
        app.task(**schedule)(handlers.report)
    assert not app.tasks


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("mail*", {}, "1 to 128 of the characters"),
        ("", {}, "1 to 128 of the characters"),
        (7, {}, "1 to 128 of the characters"),
        ("mail", {"kind": "lifo"}, "kind must be one of"),
        ("mail", {"rate": 1}, "no option rate"),
        ("mail", {"ttl": "soon"}, "ttl"),
    ],
)
def test_a_tube_that_cannot_be_made_is_refused_at_import(app, name, settings, told):
    with pytest.raises(InvalidTask, match=told):
        app.tube(name, **settings)
    assert not app.tubes


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"types": 3}, {"priority_bound": "low"}, {"threads": 2}]
)
def test_an_option_of_a_consumer_that_cannot_be_used_is_refused_at_import(app, options):
    with pytest.raises(InvalidTask, match=next(iter(options))):
        app.consumer("mail", **options)


@pytest.mark.parametrize("options", [{"size": 0}, {"linger": "soon"}])
def test_an_option_of_a_batch_that_cannot_be_used_is_refused_at_import(app, options):
    with pytest.raises(InvalidTask, match=next(iter(options))):
        app.batch_task(**options)


def test_a_consumer_of_no_tube_and_a_consumer_that_runs_nothing_are_refused_at_import(app):
    with pytest.raises(InvalidTask, match="1 to 128 of the characters"):
        app.consumer("mail*")
    with pytest.raises(InvalidTask, match="a generator"):
        app.consumer("mail")(async_generator)
    assert not app.consumers


def test_a_second_task_of_one_name_is_refused(app):
    app.task(two)
    with pytest.raises(InvalidTask, match="exists already"):
        app.task(two)


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((), {}, "lacks the arguments: a"),
        ((1, 2, 3), {}, "takes 2 positional arguments, not 3"),
        ((1,), {"a": 2}, "two values for a"),
        ((1,), {"c": 2}, "no parameter c"),
        (("1",), {}, "a: must be int, not '1'"),
        ((True,), {}, "a: must be int, not True"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_the_put(app, args, kwargs, told):
    with pytest.raises(EncodeError, match=told):
        app.task(handlers.add).plan(*args, **kwargs)


def test_a_dependency_is_provided_by_the_worker_alone(app):
    with pytest.raises(EncodeError, match="link is a dependency"):
        app.task(handlers.depends).plan("a", link="mine")


def test_a_plan_has_the_type_the_payload_and_the_options(app):
    task = app.task(
        tube="mail",
        version=2,
        priority=3,
        key=lambda b: ("sum", str(b)),
        subqueue=lambda a: f"s{a}",
    )(handlers.add)
    spec = task.options(priority=4).plan(1).spec
    assert (spec.type, spec.payload) == ("tests.clients.worker.handlers.add@2", b'{"a":1}')
    assert (spec.priority, list(spec.unique_key), spec.subqueue) == (4, ["sum", "2"], "s1")
    assert spec.content_type == "application/json"


async def test_the_plain_function_can_be_called(app):
    assert await app.task(handlers.add)(1, 2) == 3
    assert app.task(handlers.subtract)(3, 2) == 1


def test_an_included_app_adds_its_tasks(app):
    other = App("other")
    task = other.task(two)
    app.include(other)
    assert app.tasks == {task.name: task}
    with pytest.raises(InvalidTask, match="exists already"):
        app.include(other)


def test_a_handle_is_made_again_from_its_text(app):
    task = app.task(tube="mail")(two)
    assert str(app.handle("mail/17", task)) == "mail/17"
    with pytest.raises(ValueError, match="expected mail/ID"):
        app.handle("fax/17", task)


def test_a_dependency_has_one_of_two_scopes():
    with pytest.raises(ValueError, match="scope"):
        Depends(Context.current, scope="session")
