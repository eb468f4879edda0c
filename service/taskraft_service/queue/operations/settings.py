"""Keep the settings of the cluster: part of the state, so that every leader has the same."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from taskraft_service.queue.entities.replicated_settings import ReplicatedSettings
from taskraft_service.queue.operations.answer_codec import AnswerCodec
from taskraft_service.queue.operations.command_definition import CommandDefinition, replicated
from taskraft_service.queue.operations.ready_prediction import predict_nothing
from taskraft_service.queue.state.queue_state import QueueState
from taskraft_service.queue.values import value


@value
class Configure:
    """Set what ``settings`` names; ``None`` leaves a setting as it is. Answer: SettingsResult."""

    settings: ReplicatedSettings
    request_id: str = ""
    request_hash: int = 0


@value
class SettingsResult:
    """The settings in force."""

    settings: ReplicatedSettings


def configure(ledger: QueueState, command: Configure) -> SettingsResult:
    """Set what the command names, and leave the rest."""
    named = {
        field.name: wish
        for field in fields(ReplicatedSettings)
        if (wish := getattr(command.settings, field.name)) is not None
    }
    ledger.settings = replace(ledger.settings, **named)
    if "session_ttr_ms" in named:
        _renew_session_ttr(ledger)
    return SettingsResult(ledger.settings)


def session_ttr_ms(ledger: QueueState, default_ttr_ms: int) -> int:
    """Return the time that a session gets which names none.

    ``default_ttr_ms`` 0: it was opened by a stream, and may end with that. Others are kept by
    heartbeats, for which less than ``session_ttr_min_ms`` would not do.
    """
    wish = ledger.settings.session_ttr_ms
    if wish is None:
        return default_ttr_ms
    return max(wish, ledger.limits.session_ttr_min_ms) if default_ttr_ms else wish


def _renew_session_ttr(ledger: QueueState) -> None:
    """Let open sessions follow; one that is running out keeps its end.

    So does ``cfg`` of tarantool/queue.
    """
    for session in ledger.sessions.values():
        if session.default_ttr_ms is not None:
            session.ttr_ms = session_ttr_ms(ledger, session.default_ttr_ms)
            ledger.sessions.touch(session)


_SETTINGS: Final = 9


def _write_answer(_answer: SettingsResult) -> bytes:
    return bytes((_SETTINGS,))


def _repeat_answer(state: QueueState, _kept: bytes) -> SettingsResult:
    """Return the settings as they are now."""
    return SettingsResult(state.settings)


DEFINITION: Final = CommandDefinition(
    Configure,
    configure,
    predict=predict_nothing,
    side=replicated,
    answer=AnswerCodec((_SETTINGS,), _write_answer, _repeat_answer),
)
