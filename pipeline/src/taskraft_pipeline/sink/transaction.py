"""Put tasks in two steps: staged by each attempt of a Spark task, then published all at once.

A stage is one *stage task* in the tube TRANSACTIONS. The tasks of the stage depend on the stage
task, so they are HELD. A commit is one atomic batch, which acknowledges the stage tasks and puts a
*marker*. The acknowledgement makes the tasks READY. The unique key of the marker is the committed
version, so a repeated commit of the version has no effect. The service cancels the tasks
of a stage that is deleted, or whose stage task reaches the end of its TTL.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

from taskraft.v1 import task_service_pb2 as pb
from taskraft.v1.task_pb2 import (
    Dependency,
    RetryPolicy,
    TaskReference,
    TaskSelector,
    TaskSpec,
    UniqueKey,
)
from taskraft.v1.tube_service_pb2 import CreateTubeRequest, Tube
from taskraft_pipeline.errors import (
    FeedRefused,
    TransactionRefused,
    TransactionReused,
    error_info,
    refusal,
)
from taskraft_pipeline.feed_client import TaskStub, TubeStub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from taskraft.v1.task_pb2 import Task
    from taskraft_pipeline.feed_client import FeedClient

TRANSACTIONS: Final = "taskraft.transactions"
"""Tube of the stage tasks and of the markers."""
COMMIT_MS: Final = 60_000
"""Time to run of the leases of stage tasks during a commit, in ms."""
ROOM_WAIT_MS: Final = 30_000
"""Maximum wait for capacity in a tube with a maximum size, in ms."""


def _short_lived(spec: TaskSpec, life_ms: int) -> TaskSpec:
    """Make a task end 1 ms after a delay of ``life_ms``; the task is not READY before.

    The TTL of 1 ms starts when the delay ends.
    """
    spec.delay_ms, spec.ttl_ms = life_ms, 1
    return spec


class Transaction:
    """One version of one application.

    Args:
        client: sends the calls.
        app: name of the application.
        version: version; a version is committed once.
        query: id of the streaming query; empty for a batch.
    """

    def __init__(self, client: FeedClient, app: str, version: int, query: str) -> None:
        self._client = client
        self._key = UniqueKey(parts=[app, str(version)])
        self._query = query
        self._name = f"version {version} of {app}"

    def open_stage(self, ttl_ms: int) -> int:
        """Open a stage; return the id of its stage task."""
        # A driver that dies during a commit loses its leases. The service then removes the stage
        # tasks, so that no consumer can take them.
        once = RetryPolicy(attempts_max=1, exhausted=RetryPolicy.REMOVE)
        return self._put_own([_short_lived(TaskSpec(retry=once), ttl_ms)])

    def _put_own(self, specs: Sequence[TaskSpec]) -> int:
        try:
            return self._put_once(specs)
        except FeedRefused as error:
            if error_info(refusal(error))[0] != "TUBE_NOT_FOUND":
                raise
        create = CreateTubeRequest(
            request_id=str(uuid.uuid4()),
            tube=Tube(name=TRANSACTIONS, kind=Tube.FIFOTTL),
            if_not_exists=True,
        )
        self._client.send(
            lambda channel, seconds: TubeStub(channel).CreateTube(create, timeout=seconds)
        )
        return self._put_once(specs)

    def _put_once(self, specs: Sequence[TaskSpec]) -> int:
        request = pb.PutTasksRequest(
            request_id=str(uuid.uuid4()), tube=TRANSACTIONS, tasks=specs, atomic=True
        )
        answer = self._client.send(
            lambda channel, seconds: TaskStub(channel).PutTasks(request, timeout=seconds)
        )
        return int(answer.task_ids[0])

    def put(self, stage: int, tube: str, specs: Sequence[TaskSpec]) -> pb.PutTasksResponse:
        """Put tasks into a stage; the answer names the refused items.

        Raises:
            FeedRefused: the whole request was refused.
        """
        on_stage = Dependency(task=TaskReference(tube=TRANSACTIONS, id=stage))
        for spec in specs:
            spec.ClearField("depends_on")
            spec.depends_on.append(on_stage)
        request = pb.PutTasksRequest(
            request_id=str(uuid.uuid4()), tube=tube, tasks=specs, room_wait_ms=ROOM_WAIT_MS
        )
        return self._client.send(
            lambda channel, seconds: TaskStub(channel).PutTasks(request, timeout=seconds)
        )

    def is_committed(self) -> bool:
        """Return whether the version is committed.

        Raises:
            TransactionReused: another query has committed the version.
        """
        request = pb.GetTasksRequest(tube=TRANSACTIONS, selector=TaskSelector(keys=[self._key]))
        try:
            answer = self._client.send(
                lambda channel, seconds: TaskStub(channel).GetTasks(request, timeout=seconds)
            )
        except FeedRefused as error:
            if error_info(refusal(error))[0] == "TUBE_NOT_FOUND":
                return False
            raise
        for marker in answer.tasks:
            self._check_owner(marker)
        return bool(answer.tasks)

    def _check_owner(self, marker: Task) -> None:
        owner = json.loads(marker.spec.payload)["query"]
        if owner != self._query:
            raise TransactionReused(
                f"{self._name} was committed by {_query_name(owner)}, and this is"
                f" {_query_name(self._query)}; choose a new txnAppId"
            )

    def commit(self, stages: Sequence[int], tasks: int, txn_ttl_ms: int) -> bool:
        """Publish the tasks of some stages; return False if the version was committed before.

        Raises:
            TransactionRefused: a stage has ended before; nothing was published.
            TransactionReused: another query has committed the version.
        """
        content = json.dumps({"query": self._query, "tasks": tasks})
        marker = TaskSpec(
            payload=content.encode(),
            content_type="application/json",
            unique_key=self._key.parts,
        )
        put = pb.PutTasksRequest(tube=TRANSACTIONS, tasks=[_short_lived(marker, txn_ttl_ms)])
        settle = pb.SettleTasksRequest(
            settlements=[
                pb.Settlement(
                    tokens=[self._lease(stage) for stage in stages], ack=pb.Settlement.Ack()
                )
            ]
        )
        request = pb.ExecuteBatchRequest(
            request_id=str(uuid.uuid4()),
            operations=[pb.BatchOperation(put=put), pb.BatchOperation(settle=settle)],
        )
        try:
            self._client.send(
                lambda channel, seconds: TaskStub(channel).ExecuteBatch(request, timeout=seconds)
            )
        except FeedRefused as error:
            if self.is_committed():
                return False
            raise TransactionRefused(f"{self._name}: {error}") from error
        return True

    def _lease(self, stage: int) -> int:
        """Take a stage task; return its lease token."""
        request = pb.TakeTasksRequest(
            request_id=str(uuid.uuid4()),
            sources=[pb.TakeSource(tube=TRANSACTIONS)],
            task_id=stage,
            ttr_ms=COMMIT_MS,
            wait_ms=0,
        )
        try:
            answer = self._client.send(
                lambda channel, seconds: TaskStub(channel).TakeTasks(request, timeout=seconds)
            )
        except FeedRefused as error:
            raise TransactionRefused(
                f"{self._name}: stage {stage} has ended; set a longer stageTtl: {error}"
            ) from error
        if not answer.tasks:
            raise TransactionRefused(f"{self._name}: tube {TRANSACTIONS} allows no takes")
        return int(answer.tasks[0].token)

    def delete_stages(self, stages: Sequence[int]) -> None:
        """Delete stages that are not committed; the service cancels their tasks.

        The stage task of a committed stage no longer exists, so the call does not change it.
        """
        if not stages:
            return
        request = pb.DeleteTasksRequest(
            request_id=str(uuid.uuid4()), tube=TRANSACTIONS, selector=TaskSelector(ids=stages)
        )
        self._client.send(
            lambda channel, seconds: TaskStub(channel).DeleteTasks(request, timeout=seconds)
        )


def _query_name(query: str) -> str:
    return f"query {query}" if query else "a batch"
