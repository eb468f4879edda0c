"""Incompatible changes of the contract and of golden files are found, also committed ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.release import breaking
from tools.release.breaking import CommitMissing, breaking_changes
from tools.release.last_release import LastRelease, write_last_release

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
COPIED = ("buf.yaml", "RELEASE", "proto", "tests/golden")
PROTO = Path("proto/taskraft/v1/session_service.proto")
LOG_PROTO = Path("proto/taskraft/log/v1/log.proto")
FIELD = "message OpenSessionRequest {\n"
GOLDEN = Path("tests/golden/limits/v1/limits.json")


def git(folder, *arguments):
    """Run git as a user who needs no configuration; return the output."""
    user = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ("git", "-C", str(folder), *user, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder):
    """Commit all files; return the hash of the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Return a repository with the contract and golden files of this one, and its first commit."""
    folder = tmp_path_factory.mktemp("released") / "copy"
    folder.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    commit = commit_all(folder)
    write_last_release(folder, LastRelease("0.1.0", commit))
    commit_all(folder)
    return folder, commit


@pytest.fixture
def copy(released, tmp_path, monkeypatch):
    """Return a copy of the repository, which is the working directory, and the release's commit."""
    folder, commit = released
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy", commit


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has changed: {old!r}"
    path.write_text(text.replace(old, new))


def test_a_removed_field_is_refused(copy, capsys):
    folder, _ = copy
    text = (folder / PROTO).read_text()
    begin = text.index(FIELD) + len(FIELD)
    (folder / PROTO).write_text(text[:begin] + text[text.index("\n}", begin) + 1 :])
    commit_all(folder)
    assert breaking.main([]) == 1
    assert "was deleted" in capsys.readouterr().out


@pytest.mark.parametrize("path", [PROTO, LOG_PROTO], ids=["for clients", "in the log"])
def test_a_renumbered_field_is_refused(copy, capsys, path):
    folder, _ = copy
    text = (folder / path).read_text()
    assert " = 1;" in text
    (folder / path).write_text(text.replace(" = 1;", " = 1001;", 1))
    commit_all(folder)
    assert breaking.main([]) == 1
    printed = capsys.readouterr().out
    assert str(path) in printed
    assert "deleted" in printed


def test_a_rewritten_golden_file_is_refused_also_after_two_commits(copy, capsys):
    folder, _ = copy
    for text in ("{}\n", '{"again": 1}\n'):
        (folder / GOLDEN).write_text(text)
        commit_all(folder)
    assert breaking.main([]) == 1
    assert f"{GOLDEN}: the golden file was changed" in capsys.readouterr().out


def test_a_removed_golden_file_is_refused(copy):
    folder, commit = copy
    (folder / GOLDEN).unlink()
    assert breaking_changes(folder, commit) == [f"{GOLDEN}: the golden file was removed"]


def test_an_added_field_and_an_added_golden_file_pass(copy, capsys):
    folder, _ = copy
    edit(folder / PROTO, FIELD, f"{FIELD}  // A new field.\n  string added = 1001;\n\n")
    added = folder / "tests/golden/limits/v2/limits.json"
    added.parent.mkdir()
    added.write_text("{}\n")
    commit_all(folder)
    assert breaking.main([]) == 0
    assert capsys.readouterr().out == ""


def test_another_commit_can_be_named(copy):
    folder, _ = copy
    (folder / GOLDEN).write_text("{}\n")
    commit_all(folder)
    assert breaking.main(["--against", "HEAD"]) == 0
    assert breaking.main(["--against", "HEAD~1"]) == 1


def test_before_the_first_release_nothing_is_compared(copy, capsys):
    folder, _ = copy
    (folder / "RELEASE").write_text("none\n")
    (folder / GOLDEN).unlink()
    assert breaking.main([]) == 0
    assert "no release yet, so nothing is compared" in capsys.readouterr().out


def test_a_clone_without_the_commit_of_the_release_is_refused(copy, capsys):
    folder, _ = copy
    absent = "0" * 40
    with pytest.raises(CommitMissing, match="fetch the history"):
        breaking_changes(folder, absent)
    (folder / "RELEASE").write_text(f"0.1.0 {absent}\n")
    assert breaking.main([]) == 1
    assert "lacks the commit" in capsys.readouterr().out
