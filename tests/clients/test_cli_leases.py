"""Commands for leases by their tokens, and changes of the state by hand, on a node in memory."""

import json

import pytest

from tests.clients.test_cli_bad_input import one_line


@pytest.fixture
def held(emails):
    """Return two taken tasks with a TTR of 60 s."""
    emails.put_many(["a", "b"], ttr=60)
    return emails.take_many(2, wait=0)


def tokens_of(tasks):
    return " ".join(str(task.token) for task in tasks)


def test_a_touch_tells_the_new_end_of_each_lease(run, emails, held):
    before = [emails.peek(task.id).message.lease_until_ms for task in held]
    done = run(f"task touch {tokens_of(held)} --by 1h --progress 0.5 --note 'half sent' -o jsonl")
    leases = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lease["token"] for lease in leases] == tokens_of(held).split()
    assert [lease["lease_until_ms"] for lease in leases] == [end + 3_600_000 for end in before]
    progress = emails.peek(held[0].id).message.progress
    assert (progress.basis_points, progress.note) == (5_000, "half sent")


def test_a_touch_tells_that_the_holder_is_asked_to_stop(run, emails, held):
    emails.cancel(held[0].id)
    first, second = run(f"task touch {tokens_of(held)}").stdout.splitlines()
    assert first.startswith(f"token {held[0].token}  touched, leased until 20")
    assert (first.endswith("asked to stop"), second.endswith("Z")) == (True, True)


def test_rejected_tasks_are_buried_or_become_dead_letters(run, taskraft, emails, held):
    done = run(f"task reject {held[0].token} --reason 'no such address'")
    assert done.stdout == f"token {held[0].token}  rejected, and BURIED\n"
    found = emails.peek(held[0].id)
    assert (found.state, found.failure) == ("BURIED", "no such address")
    taskraft.client.create_tube("dead")
    taskraft.client.update_tube("emails", dead_letter_tube="dead")
    done = run(f"task reject {held[1].token}")
    assert done.stdout.endswith("rejected, and moved to the dead-letter tube\n")
    assert len([*taskraft.client.tube("dead").list()]) == 1


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "task touch", "task reject"])
def test_tokens_are_read_from_the_input(run, verb):
    run("put emails -", input="1\n2\n")
    tokens = run("take emails --max 2 --keep -o 'template={token}'").stdout
    done = run(f"{verb} -", input=f"\n{tokens}")
    assert done.exit_code == 0, done.output
    assert [line.split()[1] for line in done.stdout.splitlines()] == tokens.split()


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        ("17 seventeen", "", "'seventeen' is not a lease token"),
        ("- 17", "17\n", "no further tokens"),
        ("-", "17\nx\n", "'x' is not a lease token"),
        ("-", "\n", "names no token"),
        ("9" * 5_000, "", "is not a lease token"),
    ],
)
@pytest.mark.parametrize("verb", ["ack", "release", "bury", "task touch", "task reject"])
def test_a_malformed_token_changes_nothing(run, calls, verb, words, text, why):
    done = run(f"{verb} {words}", input=text)
    assert (done.exit_code, done.stdout, why in done.stderr) == (2, "", True), done.stderr
    assert one_line(done)
    assert not calls.calls


def test_a_token_that_is_given_twice_is_settled_once(run, held):
    token = held[0].token
    done = run("ack -", input=f"{token}\n{token}\n")
    assert (done.exit_code, done.stdout) == (0, f"token {token}  acked\n"), done.output


@pytest.mark.parametrize("verb", ["task touch", "task reject"])
def test_a_lease_that_has_ended_is_a_conflict(run, emails, held, verb):
    emails.snatch(held[0].id)
    done = run(f"{verb} {held[0].token}")
    assert (done.exit_code, done.stdout) == (4, "")
    assert "LEASE_STALE" in done.stderr


def test_the_state_of_tasks_is_switched(run, emails):
    emails.put_many(["a", "b", "c"])
    assert run("task switch emails 1 --to done").stdout == "1 changed\n"
    assert run("task switch emails 2 --to delayed --duration 1h").stdout == "1 changed\n"
    refused = run("task switch emails --where 'id > 0' --to buried", input="")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert [task.state for task in emails.list()] == ["DONE", "DELAYED", "READY"]
    assert run("task switch emails --where 'id > 1' --to buried --yes").stdout == "2 changed\n"
    assert run("task switch emails 2 3 --to buried").stdout == "0 changed\n"
    assert [task.state for task in emails.list()] == ["DONE", "BURIED", "BURIED"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("1 --to delayed", "needs --duration"),
        ("1 --to zombie", "needs --duration"),
        ("1 --to ready --duration 1s", "has no --duration"),
        ("1 --to taken", "'taken'"),
        ("1", "--to"),
        ("--to ready", "either ids or a filter"),
    ],
)
def test_a_wrong_switch_changes_nothing(run, calls, words, why):
    done = run(f"task switch emails {words}")
    assert (done.exit_code, why in done.stderr) == (2, True), done.stderr
    assert not calls.calls
