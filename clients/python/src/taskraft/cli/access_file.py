"""Change the access file of a node: principals with their credentials and grants."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from taskraft.cli.declarations import DeclaredChange

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
        declared: principals to create or to change; all others stay as they are.

    Raises:
        ValueError: the file or a declaration is invalid.
    """

    def __init__(self, path: Path, declared: Mapping[str, Any]) -> None:
        if path.suffix not in (".toml", ".json"):
            raise ValueError(f"{path}: the name of the access file must end in .toml or .json")
        self._path: Final = path
        present = _read(path)
        wanted = {name: _principal(name, each) for name, each in declared.items()}
        self._principals: Final = {**present, **wanted}
        _check_credentials(self._principals)
        self.changes: Final = [
            _change(name, each, present.get(name)) for name, each in wanted.items()
        ]

    def save(self) -> None:
        """Replace the file at once, so that no node reads half of it; keep its mode."""
        if all(change.action == "unchanged" for change in self.changes):
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
            if change.action != "unchanged":
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
    return {name: _principal(name, each) for name, each in content["principals"].items()}


def _principal(name: object, declared: object) -> dict[str, Any]:
    """Return the checked fields of a principal, with an empty list for an absent one.

    The field `speaks_for` is there only if it is true.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"principal {name!r}: a name has 1 to 64 of A-Z a-z 0-9 _ . @ -")
    if not isinstance(declared, dict) or not set(declared) <= {*_FIELDS, _SPEAKS_FOR}:
        known = ", ".join((*_FIELDS, _SPEAKS_FOR))
        raise ValueError(f"principal {name}: the fields are {known}")
    fields = {each: declared.get(each) or [] for each in _FIELDS}
    # The value is left out: it may be a token that was written in place of its digest.
    if not _are_texts(fields["tokens"], _DIGEST):
        raise ValueError(f"principal {name}: tokens are digests such as sha256:9f86..., in a list")
    if not _are_texts(fields["certificates"], re.compile(".+")):
        raise ValueError(f"principal {name}: certificates are names, in a list")
    if not _are_grants(fields["grants"]):
        raise ValueError(f"principal {name}: grants are a list, each with a role and tubes")
    for grant in fields["grants"]:
        if grant["role"] not in ROLES:
            raise ValueError(f"principal {name}: the role is one of {', '.join(ROLES)}")
        if not grant["tubes"] or not _are_texts(grant["tubes"], _PATTERN):
            raise ValueError(f"principal {name}: tubes are names or patterns, in a list")
    if declared.get(_SPEAKS_FOR, False) not in (True, False):
        raise ValueError(f"principal {name}: {_SPEAKS_FOR} is true or false")
    return {**fields, _SPEAKS_FOR: True} if declared.get(_SPEAKS_FOR) else fields


def _are_texts(values: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(values, list) and all(
        isinstance(each, str) and pattern.fullmatch(each) for each in values
    )


def _are_grants(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(each, dict) and set(each) == _GRANT_FIELDS for each in values
    )


def _check_credentials(principals: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Check that no two principals share a token or the name of a certificate."""
    holders: dict[str, str] = {}
    for name, credential in _credentials(principals):
        other = holders.setdefault(credential, name)
        if other != name:
            raise ValueError(f"principals {other} and {name} have the same token or certificate")


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
