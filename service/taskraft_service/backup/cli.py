"""Add the commands ``snapshot`` and ``cluster recover`` to the client's command line."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from taskraft.cli.confirmation import Confirmation, destroys
from taskraft.cli.options import (
    SuggestingGroup,
    cluster_options,
    connect,
    examples,
    output_option,
)
from taskraft.cli.output import write_values
from taskraft.cli.output_shape import fields
from taskraft.cli.progress import WorkProgress
from taskraft_replication.storage.data_directory import PRIVATE_UMASK
from taskraft_service.backup.download import download, download_encrypted
from taskraft_service.backup.encryption import KeyUnusable
from taskraft_service.backup.recovery import RecoveryRefused, recovery_of
from taskraft_service.backup.restore import plain_file, restore_cluster, summarize
from taskraft_service.backup.restored_directory import RestoreRefused
from taskraft_service.backup.snapshot_file import Report, SnapshotFileInvalid
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.config.server_config import CONFIG_VARIABLE, read_config

FILE: Final = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
IDENTITY: Final = click.option(
    "--identity",
    type=EXISTING_FILE,
    envvar="TASKRAFT_SNAPSHOT_IDENTITY",
    help="File with the age private key of an encrypted snapshot.",
)


@click.group(cls=SuggestingGroup, epilog=examples("taskraft snapshot save backup.snapshot"))
def snapshot() -> None:
    """Save, verify, inspect and restore snapshots of a cluster."""


@click.command(
    epilog=examples("taskraft cluster recover --force-new"),
)
@click.option(
    "--force-new",
    is_flag=True,
    required=True,
    help="Confirm that the cluster continues with this node alone.",
)
@click.option(
    "--config",
    type=EXISTING_FILE,
    envvar="TASKRAFT_CONFIG",
    help="TOML file with the settings of the node; environment variables override it.",
)
@output_option(fields("index", "removed", "lost"), preview=fields("dry_run", "lost"))
@destroys("Lost changes cannot be restored.")
def recover(
    *, force_new: bool, config: Path | None, confirmation: Confirmation, output: str
) -> None:
    """Continue with this node alone after the loss of the majority.

    The node must be stopped. Its settings come from the same TASKRAFT_... variables and TOML file
    as for `serve`. Changes that this node has not stored are lost,
    also if other nodes have acknowledged them.
    """
    assert force_new, "the option is required"
    confirmation.check_input()
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)
    with _failures(), recovery_of(read_config()) as recovery:
        losses = list(recovery.losses)
        click.echo(
            f"The node in {recovery.config.data_dir} becomes the only member of its cluster.\n"
            "Acknowledged tasks that only other nodes have stored are lost for good.\n"
            "No other node may run with its old data again: delete its data directory first.",
            err=True,
        )
        for loss in losses:
            click.echo(f"damaged on this node, and given up: {loss}", err=True)
        if not confirmation.allows(lambda: "Continue?", lambda: _preview(losses, output)):
            return
        recovered = recovery.run()
    removed = list(recovered.removed)
    values = {"index": str(recovered.index), "removed": removed, "lost": losses}
    if write_values([values], output):
        return
    others = ", ".join(removed) or "none"
    click.echo(f"recovered up to entry {recovered.index}; removed members: {others}", err=True)


def _preview(losses: list[str], output: str) -> None:
    """Print what a recovery would give up because it is damaged."""
    if not write_values([{"dry_run": True, "lost": losses}], output):
        click.echo(f"would be recovered; {len(losses)} damaged parts would be given up", err=True)


FAILURES: Final = (
    SnapshotFileInvalid,
    KeyUnusable,
    RestoreRefused,
    RecoveryRefused,
    ConfigInvalid,
)


@contextmanager
def _progress(doing: str) -> Iterator[Report]:
    """Show the progress of a snapshot file; yield the function that reports its pieces."""
    with WorkProgress(doing, unit="bytes") as progress:

        def report(piece_bytes: int, content_bytes: int) -> None:
            progress.expect(content_bytes)
            progress.advance(piece_bytes)

        yield report


@contextmanager
def _private_files() -> Iterator[None]:
    """Create files for the own user alone, as a node does."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn the errors of files, keys and directories into one line and exit code 1."""
    try:
        yield
    except FAILURES as error:
        raise click.ClickException(str(error)) from error


