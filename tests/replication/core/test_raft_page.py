"""docs/raft.md shows the state diagram of ROLE_CHANGES and names each module."""

from pathlib import Path

import taskraft_replication.core
from taskraft_replication.core.roles import ROLE_CHANGES
from taskraft_replication.core.types import RaftRole

PAGE = Path(__file__).parents[3] / "docs" / "raft.md"
BEGIN, END = "<!-- roles:", "<!-- /roles -->"


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {RaftRole.FOLLOWER.value}"]
    for (old, new), reason in ROLE_CHANGES.items():
        lines.append(f"    {old.value} --> {new.value}: {reason.replace(';', ',')}")
    return "\n".join([*lines, "```"])


def test_the_page_draws_the_roles_of_the_table():
    text = PAGE.read_text()
    drawn = text[text.index(BEGIN) : text.index(END)].partition("-->\n")[2].strip()
    assert drawn == diagram()


def test_the_page_names_every_module_of_the_core():
    text = PAGE.read_text()
    folder = Path(taskraft_replication.core.__file__).parent
    supporting = {"__init__", "types", "config", "errors", "trace", "status", "log_reader"}
    for module in sorted(path.stem for path in folder.glob("*.py")):
        assert module in supporting | {"memory_log"} or f"`{module}`" in text, module
