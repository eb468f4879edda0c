"""Run pytest with the arguments in namespaces of its own: root there, and no foreign network.

The DNS server of the emulated cluster answers at the address in /etc/resolv.conf.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.k8s.control_plane import programs
from tests.k8s.control_plane.kubelet import HERE
from tests.k8s.go_modules import CERT_MANAGER, KEDA, PROMETHEUS_OPERATOR

INSIDE = 'mount -t tmpfs tmpfs /run && mount --bind "$1" "$2" && shift 2 && exec "$@"'


def main():
    """Build the programs and get the modules that are missing, then run the tests."""
    target = Path("var/k8s").resolve()
    programs.build(target)
    with tempfile.TemporaryDirectory() as folder:
        command = ("go", "mod", "download", KEDA, CERT_MANAGER, PROMETHEUS_OPERATOR)
        subprocess.run(command, cwd=folder, check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as resolver:
        resolver.write(f"nameserver {HERE}\noptions timeout:1 attempts:2\n")
    os.environ["TASKRAFT_TEST_K8S"] = str(target)
    command = [
        *("unshare", "-Urmnpf", "--kill-child", "--mount-proc", "sh", "-c", INSIDE, "sh"),
        *(resolver.name, os.path.realpath("/etc/resolv.conf")),
        *(sys.executable, "-m", "pytest", *sys.argv[1:]),
    ]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
