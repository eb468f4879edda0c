"""buildah builds both images on a Debian base; a node and an export run without root, read-only.

`make image` runs this file. It needs root, buildah and debootstrap. The base stands for the
official Python image, which has the same commands `python` and `pip`. With the Rust of this machine
on top, it stands for the Rust image; without Rust here, the image is built without the native edge.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from taskraft import Client
from taskraft_pipeline.journal.journal import Journal
from taskraft_pipeline.journal.verify import verify
from tests.turns import blocked_until
from tools.free_addresses import free_addresses
from tools.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not os.environ.get("TASKRAFT_TEST_IMAGE"), reason="`make image` runs this"),
]
ROOT = Path(__file__).parents[2]
PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
USER = "10001"
CONTAINER = (
    'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"'
    ' && mount -t tmpfs tmpfs "$1/tmp" && mount -t proc proc "$1/proc"'
    ' && mount --bind "$2" "$1$3" && root="$1" && shift 3'
    ' && exec setpriv --no-new-privs chroot "--userspec=10001:10001" "$root" "$@"'
)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


class Builder:
    """buildah with a store of its own."""

    def __init__(self, folder):
        self._store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))

    def __call__(self, *words, **options):
        return run("buildah", *self._store, "--storage-driver", "vfs", *words, **options)


def debian(folder):
    """Put a Debian with Python into a folder."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
    )
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    mirror, codename = targets.splitlines()[0], release["VERSION_CODENAME"]
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename, str(folder), mirror)
    for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()


def with_rust(builder):
    """Commit an image with the Rust of this machine; return the arguments of the build."""
    if shutil.which("cargo") is None:
        return ("--build-arg", "EDGE=none")
    container = builder("from", "--pull-never", "localhost/python:test")
    packages = ("gcc", "libc6-dev")
    install = ("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *packages)
    builder("run", "--isolation", "chroot", container, "--", *install)
    toolchain = run("rustc", "--print", "sysroot")
    for folder in ("bin", "lib"):
        builder("add", "-q", container, f"{toolchain}/{folder}", f"/usr/local/{folder}")
    builder("commit", "-q", "--rm", container, "localhost/rust:test")
    return ("--build-arg", "RUST_IMAGE=localhost/rust:test")


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    if os.geteuid() or not all(map(shutil.which, ("buildah", "debootstrap", "setpriv"))):
        pytest.skip("needs root, buildah, debootstrap and setpriv")
    return Builder(tmp_path_factory.mktemp("buildah"))


@pytest.fixture(scope="module")
def python_image(builder, tmp_path_factory):
    """Return the name of an image of Debian with Python."""
    base = tmp_path_factory.mktemp("base")
    debian(base)
    container = builder("from", "scratch")
    builder("add", "-q", container, str(base), "/")
    builder("commit", "-q", "--rm", container, "localhost/python:test")
    return "localhost/python:test"


def built(builder, name, python_image, *arguments):
    """Build an image; return its name."""
    builder(
        *("bud", "--isolation", "chroot", "--pull-never", "-t", name),
        *("--build-arg", f"PYTHON_IMAGE={python_image}", *arguments),
        *("-v", f"{CERTIFICATES}:{CERTIFICATES}:ro", str(ROOT)),
        cwd=ROOT,
    )
    return name


@pytest.fixture(scope="module")
def image(builder, python_image):
    """Return the name of the image of a node."""
    return built(builder, "localhost/taskraft:test", python_image, *with_rust(builder))


@pytest.fixture(scope="module")
def config(builder, image):
    return json.loads(builder("inspect", "--type", "image", image))["OCIv1"]["config"]


@pytest.fixture(scope="module")
def root(builder, image):
    """Return the folder with the files of the image."""
    container = builder("from", "--pull-never", image)
    return Path(builder("mount", container))


@pytest.fixture
def volume(tmp_path):
    """Return a folder of the user of the images."""
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, int(USER), int(USER))
    return folder


@pytest.fixture
def contained(root, volume):
    """Return a function that gives the command line of a program in the image."""
    return functools.partial(command_in, root, volume, "/var/lib/taskraft")


def command_in(root, volume, place, *words):
    """Return the command line of a program in an image, with a volume at a place."""
    shell = ("unshare", "--mount", "sh", "-c", CONTAINER, "sh")
    return [*shell, str(root), str(volume), place, *words]


