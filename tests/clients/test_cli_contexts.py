"""Contexts of the command line: the file, the order of precedence, and credentials."""

import json
import stat

import pytest


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    """Return the path of an empty file of contexts."""
    path = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv("TASKRAFT_CONTEXT_FILE", str(path))
    return path


@pytest.fixture
def bare(contexts, run_remote):
    """Run a line without TASKRAFT_TARGET."""
    return run_remote


@pytest.mark.real_time
def test_the_first_context_is_used_by_every_command(cluster, bare, contexts):
    assert bare(f"context add here {cluster.target}").exit_code == 0
    assert bare("put emails a").stdout == "emails/1  READY\n"
    assert stat.S_IMODE(contexts.stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts.parent.stat().st_mode) == 0o700


@pytest.mark.real_time
def test_a_context_is_chosen_by_option_variable_and_use(cluster, bare, monkeypatch):
    bare("context add nowhere 127.0.0.1:1")
    bare(f"context add here {cluster.target}")
    assert bare("stats --timeout 500ms").exit_code == 5
    assert bare("stats --context here").exit_code == 0
    assert bare("--context here stats").exit_code == 0
    monkeypatch.setenv("TASKRAFT_CONTEXT", "here")
    assert bare("stats").exit_code == 0
    assert bare("context show -o name").stdout == "here\n"
    monkeypatch.delenv("TASKRAFT_CONTEXT")
    assert bare("context use here").exit_code == 0
    assert bare("stats").exit_code == 0
    assert bare("context use -").stdout.split()[-2:] == ["nowhere", "127.0.0.1:1"]


@pytest.mark.real_time
def test_a_target_replaces_the_context_with_its_credentials(cluster, bare, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("secret")
    bare(f"context add secured 127.0.0.1:1 --token-file {tmp_path / 'token'}")
    # With the token of the context, the connection would use TLS and fail.
    assert bare(f"stats -t {cluster.target}").exit_code == 0
    monkeypatch.setenv("TASKRAFT_TARGET", cluster.target)
    assert bare("stats").exit_code == 0
    assert bare("stats --context secured --timeout 500ms").exit_code == 5


@pytest.mark.real_time
def test_the_target_of_a_context_never_gets_credentials_of_the_environment(
    cluster, bare, monkeypatch
):
    bare(f"context add here {cluster.target}")
    monkeypatch.setenv("TASKRAFT_TOKEN", "secret")
    assert bare("stats").exit_code == 0
    assert bare(f"stats -t {cluster.target} --timeout 500ms").exit_code == 5


def test_the_file_holds_references_and_no_secrets(bare, contexts, tmp_path, monkeypatch):
    monkeypatch.setenv("PROD_TOKEN", "very-secret")
    (tmp_path / "ca.pem").write_text("any")
    monkeypatch.chdir(tmp_path)
    assert bare("context add p n:1 --ca ca.pem --token-variable PROD_TOKEN").exit_code == 0
    (shown,) = json.loads(bare("context show p -o json").stdout)
    assert (shown["ca"], shown["token_variable"]) == (str(tmp_path / "ca.pem"), "PROD_TOKEN")
    assert "very-secret" not in contexts.read_text()
    monkeypatch.delenv("PROD_TOKEN")
    done = bare("stats")
    assert done.exit_code == 2
    assert "PROD_TOKEN" in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("context add here 127.0.0.1:2", 4),
        ("context add 'a b' 127.0.0.1:2", 2),
        ("context add b nonsense", 2),
        ("context add b host:99999", 2),
        ("context add b n:1 --cert missing", 2),
        ("context add b n:1 --ca missing", 2),
        ("context add b n:1 --token-file x --token-variable Y", 2),
        ("context use typo", 3),
        ("context use -", 3),
        ("context show typo", 3),
        ("context remove typo", 3),
        ("stats --context typo", 3),
        ("stats --context here -t 127.0.0.1:1", 2),
    ],
)
def test_bad_input_changes_nothing_and_is_one_line(bare, contexts, line, code):
    bare("context add here 127.0.0.1:1")
    before = contexts.read_text()
    done = bare(line)
    assert (done.exit_code, done.stdout) == (code, "")
    assert [each for each in done.stderr.splitlines() if not each.startswith("hint:")] == [
        done.stderr.splitlines()[0]
    ]
    assert contexts.read_text() == before


def test_a_removed_context_is_no_longer_in_use(bare, contexts):
    bare("context add here 127.0.0.1:1")
    assert bare("context remove here").exit_code == 0
    assert json.loads(contexts.read_text()) == {"contexts": {}, "current": "", "previous": ""}
    assert bare("context show").exit_code == 3


def test_a_damaged_file_is_reported(bare, contexts):
    contexts.parent.mkdir()
    contexts.write_text("{}")
    contexts.chmod(0o600)
    done = bare("stats")
    assert done.exit_code == 1
    assert "not a file of contexts" in done.stderr


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_to_which_others_have_access_is_refused(bare, contexts, mode):
    bare("context add here 127.0.0.1:1")
    contexts.chmod(mode)
    done = bare("context list")
    assert done.exit_code == 1
    assert f"run: chmod 600 {contexts}" in done.stderr
    contexts.chmod(0o600)
    assert bare("context list").exit_code == 0
