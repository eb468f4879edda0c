"""Change the settings that are part of the replicated state."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from taskraft_service.queue.operations.command_definition import (
    CommandDefinition,
    predict_nothing,
    replicated,
    shown_answer,
)
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings
from taskraft_service.queue.values import value


@value
class Configure:
    """Set the given settings; None leaves a setting unchanged.

    Answer: ``SettingsResult``.
    """

    settings: ReplicatedSettings
    request_id: str = ""
    request_hash: int = 0


@value
class SettingsResult:
    """The settings in force."""

    settings: ReplicatedSettings


def configure(state: QueueState, command: Configure) -> SettingsResult:
    """Set the given settings and leave the others unchanged."""
    named = {
        field.name: setting
        for field in fields(ReplicatedSettings)
        if (setting := getattr(command.settings, field.name)) is not None
    }
    state.settings = replace(state.settings, **named)
    if "session_ttr_ms" in named:
        _renew_session_ttr(state)
    return SettingsResult(state.settings)


def session_ttr_ms(state: QueueState, default_ttr_ms: int) -> int:
    """Return the time to run, in ms, of a session that sets no time to run.

    ``default_ttr_ms`` 0: the session was opened by a stream and may end with the stream. Other
    sessions need heartbeats, so they get at least ``session_ttr_min_ms``.
    """
    setting = state.settings.session_ttr_ms
    if setting is None:
        return default_ttr_ms
    return max(setting, state.limits.session_ttr_min_ms) if default_ttr_ms else setting


def _renew_session_ttr(state: QueueState) -> None:
    """Apply a new default to open sessions; a running expiry keeps its deadline.

    This is the behaviour of ``cfg`` in tarantool/queue.
    """
    for session in state.sessions.values():
        if session.default_ttr_ms is not None:
            session.ttr_ms = session_ttr_ms(state, session.default_ttr_ms)
            state.sessions.touch(session)


def _show(state: QueueState) -> SettingsResult:
    return SettingsResult(state.settings)


DEFINITION: Final = CommandDefinition(
    Configure,
    configure,
    predict=predict_nothing,
    side=replicated,
    answer=shown_answer(9, _show),
)
