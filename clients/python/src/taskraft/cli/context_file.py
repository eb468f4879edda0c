"""The file of contexts: clusters by name, with their addresses and credentials."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

import click

from taskraft.cli import failures

FILE_VARIABLE: Final = "TASKRAFT_CONTEXT_FILE"
"""Path of the file; default: contexts.json in the configuration directory of the user."""
NAME_VARIABLE: Final = "TASKRAFT_CONTEXT"
"""Name of the context that overrides the current one."""
_OF_OTHERS: Final = 0o077
"""Permissions of everybody but the owner."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.@:-]{1,128}")


class ContextNotFound(click.ClickException):
    """No context has the given name."""

    exit_code = failures.NOT_FOUND


class ContextExists(click.ClickException):
    """A context has the given name already."""

    exit_code = failures.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """A cluster, and references to the credentials for it."""

    target: str
    """Addresses of nodes, host:port,host:port."""
    ca: str = ""
    """Path of the CAs of the nodes' certificates."""
    cert: str = ""
    """Path of the client certificate."""
    key: str = ""
    """Path of the private key of the client certificate."""
    token_file: str = ""
    """Path of the file with the token."""
    token_variable: str = ""
    """Name of the environment variable with the token."""

    def access(self) -> dict[str, str]:
        """Return the credentials as options of `taskraft.credentials`.

        Raises:
            click.UsageError: the variable with the token is not set.
        """
        options = {name: getattr(self, name) for name in ("ca", "cert", "key", "token_file")}
        if self.token_variable:
            token = os.environ.get(self.token_variable, "")
            if not token:
                raise click.UsageError(
                    f"The variable {self.token_variable}, which the context names, is not set."
                )
            options["token"] = token
        return options


@dataclass(slots=True)
class ContextFile:
    """The contexts of a user; `save` writes them, readable and writable by the owner only."""

    path: Path
    current: str = ""
    """Name of the context in use; empty: none."""
    previous: str = ""
    """Name of the context in use before."""
    contexts: dict[str, ClusterContext] = field(default_factory=dict)

    @classmethod
    def load(cls) -> ContextFile:
        """Return the contexts of the file; no contexts if the file does not exist.

        Raises:
            click.ClickException: the content is not that of a file of contexts, or others may read
                or write the file, and could lead the commands to another cluster.
            OSError: the file cannot be read.
        """
        given = os.environ.get(FILE_VARIABLE)
        path = Path(given) if given else Path(click.get_app_dir("taskraft"), "contexts.json")
        if not path.exists():
            return cls(path)
        if os.name == "posix" and path.stat().st_mode & _OF_OTHERS:
            raise click.ClickException(f"others have access to {path}; run: chmod 600 {path}")
        try:
            content = json.loads(path.read_text())
            contexts = {
                name: ClusterContext(**options) for name, options in content["contexts"].items()
            }
            return cls(path, str(content["current"]), str(content["previous"]), contexts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise click.ClickException(f"{path} is not a file of contexts: {error}") from error

    def find(self, name: str) -> ClusterContext:
        """Return the context with a name.

        Raises:
            ContextNotFound: there is none.
        """
        found = self.contexts.get(name)
        if found is None:
            raise ContextNotFound(
                f'the context "{name}" does not exist; `taskraft context list` shows the contexts'
                if name
                else "no context is in use; choose one with `taskraft context use`"
            )
        return found

    def add(self, name: str, context: ClusterContext, *, replaces: bool) -> None:
        """Add a context; the first context becomes the current context.

        Raises:
            click.BadParameter: the name is malformed.
            ContextExists: the name is in use and `replaces` is False.
        """
        if not _NAME.fullmatch(name):
            raise click.BadParameter(
                'a name has 1 to 128 letters, digits, "_", "-", ".", "@" and ":"', param_hint="NAME"
            )
        if name in self.contexts and not replaces:
            raise ContextExists(
                f'the context "{name}" exists; give --replace to replace the context'
            )
        self.contexts[name] = context
        self.current = self.current or name

    def use(self, name: str) -> str:
        """Make a context the current context, "-": the previous context; return its name.

        Raises:
            ContextNotFound: there is no such context.
        """
        chosen = self.previous if name == "-" else name
        self.find(chosen)
        if chosen != self.current:
            self.previous, self.current = self.current, chosen
        return chosen

    def remove(self, name: str) -> None:
        """Remove a context; if the context was the current one, no context is in use.

        Raises:
            ContextNotFound: there is none.
        """
        self.find(name)
        del self.contexts[name]
        self.current = "" if self.current == name else self.current
        self.previous = "" if self.previous == name else self.previous

    def save(self) -> None:
        """Replace the file in one step, with mode 0600.

        Raises:
            OSError: the file cannot be written.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {
            "current": self.current,
            "previous": self.previous,
            "contexts": {name: asdict(each) for name, each in sorted(self.contexts.items())},
        }
        # The file of `mkstemp` has mode 0600 from the start.
        descriptor, written = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(content, indent=2) + "\n")
            Path(written).replace(self.path)
        except OSError:
            Path(written).unlink(missing_ok=True)
            raise


FIELDS: Final = tuple(each.name for each in fields(ClusterContext))
