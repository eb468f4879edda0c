"""Handle ExecuteBatch: check and execute a batch of operations atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import Caller
from taskraft_service.access.leases import own_batch
from taskraft_service.api.rpc.methods import ExecutionSite, UnaryCall, UnaryMethod
from taskraft_service.api.rpc.status import item_errors
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.api.state.checks import DiskSpaceGuard, TubeAutoCreation
from taskraft_service.api.state.command_executor import CommandExecutor, result_of
from taskraft_service.api.state.queue_reader import QueueReader
from taskraft_service.api.tasks import selection_checks as checks
from taskraft_service.api.tasks.answers import settled_message
from taskraft_service.api.tasks.put_checks import check_put
from taskraft_service.api.tasks.settle_checks import adds_content, check_settle
from taskraft_service.command_codecs.batch import BATCH
from taskraft_service.leader.command_submitter import AppliedCommand
from taskraft_service.queue.operations.batch import BatchOutcome, BatchResult
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.queue.operations.settlements import SettleResult


class BatchHandler:
    """The handler of ExecuteBatch.

    Args:
        executor: executes commands.
        reader: reads the queue.
        disk: refuses new content while disk space is low.
        auto_creation: creates the missing tubes of puts.
        payload_bytes_max: the configured maximum size of a payload.
    """

    def __init__(
        self,
        executor: CommandExecutor,
        reader: QueueReader,
        disk: DiskSpaceGuard,
        auto_creation: TubeAutoCreation,
        payload_bytes_max: int,
    ) -> None:
        self._executor = executor
        self._reader = reader
        self._disk = disk
        self._auto_creation = auto_creation
        self._payload_bytes_max = payload_bytes_max

    def method(self) -> UnaryMethod[pb.ExecuteBatchRequest]:
        """Return the method ExecuteBatch with its handler."""
        return UnaryMethod(
            "ExecuteBatch", pb.ExecuteBatchRequest, ExecutionSite.LEADER, self.execute
        )

    def _defines_zero(self, caller: Caller, kind: str, operation: pb.BatchOperation) -> bool:
        """Return whether the tubes of an operation define a time to live or to run of 0."""
        if kind == "settle":
            return self._reader.defines_zero_for(operation.settle.settlements, caller)
        part = getattr(operation, kind)
        return self._auto_creation.defines_zero(getattr(part, "move_to", "") or part.tube)

    async def execute(self, call: UnaryCall[pb.ExecuteBatchRequest]) -> pb.ExecuteBatchResponse:
        """Execute all operations or none; create the missing tubes of puts first, if allowed."""
        defines_zero = partial(self._defines_zero, call.caller)
        check_batch(call.request, self._payload_bytes_max, defines_zero)
        self._disk.check_tubes(_enlarged_tubes(call.request))
        own = own_batch(self._reader.queues, call.request, call.caller)
        puts = [one.put.tube for one in call.request.operations if one.HasField("put")]
        before = self._auto_creation.commands_for(puts, call)
        outcome = await self._executor.execute_changed(BATCH, call, own, before)
        results = result_of(outcome, BatchResult).results
        kinds = [operation.WhichOneof("operation") for operation in call.request.operations]
        answer = pb.ExecuteBatchResponse(revision=outcome.index)
        for kind, result in zip(kinds, results, strict=True):
            answer.results.append(_result(kind or "", result, outcome))
        return answer


def _enlarged_tubes(request: pb.ExecuteBatchRequest) -> Iterator[str]:
    """Yield the tubes that get new content from a batch."""
    for operation in request.operations:
        if operation.HasField("put"):
            yield operation.put.tube
        elif operation.HasField("kick") and adds_content(operation.kick.update):
            yield operation.kick.tube
        elif operation.HasField("update") and adds_content(operation.update.update):
            yield operation.update.tube
        elif operation.HasField("move") and adds_content(operation.move.update):
            yield operation.move.move_to or operation.move.tube


def _result(kind: str, result: BatchOutcome, applied: AppliedCommand) -> pb.BatchResult:
    """Return the result of one operation as the message of its kind."""
    revision = applied.index
    if isinstance(result, PutResult):
        put = pb.PutTasksResponse(task_ids=result.ids, existing=result.existing, revision=revision)
        return pb.BatchResult(put=put)
    if isinstance(result, SettleResult):
        return pb.BatchResult(settle=settled_message(applied, result))
    errors = item_errors(result.refused)
    if kind == "kick":
        kicked = pb.KickTasksResponse(count=result.count, errors=errors, revision=revision)
        return pb.BatchResult(kick=kicked)
    if kind == "bury":
        buried = pb.BuryTasksResponse(count=result.count, errors=errors, revision=revision)
        return pb.BatchResult(bury=buried)
    if kind == "update":
        updated = pb.UpdateTasksResponse(count=result.count, errors=errors, revision=revision)
        return pb.BatchResult(update=updated)
    if kind == "move":
        moved = pb.MoveTasksResponse(count=result.count, errors=errors, revision=revision)
        return pb.BatchResult(move=moved)
    deleted = pb.DeleteTasksResponse(count=result.count, errors=errors, revision=revision)
    return pb.BatchResult(delete=deleted)


def check_batch(
    request: pb.ExecuteBatchRequest,
    payload_bytes_max: int,
    defines_zero: Callable[[str, pb.BatchOperation], bool],
) -> None:
    """Check a batch; one error reports the violations of all operations.

    Args:
        request: the batch.
        payload_bytes_max: the configured maximum size of a payload.
        defines_zero: returns whether a time to live or to run of 0 has a meaning in the tubes of an
            operation of a kind.

    Raises:
        CallRefused: INVALID_FIELD.
    """
    violations = Violations()
    violations.check_request_id(request.request_id, request.client_id)
    violations.check_nonempty("operations", request.operations, limits.BATCH_OPERATIONS_MAX)
    tasks = items = 0
    for place, operation in enumerate(request.operations[: limits.BATCH_OPERATIONS_MAX]):
        path = f"operations[{place}]"
        kind = operation.WhichOneof("operation")
        if kind is None:
            violations.add(path, "missing")
        else:
            checked = _checked_operation(operation, kind, payload_bytes_max, tasks)
            checked.allow_zeros(partial(defines_zero, kind, operation))
            violations.include(f"{path}.{kind}.", checked)
            tasks += len(operation.put.tasks)
            items += _items(operation, kind)
    if items > limits.BATCH_ITEMS_MAX:
        violations.add("operations", f"{items} items, more than {limits.BATCH_ITEMS_MAX}")
    violations.raise_if_any()


def _items(operation: pb.BatchOperation, kind: str) -> int:
    """Return the number of tasks, lease tokens, ids and keys of an operation."""
    if kind == "put":
        return len(operation.put.tasks)
    if kind == "settle":
        return sum(len(one.tokens) for one in operation.settle.settlements)
    selector = getattr(operation, kind).selector
    return len(selector.ids) + len(selector.keys)


def _checked_operation(
    operation: pb.BatchOperation,
    kind: str,
    payload_bytes_max: int,
    items_before: int,
) -> Violations:
    """Check one operation like a single call, and the fields that a batch does not allow."""
    put = operation.put
    single: Mapping[str, Callable[[], Violations]] = {
        "put": lambda: check_put(put, put.SerializeToString(), payload_bytes_max, items_before),
        "settle": lambda: check_settle(operation.settle, payload_bytes_max),
        "kick": lambda: checks.check_kick(operation.kick, payload_bytes_max),
        "bury": lambda: checks.check_bury(operation.bury),
        "delete": lambda: checks.check_delete(operation.delete),
        "update": lambda: checks.check_update(operation.update, payload_bytes_max),
        "move": lambda: checks.check_move(operation.move, payload_bytes_max),
    }
    violations = single[kind]()
    for field in ("room_wait_ms", "outcome_wait_ms", "return_tasks"):
        if kind == "put" and getattr(put, field):
            violations.add(field, "not allowed in a batch")
    if kind == "settle" and operation.settle.return_tasks:
        violations.add("return_tasks", "not allowed in a batch")
    if kind not in ("put", "settle"):
        selector = getattr(operation, kind).selector
        if not (selector.ids or selector.keys):
            violations.add("selector", "a batch must select tasks by ids or keys")
    return violations
