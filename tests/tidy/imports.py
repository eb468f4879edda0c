"""Rules for imports between packages, and for addresses that the repository must not name."""

from tests.tidy.sources import (
    PACKAGES,
    ROOT,
    imported_names,
    installed_modules,
    modules,
    place,
    project_files,
)

REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("gcr", "io"),
        ("pkg", "dev"),
        ("maven", "org"),
        ("debian", "org"),
        ("ubuntu", "com"),
    )
)
"""Names of package registries; users choose the registry that they install from."""

STUB_PACKAGES = ("taskraft.v1",)

GRPC_MODULES = frozenset(
    {
        "call_ends.py",
        "forwarding.py",
        "grpc_calls.py",
        "grpc_server.py",
        "leader_channels.py",
        "shared_calls.py",
    }
)
"""Modules of the API that know grpc.aio, so that another gRPC server can take its place."""


COMMANDS = frozenset(
    {"service/taskraft_service/backup/cli.py", "service/taskraft_service/backup/download.py"}
)
"""Modules of the server's distribution that are programs over the client."""


def imports_beyond_the_stubs() -> list[str]:
    """Find imports of the client by the server, which may know the generated stubs only."""
    return [
        f"{place(path, line)} {name}"
        for path, tree in modules()
        if path.relative_to(ROOT).parts[0] in {"service", "replication"}
        and str(path.relative_to(ROOT)) not in COMMANDS
        for name, line in imported_names(tree)
        if name.split(".")[0] == "taskraft" and not name.startswith(STUB_PACKAGES)
    ]


def rocksdb_outside_storage() -> list[str]:
    storage = ROOT / "service" / "taskraft_service" / "storage"
    return [
        f"{place(path, line)} {name}"
        for path, tree in modules()
        if path.relative_to(ROOT).parts[0] in {"service", "replication"}
        and storage not in path.parents
        for name, line in imported_names(tree)
        if name.split(".")[0] == "rocksdict"
    ]


def grpc_in_handlers() -> list[str]:
    """Find imports of grpc.aio in the API outside the modules that connect it to the handlers."""
    api = ROOT / "service" / "taskraft_service" / "api"
    return [
        f"{place(path, line)} {name}"
        for path, tree in modules()
        if api in path.parents and path.name not in GRPC_MODULES
        for name, line in imported_names(tree)
        if name.startswith("grpc.aio")
    ]


def addresses_of_registries() -> list[str]:
    """Find lines that name a package registry, and download URLs in ``package-lock.json``."""
    found = []
    for path in project_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        forbidden = REGISTRIES
        if path.name == "package-lock.json":
            forbidden += ('"resolved":',)
        found += [
            place(path, number)
            for number, line in enumerate(lines, start=1)
            if any(name in line for name in forbidden)
        ]
    return found


def type_checking_imports() -> list[str]:
    """Find imports in the queue for type checkers only, because such imports hide cycles."""
    return [
        f"{place(path, line)} {name}"
        for package, path, tree in installed_modules()
        if (PACKAGES[package] / "queue") in path.parents
        for name, line in imported_names(tree)
        if name == "typing.TYPE_CHECKING"
    ]
