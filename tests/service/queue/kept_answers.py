"""Encode and decode kept answers by the type of the result."""

from taskraft_service.queue.entities.refusal import CountResult
from taskraft_service.queue.operations.batch import BatchResult, ExecuteBatch
from taskraft_service.queue.operations.cancel import Cancel, CancelResult
from taskraft_service.queue.operations.kick_bury_delete import Delete
from taskraft_service.queue.operations.put import Put, PutResult
from taskraft_service.queue.operations.registry import ANSWERS, DEFINITIONS
from taskraft_service.queue.operations.settlements import Settle, SettleResult
from taskraft_service.queue.operations.take import Take, TakeResult

_COMMANDS = {
    PutResult: Put,
    TakeResult: Take,
    SettleResult: Settle,
    CountResult: Delete,
    CancelResult: Cancel,
    BatchResult: ExecuteBatch,
}


def encode(result):
    return DEFINITIONS[_COMMANDS[type(result)]].answer.write(result)


def decode(kept, state=None):
    return ANSWERS[kept[0]].repeat(state, kept)
