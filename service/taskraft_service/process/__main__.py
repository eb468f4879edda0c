"""Run one node: ``python -m taskraft_service.process``.

The garbage collector is off while the modules are loaded. Nearly all objects that exist then live
until the process exits, and the collector would scan these objects repeatedly, which takes an
eighth of the CPU time of the imports. The node switches the collector on before it opens its data.
SIGUSR1 is held back until the node can handle the signal.
"""

from __future__ import annotations

import gc
import sys

from taskraft_service.process import log_level_signal

gc.disable()
log_level_signal.hold()

from taskraft_service.process.main import main  # noqa: E402 - see the docstring

if __name__ == "__main__":
    sys.exit(main())
