"""Measure the cost of authorization per task in batches of 100, with and without access rules.

Run: python -m bench.access. Prints CPU time per task in µs, one line per path: median and range of
several rounds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bench.codec import BATCH, measure, put_request
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.access.caller import (
    ANONYMOUS,
    WORD_OF_A_NODE,
    AuthenticatedCaller,
    Caller,
)
from taskraft_service.access.leases import own_settlements
from taskraft_service.access.principals import digest_of
from taskraft_service.access.reloaded_principals import ReloadedPrincipals
from taskraft_service.machine.queue_locator import QueueLocator
from taskraft_service.queue.entities.new_task import NewTask
from taskraft_service.queue.entities.tube_options import TubeKind, TubeOptions
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.put import Put
from taskraft_service.queue.operations.sessions import OpenSession
from taskraft_service.queue.operations.take import Take, TakeResult
from taskraft_service.queue.operations.tubes import CreateTube
from taskraft_service.queue.queue import Queue
from taskraft_service.storage.memory import MemoryStore

TOKEN: Final = "0123456789abcdef0123456789abcdef"  # noqa: S105 - not a real token
PRINCIPALS: Final = 100


def principals() -> ReloadedPrincipals:
    """Return many principals; the last one has the token `TOKEN`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "access.toml"
        lines = []
        for number in range(PRINCIPALS):
            digest = digest_of(TOKEN if number == PRINCIPALS - 1 else f"{number}")
            lines += [
                f"[principals.p{number}]",
                f'tokens = ["{digest}"]',
                f"[[principals.p{number}.grants]]",
                'role = "producer"',
                'tubes = ["mail.*", "emails"]',
                f"[[principals.p{number}.grants]]",
                'role = "consumer"',
                'tubes = ["emails"]',
            ]
        path.touch(mode=0o600)
        path.write_text("\n".join(lines))
        return ReloadedPrincipals(path)


def taken() -> tuple[QueueLocator, pb.SettleTasksRequest]:
    """Return a queue with 100 leases of one session, and a request that acknowledges all."""
    queue = Queue(MemoryStore(), Limits())
    tasks = [NewTask(b"", 0) for _ in range(BATCH)]
    session = OpenSession("s", owner=f"p{PRINCIPALS - 1}")
    results = queue.apply(
        1,
        1,
        [
            CreateTube("emails", TubeKind.FIFO, TubeOptions()),
            session,
            Put("emails", tasks),
            Take(["emails"], "s", BATCH),
        ],
    )
    leased = results[-1]
    assert isinstance(leased, TakeResult)
    settlement = pb.Settlement(
        tokens=[task.token for task in leased.tasks], ack=pb.Settlement.Ack()
    )
    return QueueLocator(lambda: queue), pb.SettleTasksRequest(settlements=[settlement])


def main() -> None:
    """Measure each kind of call, and print the table of results."""
    current = principals()
    known = AuthenticatedCaller(f"p{PRINCIPALS - 1}", WORD_OF_A_NODE, current)
    put = pb.PutTasksRequest.FromString(put_request(with_headers=False))
    queues, settle = taken()
    take = pb.TakeTasksRequest(sources=[pb.TakeSource(tube="emails")], tasks_max=BATCH)
    callers: Mapping[str, Caller] = {"without rights": ANONYMOUS, "with rights": known}
    for name, caller in callers.items():

        def settle_own(caller: Caller = caller) -> None:
            caller.authorize(settle)
            assert own_settlements(queues, settle, caller) is settle

        measure(f"put of {BATCH}, {name}", partial(caller.authorize, put))
        measure(f"take of {BATCH}, {name}", partial(caller.authorize, take))
        measure(f"settle of {BATCH}, {name}", settle_own)
    measure(
        f"a token among {PRINCIPALS} (per call: times {BATCH})",
        lambda: current.principals.of_token(TOKEN),
    )


if __name__ == "__main__":
    main()
