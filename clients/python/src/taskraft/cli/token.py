"""The command ``taskraft token``: generate a token for a principal."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

import click

from taskraft.cli.options import examples, output_option
from taskraft.cli.output_shape import fields

TOKEN_BYTES: Final = 32


@click.command(epilog=examples("taskraft token /tmp/billing.token"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option(fields("name", "digest"))
def token(*, file: Path, output: str) -> None:
    """Generate a token into FILE, and print its hash for the access file.

    FILE must not exist; only its owner will be able to read it. The nodes need the printed hash in
    the cluster's access file, never the token itself.
    """
    from taskraft.cli.output import write_values

    value = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as opened:
        opened.write(value + "\n")
    digest = f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    if not write_values([{"name": str(file), "digest": digest}], output):
        click.echo(digest)
