"""`taskraft apply` and `taskraft diff`: the differences, what is refused, and where in the file."""

import json
from dataclasses import replace

import pytest

from taskraft import errors
from taskraft.cli import confirmation, declared_changes, failures, output, pruning
from taskraft.cli.declared_changes import DeclaredChange, write_changes
from tests.clients.command_walk import state_of

FILE = """
tubes:
  - name: NAME
    kind: fifottl
    ttr: 60s
    retry: {attempts_max: 5, backoff: 1s}
schedules:
  - name: NAME
    cron: "30 2 * * *"
    tube: NAME
    payload: {report: all}
    task: {priority: 3}
"""
CREATED = """\
tube new: create
+ retry.attempts_max: 5
+ retry.backoff_ms: 1000
+ retry.backoff_ms_max: 600000
+ retry.exhausted: BURY
+ retry.factor_percent: 200
+ retry.jitter_percent: 20
+ ttr_ms: 60000
schedule new: create
+ catch_up: SKIP
+ cron: 30 2 * * *
+ overlap: ALLOW
+ spec.content_type: application/json
+ spec.payload: '{"report":"all"}'
+ spec.priority: '3'
+ tube: new
"""


@pytest.fixture
def apply(run, tmp_path):
    """Return a function that runs a command on the file `tubes.yaml`, and returns the result."""
    path = tmp_path / "tubes.yaml"

    def invoke(content, options="", command="apply", **more):
        path.write_text(content)
        return run(f"{command} -f {path} {options}", **more)

    return invoke


def sorted_parts(text):
    """Return the lines of each object in alphabetical order, behind its head line."""
    parts = []
    for line in text.splitlines():
        if line.startswith(("+", "-")):
            parts[-1][1].append(line)
        else:
            parts.append((line, []))
    return [(head, sorted(lines)) for head, lines in parts]


def test_a_file_is_applied_once(apply, taskraft):
    content = FILE.replace("NAME", "new")

    def actions(options=""):
        done = apply(content, f"{options} -o json")
        assert done.exit_code == 0, done.output
        return [(each["kind"], each["action"]) for each in json.loads(done.stdout)]

    assert actions("--dry-run") == [("tube", "create"), ("schedule", "create")]
    assert taskraft.client.list_tubes(["new"]) == []
    assert actions() == [("tube", "create"), ("schedule", "create")]
    assert taskraft.client.list_tubes(["new"])[0].options.ttr_ms == 60_000
    assert actions() == [("tube", "unchanged"), ("schedule", "unchanged")]
    content = content.replace("60s", "2m").replace("30 2", "31 2")
    assert actions() == [("tube", "update"), ("schedule", "update")]
    assert taskraft.client.list_tubes(["new"])[0].options.ttr_ms == 120_000


def test_a_difference_shows_old_and_new_values_as_lines_of_yaml(apply):
    content = FILE.replace("NAME", "new")
    shown = apply(content, "--dry-run").stdout
    assert sorted_parts(shown) == sorted_parts(CREATED)
    assert apply(content).stdout == shown
    assert apply(content).stdout == "tube new: unchanged\nschedule new: unchanged\n"
    changed = content.replace("60s", "2m").replace("priority: 3", "headers: {a.b: c}")
    assert apply(changed).stdout == (
        "tube new: update\n- ttr_ms: 60000\n+ ttr_ms: 120000\n"
        "schedule new: update\n- spec.priority: '3'\n- spec.headers: {}\n"
        "+ spec.headers:\n+   a.b: Yw==\n"
    )


def test_a_difference_has_colours_on_a_terminal_only(monkeypatch, capsys):
    changed = [DeclaredChange("tube", "a\x1b[2J", "update", {"ttr_ms": (1, "\x1b[2J")})]
    write_changes(changed, "table")
    lines = 'tube a\\u001b[2J: update\n- ttr_ms: 1\n+ ttr_ms: "\\e[2J"\n'
    assert capsys.readouterr().out == lines
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    write_changes(changed, "table")
    assert "\x1b[31m- ttr_ms: 1\x1b[0m" in capsys.readouterr().out
    assert set(declared_changes._COLOURS) == {"+", "-"}


def test_diff_shows_what_apply_would_change_and_tells_by_its_exit_code(apply, taskraft):
    content = FILE.replace("NAME", "new")
    before = state_of(taskraft.client)
    shown = apply(content, command="diff")
    assert (shown.exit_code, shown.stderr) == (1, "")
    assert shown.stdout == apply(content, "--dry-run").stdout
    assert state_of(taskraft.client) == before
    assert apply(content).exit_code == 0
    same = apply(content, command="diff")
    assert (same.exit_code, same.stdout) == (0, apply(content).stdout)
    assert json.loads(apply(content, "-o json", "diff").stdout)[0]["action"] == "unchanged"


