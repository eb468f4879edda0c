"""Collect the limits that a caller can meet, for GetServerInfo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskraft_service import limits
from taskraft_service.access.authenticator import PERSON_CHARACTERS_MAX
from taskraft_service.api.cluster.membership import MEMBERS_MAX
from taskraft_service.api.feed.task_events import EVENTS_MAX
from taskraft_service.api.rpc.answer_bytes import AnswerRoom
from taskraft_service.api.rpc.grpc_calls import FIRST_MESSAGE_SECONDS
from taskraft_service.api.rpc.list_maxima import MASK_PATHS_MAX, PARTITIONS_MAX
from taskraft_service.api.rpc.live_calls import PrincipalShares
from taskraft_service.api.rpc.rpc_server import METADATA_BYTES_MAX
from taskraft_service.api.schedules import TIMES_MAX
from taskraft_service.api.tasks import task_graph
from taskraft_service.api.tasks.bulk_sweeps import FILTER_BYTES_MAX, RATE_MAX, REASON_BYTES_MAX
from taskraft_service.api.tasks.task_snapshots import KEEP_MS_MAX
from taskraft_service.config.server_config import ServerConfig
from taskraft_service.languages.cron import EXPRESSION_BYTES_MAX
from taskraft_service.languages.filter_text import FILTER_CHARACTERS_MAX, FILTER_DEPTH_MAX
from taskraft_service.leader.capacity_waiters import WAITING_PUTS_MAX
from taskraft_service.machine import failure_counts, tube_sampler
from taskraft_service.queue.entities.option_checks import SUBQUEUE_WEIGHTS_MAX
from taskraft_service.queue.limits import OBJECT_LIMITS, Limits

NODE_SETTINGS: Final = (
    "payload_bytes_max",
    "calls_max",
    "call_bytes_max",
    "streams_max",
    "pending_commands_max",
    "pending_bytes_max",
    "temporary_bytes_max",
)
"""Names of the settings of a node that are limits."""
RESULT_LIMITS: Final = (
    "session_taken_max",
    "kick_tasks_max",
    "selector_scan_max",
    "passed_max",
    "command_content_bytes_max",
)
"""Names of the limits of the queue that make a result smaller than requested."""
OTHER_LIMITS: Final = {
    "cron_bytes_max": EXPRESSION_BYTES_MAX,
    "cursor_partitions_max": PARTITIONS_MAX,
    "failures_tubes_max": failure_counts.TUBES_MAX,
    "filter_characters_max": FILTER_CHARACTERS_MAX,
    "filter_depth_max": FILTER_DEPTH_MAX,
    "first_message_ms": int(FIRST_MESSAGE_SECONDS * 1000),
    "graph_depth_max": task_graph.DEPTH_MAX,
    "graph_tasks_max": task_graph.TASKS_MAX,
    "history_samples_max": tube_sampler.COARSE_SAMPLES,
    "history_tubes_max": tube_sampler.TUBES_MAX,
    "mask_paths_max": MASK_PATHS_MAX,
    "members_max": MEMBERS_MAX,
    "metadata_bytes_max": METADATA_BYTES_MAX,
    "person_characters_max": PERSON_CHARACTERS_MAX,
    "schedule_times_max": TIMES_MAX,
    "snapshot_keep_ms_max": KEEP_MS_MAX,
    "subqueue_weights_max": SUBQUEUE_WEIGHTS_MAX,
    "sweep_filter_bytes_max": FILTER_BYTES_MAX,
    "sweep_rate_max": RATE_MAX,
    "sweep_reason_bytes_max": REASON_BYTES_MAX,
    "task_events_max": EVENTS_MAX,
    "waiting_puts_max": WAITING_PUTS_MAX,
}
"""Limits that are defined beside the code that they bound, by their names in GetServerInfo."""


def server_limits(
    config: ServerConfig, objects: Limits, shares: PrincipalShares, answers: AnswerRoom
) -> Mapping[str, int]:
    """Return the limits in force by name; the unit is part of the name.

    Args:
        config: the settings of this node.
        objects: the limits of the queue.
        shares: the shares of each principal on this node.
        answers: the answers of this node.
    """
    named = {name.lower(): number for name, number in vars(limits).items() if name.isupper()}
    return {
        **{name: number for name, number in named.items() if isinstance(number, int)},
        **OTHER_LIMITS,
        **{name: getattr(objects, name) for name in (*OBJECT_LIMITS, *RESULT_LIMITS)},
        **{name: getattr(config, name) for name in NODE_SETTINGS},
        "answer_bytes_max": answers.bytes_max,
        "answer_bytes_share_max": answers.share_max,
        "calls_share_max": shares.calls_max,
        "streams_share_max": shares.streams_max,
        "connections_share_max": shares.connections_max,
    }
