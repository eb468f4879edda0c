"""Generate values for each kind of record; a seed gives equal values on all Python versions."""

from random import Random

from taskraft_service.queue.entities.group import GroupState, GroupTask, TaskGroup
from taskraft_service.queue.entities.refusal import CountResult, ItemRefusal, Reason, Refusal
from taskraft_service.queue.entities.retry_policy import Exhausted, Position, RetryPolicy
from taskraft_service.queue.entities.session import QueueSession
from taskraft_service.queue.entities.task_state import TaskOutcome
from taskraft_service.queue.entities.task_view import (
    ATTEMPT_FAILURES_MAX,
    AttemptFailure,
    Awaited,
    Extras,
    Failure,
    OnDependencyFailure,
    TaskOrigin,
    TaskProgress,
    Waiting,
)
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
    TubeView,
)
from taskraft_service.queue.entities.tube_profiles import PROFILES
from taskraft_service.queue.feed.feed_consumers import FeedConsumer
from taskraft_service.queue.limits import Limits
from taskraft_service.queue.operations.batch import BatchResult
from taskraft_service.queue.operations.cancel import CancelResult
from taskraft_service.queue.operations.put import PutResult
from taskraft_service.queue.operations.settlements import SettleResult, TouchedLease
from taskraft_service.queue.persistence.state_records import open_state
from taskraft_service.queue.state.cluster_version import ClusterVersionState
from taskraft_service.queue.state.dependents import TaskEnding
from taskraft_service.queue.state.failures import KeptFailure
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.state.schedule_registry import Overlap, ScheduleSpec, TaskSchedule
from taskraft_service.queue.state.tube_registry import new_tube
from taskraft_service.versions import ClusterVersion
from tests.service.queue.memory_store import MemoryStore

U8, U16, U31, U32, U63, U64 = (1 << bits for bits in (8, 16, 31, 32, 63, 64))
TEXTS = ("", "", "a", "mail", "größe", "順序", "long " * 60)


class Draws:
    """A random source. Only ``Random.random`` has the same numbers on all versions of Python."""

    def __init__(self, seed):
        self._random = Random(seed)

    def below(self, end):
        if end > 1000 and self.yes():  # Small numbers are as frequent as large ones.
            end = 10
        return min(int(self._random.random() * end), end - 1)

    def yes(self):
        return self._random.random() < 0.5

    def signed(self):
        return self.below(U63) * (1 if self.yes() else -1)

    def of(self, choices):
        choices = tuple(choices)
        return choices[self.below(len(choices))]

    def member(self, kind):
        """Return one of the first members, so that a new member changes no value."""
        return self.of(tuple(kind)[:3])

    def maybe(self, draw):
        return draw() if self.yes() else None

    def several(self, draw, most=4):
        return tuple(draw() for _ in range(self.below(most + 1)))

    def text(self):
        return self.of(TEXTS)

    def name(self):
        return self.text() or "name"

    def blob(self):
        return bytes(self.several(lambda: self.below(U8), 40))


def retry(draw):
    return RetryPolicy(
        draw.below(U32),
        draw.signed(),
        draw.below(U32),
        draw.signed(),
        draw.below(101),
        draw.member(Exhausted),
        draw.member(Position),
    )


def waiting(draw):
    awaited = (Awaited(draw.below(U64), draw.text(), draw.below(U64)),)
    awaited += draw.several(lambda: Awaited(draw.below(U64), draw.text(), draw.below(U64)))
    return Waiting(awaited, draw.member(OnDependencyFailure), draw.signed())


def extras(draw):
    return Extras(
        failure=draw.maybe(lambda: Failure(draw.text(), draw.text(), draw.yes())),
        times_buried=draw.below(U32),
        progress=draw.maybe(lambda: TaskProgress(draw.below(10_001), draw.text())),
        result=draw.maybe(draw.blob),
        result_content_type=draw.text(),
        outcome=draw.member(TaskOutcome),
        retain_until_ms=draw.signed(),
        unique_key=draw.several(draw.text),
        group=draw.text(),
        group_number=draw.below(U64),
        retry=draw.maybe(lambda: retry(draw)),
        cancel_requested=draw.yes(),
        origin=draw.maybe(
            lambda: TaskOrigin(draw.text(), draw.below(U64), draw.several(draw.text))
        ),
        dependents=draw.maybe(lambda: draw.below(U64)) or 0,
        waiting=draw.maybe(lambda: waiting(draw)),
        failures=draw.several(lambda: attempt_failure(draw), ATTEMPT_FAILURES_MAX),
    )


