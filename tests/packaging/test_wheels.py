"""Build the wheels as the image does, and check their contents.

Tests in a checkout cannot show that a wheel lacks a file.
"""

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.dev_ports import dev_port
from tools.release.wheels import problems_of

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parent.parent.parent
TOP_LEVEL = {
    "taskraft_server": {"taskraft_service", "taskraft_replication"},
    "taskraft": {"taskraft"},
    "taskraft_pipeline": {"pyspark_taskraft", "taskraft_pipeline"},
    "taskraft_console": {"taskraft_console"},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder that holds the four wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    projects = [str(ROOT / name) for name in (".", "clients/python", "pipeline", "console")]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    subprocess.run([*command, *options, *projects], check=True)
    return folder


@pytest.fixture(scope="module")
def wheels(built):
    """Return the names inside each of the four wheels, by distribution."""
    return {
        path.name.split("-")[0]: set(zipfile.ZipFile(path).namelist())
        for path in built.glob("*.whl")
    }


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_a_wheel_holds_its_packages_and_nothing_else(wheels, distribution):
    folders = {name.split("/")[0] for name in wheels[distribution]}
    assert {name for name in folders if not name.endswith(".dist-info")} == TOP_LEVEL[distribution]


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_every_package_says_that_it_is_typed(wheels, distribution):
    typed = {name.split("/")[0] for name in wheels[distribution] if name.endswith("/py.typed")}
    assert typed == TOP_LEVEL[distribution]


def test_every_wheel_has_the_licence_and_the_same_version(built):
    paths = sorted(built.glob("*.whl"))
    (version,) = {path.name.split("-")[1] for path in paths}
    licence = (ROOT / "LICENSE").read_bytes()
    assert [one for path in paths for one in problems_of(path, licence, version)] == []


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_every_module_of_the_checkout_is_in_its_wheel(wheels, distribution):
    roots = (
        ROOT / "service",
        ROOT / "replication",
        ROOT / "clients/python/src",
        ROOT / "pipeline/src",
        ROOT / "console/src",
    )
    modules = {
        str(path.relative_to(root))
        for root in roots
        for package in TOP_LEVEL[distribution]
        for path in (root / package).rglob("*.py*")
        if path.suffix in {".py", ".pyi"}
    }
    assert modules
    assert modules - wheels[distribution] == set()


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Return a folder with the contents of the wheels, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, *options, *built.glob("*.whl")], check=True)
    return folder


def lines_of_a_cluster(folder, data, **environment):
    """Start ``taskraft dev`` in a folder, stop it when it is ready, and return its lines."""
    arguments = ["dev", "--nodes", "1", "--port", str(dev_port(1)), "--data", str(data)]
    with subprocess.Popen(
        [sys.executable, "-m", "taskraft", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, "".join(lines)
    return lines


@pytest.mark.cluster
def test_folders_with_the_names_of_packages_do_not_disturb_an_installed_server(installed, tmp_path):
    """``python -m`` puts the working directory first on the import path."""
    for name in ("service", "replication", "clients"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError(__file__)")
    lines = lines_of_a_cluster(tmp_path, tmp_path / "d", PYTHONPATH=str(installed))
    assert lines[-1].startswith("ready"), "".join(lines)


FAULT_INJECTION = re.compile(rb"fail_?points?|failing_?(filesystem|machine|store)", re.IGNORECASE)
"""Names of the code in ``tests/failpoints``."""


def test_the_wheel_of_the_server_holds_no_fault_injection(built):
    (wheel,) = built.glob("taskraft_server-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        contents = {name: opened.read(name) for name in opened.namelist()}
    code = {name: text for name, text in contents.items() if name.endswith(".py")}
    found = [
        name
        for name, text in code.items()
        if FAULT_INJECTION.search(name.encode()) or FAULT_INJECTION.search(text)
    ]
    assert code
    assert found == []


@pytest.mark.cluster
def test_an_installed_node_ignores_the_variable_of_the_tests(installed, tmp_path):
    """With ``python -m tests.failpoints``, this rule kills the node at its first write."""
    rules = "append.before_write=kill@1+,identity.before_create=kill@1+"
    lines = lines_of_a_cluster(
        tmp_path, tmp_path / "d", PYTHONPATH=str(installed), TASKRAFT_FAILPOINTS=rules
    )
    assert lines[-1].startswith("ready"), "".join(lines)


@pytest.mark.parametrize("name", ["Dockerfile", "pipeline/Dockerfile"])
def test_the_image_copies_only_files_that_exist_and_are_not_ignored(name):
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / name).read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    admitted = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in {name.split("/")[0] for name in admitted}, source


def test_the_plain_client_installs_all_that_its_command_imports(built):
    """``pip install taskraft`` must not install a command that cannot start."""
    (wheel,) = built.glob("taskraft-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (metadata,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        lines = opened.read(metadata).decode().splitlines()
    plain = [line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    names = {re.split(r"[<>=;, ]", line.removeprefix("Requires-Dist: "))[0] for line in plain}
    assert {"click", "rich", "pyyaml"} <= names
