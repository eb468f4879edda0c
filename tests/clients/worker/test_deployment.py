"""Declared tubes and schedules are created at the start of a worker, and changed by apply."""

import uuid

import pytest
from click.testing import CliRunner

from taskraft import TubeDiffers
from taskraft.cli import confirmation, main
from taskraft.worker import App, InvalidTask
from tests.clients.worker import handlers
from tests.clients.worker.handlers import running
from tests.clients.worker.test_worker import WAIT


def nightly() -> None: ...


def hourly(n: int = 3) -> None: ...


@pytest.fixture
def new_app(app):
    """Return a function that makes the next version of an app."""
    return lambda: App("worker", defaults=app.defaults)


def schedules(app):
    """Return the schedules of an app by the name of their task."""
    client = app.clients.blocking_inner()
    found = app.clients.run(client.schedules.list())
    prefix = f"{app.name}/"
    return {one.name.removeprefix(prefix): one for one in found if one.name.startswith(prefix)}


def test_apply_creates_changes_and_deletes_schedules_and_a_second_call_changes_nothing(new_app):
    first = new_app()
    options = {"time_zone": "Europe/Vienna", "jitter": "1m", "overlap": "skip", "catch_up": "one"}
    first.task(name="nightly", cron="30 2 * * *", **options)(nightly)
    first.task(name="hourly", cron="0 * * * *")(hourly)
    with first:
        assert [str(change) for change in first.apply()] == [
            f"tube {first.name} created",
            f"schedule {first.name}/nightly created",
            f"schedule {first.name}/hourly created",
        ]
        assert first.apply() == []
        made = schedules(first)["nightly"]
        assert (made.cron, made.time_zone, made.jitter_ms) == (
            "30 2 * * *",
            "Europe/Vienna",
            60_000,
        )
        assert (made.overlap, made.catch_up, made.spec.payload) == ("skip", "one", b"{}")
    second = new_app()
    second.task(name="hourly", cron="30 * * * *")(hourly)
    with second:
        changed, deleted = (f"{first.name}/{name}" for name in ("hourly", "nightly"))
        lines = [f"schedule {changed} changed", f"schedule {deleted} deleted"]
        assert [str(change) for change in second.apply(prune=True, dry_run=True)] == lines
        assert set(schedules(second)) == {"nightly", "hourly"}
        assert [str(change) for change in second.apply()] == lines[:1]
        assert set(schedules(second)) == {"nightly", "hourly"}, "deleted without prune"
        assert [str(change) for change in second.apply(prune=True)] == lines[1:]
        assert {name: one.cron for name, one in schedules(second).items()} == {
            "hourly": "30 * * * *"
        }


def test_apply_leaves_schedules_of_others_alone_and_paused_ones_paused(new_app):
    app = new_app()
    app.task(name="hourly", cron="0 * * * *")(hourly)
    with app:
        app.apply()
        client = app.clients.blocking_inner()
        by_hand = client.tube(app.name).task("by hand")
        app.clients.run(
            client.schedules.create(f"{app.name}/own", "0 0 * * *", by_hand, paused=True)
        )
        message = schedules(app)["hourly"].message
        message.paused = True
        app.clients.run(client.schedules.update(type(schedules(app)["hourly"]).of(message)))
        changed = new_app()
        changed.task(name="hourly", cron="1 * * * *")(hourly)
        with changed:
            assert len(changed.apply()) == 1
        assert set(schedules(app)) == {"hourly", "own"}
        assert schedules(app)["hourly"].paused


async def test_a_worker_creates_missing_schedules_and_reports_differences(new_app, caplog):
    first = new_app()
    first.task(name="nightly", cron="30 2 * * *")(nightly)
    add = first.task(handlers.add)
    async with running(first):
        await (await add.aput(1)).aresult(WAIT)
    second = new_app()
    second.task(name="nightly", cron="0 3 * * *")(nightly)
    second.task(name="hourly", cron="0 * * * *")(hourly)
    add = second.task(handlers.add)
    async with running(second):
        await (await add.aput(1)).aresult(WAIT)
    async with second:
        found = await second.clients.here().schedules.list()
    crons = {one.name: one.cron for one in found if one.name.startswith(first.name)}
    assert crons == {f"{first.name}/nightly": "30 2 * * *", f"{first.name}/hourly": "0 * * * *"}
    assert f"{first.name}/nightly differs from its declaration" in caplog.text


def test_apply_brings_the_declared_options_of_a_tube_into_force(new_app):
    first = new_app()
    first.tube(first.name, ttr="1m")
    with first:
        first.apply()
    second = new_app()
    second.tube(second.name, ttr="2m")
    with second:
        with pytest.warns(TubeDiffers, match="ttr"):
            second.create_tubes()
        assert second.apply() == []  # changes of tubes are not listed
        second.create_tubes()  # a warning of a difference would fail the test