def test_a_failure_of_diff_has_another_exit_code_than_a_difference(
    apply, tmp_path, capsys, monkeypatch
):
    assert apply("[", command="diff").exit_code == 2
    assert apply("principals: {}", f"--access-file {tmp_path}/a.yaml", "diff").exit_code == 2
    contexts = tmp_path / "contexts.json"
    contexts.write_text("{")
    contexts.chmod(0o600)
    monkeypatch.setenv("TASKRAFT_CONTEXT_FILE", str(contexts))
    assert apply("tubes: [{name: a}]").exit_code == 1
    assert apply("tubes: [{name: a}]", command="diff").exit_code == 2
    with pytest.raises(failures.click.exceptions.Exit) as ended, failures.without_code_1():
        raise PermissionError(13, "Permission denied")
    assert ended.value.exit_code == failures.USAGE
    assert capsys.readouterr().err == "error: Permission denied\n"


def test_a_part_of_a_retry_policy_leaves_the_defaults_of_the_others(apply, taskraft):
    content = "tubes: [{name: plain}, {name: part, retry: {attempts_max: 5}}]"
    assert apply(content).exit_code == 0
    plain, part = (
        taskraft.client.list_tubes([name])[0].options.retry for name in ("plain", "part")
    )
    assert part == replace(plain, attempts_max=5)
    assert part.backoff > 0


WRONG = {
    "[": "1: not YAML: ",
    "": "1: the file must be a mapping",
    "a": "1: the file must be a mapping",
    "other: []": "1: other: the keys are tubes, schedules, principals",
    "tubes: {name: a}": "1: tubes: must be a list",
    "tubes:\n- kind: fifo": "2: tubes[0]: must be a mapping with a name",
    "tubes:\n- name: a\n  typo: 1": "3: tubes[0].typo: a tube has no option typo",
    "tubes:\n- {name: a}\n- name: b\n  ttr: soon": "4: tubes[1].ttr: ttr must be",
    "tubes:\n- name: a\n\n  kind: typo": "4: tubes[0].kind: kind must be",
    "tubes:\n- name: a\n  driver: 7": "3: tubes[0].driver: driver must be",
    "tubes:\n- name: a\n  profile: 7": "3: tubes[0].profile: profile must be",
    "tubes:\n- name: a\n  retry:\n    typo: 1": (
        "4: tubes[0].retry.typo: a retry policy has no part typo"
    ),
    "tubes:\n- name: a\n  retry:\n    jitter: 0.1\n    backoff: soon": (
        "5: tubes[0].retry.backoff: backoff must be"
    ),
    "tubes:\n- name: a\n  retry: 7": "3: tubes[0].retry: retry must be",
    "tubes:\n- name: a\n- name: a": "3: tubes[1].name: a stands twice",
    "tubes:\n- name: a\n  ttr: 1s\n  ttr: 2s": "4: tubes[0].ttr: the key stands twice",
    "tubes: []\nschedules: []\ntubes: []": "3: tubes: the key stands twice",
    "tubes:\n- &a {name: a, ttr: x}\n- {<<: *a, name: b}": "2: tubes[0].ttr: ttr must be",
    "schedules:\n- name: a\n  tube: a": "2: schedules[0]: cron, payload missing",
    "schedules:\n- name: a\n  cron: 7\n  tube: a\n  payload: b": "3: schedules[0].cron: cron must",
    "schedules:\n- name: a\n  cron: x\n  tube: 7\n  payload: b": "4: schedules[0].tube: ",
    "schedules:\n- name: a\n  cron: x\n  tube: a\n  payload: 2026-01-01": (
        "5: schedules[0].payload: "
    ),
    "schedules:\n- name: a\n  cron: x\n  tube: a\n  payload: b\n  typo: 1": (
        "6: schedules[0].typo: a schedule has no option typo"
    ),
    "schedules:\n- name: a\n  cron: x\n  tube: a\n  payload: b\n  jitter: soon": (
        "6: schedules[0].jitter: jitter must be"
    ),
    "schedules:\n- name: a\n  cron: x\n  tube: a\n  payload: b\n  task:\n    typo: 1": (
        "7: schedules[0].task.typo: "
    ),
    "schedules:\n- name: a\n  cron: x\n  tube: a\n  payload: b\n  task: 1": (
        "6: schedules[0].task: must be a mapping"
    ),
    "tubes:\n- name: emails\n  kind: fifo": "3: tubes[0].kind: kind is fixed at the creation of",
}


