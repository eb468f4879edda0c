"""Check that a file with a secret, such as a private key, cannot be read by other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXO
_GROUP_CHANGES = stat.S_IWGRP | stat.S_IXGRP


def exposure_of(path: Path) -> str:
    """Return why other users have access to a file, with advice; empty: they have none.

    Others than the owner and the group must have no access. The group may read the file only if
    another user owns the file and this process has the file through the group: Kubernetes mounts
    secrets in this way (root:fsGroup, mode 0440).

    Raises:
        OSError: the file does not exist or cannot be reached.
    """
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    is_own = found.st_uid == os.geteuid()
    if mode & (_OTHERS | _GROUP_CHANGES):
        who = "other users" if mode & _OTHERS else "its group"
    elif mode & stat.S_IRGRP and (is_own or found.st_gid not in {os.getegid(), *os.getgroups()}):
        who = "its group"
    else:
        return ""
    advice = f"chmod 600 {path}" if is_own else f"chmod 440 {path}"
    return f"{path}: {who} can access the file (mode {mode:04o}); run: {advice}"
