"""Options of a new tube: set by the request, or defaults of its profile."""

from dataclasses import replace

import pytest

from taskraft.v1 import task_pb2, tube_service_pb2
from taskraft_service.command_codecs.request_key import RequestKey
from taskraft_service.command_codecs.retry_policy import retry_policy
from taskraft_service.command_codecs.tubes import CREATE_TUBE, OPTION_NAMES
from taskraft_service.queue.entities.instants import FOREVER_MS
from taskraft_service.queue.entities.retry_policy import SAFE_RETRY
from taskraft_service.queue.entities.tube_options import (
    Durability,
    OnAck,
    TtlPolicy,
    TtlScope,
    TubeKind,
    TubeOptions,
)
from taskraft_service.queue.operations.tubes import CreateTube

Tube, Options = tube_service_pb2.Tube, tube_service_pb2.TubeOptions
SAID = Options(
    priority_order=2, priority=3, delay_ms=4, ttl_ms=5, ttr_ms=6, ttl_scope=3, on_ack=2,
    retain_ms=7, capacity_tasks=8, capacity_bytes=9, buried_max=10, retry={"attempts_max": 11},
    dead_letter_tube="d", concurrency=12, subqueue_concurrency=13, rate_per_second=14,
    rate_burst=15, subqueue_rate_per_second=18, subqueue_rate_burst=19,
    subqueue_weights={"b": 2, "a": 1}, put_paused=True, take_paused=True,
    durability=2, priority_min=-16, priority_max=17, ttl_policy=2,
)  # fmt: skip
MEANT = TubeOptions(
    higher_first=True, priority=3, delay_ms=4, ttl_ms=5, ttr_ms=6, put_paused=True,
    take_paused=True, priority_min=-16, priority_max=17, ttl_scope=TtlScope.ALL,
    ttl_policy=TtlPolicy.KEEP_DEADLINE, on_ack=OnAck.KEEP, retain_ms=7,
    capacity_tasks=8, capacity_bytes=9, buried_max=10,
    retry=retry_policy(task_pb2.RetryPolicy(attempts_max=11)), dead_letter_tube="d",
    concurrency=12, subqueue_concurrency=13, rate_per_second=14, rate_burst=15,
    subqueue_rate_per_second=18, subqueue_rate_burst=19,
    subqueue_weights=(("a", 1), ("b", 2)), durability=Durability.TEMPORARY,
)  # fmt: skip


def created(kind, options=None, profile=""):
    request = tube_service_pb2.CreateTubeRequest(
        request_id="r",
        tube=Tube(name="t", kind=kind, options=options, driver="d", driver_version=3),
        if_not_exists=True,
        profile=profile,
    )
    return CREATE_TUBE.decode(request.SerializeToString(), RequestKey(77))


@pytest.mark.parametrize("profile", ["", "tarantool", "xqueue", "t15", "rsqueue"])
def test_options_of_the_request_apply_in_every_profile(profile):
    assert created(Tube.UTUBETTL, SAID, profile) == CreateTube(
        name="t", kind=TubeKind.UTUBETTL, options=MEANT, if_not_exists=True, request_id="r",
        request_hash=77, profile=profile, driver="d", driver_version=3,
    )  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in Options.DESCRIPTOR.fields])
def test_an_absent_option_gets_the_default_of_the_profile(field):
    options = Options()
    options.CopyFrom(SAID)
    options.ClearField(field)
    found = created(Tube.UTUBETTL, options, "t15").options
    name = OPTION_NAMES[field]
    usual = created(Tube.UTUBETTL, profile="t15").options
    for each in OPTION_NAMES.values():
        expected = usual if each == name else MEANT
        assert getattr(found, each) == getattr(expected, each), each


def test_each_profile_has_its_default_options():
    day_ms, least = 86_400_000, -(2**63)
    usual = TubeOptions()
    assert created(Tube.FIFOTTL).options == replace(usual, retry=SAFE_RETRY)
    assert (usual.priority_min, usual.ttr_ms) == (least, FOREVER_MS)
    t15 = created(Tube.FIFOTTL, profile="t15").options
    assert (t15.higher_first, t15.priority, t15.ttl_ms, t15.ttr_ms) == (
        True,
        127,
        25 * day_ms,
        60_000,
    )
    assert (t15.ttl_scope, t15.ttl_policy) == (TtlScope.ALL, TtlPolicy.KEEP_DEADLINE)
    # Options that a plain tube does not support keep their general defaults.
    assert created(Tube.FIFO, profile="t15").options == usual


def test_in_the_tarantool_profile_the_ttr_defaults_to_the_ttl():
    lives = Options(ttl_ms=5)
    assert created(Tube.FIFOTTL, lives, "tarantool").options.ttr_ms == 5
    assert created(Tube.FIFOTTL, Options(ttl_ms=5, ttr_ms=6), "tarantool").options.ttr_ms == 6
    assert created(Tube.FIFOTTL, lives).options.ttr_ms == FOREVER_MS
    # This profile ignores options that a plain tube does not support.
    assert created(Tube.FIFO, lives, "tarantool").options == TubeOptions()
    assert created(Tube.FIFO, lives).options.ttl_ms == 5
