"""Change the access file of a node: principals with their credentials and grants."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskraft.cli.declared_changes import DeclaredChange
from taskraft.cli.yaml_file import InvalidDeclaration

if TYPE_CHECKING:
    from taskraft.cli.yaml_file import KeyPath

ROLES: Final = ("admin", "producer", "consumer", "reader")
_FIELDS: Final = ("tokens", "certificates", "grants")
_SPEAKS_FOR: Final = "speaks_for"
_GRANT_FIELDS: Final = {"role", "tubes"}
_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:*-]{1,128}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MODE: Final = 0o600
"""Mode of a new file: only its owner may read the names and grants."""


class AccessFile:
    """The principals of an access file in TOML or JSON, and their declared changes.

    The rules for the content are those of the server, which keeps the previous principals in force
    if a file is invalid.

    Args:
        path: the file, whose name ends in ".toml" or ".json"; it may be missing.
        declared: principals to create or to change.
        prune: True: delete all others; False: they stay as they are.

    Raises:
        ValueError: the file is invalid.
        InvalidDeclaration: a declaration is invalid.
    """

    def __init__(self, path: Path, declared: Mapping[str, Any], *, prune: bool) -> None:
        if path.suffix not in (".toml", ".json"):
            raise ValueError(f"{path}: the name of the access file must end in .toml or .json")
        self._path: Final = path
        present = _read(path)
        wanted = {name: _principal(name, each) for name, each in declared.items()}
        self._principals: Final = wanted if prune else {**present, **wanted}
        _check_credentials(self._principals)
        self.changes: Final = [
            *(_change(name, each, present.get(name)) for name, each in wanted.items()),
            *(
                DeclaredChange("principal", name, "delete")
                for name in present
                if name not in self._principals
            ),
        ]

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Write the new file beside the old one, and replace the old one after the block.

        No node reads half of a file. The mode stays. Nothing is replaced if the block fails.

        Raises:
            OSError: the folder cannot be written; raised before the block.
        """
        if all(change.action == "unchanged" for change in self.changes):
            yield
            return
        content = self._as_toml() if self._path.suffix == ".toml" else self._as_json()
        mode = self._path.stat().st_mode & 0o777 if self._path.exists() else _MODE
        folder = self._path.absolute().parent
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            yield
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _as_json(self) -> str:
        return json.dumps({"principals": self._principals}, indent=2) + "\n"

    def _as_toml(self) -> str:
        """Return the file with the changed principals; all other text and comments stay."""
        import tomlkit

        text = self._path.read_text() if self._path.exists() else "[principals]\n"
        document = tomlkit.parse(text)
        for change in self.changes:
            if change.action == "delete":
                del document["principals"][change.name]
            elif change.action != "unchanged":
                declared = self._principals[change.name]
                document["principals"][change.name] = declared
        return tomlkit.dumps(document)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the principals of a file; none if the file is missing."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    is_toml = path.suffix == ".toml"
    try:
        content = tomllib.loads(text) if is_toml else json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not {'TOML' if is_toml else 'JSON'}: {error}") from None
    is_mapping = isinstance(content, dict) and set(content) == {"principals"}
    if not is_mapping or not isinstance(content["principals"], dict):
        raise ValueError(f'{path} must have the mapping "principals", and nothing else')
    try:
        return {name: _principal(name, each) for name, each in content["principals"].items()}
    except InvalidDeclaration as error:
        raise ValueError(f"{path}: {error}") from None


def _principal(name: object, declared: object) -> dict[str, Any]:
    """Return the checked fields of a principal, with an empty list for an absent one.

    The field `speaks_for` is there only if it is true.
    """
    path = ("principals", str(name))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidDeclaration(path, "a name has 1 to 64 of A-Z a-z 0-9 _ . @ -")
    known = (*_FIELDS, _SPEAKS_FOR)
    if not isinstance(declared, dict):
        raise InvalidDeclaration(path, f"must be a mapping of {', '.join(known)}")
    for unknown in declared.keys() - known:
        raise InvalidDeclaration((*path, str(unknown)), f"the fields are {', '.join(known)}")
    fields = {each: declared.get(each) or [] for each in _FIELDS}
    # The value is left out: it may be a token that was written in place of its digest.
    _check_texts(
        fields["tokens"], _DIGEST, (*path, "tokens"), "digests such as sha256:9f86..., in a list"
    )
    _check_texts(
        fields["certificates"], re.compile(".+"), (*path, "certificates"), "names, in a list"
    )
    _check_grants(fields["grants"], (*path, "grants"))
    if declared.get(_SPEAKS_FOR, False) not in (True, False):
        raise InvalidDeclaration((*path, _SPEAKS_FOR), "must be true or false")
    return {**fields, _SPEAKS_FOR: True} if declared.get(_SPEAKS_FOR) else fields


def _check_texts(values: object, pattern: re.Pattern[str], path: KeyPath, expected: str) -> None:
    if not isinstance(values, list):
        raise InvalidDeclaration(path, f"must be {expected}")
    for position, each in enumerate(values):
        if not isinstance(each, str) or not pattern.fullmatch(each):
            raise InvalidDeclaration((*path, position), f"{path[-1]} must be {expected}")


def _check_grants(grants: object, path: KeyPath) -> None:
    expected = "must be a list, each element with a role and tubes"
    if not isinstance(grants, list):
        raise InvalidDeclaration(path, expected)
    for position, grant in enumerate(grants):
        here = (*path, position)
        if not isinstance(grant, dict) or set(grant) != _GRANT_FIELDS:
            raise InvalidDeclaration(here, f"{path[-1]} {expected}")
        if grant["role"] not in ROLES:
            raise InvalidDeclaration((*here, "role"), f"must be one of {', '.join(ROLES)}")
        if not grant["tubes"]:
            raise InvalidDeclaration((*here, "tubes"), "must have a name or a pattern")
        _check_texts(grant["tubes"], _PATTERN, (*here, "tubes"), "names or patterns, in a list")


def _check_credentials(principals: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Check that no two principals share a token or the name of a certificate."""
    holders: dict[str, str] = {}
    for name, credential in _credentials(principals):
        other = holders.setdefault(credential, name)
        if other != name:
            raise InvalidDeclaration(
                ("principals", name), f"{other} has the same token or certificate"
            )


def _credentials(
    principals: Mapping[str, Mapping[str, Sequence[str]]],
) -> Iterator[tuple[str, str]]:
    for name, fields in principals.items():
        for credential in (*fields["tokens"], *fields["certificates"]):
            yield name, credential


def _change(
    name: str, wanted: Mapping[str, Any], present: Mapping[str, Any] | None
) -> DeclaredChange:
    before = present or {}
    differences = {
        each: (before.get(each), wanted[each])
        for each in _FIELDS
        if wanted[each] != before.get(each, [])
    }
    if wanted.get(_SPEAKS_FOR) != before.get(_SPEAKS_FOR):
        differences[_SPEAKS_FOR] = (before.get(_SPEAKS_FOR), wanted.get(_SPEAKS_FOR, False))
    if present is None:
        return DeclaredChange("principal", name, "create", differences)
    return DeclaredChange("principal", name, "update" if differences else "unchanged", differences)
