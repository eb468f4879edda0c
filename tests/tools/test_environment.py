"""Check how the setup decides whether a tool is installed."""

import stat

import pytest

from tools import environment

pytestmark = pytest.mark.real_time


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Return a function that puts a fake Java, which prints the given text, on the PATH."""

    def put(answer):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    return put


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 1),
        ("The operation could not be completed. Unable to locate a Java Runtime.", 0),
    ],
)
def test_the_version_of_java_is_read_from_its_answer(java, answer, version):
    java(answer)
    assert environment.java_version() == version


def test_no_java_is_version_zero(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert environment.java_version() == 0


def test_a_step_is_current_only_with_the_same_inputs(tmp_path):
    locked, stamp = tmp_path / "locked.txt", tmp_path / "stamp"
    locked.write_text("grpcio==1\n")
    value = environment.digest([locked])
    assert not environment.is_current(stamp, value)
    stamp.write_text(value)
    assert environment.is_current(stamp, value)
    locked.write_text("grpcio==2\n")
    assert not environment.is_current(stamp, environment.digest([locked]))


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Return the steps of a set-up without Java, which install nothing."""
    done = []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "install", lambda _, constraints: done.append(constraints))
    monkeypatch.setattr(
        environment, "link_distributions", lambda _, folders: done.append(len(folders))
    )
    return done


def test_without_java_spark_is_left_out_and_the_output_says_so(tmp_path, steps, capsys):
    environment.set_up(tmp_path, "all")
    assert steps == ["dev", 4]
    assert "Java 17 or later was not found" in capsys.readouterr().out


def test_a_level_installs_what_it_needs(tmp_path, steps, monkeypatch):
    environment.set_up(tmp_path, "run")
    assert steps == ["build", "service", "console", 3]
    steps.clear()
    monkeypatch.setattr(environment, "java_version", lambda: 17)
    environment.set_up(tmp_path, "demo")
    assert steps == ["build", "service", "console", 4, "pipeline"]


def test_an_environment_for_development_keeps_everything(tmp_path, steps):
    """Otherwise `make dev` after `make test` would unlink distributions, and link them again."""
    (tmp_path / ".dev").write_text("")
    environment.set_up(tmp_path, "run")
    assert steps == ["dev", 4]


@pytest.mark.parametrize("status", [0, 2])
def test_uv_installs_if_it_is_there_and_pip_if_uv_fails(tmp_path, monkeypatch, status):
    log = tmp_path / "log"
    for name, ended in (("uv", status), ("env/bin/python", 0)):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho $(basename $0) >> {log}\nexit {ended}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    environment.install_with(tmp_path / "env", "--requirement", "locked.txt")
    assert log.read_text().split() == (["uv"] if status == 0 else ["uv", "python"])
