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


def test_without_java_spark_is_left_out_and_the_output_says_so(tmp_path, monkeypatch, capsys):
    steps = []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "install", lambda _, constraints: steps.append(constraints))
    monkeypatch.setattr(environment, "link_distributions", lambda _: steps.append("own"))
    environment.set_up(tmp_path)
    assert steps == ["dev", "own"]
    assert "Java 17 or later was not found" in capsys.readouterr().out
