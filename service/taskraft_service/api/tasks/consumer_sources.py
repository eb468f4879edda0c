"""Check and resolve the sources of a consumer: tubes, patterns, weights and task types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from taskraft.v1 import error_pb2
from taskraft.v1 import task_service_pb2 as pb
from taskraft_service import limits
from taskraft_service.access.caller import ANONYMOUS, Caller
from taskraft_service.access.permissions import Verb
from taskraft_service.api.rpc.request_steps import RequestSteps
from taskraft_service.api.rpc.status import CallRefused
from taskraft_service.api.rpc.violations import Violations
from taskraft_service.languages.patterns import compiled, is_pattern
from taskraft_service.leader.waiters import Waiters


class ConsumerSources:
    """The sources of one consumer, in the order of its request.

    A pattern stands for the matching tubes that ``caller`` may take from.
    """

    def __init__(self, sources: Sequence[pb.TakeSource], caller: Caller = ANONYMOUS) -> None:
        self._caller = caller
        self.names: Final = tuple(source.tube for source in sources)
        self.has_patterns: Final = any(is_pattern(name) for name in self.names)
        self._exact = {source.tube: source.weight for source in reversed(sources)}
        self.patterns: Final = compiled(self.names)
        self._weights = [source.weight for source in sources]
        self._weighs = any(self._weights)
        self._yielding = frozenset(source.tube for source in sources if source.yielding)
        self._firm = compiled(tuple(source.tube for source in sources if not source.yielding))

    def weight_of(self, tube: str) -> int:
        """Return the weight of a tube's source; an exact name takes precedence over a pattern."""
        if not self._weighs:
            return 0
        if tube in self._exact:
            return self._exact[tube]
        place = self.patterns.rank_of(tube)
        return 0 if place is None else self._weights[place]

    def yields(self, tube: str) -> bool:
        """Return whether the tube's source yields; an exact name takes precedence."""
        if not self._yielding:
            return False
        if tube in self._exact:
            return tube in self._yielding
        return not self._firm.matches(tube)

    @property
    def principal(self) -> str:
        """The principal of the caller; empty without access control."""
        return self._caller.name

    def allows(self, tube: str) -> bool:
        """Return whether the caller currently may take from a tube."""
        return self._caller.may(Verb.TAKE, tube)

    def allowed(self, tubes: Sequence[str]) -> tuple[str, ...]:
        """Return the tubes that the caller may still take from."""
        if self._caller.is_restricted:
            return tuple(tube for tube in tubes if self.allows(tube))
        return tuple(tubes)

    def narrowed(self, tubes: Sequence[str]) -> list[pb.TakeSource]:
        """Return one source per tube that the caller may still take from, with its weight."""
        return [
            pb.TakeSource(tube=tube, weight=self.weight_of(tube)) for tube in self.allowed(tubes)
        ]


def check_wait(
    sources: ConsumerSources, waiters: Waiters, tubes: Sequence[str], steps: RequestSteps
) -> None:
    """Check that a consumer may wait with its patterns.

    Args:
        sources: the sources of the consumer.
        waiters: the waiting consumers.
        tubes: the names of all tubes, in order.
        steps: the steps of the request.

    Raises:
        CallRefused: TOO_MANY_STEPS; OVERLOADED, the patterns or the places of all waiting consumers
            together, or of those of the principal.
    """
    if not sources.has_patterns:
        return
    patterns, name = sources.patterns, sources.principal
    steps.count(max(len(tubes), limits.WAITING_NAMES_MIN) * patterns.steps_max)
    _check_share(
        waiters.patterns.steps_with(patterns, name),
        name,
        {
            "waiting_steps_max": limits.WAITING_STEPS_MAX,
            "waiting_steps_share_max": limits.WAITING_STEPS_SHARE_MAX,
        },
        "the patterns of {whose} would need more than {most} steps for each new tube",
    )
    candidates = sum(map(len, patterns.candidates(tubes)))
    _check_share(
        waiters.places.counts.count_with(candidates, name),
        name,
        {
            "waiting_places_max": limits.WAITING_PLACES_MAX,
            "waiting_places_share_max": limits.WAITING_PLACES_SHARE_MAX,
        },
        "{whose} would have more than {most} places in the wait queues of tubes; name fewer tubes,"
        " or retry later",
    )


def _check_share(
    wanted: tuple[int, int], principal: str, maximums: Mapping[str, int], text: str
) -> None:
    """Check what waiting consumers need in total and for one principal.

    Args:
        wanted: the number for all consumers, and the number for those of the principal.
        principal: name of the principal.
        maximums: the names of both limits, with the limits.
        text: message of the refusal, with gaps for the consumers and the limit.

    Raises:
        CallRefused: OVERLOADED.
    """
    whose = ("all waiting consumers", f'all waiting consumers of principal "{principal}"')
    for number, (limit, most), who in zip(wanted, maximums.items(), whose, strict=True):
        if number > most:
            metadata = {"limit": limit, "value": str(most)}
            if limit.endswith("share_max"):
                metadata["principal"] = principal
            message = text.format(whose=who, most=most)
            raise CallRefused(error_pb2.Error.OVERLOADED, message, metadata)


def check_sources(violations: Violations, path: str, sources: Sequence[pb.TakeSource]) -> None:
    """Check the sources of a consumer."""
    violations.check_nonempty(path, sources, limits.TAKE_SOURCES_MAX)
    for place, source in enumerate(sources):
        violations.check_pattern(f"{path}[{place}].tube", source.tube)
        if source.weight:
            violations.check_range(
                f"{path}[{place}].weight", source.weight, 0, limits.SOURCE_WEIGHT_MAX
            )
    if len({source.weight > 0 for source in sources}) > 1:
        violations.add(path, "either all sources have a weight or none")


def check_types(violations: Violations, path: str, types: Sequence[str]) -> None:
    """Check the task types that a consumer accepts."""
    violations.check_count(path, types, limits.TAKE_TYPES_MAX)
    for place, name in enumerate(types):
        if not name:
            violations.add(f"{path}[{place}]", "an empty type")
        violations.check_text(f"{path}[{place}]", name, limits.TYPE_BYTES_MAX)
