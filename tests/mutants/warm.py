"""Run pytest in forks of a process that has imported what does not change.

Started as a script in a copy of the code. Reads a JSON list of pytest's arguments per line and
answers with a line: exit status and the file with the output. To import pytest, gRPC and their like
takes longer than most of our tests.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

OUTPUT = "output.txt"


def _run(arguments: list[str]) -> int:
    """Run pytest with everything it says going to the file; return its exit status."""
    import pytest  # noqa: PLC0415

    status = 1
    with Path(OUTPUT).open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        try:
            status = int(pytest.main(arguments))
        except BaseException:  # noqa: BLE001 - whatever it is, the fork must end here
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def main() -> None:
    """Serve until the input ends."""
    import google_crc32c  # noqa: F401, PLC0415
    import pytest  # noqa: F401, PLC0415
    from google.protobuf import descriptor_pool  # noqa: F401, PLC0415

    for line in sys.stdin:
        arguments, seconds = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(seconds)
            os._exit(_run(arguments))
        _, how = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(how), flush=True)


if __name__ == "__main__":
    # The folder of this script holds no packages; the copy of the code does.
    sys.path[0] = str(Path.cwd())
    main()
