"""Commands that destroy something declare it; the declaration asks, refuses, previews and explains.

The walk runs the examples of all commands. It finds a command that calls a destroying method of the
contract without the declaration.
"""

import json

import click
import pytest

from taskraft.cli import confirmation
from taskraft.cli.failures import NOT_FOUND
from tests.clients.command_walk import (
    VERBS,
    declaration_of,
    invoke,
    lines_of,
    of_this_cluster,
    state_of,
    stock,
    with_option,
)
from tests.clients.conftest import recorded
from tests.clients.test_cli_commands import ALL
from tests.docs.test_features import CONTRACT

DESTROYING = {
    *("DeleteTasks", "CancelTasks", "RestartTasks", "MoveTasks", "SnatchTasks", "UpdateTasks"),
    *("DropTube", "TruncateTube", "ReleaseAll", "CancelGroup", "DeleteSchedule", "StartBulkSweep"),
    *("RemoveMember", "UpgradeCluster", "SwitchTasks", "ExecuteBatch"),
}
"""Methods with an effect that no other method undoes."""
KEEPING = {
    *("GetServerInfo", "GetClusterState", "GetCaller", "ListAudit", "SaveSnapshot", "AddMember"),
    *("PromoteMember", "TransferLeadership", "Configure", "DescribeFeed", "WatchFeed"),
    *("ReadChanges", "ResolveTimestamp", "CommitCursor", "GetTaskEvents", "OpenTaskSnapshot"),
    *("ReadTaskSnapshot", "CreateGroup", "StartGroup", "SetEndTask", "GetGroup", "ListGroups"),
    *("CreateSchedule", "UpdateSchedule", "GetSchedule", "ListSchedules", "OpenSession"),
    *("KeepSessions", "CloseSession", "ListSessions", "ListLeases", "PutTasks", "TakeTasks"),
    *("SettleTasks", "Subscribe", "GetTasks", "ListTasks", "KickTasks", "BuryTasks", "WaitTasks"),
    *("GetBulkSweep", "ListBulkSweeps", "StopBulkSweep", "CreateTube", "UpdateTube", "ListTubes"),
    *("GetStatistics", "GetHistory", "ListFailures", "ListConsumers", "CountTasks", "GetTaskGraph"),
}
"""Methods that read, add, settle own leases, or change options that can be changed back."""
OWN = {("bench",): "drops the tube that it has created"}
"""Commands that destroy only what they have created."""
OTHERS = [("cluster", "recover"), ("app", "apply")]
"""Commands with the declaration that call no node, or that of an app."""
DECLARED = [path for path in VERBS if declaration_of(path) and path not in OTHERS]
CALLING = [path for path in VERBS if "timeout" in {one.name for one in ALL[path].params}]


@pytest.fixture
def client(taskraft, emails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stock(taskraft.client)
    return taskraft.client


@pytest.fixture
def calls(taskraft, client):
    return recorded(taskraft._inner)


def destroying(calls):
    return [call.method for call in calls.calls if call.method in DESTROYING]


def asking_lines(path):
    """Return the examples of a command that ask for confirmation, without --yes."""
    declaration = declaration_of(path)
    for words in lines_of(path):
        line = [word for word in words if word != "--yes"]
        context = ALL[path].make_context(path[-1], line[len(path) :])
        if declaration is True or declaration.holds(context.params):
            yield line


def test_each_method_of_the_contract_is_known():
    methods = {
        method.name
        for module in CONTRACT
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert methods == DESTROYING | KEEPING
    assert not DESTROYING & KEEPING


@pytest.mark.parametrize("path", CALLING, ids=" ".join)
def test_a_command_that_calls_a_destroying_method_declares_it(calls, path):
    for words in lines_of(path):
        if path == ("feed", "tail") and "--no-follow" not in words:
            continue  # never ends
        small = ["--tasks", "2"] if path == ("bench",) else []
        yes = ["--yes"] if declaration_of(path) else []
        invoke(with_option(words, *small, *yes), path)
    assert bool(declaration_of(path) or path in OWN) is bool(destroying(calls))


@pytest.mark.parametrize("path", DECLARED, ids=" ".join)
def test_without_a_terminal_a_declared_command_needs_yes(client, calls, path):
    lines = [*asking_lines(path)]
    assert lines, "no example asks for confirmation"
    for line in lines:
        calls.calls.clear()
        done = invoke(line, path)
        assert (done.exit_code, done.stdout, "--yes" in done.stderr) == (2, "", True), line
        assert not calls.calls, line


@pytest.mark.parametrize("path", DECLARED, ids=" ".join)
@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("", 130)])
def test_a_question_that_is_not_answered_with_yes_changes_nothing(
    client, calls, path, answer, code, monkeypatch
):
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    before = state_of(client)
    for line in asking_lines(path):
        done = invoke(of_this_cluster(line, path), path, input=answer)
        assert (done.exit_code, "? [y/N]: " in done.stderr) == (code, True), done.output
        assert ("nothing was changed" in done.stderr) is bool(answer)
    assert not destroying(calls)
    assert state_of(client) == before


@pytest.mark.parametrize("path", DECLARED, ids=" ".join)
def test_a_dry_run_of_a_declared_command_shows_the_effect_and_changes_nothing(client, calls, path):
    before = state_of(client)
    codes = set()
    for words in lines_of(path):
        line = of_this_cluster(words, path)
        shown = invoke(with_option(line, "--dry-run"), path)
        codes.add(shown.exit_code)
        if shown.exit_code == NOT_FOUND:
            continue  # an id that the tube does not have
        assert shown.stdout
        value = json.loads(invoke(with_option(line, "--dry-run", "-o", "json"), path).stdout)
        assert len(value) == 1 or "--prune" in line
    assert {0} <= codes <= {0, NOT_FOUND}
    assert not destroying(calls)
    assert state_of(client) == before


@pytest.mark.parametrize("path", [*DECLARED, *OTHERS], ids=" ".join)
def test_the_help_of_a_declared_command_tells_the_rule(path):
    command = ALL[path]
    text = command.get_help(click.Context(command, info_name=path[-1]))
    assert "asks for confirmation, and needs --yes" in " ".join(text.split())
    assert {"--yes", "--dry-run"} <= {name for option in command.params for name in option.opts}


def test_ids_are_changed_without_a_question(run, client):
    assert run("task update emails 3 --priority 7").stdout == "1 changed\n"
    assert run("task move emails 3 --to parked").stdout == "1 moved\n"
    assert run("bulk start kick emails -o 'template={number}'").exit_code == 0


def test_the_removal_of_a_member_tells_what_remains(run, client, monkeypatch):
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    asked = run("cluster remove memory", input="n\n").stderr
    assert "0 voters remain, and tolerate 0 down. Remove the member memory permanently?" in asked
    assert run("cluster remove nobody", input="y\n").exit_code == 1
    assert (
        run("cluster remove memory --dry-run -o 'template={voters} {can_lose}'").stdout == "0 0\n"
    )
