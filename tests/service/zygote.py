"""Talk to the process whose forks may crash; see ``tests.service.crash_child``."""

import json
import subprocess
import sys


class Zygote:
    """The process that forks and observes children."""

    def __init__(self, place):
        self.place = place
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.crash_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.digest = self.ask("prepare", "reference")["result"]
        self.crossings = self.ask("live", "unharmed", rules="")["result"]

    def ask(self, work, name, **fields):
        request = {"work": work, "place": str(self.place / name), **fields}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(20) == 0
        self._process.stdout.close()