@pytest.mark.parametrize("content", WRONG)
@pytest.mark.parametrize("command", ["apply", "diff"])
def test_a_wrong_file_is_refused_as_a_whole(apply, taskraft, tmp_path, content, command):
    before = state_of(taskraft.client)
    done = apply(content, command=command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {tmp_path}/tubes.yaml:{WRONG[content]}")
    assert len(done.stderr.splitlines()) == 1
    assert state_of(taskraft.client) == before


def test_the_standard_input_is_named_in_errors(run):
    assert run("diff -f -", input="tubes: 7").stderr.startswith("error: <stdin>:1: tubes: must")


# ----------------------------------------------------------------------------------------- --prune


@pytest.fixture
def stocked(taskraft, apply):
    """Return the client of a cluster with the tube `emails` and the objects of the file."""
    assert apply(FILE.replace("NAME", "new")).exit_code == 0
    return taskraft.client


def names_of(client):
    tubes, schedules = client.list_tubes(), client.schedules.list()
    return [each.name for each in tubes], [each.name for each in schedules]


def test_prune_deletes_the_objects_of_a_kind_that_the_file_has(stocked, apply):
    assert names_of(stocked) == (["emails", "new"], ["new"])
    assert apply("tubes: [{name: new}, {name: emails}]", "--prune --yes").exit_code == 0
    assert names_of(stocked) == (["emails", "new"], ["new"]), "a kind without a key was pruned"
    assert apply("schedules:", "--prune --yes").exit_code == 0
    assert names_of(stocked)[1] == ["new"], "a key without a value was taken for an empty list"
    done = apply("tubes: [{name: more}]\nschedules: []", "--prune --yes")
    assert done.stdout == (
        "tube more: create\nschedule new: delete\ntube emails: delete\ntube new: delete\n"
    )
    assert names_of(stocked) == (["more"], [])


def test_diff_and_a_dry_run_list_what_prune_would_delete(stocked, apply):
    before = state_of(stocked)
    listed = "schedule new: delete\n"
    dry = apply("schedules: []", "--prune --dry-run")
    assert (dry.exit_code, dry.stdout) == (0, listed)
    shown = apply("schedules: []", "--prune", "diff")
    assert (shown.exit_code, shown.stdout) == (1, listed)
    assert apply("schedules: []", "", "diff").exit_code == 0
    assert state_of(stocked) == before


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_prune_asks_only_if_it_deletes_something(stocked, apply, monkeypatch, answer, code):
    content = FILE.replace("NAME", "new")
    monkeypatch.setattr(confirmation, "is_terminal", lambda: True)
    unasked = apply(content.replace("tubes:", "tubes:\n  - name: emails"), "--prune")
    assert (unasked.exit_code, unasked.stderr) == (0, "")
    done = apply("schedules: []", "--prune", input=answer)
    assert "Delete schedule new? [y/N]" in done.stderr
    assert done.exit_code == code
    assert names_of(stocked)[1] == ([] if code == 0 else ["new"])


def test_prune_refuses_tubes_with_tasks_or_in_use_by_name_before_the_first_change(stocked, apply):
    stocked.tube("emails").put("a")
    stocked.create_tube("dead")
    stocked.create_tube("free")
    before = state_of(stocked)
    done = apply("tubes: [{name: more, dead_letter_tube: dead}]", "--prune --yes")
    assert (done.exit_code, done.stdout) == (failures.CONFLICT, "")
    assert done.stderr.splitlines()[0] == (
        "error: TUBE_BUSY: only tubes without tasks and use are deleted: dead is the tube of dead "
        "letters of more; emails has 1 task; new is the tube of schedule new"
    )
    assert state_of(stocked) == before
    assert apply("tubes: []", "--prune", "diff").exit_code == failures.CONFLICT


def test_a_tube_that_became_busy_since_the_check_is_named(stocked, apply, monkeypatch):
    stocked.tube("emails").put("a")
    taken = stocked.tube("emails").take(wait=0)
    monkeypatch.setattr(pruning, "_use_of", lambda *_: "")
    done = apply("tubes: [{name: new}]", "--prune --yes")
    assert done.exit_code == failures.CONFLICT
    assert "TUBE_BUSY: emails: 1 tasks are taken" in done.stderr
    taken.ack()


def test_prune_leaves_the_schedules_of_apps(stocked, apply):
    planned = stocked.tube("new").task("a", headers={"taskraft-app": "shop"})
    stocked.schedules.create("shop/nightly", "0 0 * * *", planned)
    assert apply("schedules: []", "--prune --yes").stdout == "schedule new: delete\n"
    assert names_of(stocked)[1] == ["shop/nightly"]


def test_prune_needs_to_see_whose_a_schedule_is(stocked):
    hidden = replace(stocked.schedules.get("new"), spec=None)
    with pytest.raises(errors.NotAllowed, match=r'the schedule "new", .* to read "new"'):
        pruning.schedules_to_delete((), {"new": hidden})


REFUSED = """
tubes:
  - name: first
  - name: second
    capacity_tasks: -1
"""


def test_what_only_the_cluster_can_check_is_named_with_its_line(apply, taskraft):
    done = apply(REFUSED)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert "tubes.yaml:4: tubes[1]: INVALID_FIELD: " in done.stderr
    assert "objects before second have been applied" in done.stderr
    assert names_of(taskraft.client)[0] == ["emails", "first"]


def test_an_access_file_that_cannot_be_written_changes_nothing(apply, taskraft, tmp_path):
    text = "tubes: [{name: first}]\nprincipals: {a: {}}\n"
    done = apply(text, f"--access-file {tmp_path}/missing/access.json")
    assert (done.exit_code, "missing" in done.stderr) == (1, True), done.output
    assert names_of(taskraft.client)[0] == ["emails"]
