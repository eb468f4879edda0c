"""Selection of the next node."""

import pytest

from taskraft import _node_selector
from taskraft._node_selector import NodeSelector, addresses_from


def test_the_leader_is_asked_as_soon_as_it_is_known():
    selector = NodeSelector(["a:1", "b:1"])
    assert selector.next_address() == "a:1"
    selector.set_leader_hint("b:1")
    assert selector.next_address() == "b:1"


def test_a_failed_leader_is_dropped_and_the_other_nodes_are_tried():
    selector = NodeSelector(["a:1", "b:1", "c:1"])
    selector.set_leader_hint("a:1")
    selector.report_failure("a:1")
    assert selector.next_address() == "b:1"
    selector.report_failure("b:1")
    assert selector.next_address() == "c:1"
    selector.report_failure("c:1")
    assert selector.next_address() == "a:1"


def test_hints_to_an_unreachable_node_are_ignored_for_a_while(monkeypatch):
    now = 100.0
    monkeypatch.setattr(_node_selector, "monotonic", lambda: now)
    selector = NodeSelector(["a:1"])
    selector.set_leader_hint("inside:1")
    selector.report_failure("inside:1", is_unreachable=True)
    selector.set_leader_hint("inside:1")
    assert selector.next_address() == "a:1"
    now += _node_selector.UNREACHABLE_SECONDS
    selector.set_leader_hint("inside:1")
    assert selector.next_address() == "inside:1"


def test_an_unreachable_node_is_skipped_while_other_nodes_may_be_reachable(monkeypatch):
    now = 100.0
    monkeypatch.setattr(_node_selector, "monotonic", lambda: now)
    selector = NodeSelector(["a:1", "b:1", "c:1"])
    selector.report_failure("a:1", is_unreachable=True)
    selector.report_failure("b:1")
    selector.report_failure("c:1")
    assert selector.next_address() == "b:1"
    selector.report_failure("b:1", is_unreachable=True)
    selector.report_failure("c:1", is_unreachable=True)
    assert selector.next_address() == "a:1", "all were unreachable"
    now += _node_selector.UNREACHABLE_SECONDS
    assert selector.next_address() == "a:1"


def test_a_node_that_answers_is_reachable_again():
    selector = NodeSelector(["a:1", "b:1"])
    selector.report_failure("b:1", is_unreachable=True)
    selector.report_answer("b:1")
    selector.set_leader_hint("b:1")
    assert selector.next_address() == "b:1"


def test_an_empty_hint_is_ignored():
    selector = NodeSelector(["a:1"])
    selector.set_leader_hint("a:1")
    selector.set_leader_hint("")
    assert selector.leader == "a:1"


def test_a_target_is_a_list_of_addresses():
    assert addresses_from("a:1, b:2,") == ("a:1", "b:2")


@pytest.mark.parametrize(
    "target", ["", ",", "a", "a:", "a:x", "a:0", "a:99999", "a:1000000", "a:²", "http://a:1"]
)
def test_a_target_without_ports_is_refused(target):
    with pytest.raises(ValueError, match='target must be "host:port" or a comma'):
        addresses_from(target)


def test_the_default_target_is_the_environment_or_a_development_cluster(monkeypatch):
    assert addresses_from(None) == ("127.0.0.1:7401",)
    monkeypatch.setenv("TASKRAFT_TARGET", "a:1")
    assert addresses_from(None) == ("a:1",)
    monkeypatch.setenv("TASKRAFT_TARGET", "a")
    with pytest.raises(ValueError, match=r"TASKRAFT_TARGET must be .*, not 'a'"):
        addresses_from(None)


def test_a_change_of_leader_is_counted_logged_and_told_once(caplog):
    changes = []
    selector = NodeSelector(["a:1", "b:1"], lambda *change: changes.append(change))
    with caplog.at_level("INFO", "taskraft"):
        selector.set_leader_hint("a:1")
        assert (changes, selector.failovers) == ([], 0)
        selector.report_failure("a:1")
        selector.set_leader_hint("a:1")
        assert (changes, selector.failovers) == ([], 0)
        selector.report_failure("a:1")
        for _ in range(2):
            selector.set_leader_hint("b:1")
    assert (changes, selector.failovers) == ([("a:1", "b:1")], 1)
    assert [record.message for record in caplog.records] == ["the leader is b:1 now, after a:1"]


def test_a_function_on_failover_that_fails_does_not_stop_the_client(caplog):
    def fail(*_):
        raise ValueError("a bug of the application")

    selector = NodeSelector(["a:1", "b:1"], fail)
    selector.set_leader_hint("a:1")
    selector.set_leader_hint("b:1")
    assert selector.leader == "b:1"
    assert "a bug of the application" in caplog.text
