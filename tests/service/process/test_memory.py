"""A start loads no more than it needs, and freed memory goes back to the operating system."""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real_time

CHILD = """
import sys
from taskraft_service.process.memory import return_freed_memory

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

if sys.argv[1] == "fixed":
    assert return_freed_memory()
b"x" * int(sys.argv[2])  # glibc raises its own threshold when a larger block is freed
began = resident_mib()
blocks, kept = [], []
for _ in range(200):
    blocks.append(b"x" * (1 << 20))
    kept.append(b"y" * 20_000)
del blocks
print(resident_mib() - began)
"""


def left_mib(allocator):
    command = [sys.executable, "-c", CHILD, allocator, str(4 << 20)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_large_blocks_leave_no_holes_in_the_heap():
    assert left_mib("default") > 100, "the default keeps holes, so the setting is needed"
    assert left_mib("fixed") < 20


STARTED = """
import gc, runpy, sys

begun = []
gc.callbacks.append(lambda phase, info: begun.append(phase))
sys.argv = ["node", "--help"]
try:
    runpy.run_module("taskraft_service.process", run_name="__main__")
except SystemExit:
    pass
from taskraft_service.process.memory import spare_the_collector
print(len(begun), gc.isenabled(), file=sys.stderr)
spare_the_collector()
print(gc.isenabled(), file=sys.stderr)
"""


def test_the_garbage_collector_does_not_run_while_the_modules_are_loaded():
    done = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, check=True, text=True
    )
    begun, while_loading, while_serving = done.stderr.split()
    assert int(begun) < 10, "with the collector, there are hundreds of collections"
    assert (while_loading, while_serving) == ("False", "True")


def test_a_node_without_certificates_does_not_load_their_library():
    code = "import sys, taskraft_service.process.main; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"