def test_the_image_runs_as_a_numeric_user_and_stops_by_a_signal(config):
    assert config["User"] == f"{USER}:{USER}"
    assert (config["Entrypoint"], config["Cmd"]) == (["taskraft"], ["serve"])
    assert config["StopSignal"] == "SIGTERM"
    assert config["ExposedPorts"].keys() == {"7401/tcp", "7402/tcp", "7480/tcp"}


def test_the_image_adds_at_most_the_size_on_the_page_to_its_base(root):
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (stated,) = re.findall(r"at most\s+(\d+) MiB: a test refuses more", page)
    paths = [path for path in root.glob("opt/**/*") if path.is_file() and not path.is_symlink()]
    added = sum(path.stat().st_size for path in paths) / 2**20
    print(f"the image adds {added:.0f} MiB to its base")
    assert 0 < added <= int(stated)


def test_a_node_runs_without_root_on_a_read_only_root(config, contained):
    refused = subprocess.run(
        contained("/bin/sh", "-c", "id -u && touch /opt/taskraft/x"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.stdout.strip() == USER
    assert "Read-only file system" in refused.stderr
    client, peer, http = free_addresses(3)
    ports = {"LISTEN": client, "PEER_LISTEN": peer, "HTTP_LISTEN": http}
    environment = dict(one.split("=", 1) for one in config["Env"])
    environment |= {f"TASKRAFT_{name}": address for name, address in ports.items()}
    path = {"PATH": f"{environment['PATH']}:{os.environ['PATH']}"}
    with subprocess.Popen(
        contained(*config["Entrypoint"], *config["Cmd"]), env=environment | path
    ) as node:
        blocked_until(lambda: node.poll() is not None or is_ready(http))
        assert is_served_by_edge(http) == bool(shutil.which("cargo"))
        with Client(client) as caller:
            caller.create_tube("mail")
            assert caller.tube("mail").put("x") == 1
        node.terminate()
    assert node.returncode == 0


def is_served_by_edge(http):
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        return b"taskraft_edge_connections" in answer.read()


def is_ready(http):
    try:
        with urllib.request.urlopen(f"http://{http}/readyz") as answer:
            return answer.status == 200
    except OSError:
        return False


def test_an_export_runs_without_root_on_a_read_only_root(builder, python_image, volume, tmp_path):
    file = ("-f", str(ROOT / "pipeline" / "Dockerfile"))
    image = built(builder, "localhost/taskraft-pipeline:test", python_image, *file)
    config = json.loads(builder("inspect", "--type", "image", image))["OCIv1"]["config"]
    assert config["User"] == f"{USER}:{USER}"
    root = Path(builder("mount", builder("from", "--pull-never", image)))
    # Spark looks up the name of its machine, which a container runtime writes into this file.
    shutil.copy("/etc/hosts", root / "etc" / "hosts")
    environment = dict(one.split("=", 1) for one in config["Env"])
    environment["PATH"] = f"{environment['PATH']}:{os.environ['PATH']}"
    with LocalCluster(1, tmp_path / "shop", {"TASKRAFT_AUTO_CREATE_TUBES": "true"}) as cluster:
        with Client(cluster.target) as client:
            client.tube("emails").put_many(["x"] * 5)
        words = ("pipeline", "export", "--journal", "/journal/feed", "--target", cluster.target)
        command = command_in(root, volume, "/journal", *config["Entrypoint"], *words)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict = verify(Journal.at(volume / "feed"), is_deep=True)
    assert (verdict.problems, verdict.events) == ([], 5)


def test_the_bill_of_materials_names_what_the_image_contains(contained, root):
    listing = (
        "import importlib.metadata as m;"
        "print('\\n'.join(f'{d.name}=={d.version}' for d in m.distributions()))"
    )
    installed = set(run(*contained("/opt/taskraft/bin/python", "-c", listing)).splitlines())
    bill = json.loads((ROOT / "var/sbom.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    named = {normal(f"{one['name']}=={one['version']}") for one in bill["components"]}
    own = {one for one in installed if one.startswith("taskraft")}
    assert len(own) == (3 if shutil.which("cargo") else 2)
    assert {normal(one) for one in installed - own} <= named
    assert not list(root.glob("opt/taskraft/bin/pip*"))


def normal(name):
    return name.lower().replace("_", "-").replace(".", "-")
