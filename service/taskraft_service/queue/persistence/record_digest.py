"""Hash the records of a store, so that replicas can compare their states while they run.

The hash covers the records of tasks with their payloads, unique keys, sessions, schedules and
groups. Their bytes follow from the applied entries alone, with one exception: the record of a task
that is not TAKEN may name a session that has ended, so the session is left out. Records of removed
tubes, kept request ids and the change feed are left out, because replicas write them at different
times or divide them differently. Positions and timers follow from the records of the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from hashlib import blake2b
from typing import Final

from taskraft_service.queue.entities.task_codec import without_session
from taskraft_service.queue.store.keys import BODY, GROUP, SCHEDULE, SESSION, TASK, TUBE, UNIQUE
from taskraft_service.versions import DigestVersion

PARTS: Final = 16
"""Number of hashes: one for the records without a tube, and 15 for tubes by their numbers."""
STEP_PAIRS: Final = 256
"""Number of pairs between two yields; takes about half a millisecond."""
_IN_TUBES: Final = (TASK, BODY, UNIQUE)
_OUTSIDE: Final = (SESSION, SCHEDULE, GROUP)

Scan = Callable[[bytes], Iterator[tuple[bytes, bytes]]]
"""Yields the pairs of a fixed state whose keys begin with a prefix, in order."""


def part_of(tube: int) -> int:
    """Return the part that contains the records of a tube; part 0 has the other records."""
    return 1 + tube % (PARTS - 1)


def digest_records(scan: Scan) -> Generator[int, None, list[int]]:
    """Return a hash of 32 bits for each part; yield the bytes read since the last yield."""
    hashes = [blake2b(digest_size=4) for _ in range(PARTS)]
    tubes = {int.from_bytes(key[1:5], "big") for key, _ in scan(TUBE)}
    read = count = 0
    for prefix in (*_IN_TUBES, *_OUTSIDE):
        for key, value in scan(prefix):
            count += 1
            read += len(key) + len(value)
            if count % STEP_PAIRS == 0:
                yield read
                read = 0
            part = 0
            if prefix in _IN_TUBES:
                tube = int.from_bytes(key[1:5], "big")
                if tube not in tubes:
                    continue
                part = part_of(tube)
            content = without_session(value) if prefix == TASK else value
            hashes[part].update(b"%d %d " % (len(key), len(content)) + key + content)
    yield read
    return [int.from_bytes(each.digest(), "big") for each in hashes]


DIGESTS: Final[Mapping[int, Callable[[Scan], Generator[int, None, list[int]]]]] = {
    DigestVersion.V1: digest_records,
}
"""Computes the digests of each version."""