@snapshot.command(
    epilog=examples(
        "taskraft snapshot save backup.snapshot",
        "taskraft snapshot save backup.snapshot.age --recipient age1...",
    )
)
@click.argument("file", type=FILE)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option(
    "--recipient",
    "recipients",
    multiple=True,
    envvar="TASKRAFT_SNAPSHOT_RECIPIENT",
    metavar="KEY",
    help="Encrypt the file for this age public key; may be repeated.",
)
@click.option(
    "--local",
    is_flag=True,
    help="Save the state that one node has applied. This works without a majority of the nodes.",
)
@cluster_options
def save(
    *,
    file: Path,
    overwrite: bool,
    recipients: tuple[str, ...],
    local: bool,
    target: str | None,
    timeout: float,
) -> None:
    """Save the state of the cluster to a file, while the cluster works.

    The file contains everything that was acknowledged before the call, except the tasks of
    temporary tubes. FILE.part holds an incomplete file. The same command continues an incomplete
    file for some minutes, unless the file is encrypted. The command ends after the time --timeout
    without a piece of the state.
    """
    if file.exists() and not overwrite:
        raise click.ClickException(f"{file} exists; choose another name, or use --overwrite")
    part = file.with_name(file.name + ".part")
    with _failures(), connect(target, timeout) as client, _progress("saving") as report:
        if recipients:
            info = download_encrypted(client, part, recipients, local=local, report=report)
        else:
            info = download(client, part, local=local, report=report)
        part.replace(file)
    click.echo(f"saved {file}: entry {info.index} of cluster {info.cluster_id}", err=True)


@snapshot.command(epilog=examples("taskraft snapshot verify backup.snapshot"))
@click.argument("file", type=EXISTING_FILE)
@IDENTITY
def verify(file: Path, identity: Path | None) -> None:
    """Check a snapshot file: its digest, and that a queue can be opened from it.

    The check needs free disk space for the content in the directory for temporary files (TMPDIR).
    """
    with _failures(), plain_file(file, identity) as plain, _progress("reading") as report:
        summary = summarize(plain, report=report)
    click.echo(f"ok: {summary.tasks} tasks in {summary.tubes} tubes, entry {summary.info.index}")


@snapshot.command(epilog=examples("taskraft snapshot inspect backup.snapshot -o json"))
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table", show_default=True
)
@IDENTITY
def inspect(file: Path, output: str, identity: Path | None) -> None:
    """Show what a snapshot file contains; checks the file like `verify`."""
    with _failures(), plain_file(file, identity) as plain, _progress("reading") as report:
        summary = summarize(plain, report=report)
    values = {**asdict(summary.info), **asdict(summary)}
    del values["info"]
    if output == "json":
        click.echo(json.dumps(values, indent=2))
        return
    taken = datetime.fromtimestamp(summary.info.taken_at_ms / 1000, UTC)
    values["taken_at_ms"] = f"{taken:%Y-%m-%d %H:%M:%SZ}"
    for name, value in values.items():
        click.echo(f"{name.removesuffix('_ms'):<14} {value}")


@snapshot.command(epilog=examples("taskraft snapshot restore backup.snapshot"))
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--config",
    type=EXISTING_FILE,
    envvar="TASKRAFT_CONFIG",
    help="TOML file with the settings of the node; environment variables override it.",
)
@click.option(
    "--same-cluster-id",
    is_flag=True,
    help="Keep the cluster id of the snapshot. No node of the old cluster may run again.",
)
@IDENTITY
def restore(
    *, file: Path, config: Path | None, identity: Path | None, same_cluster_id: bool
) -> None:
    """Restore a snapshot into the empty data directory of the first node of a new cluster.

    The settings of the node come from the same TASKRAFT_... variables and TOML file as for `serve`.
    A restore that was interrupted can be run again for the same directory.
    Start the node afterwards: it leads alone. Then start further nodes with --join and empty data
    directories.
    """
    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)
    with _failures(), _private_files():
        settings = read_config()
        scratch = settings.data_dir.parent if settings.data_dir.parent.is_dir() else None
        with (
            plain_file(file, identity, scratch or Path(tempfile.gettempdir())) as plain,
            _progress("restoring") as report,
        ):
            info = restore_cluster(
                plain,
                settings,
                same_cluster=same_cluster_id,
                report=report,
            )
    click.echo(
        f"restored entry {info.index} of cluster {info.cluster_id} into {settings.data_dir} "
        f"as cluster {settings.cluster_id}",
        err=True,
    )
