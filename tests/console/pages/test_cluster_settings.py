"""The settings of the cluster: the differences of a form, and the same change as a command."""

import pytest

from taskraft.v1.cluster_service_pb2 import ClusterSettings
from taskraft.v1.tube_service_pb2 import Tube
from taskraft_console.pages.cluster_settings import FIELDS, configure_forms, setting_values
from taskraft_console.pages.page import FormRefused
from taskraft_console.pages.value_form import value_changes

IN_FORCE = ClusterSettings(
    failover_grace_ms=15_000,
    auto_create_tubes=False,
    auto_create_kind=Tube.FIFOTTL,
    feed_retention_ms=7 * 86_400_000,
    feed_bytes_max=1 << 34,
    upgrade_hold_ms=86_400_000,
)


def setting_changes(message, form):
    return value_changes(FIELDS, setting_values(message), form)


@pytest.mark.parametrize(
    ("name", "value", "before"),
    [
        ("failover_grace", "20s", "15s"),
        ("session_ttr", "30s", ""),
        ("auto_create_tubes", "yes", "no"),
        ("auto_create_kind", "utube", "fifottl"),
        ("feed_bytes_max", "5", str(1 << 34)),
        ("auto_create_profile", "xqueue", ""),
    ],
)
def test_a_form_changes_the_settings_that_differ(name, value, before):
    [change] = setting_changes(IN_FORCE, {name: value})
    assert (change.field.name, change.before, change.after) == (name, before, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failover_grace", "0.25m"),
        ("session_ttr", ""),
        ("auto_create_tubes", "no"),
        ("cluster_version_max", "0"),
    ],
)
def test_another_writing_of_the_value_in_force_changes_nothing(name, value):
    assert setting_changes(IN_FORCE, {name: value}) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [("failover_grace", "soon"), ("feed_bytes_max", "-1"), ("auto_create_kind", "custom")],
)
def test_an_unusable_value_is_refused(name, value):
    with pytest.raises(FormRefused, match=value):
        setting_changes(IN_FORCE, {name: value})


def test_a_setting_without_a_default_needs_a_value():
    with pytest.raises(FormRefused, match="the value is missing"):
        setting_changes(IN_FORCE, {"failover_grace": " "})


def test_a_change_has_a_form_for_the_command_line_and_for_python():
    form = {"auto_create_tubes": "yes", "session_ttr": "30s"}
    forms = configure_forms(setting_changes(IN_FORCE, form))
    assert forms.command == "taskraft cluster settings --session-ttr 30s --auto-create-tubes"
    assert forms.python == "client.configure(session_ttr='30s', auto_create_tubes=True)"
