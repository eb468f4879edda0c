"""Limits of the API, each with its unit.

GetServerInfo returns them under these names in lower case. Limits that depend on the machine are
settings of the node (``taskraft_service.config.server_config``).
"""

from __future__ import annotations

from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""Default of the setting ``payload_bytes_max``. Keep larger content in an object store."""
STORED_PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Maximum payload of a task that a group or a schedule keeps and puts later."""
HEADERS_BYTES_MAX: Final = 8 * 1024
HEADERS_MAX: Final = 64
"""Maximum number of headers of one task."""
HEADER_NAME_BYTES_MAX: Final = 128
CONTENT_TYPE_BYTES_MAX: Final = 255
TYPE_BYTES_MAX: Final = 128
SUBQUEUE_BYTES_MAX: Final = 128
NAME_BYTES_MAX: Final = 128
REQUEST_ID_BYTES_MAX: Final = 64
CLIENT_ID_BYTES_MAX: Final = 128
DEPENDENCIES_MAX: Final = 100
"""Maximum number of tasks that one task depends on."""
PUT_DEPENDENCIES_MAX: Final = 2_000
"""Maximum number of dependencies of all tasks of one put or batch."""
PUT_HEADERS_MAX: Final = 40_000
"""Maximum number of headers of all tasks of one put or batch."""
UPDATE_HEADERS_MAX: Final = 2_000
"""Maximum number of headers that all changes of tasks in one request set, and of those that they
remove."""
KEY_PARTS_MAX: Final = 8
KEY_BYTES_MAX: Final = 256
"""Maximum total size of the parts of a unique key."""
FAILURE_TYPE_BYTES_MAX: Final = 255
FAILURE_MESSAGE_BYTES_MAX: Final = 4 * 1024
PROGRESS_NOTE_BYTES_MAX: Final = 255
RESULT_BYTES_MAX: Final = 1024 * 1024

PUT_TASKS_MAX: Final = 1_000
"""Maximum number of tasks in a put, or of tokens in a settlement. Requests are this small because
the event loop of each node does nothing else while it applies one command."""
TAKE_TASKS_MAX: Final = 1_000
TAKE_BYTES_DEFAULT: Final = 3 * 1024 * 1024
"""Default maximum payload in one response to a take; with all other fields, the response stays
below the 4 MiB that gRPC clients accept."""
TAKE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum payload in one response to a take that asks for more."""
TAKE_BYTES_BESIDE: Final = 960 * 1024
"""Maximum size of all other fields in a response to a take; tasks beyond this size are released."""
TAKE_SOURCES_MAX: Final = 64
TAKE_TYPES_MAX: Final = 64
SOURCE_WEIGHT_MAX: Final = 1_000_000
SELECTOR_IDS_MAX: Final = 1_000
SWEEP_IDS_MAX: Final = 10_000
"""Maximum number of ids of one bulk sweep."""
SESSIONS_PER_KEEP_MAX: Final = 1_000
CANCEL_TOKENS_MAX: Final = 100_000
"""Maximum number of lease tokens of cancelled tasks in one heartbeat of a stream, or in one answer
of KeepSessions. The answer names further leases when earlier ones have ended."""
PAGE_SIZE_MAX: Final = 1_000
TASKS_PAGE_SIZE_DEFAULT: Final = 100
LIST_SCAN_MAX: Final = 20_000
"""Maximum number of tasks that one ListTasks scans, whether the filter matches them or not."""
LIST_SLICE_MAX: Final = 1_000
"""Number of tasks that ListTasks scans before the event loop can run other calls."""
LIST_BYTES_MAX: Final = 5 * 1024 * 1024 // 2
"""Content size at which a page of ListTasks ends. Even if the last task has a payload of the
default maximum size, the page stays below the 4 MiB that gRPC clients accept."""
CREDIT_TASKS_MAX: Final = 100_000
NAMES_MAX: Final = 1_000
REQUEST_STEPS_MAX: Final = 1_000_000
"""Maximum number of steps of one request: names that are looked at, comparisons of names with
patterns, and elements of lists. A million steps take about half a second of CPU time, in slices."""
BYTES_PER_STEP: Final = 16
"""Payload or result of a task that counts as one step: read from the store, copied and sent."""
CONTENT_BYTES_MAX: Final = REQUEST_STEPS_MAX * BYTES_PER_STEP
"""Content of tasks that one answer has at most, about 16 MB."""
WAITING_NAMES_MIN: Final = 2_000
"""Minimum number of names with which the patterns of a consumer that waits are counted, because
tubes can be created while the consumer waits."""
WAITING_STEPS_MAX: Final = 50_000
"""Maximum number of steps that compare a new tube with the patterns of all waiting consumers."""
WAITING_STEPS_SHARE_MAX: Final = 37_500
"""Maximum number of these steps for the consumers of one principal."""
WAITING_PLACES_MAX: Final = 4_000_000
"""Number of places of waiting consumers, one for each consumer and each of its tubes, above which
no further consumer may wait with patterns. Tubes that are created later add places."""
WAITING_PLACES_SHARE_MAX: Final = 3_000_000
"""The same for the consumers of one principal."""
WAITED_TASKS_MAX: Final = 1_000_000
"""Maximum number of tasks for whose outcomes calls wait; a task counts once per waiting call."""
WAITED_TASKS_SHARE_MAX: Final = 750_000
"""Maximum number of these tasks for the calls of one principal."""
WAITED_CONTENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of the content of outcomes that waiting calls keep, in bytes; 16 KiB of payload and
the result of each task."""
WAITED_CONTENT_BYTES_SHARE_MAX: Final = WAITED_CONTENT_BYTES_MAX * 3 // 4
"""Maximum size of this content for the calls of one principal, in bytes."""
BATCH_OPERATIONS_MAX: Final = 100
BATCH_ITEMS_MAX: Final = 1_000
"""Maximum number of tasks, lease tokens, ids and keys of all operations of one ExecuteBatch."""

