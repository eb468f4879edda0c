"""Run a node, or restore a snapshot, with failpoints: ``python -m tests.failpoints``.

The options are those of ``python -m taskraft_service.process``. With the arguments ``restore FILE``
the program restores an unencrypted snapshot file. The rules are in TASKRAFT_FAILPOINTS, for example
``append.before_sync=kill@3``. See docs/storage.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from taskraft_replication.storage.data_directory import PRIVATE_UMASK
from taskraft_service.backup.restore import restore_cluster
from taskraft_service.config.server_config import read_config
from taskraft_service.process import log_level_signal
from taskraft_service.process.main import main
from taskraft_service.storage.node_storage import NodeStorage
from tests.failpoints.failing_storage import failing_storage
from tests.failpoints.failpoints import Failpoints, parse_rules

VARIABLE: Final = "TASKRAFT_FAILPOINTS"


def restore(file: Path, storage: NodeStorage) -> int:
    """Restore a snapshot file into the data directory of the settings; return the exit status."""
    os.umask(PRIVATE_UMASK)
    with file.open("rb") as content:
        restore_cluster(content, read_config(), storage=storage)
    return 0


if __name__ == "__main__":
    log_level_signal.hold()
    opened = failing_storage(Failpoints(parse_rules(os.environ[VARIABLE])))
    if sys.argv[1:2] == ["restore"]:
        sys.exit(restore(Path(sys.argv[2]), opened))
    sys.exit(main(opened))
