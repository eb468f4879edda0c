"""Build the wheels as the image does, and look at what is in them: the checkout hides omissions."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOP_LEVEL = {
    "taskraft_server": {"taskraft_service", "taskraft_replication"},
    "taskraft": {"taskraft"},
    "taskraft_pipeline": {"pyspark_taskraft", "taskraft_pipeline"},
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Return the names inside each of the three wheels, by distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    projects = [str(ROOT / name) for name in (".", "clients/python", "pipeline")]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"]
    subprocess.run([*command, *options, *projects], check=True)
    return {
        path.name.split("-")[0]: set(zipfile.ZipFile(path).namelist())
        for path in folder.glob("*.whl")
    }


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_a_wheel_holds_its_packages_and_nothing_else(wheels, distribution):
    folders = {name.split("/")[0] for name in wheels[distribution]}
    assert {name for name in folders if not name.endswith(".dist-info")} == TOP_LEVEL[distribution]


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_every_package_says_that_it_is_typed(wheels, distribution):
    typed = {name.split("/")[0] for name in wheels[distribution] if name.endswith("/py.typed")}
    assert typed == TOP_LEVEL[distribution]


@pytest.mark.parametrize("distribution", TOP_LEVEL)
def test_every_module_of_the_checkout_is_in_its_wheel(wheels, distribution):
    roots = (
        ROOT / "service",
        ROOT / "replication",
        ROOT / "clients/python/src",
        ROOT / "pipeline/src",
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


def test_the_image_is_built_from_what_exists_and_is_not_ignored():
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
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