def attempt_failure(draw):
    return AttemptFailure(draw.below(U32), draw.signed(), draw.text(), draw.text(), draw.yes())


def settings(draw):
    return ReplicatedSettings(
        failover_grace_ms=draw.maybe(lambda: draw.below(U63)),
        auto_create_tubes=draw.maybe(draw.yes),
        auto_create_kind=draw.maybe(lambda: draw.member(TubeKind)),
        feed_retention_ms=draw.maybe(lambda: draw.below(U63)),
        feed_bytes_max=draw.maybe(lambda: draw.below(U63)),
        session_ttr_ms=draw.maybe(lambda: draw.below(U63)),
        upgrade_hold_ms=draw.maybe(lambda: draw.below(U63)),
        cluster_version_max=draw.maybe(lambda: draw.below(U31)),
        auto_create_profile=draw.maybe(lambda: draw.text()[:60]),
    )


def options(draw):
    return TubeOptions(
        higher_first=draw.yes(),
        priority=draw.signed(),
        delay_ms=draw.signed(),
        ttl_ms=draw.signed(),
        ttr_ms=draw.signed(),
        put_paused=draw.yes(),
        take_paused=draw.yes(),
        priority_min=draw.signed(),
        priority_max=draw.signed(),
        ttl_scope=draw.member(TtlScope),
        ttl_policy=draw.member(TtlPolicy),
        on_ack=draw.member(OnAck),
        retain_ms=draw.signed(),
        capacity_tasks=draw.below(U64),
        capacity_bytes=draw.below(U64),
        buried_max=draw.below(U64),
        concurrency=draw.below(U32),
        subqueue_concurrency=draw.below(U32),
        rate_per_second=draw.below(U32),
        rate_burst=draw.below(U32),
        subqueue_rate_per_second=draw.below(U32),
        subqueue_rate_burst=draw.below(U32),
        durability=draw.member(Durability),
        retry=retry(draw),
        dead_letter_tube=draw.text(),
        subqueue_weights=draw.several(lambda: (draw.text(), draw.below(U32))),
    )


def refusal(draw):
    details = {draw.name(): draw.text() for _ in range(draw.below(3))}
    return Refusal(draw.member(Reason), draw.text(), details)


def refused(draw):
    return draw.several(lambda: ItemRefusal(draw.below(U32), refusal(draw)), 2)


def group(draw):
    drawn = TaskGroup(draw.below(U64), draw.name(), draw.signed())
    drawn.state = draw.member(GroupState)
    drawn.open, drawn.processed = draw.below(U64), draw.below(U64)
    drawn.failed, drawn.cancelled = draw.below(U64), draw.below(U64)
    drawn.end_task = draw.maybe(lambda: GroupTask(draw.text(), draw.blob()))
    drawn.abort_task = draw.maybe(lambda: GroupTask(draw.text(), draw.blob()))
    drawn.only_if_processed = draw.yes()
    drawn.revoke, drawn.sweeping = draw.yes(), draw.yes()
    drawn.ended_ms, drawn.last_task_id = draw.signed(), draw.below(U64)
    drawn.cursor = (draw.below(U32), draw.below(U64))
    drawn.refusal = draw.maybe(lambda: refusal(draw))
    return drawn


def schedule(draw):
    spec = ScheduleSpec(
        draw.text(), draw.text(), draw.member(Overlap), draw.yes(), draw.blob(), draw.blob()
    )
    drawn = TaskSchedule(draw.name(), spec, draw.signed(), draw.signed())
    drawn.version, drawn.left_out = draw.below(U64), draw.below(U64)
    drawn.done_ms, drawn.last_ms = draw.signed(), draw.signed()
    drawn.last_task_id = draw.below(U64)
    drawn.last = (draw.below(U64), draw.below(U64))
    drawn.refusal = draw.maybe(lambda: refusal(draw))
    return drawn


def session(draw):
    drawn = QueueSession(
        draw.below(U64), draw.name(), draw.text(), draw.below(U63), draw.below(U63)
    )
    drawn.owner = draw.text()
    drawn.attached, drawn.orphaned = draw.yes(), draw.yes()
    drawn.default_ttr_ms = draw.maybe(lambda: draw.below(U63))
    drawn.expires_ms = draw.below(U63)
    drawn.timer = drawn.due()
    return drawn


