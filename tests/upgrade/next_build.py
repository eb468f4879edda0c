"""Make a copy of the server with one more version, which stands for the next release.

The copy has cluster version 2, state format 19 and protocol version 3 between members. From cluster
version 2 on, it allows ``ReleaseAll`` and computes other digests of its state. Its meta record has
one more number.
"""

import shutil
from pathlib import Path

from tests.docs.documents import ROOT

SERVICE = Path("service/taskraft_service")
STEP = '''
def _to_19(store: Store, _cursor: bytes) -> StepPart:
    """Add a number to the meta record."""
    meta = store.get(META)
    assert meta is not None
    return StepPart((), None, bytes((19,)) + meta[1:13] + bytes(8) + meta[13:])


STEPS: Final[Mapping[StateVersion, Step]] = {StateVersion.V19: _to_19}
'''
IMPORT = "from taskraft_service.command_codecs.request_key import RequestKey\n"
FORMATS_OF_2 = """ClusterVersion.V2: Formats(
        StateVersion.V19, FeedVersion.V4, SnapshotVersion.V2, DigestVersion.V2
    ),"""
META_OF_19 = """FieldTable(
        dict,
        Constant("B", version),
        *_META_FIELDS[:3],
        *((Number("added", "q", of="now_ms"),) if version == StateVersion.V19 else ()),
        *_META_FIELDS[3:],
    )"""
DIGEST_2 = """    DigestVersion.V1: digest_records,
    DigestVersion.V2: lambda scan: digest_records(
        lambda prefix: ((key, value + bytes(1)) for key, value in scan(prefix))
    ),
"""
EDITS = {
    SERVICE / "versions.py": [
        ('V1 = 1\n    """Release 0.1.0: the', 'V2 = 2\n    V1 = 1\n    """Release 0.1.0: the'),
        ("    V18 = 18\n", "    V18 = 18\n    V19 = 19\n"),
        (
            '    V1 = 1\n    """Release 0.1.0: 16',
            '    V2 = 2\n    V1 = 1\n    """Release 0.1.0: 16',
        ),
        (
            "SnapshotVersion.V2, DigestVersion.V1\n    ),\n}",
            f"SnapshotVersion.V2, DigestVersion.V1\n    ),\n    {FORMATS_OF_2}\n}}",
        ),
    ],
    SERVICE / "queue/persistence/upgrade_chain.py": [
        ("STEPS: Final[Mapping[StateVersion, Step]] = {}\n", STEP)
    ],
    SERVICE / "queue/persistence/state_records.py": [
        ('FieldTable(dict, Constant("B", version), *_META_FIELDS)', META_OF_19)
    ],
    SERVICE / "queue/persistence/record_digest.py": [
        ("    DigestVersion.V1: digest_records,\n", DIGEST_2)
    ],
    SERVICE / "command_codecs/tubes.py": [
        (
            "tube_service_pb2.ReleaseAllRequest, _release_all, V1\n",
            "tube_service_pb2.ReleaseAllRequest, _release_all, ClusterVersion.V2\n",
        ),
        (
            IMPORT,
            f"{IMPORT}from taskraft_service.versions import ClusterVersion\n",
        ),
    ],
    Path("replication/taskraft_replication/versions.py"): [
        ("    V2 = 2\n", "    V2 = 2\n    V3 = 3\n")
    ],
}


def this_build():
    """Return the environment that starts the server of this tree."""
    return {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT / 'replication'}"}


def next_build(folder):
    """Copy the server into ``folder`` and edit the copy; return the environment that starts it."""
    for part in (SERVICE, Path("replication/taskraft_replication")):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for name, edits in EDITS.items():
        _edit(folder / name, edits)
    return {"PYTHONPATH": f"{folder / 'service'}:{folder / 'replication'}"}


def _edit(path, edits):
    text = path.read_text()
    for old, new in edits:
        assert text.count(old) == 1, f"{path} has changed: {old!r}"
        text = text.replace(old, new)
    path.write_text(text)
