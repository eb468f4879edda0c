"""Name the limits of the contract, each with its unit.

They are advertised by GetServerInfo under these names in lower case. What depends on the machine is
configuration (``taskraft_service.config.server_config``) instead.
"""

from __future__ import annotations

from typing import Final

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""Default of the configured limit; larger content belongs into an object store."""
STORED_PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Payload of a task that a group or a schedule keeps to put it later."""
HEADERS_BYTES_MAX: Final = 8 * 1024
HEADER_NAME_BYTES_MAX: Final = 128
CONTENT_TYPE_BYTES_MAX: Final = 255
TYPE_BYTES_MAX: Final = 128
SUBQUEUE_BYTES_MAX: Final = 128
NAME_BYTES_MAX: Final = 128
REQUEST_ID_BYTES_MAX: Final = 64
DEPENDENCIES_MAX: Final = 100
"""Tasks that one task depends on."""
KEY_PARTS_MAX: Final = 8
KEY_BYTES_MAX: Final = 256
"""All parts of a unique key together."""
FAILURE_TYPE_BYTES_MAX: Final = 255
FAILURE_MESSAGE_BYTES_MAX: Final = 4 * 1024
PROGRESS_NOTE_BYTES_MAX: Final = 255
RESULT_BYTES_MAX: Final = 1024 * 1024

PUT_TASKS_MAX: Final = 10_000
"""Tasks in a put, tokens in a settle."""
TAKE_TASKS_MAX: Final = 1_000
TAKE_BYTES_DEFAULT: Final = 3 * 1024 * 1024
"""Payload in one answer to a take; with all else that tasks have it stays below gRPC's 4 MiB."""
TAKE_BYTES_BESIDE: Final = 960 * 1024
"""What the tasks of one answer may have beside that; more of them are given back."""
TAKE_SOURCES_MAX: Final = 64
TAKE_TYPES_MAX: Final = 64
SOURCE_WEIGHT_MAX: Final = 1_000_000
SELECTOR_IDS_MAX: Final = 1_000
DELETE_IDS_MAX: Final = 10_000
SESSIONS_PER_KEEP_MAX: Final = 1_000
PAGE_SIZE_MAX: Final = 1_000
TASKS_PAGE_SIZE_DEFAULT: Final = 100
LIST_SCAN_MAX: Final = 20_000
"""Tasks that one ListTasks looks at, whether the filter lets them through or not."""
LIST_SLICE_MAX: Final = 1_000
"""Tasks that a ListTasks looks at before it lets other calls have the event loop."""
LIST_BYTES_MAX: Final = 5 * 1024 * 1024 // 2
"""Content in one page; the page ends with the task that goes beyond.

With a payload of the default limit more it stays below the 4 MiB that gRPC clients accept.
"""
CREDIT_TASKS_MAX: Final = 100_000
NAMES_MAX: Final = 1_000

MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""One gRPC message. A put of many large payloads is split by the client."""

SESSION_TTR_DEFAULT_MS: Final = 15_000
SESSION_TTR_MIN_MS: Final = 1_000
SESSION_TTR_MAX_MS: Final = 86_400_000

JITTER_MAX_MS: Final = 86_400_000

WAIT_MAX_MS: Final = 60_000
"""Longest wait of one call; longer waits are repeated by the client."""
DEADLINE_MARGIN_MS: Final = 250
"""A wait ends so long before the caller's deadline, so that the empty answer still arrives."""

CONSUMER_IDLE_TTL_DEFAULT_MS: Final = 7 * 86_400_000
CONSUMER_IDLE_TTL_MAX_MS: Final = 366 * 86_400_000
"""Longest time that a consumer of the feed is remembered which is not heard of."""

CHUNK_BYTES_DEFAULT: Final = 1024 * 1024
CHUNK_BYTES_MIN: Final = 4 * 1024
CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024

HEARTBEAT_MS: Final = 5_000
"""A Subscribe stream says at least so often that it lives."""
