"""Split a command on both sides (take, settle, counted calls) into two, and join the results."""

from __future__ import annotations

from taskraft.v1 import task_service_pb2 as pb
from taskraft_service.command_codecs.sessions import NOTE_CALLS
from taskraft_service.command_codecs.settle import SETTLE
from taskraft_service.command_codecs.take import TAKE
from taskraft_service.entries.encoded_command import EncodedCommand, encode_leader_command
from taskraft_service.queue.entities.id_layout import TEMPORARY_TASKS
from taskraft_service.queue.entities.refusal import ItemRefusal
from taskraft_service.queue.operations.leadership import NoteCalls
from taskraft_service.queue.operations.settlements import (
    GivenUpLease,
    SettleResult,
    TouchedLease,
)
from taskraft_service.queue.state.temporary_tubes import Side, SideLookup
from taskraft_service.stubs.log.v1 import log_pb2


def split_take(encoded: EncodedCommand, where: SideLookup) -> tuple[EncodedCommand, EncodedCommand]:
    """Return the take for the replicated tubes, and the take for the temporary tubes."""
    logged, temporary = pb.TakeTasksRequest(), pb.TakeTasksRequest()
    logged.ParseFromString(encoded.raw)
    temporary.CopyFrom(logged)
    sources = list(logged.sources)
    for request, side in ((logged, Side.LOG), (temporary, Side.MEMORY)):
        del request.sources[:]
        request.sources.extend(one for one in sources if where(one.tube) is side)
    key = encoded.key
    return encode_leader_command(TAKE, logged, key), encode_leader_command(TAKE, temporary, key)


def split_notes(command: NoteCalls, where: SideLookup) -> tuple[EncodedCommand, EncodedCommand]:
    """Return the counted calls on replicated tubes, and the counted calls on temporary tubes."""
    logged, temporary = log_pb2.NoteCalls(), log_pb2.NoteCalls()
    for one in command.tubes:
        message = temporary if where(one.tube) is Side.MEMORY else logged
        message.tubes.add(
            tube=one.tube, take_timeouts=one.take_timeouts, peeks=one.peeks, metas=one.metas
        )
    return encode_leader_command(NOTE_CALLS, logged), encode_leader_command(NOTE_CALLS, temporary)


class SplitSettle:
    """A settle request that is split into two parts; item numbers count over all tokens."""

    def __init__(self, encoded: EncodedCommand) -> None:
        """Split the tokens of each settlement."""
        whole = pb.SettleTasksRequest.FromString(encoded.raw)
        requests = [pb.SettleTasksRequest(request_id=whole.request_id) for _ in range(2)]
        self._places: tuple[list[int], list[int]] = ([], [])
        item = 0
        for settlement in whole.settlements:
            for is_temporary, request in enumerate(requests):
                places = [
                    place
                    for place, token in enumerate(settlement.tokens)
                    if (token >= TEMPORARY_TASKS) is bool(is_temporary)
                ]
                if not places:
                    continue
                part = request.settlements.add()
                part.CopyFrom(settlement)
                del part.tokens[:]
                part.tokens.extend(settlement.tokens[place] for place in places)
                self._places[is_temporary].extend(item + place for place in places)
            item += len(settlement.tokens)
        self._tokens = [token for one in whole.settlements for token in one.tokens]
        self.logged, self.temporary = (
            encode_leader_command(SETTLE, request, encoded.key, is_owed=encoded.is_owed)
            for request in requests
        )

    def joined(self, logged: SettleResult, temporary: SettleResult) -> SettleResult:
        """Return the joined result, in the order of the items."""
        refused: list[ItemRefusal] = []
        touched: list[TouchedLease] = []
        given_up: list[GivenUpLease] = []
        for places, result in zip(self._places, (logged, temporary), strict=True):
            refused += [ItemRefusal(places[one.item], one.refusal) for one in result.refused]
            touched += result.touched
            given_up += result.given_up
        refused.sort(key=lambda one: one.item)
        places_of = {token: place for place, token in enumerate(self._tokens)}
        touched.sort(key=lambda lease: places_of[lease.token])
        given_up.sort(key=lambda lease: places_of[lease.token])
        return SettleResult(refused, touched, given_up)
