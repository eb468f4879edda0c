"""A later release in the test process: one more cluster version and format of the state.

The format copies each task record under another key, one record in each part of its step. A record
that is converted twice shows it.
"""

from dataclasses import replace

from taskraft_service import versions
from taskraft_service.cluster import member_versions
from taskraft_service.machine import state_machine
from taskraft_service.queue.persistence import state_records, upgrade_chain
from taskraft_service.queue.persistence.upgrade_chain import StepPart
from taskraft_service.queue.state import tube_codec
from taskraft_service.queue.store.keys import META, TASK, prefix_stop
from taskraft_service.versions import ClusterVersion, StateVersion, VersionRange

COPIES = b"~"


def copy_next(store, cursor):
    """Copy the next task record; see ``Step``."""
    start = cursor + b"\0" if cursor else TASK
    pair = next(iter(store.scan(start, prefix_stop(TASK))), None)
    if pair is None:
        return StepPart((), None, bytes((19,)) + store.get(META)[1:])
    key, value = pair
    return StepPart(((COPIES + key, (store.get(COPIES + key) or b"") + value),), key)


def _add(monkeypatch, enum, name, number):
    member = int.__new__(enum, number)
    member._name_, member._value_ = name, number
    monkeypatch.setitem(enum._value2member_map_, number, member)
    monkeypatch.setitem(enum._member_map_, name, member)
    monkeypatch.setattr(enum, "_member_names_", [*enum._member_names_, name])
    return member


def become_later_release(monkeypatch):
    """Let this process speak cluster version 2, whose state has format 19."""
    second = _add(monkeypatch, ClusterVersion, "V2", 2)
    later = _add(monkeypatch, StateVersion, "V19", 19)
    first = versions.FORMATS[versions.LOWEST]
    monkeypatch.setitem(versions.FORMATS, second, replace(first, state=later))
    layouts = state_records.META_LAYOUTS
    monkeypatch.setitem(layouts, later, Layout19(layouts[StateVersion.V18]))
    monkeypatch.setitem(tube_codec.TUBES, later, tube_codec.TUBES[StateVersion.V18])
    monkeypatch.setitem(upgrade_chain.STEPS, later, copy_next)
    spoken = VersionRange(1, 2)
    monkeypatch.setattr(versions, "OWN_RANGE", spoken)
    monkeypatch.setattr(member_versions, "OWN_RANGE", spoken)
    monkeypatch.setattr(state_machine, "HIGHEST", second)


class Layout19:
    """The layout of format 18 with another first byte."""

    def __init__(self, layout):
        self._layout = layout

    def write(self, state):
        return bytes((19,)) + self._layout.write(state)[1:]

    def read(self, meta):
        return self._layout.read(bytes((18,)) + meta[1:])
