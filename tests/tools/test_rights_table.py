"""The table of rights is complete, and each of its cells is enforced."""

import pytest

from taskraft_service.access.caller import AuthenticatedCaller, Credential, PermissionDenied
from taskraft_service.access.ownership import ownership_of
from taskraft_service.access.permission_rules import RULES, required_permissions
from taskraft_service.access.permissions import Grant, Permissions
from taskraft_service.access.principals import Principal, Principals
from tools.rights_table import PAGE, SCALER, cells, page, paths_of, role_of, text_of

CELLS = list(cells())


class Current:
    """The principals in force: one principal with some grants."""

    version = 1

    def __init__(self, grants):
        permissions = Permissions([Grant(role, (name or "any",)) for role, name in grants])
        self.principals = Principals({"p": Principal("p", permissions, frozenset({"c"}))})


def caller_with(rights):
    grants = [(role_of(verb), name) for verb, name in rights]
    return AuthenticatedCaller("p", Credential("c"), Current(grants))


def test_the_page_has_the_table_of_now():
    text = PAGE.read_text()
    assert page(text) == text, "run `python -m tools.rights_table`"


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no comments around the table"):
        page("# Security\n")


def test_each_method_has_a_row():
    named = {kind.DESCRIPTOR.name.removesuffix("Request") for kind in RULES}
    shown = {cell.method for cell in CELLS if not cell.path}
    assert shown ^ named == {"ExecuteBatch", "ScaledObjectRef", SCALER}


def test_the_fields_that_reach_other_names_have_rows():
    shown = {f"{cell.method}.{cell.path}" for cell in CELLS}
    assert shown >= {
        "PutTasks.tasks.unique_key",
        "PutTasks.tasks.group",
        "PutTasks.outcome_wait_ms",
        "SettleTasks.settlements.release.move_to",
        "UpdateTube.options.dead_letter_tube",
        "SetEndTask.end_task.tube",
    }
    put = next(kind for kind in RULES if kind.DESCRIPTOR.name == "PutTasksRequest")
    assert "tasks.depends_on.task.tube" in {text_of(path) for path in paths_of(put.DESCRIPTOR)}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.method}-{cell.path}")
def test_a_cell_is_enforced(cell):
    needed = list(dict.fromkeys(required_permissions(cell.request)))
    caller_with(needed).authorize(cell.request)
    for right in cell.rights:
        others = [each for each in needed if each != right]
        lacking = caller_with(others)
        if lacking.may(*right):
            continue  # a grant on all names covers this one too
        with pytest.raises(PermissionDenied):
            lacking.authorize(cell.request)
    for name in cell.owned:
        assert not ownership_of(caller_with(needed), cell.request).changes_all
        admin = AuthenticatedCaller("p", Credential("c"), Current([("admin", name)]))
        assert ownership_of(admin, cell.request).changes_all
