"""Write docs/configuration.md from the settings of a node (`python -m tools.configuration_page`).

Type, default and bounds come from the pydantic fields, the description from the docstring under
each field, and the sections from the comment lines between the fields.
"""

import ast
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from taskraft_service.config.relations import RELATIONS, SettingRelation
from taskraft_service.config.security import SecuritySettings
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.config.storage import StorageSettings

PAGE: Final = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD: Final = """# Configuration

<!-- Written by `python -m tools.configuration_page` from taskraft_service.config; do not edit. -->

`taskraft serve` reads its settings once, when it starts. Each setting is an environment variable
and a key of the TOML file that `TASKRAFT_CONFIG` names; the variable overrides the file. The node
does not start with an unknown key, a value out of bounds or inconsistent settings; one line on
stderr names the setting.

Sizes are in bytes and times in milliseconds, as the ends of the names say. `Configure` changes the
settings of the whole cluster at run time; see
[Settings of the cluster](operating.md#cluster-settings).

<!-- docs: skip: an example of a file; a test reads it as TOML -->
```toml
# node.toml, used as: TASKRAFT_CONFIG=node.toml taskraft serve
node_name = "node-0"
data_dir = "/var/lib/taskraft"
listen = "0.0.0.0:7401"
```
"""
RELATIONS_HEAD: Final = """## Relations between settings

A node checks these rules when it starts. If a rule does not hold, the node does not start, and the
error names all settings of the rule.

"""
COLUMNS: Final = ("variable", "key in the file", "type", "default", "bounds", "meaning")

_SECTION: Final = re.compile(r" *# -{8,} (.+)")
_UNITS: Final = {"_ms": "ms", "_bytes": "bytes", "_bytes_max": "bytes"}
_TYPES: Final = {int: "integer", str: "text", bool: "true or false", Path: "path"}
_SIZES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES: Final = ((86_400_000, "d"), (60_000, "min"), (1_000, "s"))


def page() -> str:
    """Return the content of docs/configuration.md."""
    sections = {
        **sections_of(ServerConfig),
        **sections_of(StorageSettings),
        "Certificates and access": described(SecuritySettings),
    }
    tables = [section(title, rows) for title, rows in sections.items()]
    return "\n".join([HEAD, *tables, relations()])


def relations() -> str:
    """Return the table of the relations between settings."""
    rows = [("rule", "reason"), ("---", "---"), *map(relation_row, RELATIONS)]
    return RELATIONS_HEAD + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def relation_row(relation: SettingRelation) -> tuple[str, str]:
    """Return the cells of one relation, with the names of settings as code."""
    names = "|".join(sorted(relation.settings, key=len, reverse=True))
    return re.sub(rf"\b({names})\b", r"`\1`", relation.rule), relation.reason


def sections_of(settings: type[BaseSettings]) -> dict[str, dict[str, str]]:
    """Return the descriptions of the settings by section, in the order of the source."""
    meanings, title = described(settings), ""
    found: dict[str, dict[str, str]] = {}
    for line in inspect.getsource(settings).splitlines():
        if match := _SECTION.fullmatch(line):
            title = match[1]
        name = line.strip().partition(":")[0]
        if title and name in meanings:
            found.setdefault(title, {})[name] = meanings.pop(name)
    assert not meanings, f"without a section: {', '.join(meanings)}"
    return found


def described(settings: type[BaseSettings]) -> dict[str, str]:
    """Return the descriptions of a class's own settings: the docstring under each field."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            name = field.target.id
            assert isinstance(after, ast.Expr), f"{name} has no docstring"
            assert isinstance(after.value, ast.Constant), f"{name} has no docstring"
            found[name] = " ".join(str(after.value.value).split())
    return found


def section(title: str, meanings: dict[str, str]) -> str:
    """Return the table of one section."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(row(*each) for each in meanings.items())]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(name: str, meaning: str) -> tuple[str, ...]:
    """Return the cells of one setting."""
    field = ServerConfig.model_fields[name]
    cells = (f"`TASKRAFT_{name.upper()}`", f"`{name}`", type_of(field))
    return (*cells, default_of(name, field), bounds_of(name, field), meaning)


def type_of(field: FieldInfo) -> str:
    """Return the type of a setting in words."""
    kind: Any = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    known = [each for each in (get_args(kind) or (kind,)) if each is not type(None)]
    return _TYPES[known[0]]


def default_of(name: str, field: FieldInfo) -> str:
    """Return the default of a setting in words."""
    if field.default_factory is not None:
        return "host name"
    if field.default is None or field.default == "":
        return "empty"
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    if isinstance(field.default, int):
        return amount(name, field.default)
    return f"`{field.default}`"


def bounds_of(name: str, field: FieldInfo) -> str:
    """Return the minimum and maximum of a setting, or of the length of a text."""
    limits = {
        word: getattr(constraint, word)
        for constraint in field.metadata
        for word in ("ge", "le", "min_length", "max_length")
        if getattr(constraint, word, None) is not None
    }
    if "max_length" in limits:
        return f"{limits['min_length']} to {limits['max_length']} characters"
    if "le" in limits:
        return f"{amount(name, limits['ge'])} to {amount(name, limits['le'])}"
    return f"at least {amount(name, limits['ge'])}" if "ge" in limits else ""


def amount(name: str, number: int) -> str:
    """Return a number with the unit that its name ends in, and in a larger unit if it is round."""
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    text = f"{number:,}".replace(",", " ")
    if (number, unit) == (1, "bytes"):
        unit = "byte"
    scale = {"bytes": _SIZES, "ms": _TIMES}.get(unit, ())
    for size, larger in scale:
        if number >= size and number % size == 0:
            return f"{text} {unit} ({number // size} {larger})"
    return f"{text} {unit}".rstrip()


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
