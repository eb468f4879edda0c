"""Changes of settings and tube options in scenario files.

configure session_ttr_ms=100     any setting by its name
update-tube mail priority=5      any option by its name; ``reset=ttl_ms,ttr_ms`` resets
"""

from __future__ import annotations

from dataclasses import fields, replace

from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.operations.settings import Configure
from taskraft_service.queue.operations.update_tube import UpdateTube
from taskraft_service.queue.state.replicated_settings import ReplicatedSettings

CHOICES = {
    "ttl_scope": TtlScope,
    "ttl_policy": TtlPolicy,
    "on_ack": OnAck,
    "durability": Durability,
}
FLAGS = ("higher_first", "put_paused", "take_paused", "auto_create_tubes")


def command(word, target, found):
    """Parse a command."""
    resets = found.pop("reset", "").split(",") if "reset" in found else ()
    named = {name: value(name, text) for name, text in found.items()}
    if word == "configure":
        return Configure(ReplicatedSettings(**named))
    return UpdateTube(target, replace(TubeOptions(), **named), list(named), resets)


def value(name, text):
    if name in FLAGS:
        return text == "yes"
    if name in CHOICES:
        return CHOICES[name][text.upper()]
    if name == "subqueue_weights":
        pairs = (part.split(":") for part in text.split(",") if part)
        return tuple(sorted((subqueue, int(weight)) for subqueue, weight in pairs))
    if name == "auto_create_kind":
        return TubeKind[text.upper()]
    return text if name in ("auto_create_profile", "dead_letter_tube") else int(text)


def answer_to(settings):
    """Return the settings as a line."""
    shown = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if getattr(settings, field.name) is not None
    }
    return ", ".join(f"{name} {wish}" for name, wish in shown.items()) or "no settings"
