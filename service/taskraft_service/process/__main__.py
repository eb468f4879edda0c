"""Run one node: ``python -m taskraft_service.process``.

The garbage collector is off while the modules are loaded. Nearly all objects that exist then live
until the process exits, and the collector would scan these objects repeatedly, which takes an
eighth of the CPU time of the imports. The node switches the collector on before it opens its data.
"""

from __future__ import annotations

import gc
import sys

gc.disable()

from taskraft_service.process.main import main  # noqa: E402 - see the docstring

if __name__ == "__main__":
    sys.exit(main())