def test_types_that_the_app_does_not_declare_are_listed(new_app):
    app = new_app()
    task = app.task(name="known")(handlers.add)
    with app:
        app.create_tubes()
        task.put(1)
        assert app.unknown_types() == []
        tube = app.clients.blocking_inner().tube(task.tube)
        for _ in range(2):
            app.clients.run(tube.put("?", type="stranger"))
        assert app.unknown_types() == [(task.tube, "stranger")]


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (nightly, {"cron": "30 2 * *"}, "five fields"),
        (nightly, {"overlap": "skip"}, "overlap without cron"),
        (nightly, {"cron": "0 * * * *", "overlap": "never"}, "overlap"),
        (handlers.add, {"cron": "0 * * * *"}, "these parameters need defaults: a"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused_at_import(app, function, options, told):
    with pytest.raises(InvalidTask, match=told):
        app.task(**options)(function)


def test_an_included_app_gets_a_prefix(app):
    other = App("billing")
    task = other.task(name="add")(handlers.add)
    app.include(other, prefix="billing.")
    assert list(app.tasks) == ["billing.add"]
    assert task.plan(1).spec.type == "billing.add"


MODULE = """
import os
from taskraft.worker import App
app = App(os.environ["APP"])
@app.task(tube=os.environ["APP"], name="nightly", cron="30 2 * * *")
def nightly() -> None: ...
"""


def test_the_commands_of_an_app(new_app, tmp_path, monkeypatch):
    app = new_app()
    name = app.name
    tmp_path.joinpath("declared.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APP", name)
    outputs = {}
    for command in ("list", "apply", "check"):
        done = CliRunner().invoke(main, ["app", command, "declared:app"])
        outputs[command] = (done.exit_code, done.output)
    assert outputs == {
        "list": (0, f"nightly  {name}  thread  cron 30 2 * * *\n"),
        "apply": (0, f"tube {name} created\nschedule {name}/nightly created\n"),
        "check": (0, ""),
    }
    with app:
        app.clients.run(app.clients.blocking_inner().tube(name).put("?"))
    done = CliRunner().invoke(main, ["app", "check", "declared:app"])
    assert (done.exit_code, done.output) == (1, f"{name}  (no type)\n")


NEXT = """
import os
from taskraft.worker import App
app = App(os.environ["APP"])
@app.task(tube=os.environ["APP"], name="hourly", cron="0 * * * *")
def hourly() -> None: ...
"""


@pytest.fixture
def second_version(new_app, tmp_path, monkeypatch):
    """Apply a version of an app with another schedule; return a function that applies the next."""
    app = new_app()
    module = f"v{uuid.uuid4().hex}"
    tmp_path.joinpath(f"{module}.py").write_text(NEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APP", app.name)
    app.task(name="nightly", cron="30 2 * * *")(nightly)
    with app:
        app.apply()

        def apply(*options, **more):
            return CliRunner().invoke(main, ["app", "apply", f"{module}:app", *options], **more)

        apply.names = lambda: set(schedules(app))
        apply.gone = f"{app.name}/nightly"
        apply.new = f"{app.name}/hourly"
        yield apply


def test_app_apply_without_prune_keeps_and_names_the_schedules_that_are_gone(second_version):
    done = second_version()
    assert (done.exit_code, done.stdout) == (0, f"schedule {second_version.new} created\n")
    assert done.stderr == (
        f"not declared any more, and not deleted without --prune: {second_version.gone}\n"
    )
    assert second_version.names() == {"nightly", "hourly"}


def test_app_apply_with_prune_needs_yes_without_a_terminal(second_version):
    done = second_version("--prune")
    assert (done.exit_code, done.stdout, "--yes" in done.stderr) == (2, "", True)
    assert second_version.names() == {"nightly"}
    done = second_version("--prune", "--dry-run")
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [
            f"schedule {second_version.gone} would be deleted",
            f"schedule {second_version.new} would be created",
        ],
    )
    assert second_version("--dry-run").stdout == f"{done.stdout.splitlines()[1]}\n"
    assert second_version.names() == {"nightly"}
    assert second_version("--prune", "--yes").exit_code == 0
    assert second_version.names() == {"hourly"}


def test_app_apply_asks_only_if_it_would_delete_a_schedule(second_version, monkeypatch):
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    done = second_version("--prune", input="n\n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Delete the schedules {second_version.gone}? [y/N]" in done.stderr
    assert second_version.names() == {"nightly"}, "changed before the answer"
    assert second_version("--prune", input="y\n").exit_code == 0
    assert second_version.names() == {"hourly"}
    again = second_version("--prune")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
