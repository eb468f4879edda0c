"""All command lines that the help shows as examples, and a cluster in which they have an effect."""

import shlex
from pathlib import Path

import click
from click.testing import CliRunner

from taskraft.cli import main
from tests.clients.test_cli_commands import ALL, examples

VERBS = sorted(path for path, command in ALL.items() if not isinstance(command, click.Group))
INPUTS = {
    ("apply",): "schedules: [{name: hourly, cron: 0 * * * *, tube: reports, payload: a}]\n",
    ("diff",): "tubes: [{name: emails, ttr: 7s}]\n",
    ("import",): '{"format": "taskraft.task.v2", "state": "READY", "spec": {"payload": "YQ=="}}\n',
    ("put",): '{"to": "a@b.c"}\n',
}
"""Standard input of the examples that read their input."""


def lines_of(path):
    """Return the examples of a command as lists of words, without those of a dry run."""
    found = [shlex.split(line.partition(" < ")[0])[1:] for line in examples(ALL[path])]
    return [words for words in found if "--dry-run" not in words]


def declaration_of(path):
    """Return the condition under which a command destroys something; True: always; None: never."""
    return getattr(ALL[path].callback, "destroys", None)


def invoke(words, path, **options):
    """Run a command line, which is an example of a command with further words."""
    options.setdefault("input", INPUTS.get(path, ""))
    return CliRunner().invoke(main, words, **options)


def with_option(words, *option):
    """Return a command line with an option, which stands before "--"."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *option, *words[end:]]


def of_this_cluster(words, path):
    """Return a line with the name of the only member, and with a file in place of the input."""
    names = {"n4": "memory"}
    if path in INPUTS:
        file = Path("input")
        file.write_text(INPUTS[path])
        names["-"] = str(file)
    return [names.get(name, name) for name in words]


def stock(client):
    """Create the tubes, tasks, groups and schedules that the examples name."""
    for name in ("mail", "dead", "parked", "books", "orders", "reports", "sums", "invoices"):
        client.create_tube(name, on_ack="keep")
    emails = client.tube("emails")
    client.update_tube("emails", dead_letter_tube="dead", ttr=60)
    emails.put_many([f"{n}" for n in range(20)], type="mail")
    emails.bury([17, 18, 19])
    for task in emails.take_many(2, wait=0):
        task.reject(reason="broken")
    client.tube("sums").put("1")
    client.tube("sums").take(wait=0)
    client.groups.create("book-1")
    client.tube("books").put("page", group="book-1")
    client.schedules.create("nightly", "30 2 * * *", client.tube("reports").task("all"))


def state_of(client):
    """Return everything that a command can change in a cluster."""
    tubes = [each.message for each in client.list_tubes()]
    groups, schedules = client.groups.list(), client.schedules.list()
    tasks = [task.message for tube in tubes for task in client.tube(tube.name).list()]
    messages = [*tubes, *tasks, *(each.message for each in (*groups, *schedules))]
    others = [client.configure(), *client.bulk_sweeps()]
    members = client.cluster_state()
    return [
        *(each.SerializeToString(deterministic=True) for each in (*messages, *others)),
        *(each.SerializeToString(deterministic=True) for each in members.members),
        members.cluster_version,
    ]
