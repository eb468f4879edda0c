"""Commands take tasks as `-o name` prints them, as arguments and from the standard input."""

import json

import pytest


@pytest.fixture
def tasks(run):
    for tube in ("mail", "bulk"):
        run(f"tube create {tube}")
        run(f"put {tube} -", input="1\n2\n3\n")


def ids_of(run, tube):
    lines = run(f"task list {tube} -o name").stdout.split()
    return [line.removeprefix(f"{tube}/") for line in lines]


def test_names_of_several_tubes_are_accepted(run, tasks):
    done = run("delete mail/1 bulk/3 mail/2 --yes")
    assert done.stdout.splitlines() == ["2 deleted", "1 deleted"]
    assert (ids_of(run, "mail"), ids_of(run, "bulk")) == (["3"], ["1", "2"])


def test_the_output_of_a_command_is_the_input_of_another(run, tasks):
    names = run("task list bulk --where 'id > 1' -o name").stdout
    assert names == "bulk/2\nbulk/3\n"
    assert run("task bury -", input=f"\n{names}").stdout == "2 buried\n"
    assert run("task restart - --delay 1m", input=names).exit_code == 0
    states = [run(f"peek bulk/{task_id} -o json").stdout for task_id in (1, 2, 3)]
    assert [json.loads(state)[0]["state"] for state in states] == ["READY", "DELAYED", "DELAYED"]


@pytest.mark.parametrize(
    "line",
    [
        *("task show", "task explain", "peek", "task wait", "task snatch", "task update"),
        "task switch",
    ],
)
def test_every_command_for_tasks_takes_a_name(run, tasks, line):
    words = {
        "task wait": "--wait 0s",
        "task update": "--priority 1",
        "task switch": "--to ready",
    }.get(line, "")
    named, split, read = (
        run(f"{line} {task} {words} -o json", input=given)
        for task, given in (("mail/2", ""), ("mail 2", ""), ("-", "mail/2\n"))
    )
    assert named.output == split.output == read.output != ""
    assert named.exit_code == split.exit_code == read.exit_code


@pytest.mark.parametrize(
    ("line", "text", "why"),
    [
        ("delete mail/1 2 --yes", "", "'2' is not a task"),
        ("delete mail/x --yes", "", "'x' is not a valid id"),
        ("delete /1 --yes", "", "'/1' is not a task"),
        ("delete - 1 --yes", "mail/1\n", "no further names"),
        ("delete - --yes", "mail/1\nbulk\n", "'bulk' is not a task"),
        ("delete - --yes", "\n", "names no task"),
        ("delete - ", "mail/1\n", "give --yes"),
        ("delete mail/1 --where 'id > 0' --yes", "", "either ids or a filter"),
        ("peek mail", "", "Give tasks"),
        ("task show mail", "", "Give tasks"),
        ("task show mail/1 2", "", "'2' is not a task"),
        ("task show -", "mail/1\nmail/2\n", "Give one task"),
    ],
)
def test_a_malformed_name_changes_nothing(run, tasks, line, text, why):
    done = run(line, input=text)
    assert (done.exit_code, why in done.stderr) == (2, True), done.stderr
    assert (ids_of(run, "mail"), ids_of(run, "bulk")) == (["1", "2", "3"], ["1", "2", "3"])


def test_a_dry_run_of_redrive_counts_what_the_run_moves(run):
    run("tube create dead")
    run("tube create mail --dead-letter-tube dead --exhausted dead_letter --attempts-max 1")
    run("put mail -", input="1\n2\n")
    for line in run("take mail --max 2 --keep -o jsonl").stdout.splitlines():
        run(f"release {json.loads(line)['token']} --reason down")
    run("put dead -", input="1\n2\n3\n")
    for words in ("", "--where 'id > 0'"):
        planned = run(f"task redrive dead {words} --dry-run").stdout
        assert planned.startswith("2 would be moved back"), planned
    assert run("task redrive dead --where 'id > 0' --yes").stdout == "2 moved back\n"


def test_a_task_that_is_named_twice_is_changed_once(run, tasks):
    assert run("task update mail 1 2 1 --priority 5").stdout == "2 changed\n"
    assert run("task bury -", input="mail/1\nmail/1\n").stdout == "1 buried\n"
    done = run("delete mail 3 3 --yes")
    assert (done.exit_code, done.stdout) == (0, "1 deleted\n"), done.output
    assert ids_of(run, "mail") == ["1", "2"]
