"""The page of the settings of the cluster: the values in force, the differences, and the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from taskraft.v1.cluster_service_pb2 import ClusterSettings as SettingsMessage
from taskraft.v1.tube_service_pb2 import Tube
from taskraft_console.pages.page import ChangeForms, FormRefused, PageView, PageVisit, shell_word
from taskraft_console.pages.value_form import (
    ValueChange,
    ValueField,
    check_unchanged,
    entered_values,
    value_changes,
)
from taskraft_console.views.readable import exact_duration

if TYPE_CHECKING:
    from taskraft import AsyncClient, ClusterSettings

KINDS: Final = ("fifo", "fifottl", "utube", "utubettl")
FIELDS: Final = (
    ValueField("failover_grace", "Minimum life of sessions after a change of leader", "duration"),
    ValueField(
        "session_ttr",
        "Life of a session after its last heartbeat",
        "duration",
        hint="not set: 15s; streams 0s",
    ),
    ValueField("auto_create_tubes", "The first put creates a missing tube", "flag", ("no", "yes")),
    ValueField("auto_create_kind", "Kind of such tubes", "kind", KINDS),
    ValueField("auto_create_profile", "Profile of such tubes", "text", has_default=True),
    ValueField("feed_retention", "Minimum age of removed events of the change feed", "duration"),
    ValueField("feed_bytes_max", "Bytes of the change feed on a node, at most", "count"),
    ValueField("upgrade_hold", "Hold before the cluster version rises", "duration"),
    ValueField("cluster_version_max", "Highest cluster version; 0: no limit", "count"),
)


def setting_values(message: SettingsMessage) -> dict[str, str]:
    """Return the settings in force by name, as texts of the form; empty: not set."""
    return {field.name: _value(message, field) for field in FIELDS}


def _value(message: SettingsMessage, field: ValueField) -> str:
    if field.shape == "duration":
        name = f"{field.name}_ms"
        return exact_duration(getattr(message, name)) if message.HasField(name) else ""  # type: ignore[arg-type]  # a name of FIELDS
    value = getattr(message, field.name)
    match field.shape:
        case "flag":
            return "yes" if value else "no"
        case "kind":
            return Tube.Kind.Name(value).lower()
        case _:
            return str(value)


def configure_forms(changes: Sequence[ValueChange]) -> ChangeForms:
    """Return a change of settings as a command and as Python."""
    words = ["taskraft cluster settings"]
    for change in changes:
        flag = change.field.flag
        if change.field.shape == "flag":
            words.append(flag if change.value else flag.replace("--", "--no-", 1))
        else:
            words.append(f"{flag} {shell_word(change.after)}")
    arguments = ", ".join(f"{each.field.name}={each.value!r}" for each in changes)
    return ChangeForms(" ".join(words), f"client.configure({arguments})")


async def cluster_settings(visit: PageVisit) -> PageView:
    """Show the settings in force, and the differences from the entered values."""
    state = visit.value(await visit.cluster.state())
    current = setting_values(state.settings)
    entered = entered_values(visit, FIELDS, current)
    return PageView(
        template="cluster_settings.html",
        title="Cluster settings",
        values={
            "is_known": state.HasField("settings"),
            "fields": FIELDS,
            "current": current,
            "entered": entered.form,
            "changes": entered.changes,
            "mistake": entered.mistake,
            "forms": configure_forms(entered.changes),
        },
        refresh_seconds=5.0,
    )


async def change_cluster_settings(
    client: AsyncClient, _: Mapping[str, str], action: str, form: Mapping[str, str]
) -> str:
    """Change settings of the cluster; return a sentence about the change.

    Raises:
        FormRefused: see `value_changes` and `check_unchanged`.
        TaskraftError: the cluster refused the change.
    """
    if action != "update":
        raise FormRefused(f"there is no change {action!r} of the settings")
    current = setting_values((await client.cluster_state()).settings)
    changes = value_changes(FIELDS, current, form)
    check_unchanged(changes, form)
    settings: ClusterSettings = {each.field.name: each.value for each in changes}  # type: ignore[assignment]  # keys and types come from FIELDS
    await client.configure(**settings)
    return "changed: " + ", ".join(f"{each.field.name} = {each.after}" for each in changes)
