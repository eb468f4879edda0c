"""The options of a tube in force: the defaults are those of the server."""

import pytest

from taskraft_console.pages.options_in_force import option_lines
from taskraft_console.pages.tubes import KINDS


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("limfifottl", "custom")])
def test_all_options_of_a_tube_without_settings_are_defaults(taskraft, kind):
    taskraft.client.create_tube(f"plain-{kind}", kind)
    [info] = taskraft.client.list_tubes([f"plain-{kind}"])
    assert [line for line in option_lines(info) if not line.is_default] == []


def test_only_options_with_another_value_are_no_defaults(taskraft):
    weights = {"b": 2, "a": 1}
    taskraft.client.create_tube(
        "set", "utubettl", ttr="90s", subqueue_weights=weights, buried_max=7
    )
    [info] = taskraft.client.list_tubes(["set"])
    lines = option_lines(info)
    assert {line.name: line.text for line in lines if not line.is_default} == {
        "ttr": "90s",
        "subqueue_weights": "a 1, b 2",
        "buried_max": "7",
    }
    texts = {line.name: line.text for line in lines}
    assert (texts["ttl"], texts["take_paused"], texts["delay"]) == ("none", "no", "0ms")


def test_the_defaults_of_a_profile_are_not_marked(taskraft):
    taskraft.client.create_tube("old", profile="tarantool")
    [info] = taskraft.client.list_tubes(["old"])
    assert not any(line.is_default for line in option_lines(info))