def consumer(draw):
    drawn = FeedConsumer(draw.name())
    drawn.committed_ms, drawn.idle_ttl_ms = draw.below(U64), draw.below(U64)
    drawn.next_seq = dict(sorted(draw.several(lambda: (draw.below(U16), draw.below(U64)))))
    return drawn


def tube(draw):
    view = TubeView(
        draw.name(),
        draw.member(TubeKind),
        options(draw),
        draw.signed(),
        draw.member(sorted(PROFILES)),
        "",
        draw.below(U32),
    )
    drawn = new_tube(draw.below(U32), view, MemoryStore(), Limits())
    drawn.next_id, drawn.share = draw.below(U64), draw.below(U64)
    drawn.lane_min, drawn.lane_max = draw.signed(), draw.signed()
    drawn.memory = draw.blob()
    drawn.counters.calls = [draw.below(U64) for _ in drawn.counters.calls]
    drawn.counters.finished, drawn.counters.payload_bytes = draw.below(U64), draw.below(U64)
    for since_ms in sorted(set(draw.several(lambda: draw.below(U63)))):
        drawn.ages.add(since_ms, 1 + draw.below(U31))
    return drawn


def failure(draw):
    return KeptFailure(
        draw.below(U32),
        draw.below(U64),
        draw.below(U64),
        draw.below(U64),
        draw.below(U32),
        draw.member(TaskOutcome),
        draw.yes(),
        draw.text(),
        draw.text(),
        draw.several(draw.text),
    )


def meta(draw):
    drawn = open_state(MemoryStore(), Limits())
    drawn.index, drawn.now_ms, drawn.token = draw.below(U64), draw.signed(), draw.below(U64)
    drawn.tubes.number, drawn.sessions.number = draw.below(U32), draw.below(U64)
    drawn.groups.number = draw.below(U64)
    for number in set(draw.several(lambda: draw.below(U32))):
        options = TubeOptions(ttl_scope=draw.member(TtlScope))
        view = TubeView(draw.name(), TubeKind.FIFO, options, 0)
        in_cleanup = new_tube(number, view, drawn.store, drawn.limits)
        drawn.removals[number] = (in_cleanup, draw.below(U64))
    drawn.settings = settings(draw)
    drawn.requests.restore(draw.below(U64), draw.signed(), draw.below(U64), draw.below(U64))
    if draw.yes():
        drawn.feed.begin(draw.name(), 1 + draw.below(4))
    for partition in drawn.feed.partitions:
        partition.restore(draw.below(U64), draw.below(U64), draw.signed(), draw.below(U64))
    drawn.failures.restore(draw.below(U64), draw.below(U64))
    drawn.dependents.restore(draw.below(U64), draw.below(U64), draw.below(U64))
    drawn.wall_offset_ms, drawn.event_floor_ms = draw.of(((0, 0), (draw.signed(), 0), (0, 7)))
    drawn.clock_epoch, drawn.clock_term = draw.of(((0, 0), (3, draw.below(U63))))
    drawn.cluster = ClusterVersionState(ClusterVersion.V1, draw.below(9), draw.signed())
    return drawn


def ending(draw):
    return TaskEnding(
        draw.below(U64),
        draw.member(TaskOutcome),
        draw.text(),
        draw.below(U64),
        (draw.below(U32), draw.below(U64)),
    )


def put_answer(draw):
    if draw.yes():
        first = draw.below(U63)
        return PutResult(range(first, first + 1 + draw.below(10)))
    # Dense ids are stored as a range.
    ids = draw.of(((), (9, 3, *draw.several(lambda: draw.below(U64)))))
    return PutResult(ids, refused(draw), draw.several(lambda: draw.below(U64)))


def settle_answer(draw):
    touched = draw.several(lambda: TouchedLease(draw.below(U64), draw.below(U64), draw.yes()))
    return SettleResult(refused(draw), touched)


def count_answer(draw):
    return CountResult(draw.below(U64), refused(draw), draw.below(U64))


def cancel_answer(draw):
    return CancelResult(draw.below(U32), draw.below(U32), refused(draw), draw.below(U64))


def batch_answer(draw):
    return BatchResult(
        draw.several(lambda: draw.of((put_answer, settle_answer, count_answer))(draw))
    )
