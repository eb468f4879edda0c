"""A node with a damaged file refuses to start or is correct.

The damage is a flipped bit, a cut file, or a lost sector. Correct means: the node has everything it
acknowledged and ends in the state of an undamaged run. The tests take samples;
``HARMS_PER_FILE=1000`` in the environment takes more.
"""

import os
from random import Random

import pytest

from tests.service.crash_child import SECTOR_BYTES
from tests.service.zygote import Zygote

pytestmark = pytest.mark.real_time

HARMS_PER_FILE = int(os.environ.get("HARMS_PER_FILE", "2"))
HARMLESS = ("LOG", "LOCK", "IDENTITY", "OPTIONS-")
"""Files of RocksDB that nothing reads."""
NEVER_RIGHT = ("identity", "directory", "hard_state", "log_start", "membership", "current")
"""Files that are replaced as a whole; every flipped bit must be detected."""


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    one = Zygote(tmp_path_factory.mktemp("harmed"))
    yield one
    one.close()


def files(zygote):
    """Return each file that is read, with its size without preallocated space."""
    place = zygote.place / "unharmed"
    found = {}
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        size = len(path.read_bytes().rstrip(b"\0"))
        if size and not path.name.startswith(HARMLESS):
            found[str(path.relative_to(place))] = size
    return found


def harm(zygote, kind, bound):
    """Damage each file at random offsets; return the node's message per file."""
    said = {}
    for file, size in files(zygote).items():
        places = range(bound(size))
        draw = Random(f"{kind} {file.rpartition('/')[2]}")
        for at in draw.sample(places, min(HARMS_PER_FILE, len(places))):
            answer = zygote.ask("harm", "unharmed", file=file, kind=kind, at=at)
            assert "result" in answer, (file, at, answer)
            result = answer["result"]
            assert result == zygote.digest or result.startswith("refused: "), (file, at, result)
            said.setdefault(file, []).append(result)
    return said


def test_a_flipped_bit_is_refused_or_changes_nothing(zygote):
    said = harm(zygote, "flip", lambda size: 8 * size)
    for file, results in said.items():
        name = file.rpartition("/")[2]
        if name in NEVER_RIGHT or name.endswith(".sst"):
            assert zygote.digest not in results, file
    assert {file.rpartition("/")[2] for file in said} >= {*NEVER_RIGHT, "incarnation", "CURRENT"}


def test_a_truncated_file_is_refused_or_loses_nothing(zygote):
    said = harm(zygote, "cut", lambda size: size)
    assert all(zygote.digest not in said[file] for file in said if file.endswith(NEVER_RIGHT))


def test_a_lost_sector_is_refused_or_loses_nothing(zygote):
    said = harm(zygote, "wipe", lambda size: max(1, size - SECTOR_BYTES))
    assert all(zygote.digest not in said[file] for file in said if file.endswith(NEVER_RIGHT))
