"""The checks of a release find a wheel that lacks something, and a step that fails."""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from tools.release import interpreters
from tools.release.__main__ import table
from tools.release.bills import LOCKS, bill_of
from tools.release.neutral_paths import neutralise_paths
from tools.release.trial import Trial, TrialFailed, clean_variables
from tools.release.wheels import FOLDERS, ReleaseFailed, digests, problems_of, run, write_sums

ROOT = Path(__file__).parent.parent.parent
METADATA = b"Metadata-Version: 2.4\nName: one\nVersion: 1.2.3\nLicense-Expression: Apache-2.0\n"
WHOLE = {
    "one/__init__.py": b"",
    "one/py.typed": b"",
    "one-1.2.3.dist-info/METADATA": METADATA,
    "one-1.2.3.dist-info/licenses/LICENSE": b"the licence",
}


@pytest.fixture
def wheel(tmp_path):
    """Return a function that writes a wheel with the files of WHOLE and further files."""

    def write(without="", **changed):
        path = tmp_path / "one-1.2.3-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as opened:
            for name, content in {**WHOLE, **changed}.items():
                if name != without:
                    opened.writestr(name, content)
        return path

    return write


def test_a_whole_wheel_has_no_problem(wheel):
    assert problems_of(wheel(), b"the licence", "1.2.3") == []


@pytest.mark.parametrize(
    ("without", "licence", "version", "problem"),
    [
        ("one/py.typed", b"the licence", "1.2.3", "no one/py.typed"),
        ("one-1.2.3.dist-info/licenses/LICENSE", b"the licence", "1.2.3", "no LICENSE"),
        ("", b"another licence", "1.2.3", "no LICENSE"),
        ("", b"the licence", "1.2.4", "version 1.2.3, not 1.2.4"),
    ],
)
def test_what_a_wheel_lacks_is_named(wheel, without, licence, version, problem):
    assert problems_of(wheel(without), licence, version) == [
        f"one-1.2.3-py3-none-any.whl: {problem}"
    ]


def test_a_wheel_without_an_expression_of_its_licences_is_a_problem(wheel):
    changed = {"one-1.2.3.dist-info/METADATA": b"Metadata-Version: 2.4\nVersion: 1.2.3\n"}
    (problem,) = problems_of(wheel(**changed), b"the licence", "1.2.3")
    assert problem.endswith("no License-Expression")


def test_the_bill_in_a_wheel_names_no_path_of_the_build(wheel):
    bill, record = "one-1.2.3.dist-info/sboms/one.cyclonedx.json", "one-1.2.3.dist-info/RECORD"
    lines = b"one/py.typed,sha256=abc,0\n%b,sha256=def,30\n" % bill.encode()
    path = wheel(**{bill: b"path+file:///build/clone/one", record: lines})
    neutralise_paths(path, Path("/build/clone"))
    with zipfile.ZipFile(path) as opened:
        content = opened.read(bill)
        rows = [line.split(",") for line in opened.read(record).decode().splitlines()]
        assert opened.namelist()[: len(WHOLE)] == list(WHOLE)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    assert content == b"path+file:///taskraft/one"
    assert rows == [["one/py.typed", "sha256=abc", "0"], [bill, f"sha256={digest}", "25"]]


def test_the_sums_name_each_file_but_themselves(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"content")
    write_sums(tmp_path)
    write_sums(tmp_path)
    digest = hashlib.sha256(b"content").hexdigest()
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  a.whl\n"
    assert digests(tmp_path) == {"a.whl": digest}


def test_each_distribution_has_a_lock_and_the_licence_of_the_repository():
    assert LOCKS.keys() == FOLDERS.keys()
    licence = (ROOT / "LICENSE").read_bytes()
    for folder in [*FOLDERS.values(), "edge"]:
        assert (ROOT / folder / "LICENSE").read_bytes() == licence, folder
        assert (ROOT / folder / "README.md").exists(), folder
    for name in LOCKS.values():
        assert (ROOT / "constraints" / f"{name}.txt").exists(), name


def test_a_bill_has_the_name_and_the_version_of_its_wheel():
    wheel = Path("var/taskraft_edge-0.1.0-cp311-abi3-manylinux2014_x86_64.whl")
    assert bill_of(wheel) == Path("var/taskraft_edge-0.1.0.cdx.json")


def test_programs_under_trial_get_no_variable_of_this_project_or_of_python(monkeypatch):
    for name in ("TASKRAFT_TARGET", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/somewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "a registry")
    clean = clean_variables()
    assert clean["PIP_INDEX_URL"] == "a registry"
    assert not {"TASKRAFT_TARGET", "PYTHONPATH", "VIRTUAL_ENV"} & clean.keys()


def test_the_first_step_that_fails_ends_a_trial_and_is_named_in_the_table(tmp_path, monkeypatch):
    def steps(_trial, _processes):
        yield "install", lambda: None
        yield "put", refuse
        yield "take", lambda: pytest.fail("a later step ran")

    def refuse():
        raise TrialFailed("no node")

    monkeypatch.setattr(Trial, "_steps", steps)
    one = Trial(Path("python"), {}, tmp_path, tmp_path)
    failure = one.run()
    assert failure == "put: no node"
    lines = table({11: one}, {11: failure}).splitlines()
    assert lines[0].split() == ["step", "Python", "3.11"]
    assert [line.split()[0] for line in lines] == ["step", "install", "result"]
    assert lines[-1].endswith("FAILED: put")


@pytest.mark.real_time
def test_a_command_of_a_trial_has_a_time_limit(tmp_path):
    one = Trial(Path(sys.executable), {}, tmp_path, tmp_path)
    with pytest.raises(TrialFailed, match="took more than"):
        one._command([sys.executable, "-c", "import signal; signal.pause()"], {}, 1)


@pytest.mark.real_time
def test_a_build_that_fails_is_reported_with_its_output(tmp_path):
    with pytest.raises(ReleaseFailed, match="broken"):
        run([sys.executable, "-c", "raise SystemExit('broken')"], tmp_path, {})


@pytest.mark.real_time
def test_an_interpreter_of_another_version_is_not_taken(tmp_path, monkeypatch):
    """A program named python3.x may be a shim of a version manager, which starts another Python."""
    minor = sys.version_info.minor
    for place in (f"3.{minor}.0", "3.90.1"):
        program = tmp_path / "versions" / place / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.symlink_to(sys.executable)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(interpreters, "MINORS", (minor, 90))
    assert list(interpreters.find_interpreters()) == [minor]