ENTRY_ITEMS_MAX: Final = 1_000
"""Maximum number of tasks that the commands of one log entry change. The entry is applied in one
run of the event loop."""
MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum size of one gRPC message. The client splits a put of many large payloads."""
MESSAGE_FIELDS_MAX: Final = 300_000
"""Maximum number of fields of one gRPC message, with those of all messages inside it; an entry of a
map counts as three. Counted in messages of more than 256 KiB."""
COMMAND_BYTES_MAX: Final = MESSAGE_BYTES_MAX + 2 * 1024 * 1024
"""Maximum size of one command in the log. The leader may replace the patterns of a request by the
names of tubes, and the tokens of other principals' leases by longer numbers."""

SESSION_LABELS_MAX: Final = 16
"""Maximum number of labels of a session."""
SESSION_LABEL_NAME_BYTES_MAX: Final = 64
SESSION_LABELS_BYTES_MAX: Final = 1_024
"""Maximum size of all names and values of the labels of a session."""
SESSION_TTR_DEFAULT_MS: Final = 15_000
SESSION_TTR_MIN_MS: Final = 1_000
SESSION_TTR_MAX_MS: Final = 86_400_000

JITTER_MAX_MS: Final = 86_400_000

WAIT_MAX_MS: Final = 60_000
"""Maximum wait of one call; the client repeats longer waits."""
DEADLINE_MARGIN_MS: Final = 250
"""Time before the caller's deadline at which a wait ends, so that the empty response arrives in
time."""

CONSUMER_IDLE_TTL_DEFAULT_MS: Final = 7 * 86_400_000
CONSUMER_IDLE_TTL_MAX_MS: Final = 366 * 86_400_000
"""Maximum time for which an inactive feed consumer is kept."""

CHUNK_BYTES_DEFAULT: Final = 1024 * 1024
CHUNK_BYTES_MIN: Final = 4 * 1024
CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024

SILENCE_MAX_MS: Final = 86_400_000
"""Upper limit of silence_ms_max of a Subscribe stream."""

HEARTBEAT_MS: Final = 5_000
"""Default interval of heartbeats on a Subscribe stream while its session holds leases, in ms. A
message with other content has a heartbeat if the last one is older."""
HEARTBEAT_INTERVAL_MIN_MS: Final = 1_000
"""Minimum interval between heartbeats, in ms, however often the client requests them."""
HEARTBEAT_INTERVAL_MAX_MS: Final = 86_400_000
"""Upper limit of heartbeat_ms of a Subscribe stream."""

SNAPSHOTS_MAX: Final = 4
"""Maximum number of snapshots that a node keeps for one method."""
SNAPSHOTS_SHARE_MAX: Final = 2
"""Maximum number of kept snapshots of one principal. Callers without access control have no
principal, and may have all."""
