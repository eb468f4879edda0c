"""docs/raft.md names each module of the core."""

from pathlib import Path

import taskraft_replication.core

PAGE = Path(__file__).parents[3] / "docs" / "raft.md"


def test_the_page_names_every_module_of_the_core():
    text = PAGE.read_text()
    folder = Path(taskraft_replication.core.__file__).parent
    supporting = {"__init__", "types", "config", "errors", "trace", "status", "log_reader"}
    for module in sorted(path.stem for path in folder.glob("*.py")):
        assert module in supporting | {"memory_log"} or f"`{module}`" in text, module
