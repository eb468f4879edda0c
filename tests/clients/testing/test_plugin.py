"""The fixtures of the kit in a project of their own, in a new process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskraft import Client, testing

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[3]
SERVER = [str(ROOT / name) for name in ("service", "replication", "clients/python/src")]
PLUGINS = ["-p", "taskraft.testing.plugin", "-p", "no:cacheprovider"]
APP = """
from taskraft.worker import App

app = App("shop")


@app.task(tube="mail")
async def welcome(name: str) -> str:
    return f"Hello {name}"
"""


@pytest.fixture
def project(tmp_path):
    """Return a function that writes files of a project and runs pytest in it."""

    def run(before="pass", *options, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\ntaskraft_app = shop:app\nasyncio_mode = auto\npythonpath = .\n"
        )
        code = f"import sys; {before}; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, "-q", *PLUGINS, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(SERVER)},
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_fixtures_run_the_app_of_the_ini_file(project):
    status, output = project(
        shop=APP,
        test_shop="""
import shop

def test_sync(taskraft, taskraft_app):
    assert taskraft_app is shop.app
    shop.welcome.options(delay="1h").put("Anna")
    assert taskraft.run_until_idle().attempts == 0
    assert taskraft.advance("1h").attempts == 1

async def test_async(ataskraft):
    handle = await shop.welcome.aput("Ben")
    await ataskraft.run_until_idle()
    assert await handle.aresult() == "Hello Ben"
""",
    )
    assert status == 0, output
    assert "2 passed" in output


REAL = """
import pytest
import shop

def test_sync(taskraft):
    assert taskraft.run_task(shop.welcome, "Anna") == "Hello Anna"
    taskraft.assert_sent(shop.welcome, "Anna")

async def test_async(ataskraft):
    handle = await shop.welcome.aput("Ben")
    assert (await ataskraft.run_until_empty()).attempts == 1
    assert await handle.aresult() == "Hello Ben"

def test_hours(taskraft):
    taskraft.advance("1h")

@pytest.mark.taskraft(start="2027-03-28T00:00+01:00")
def test_dates(taskraft): ...

def test_network(taskraft):
    with taskraft.unreachable():
        pass
"""


@pytest.mark.cluster
def test_an_option_runs_the_same_tests_on_a_real_node(project):
    status, output = project("pass", "--taskraft=real", "-rs", shop=APP, test_shop=REAL)
    assert status == 0, output
    assert "2 passed, 3 skipped" in output
    for needed in ("by 3600 s", "a given start of the clock", "cutting the network"):
        assert f"{needed} needs a cluster in memory" in output
    assert "2 passed, 3 skipped" not in project(shop=APP, test_shop=REAL)[1]


def test_a_test_without_the_fixtures_loads_neither_kit_nor_server(project):
    status, output = project(
        shop=APP,
        test_plain="""
import sys

def test_plain():
    assert "taskraft.testing.async_kit" not in sys.modules
    assert "taskraft_service" not in sys.modules
    assert "grpc" not in sys.modules
""",
    )
    assert status == 0, output


def test_without_the_server_one_error_says_what_to_install(project):
    status, output = project(
        "import importlib.util as util; found = util.find_spec; "
        "util.find_spec = lambda name, *rest: None if name == 'taskraft_service' else found(name)",
        shop=APP,
        test_shop="def test_kit(taskraft): ...",
    )
    assert status == 1
    assert "ServerMissing: taskraft.testing runs the code of the server in memory" in output
    assert "pip install 'taskraft[testing]'" in output


@pytest.mark.cluster
def test_a_real_node_is_there_on_demand(taskraft_cluster):
    with Client(taskraft_cluster.target) as client:
        client.create_tube("real")
        client.tube("real").put("x")
        assert client.tube("real").take(wait="5s").text() == "x"


def test_every_public_name_can_be_imported():
    assert sorted(testing._MODULES) == testing.__all__
    assert [getattr(testing, name).__name__ for name in testing.__all__] == testing.__all__
    with pytest.raises(AttributeError, match="Clok"):
        _ = testing.Clok
