"""The details of acts of management as facts."""

import pytest
from google.protobuf import text_format

from taskraft.v1.tube_service_pb2 import Tube
from taskraft_console.views.act_detail import detail_facts


def shown(detail):
    return [f"{fact.name}: {fact.text}" for fact in detail_facts(detail)]


def test_a_message_is_shown_field_by_field_with_units():
    tube = Tube(name='a "b" {c}', kind=Tube.FIFOTTL)
    tube.options.ttr_ms = 60_000
    tube.options.retry.attempts_max = 3
    tube.options.retry.backoff_ms = 2_500
    tube.options.retry.backoff_ms_max = 30_000
    tube.options.retry.factor_percent = 200
    tube.options.take_paused = True
    detail = text_format.MessageToString(tube, as_one_line=True)
    assert sorted(shown(detail)) == [
        "kind: fifottl",
        'name: a \\"b\\" {c}',
        "retry attempts max: 3",
        "retry backoff max: 30s",
        "retry backoff: 2500ms",
        "retry factor: 200 %",
        "take paused: yes",
        "ttr: 1m",
    ]


@pytest.mark.parametrize(
    ("detail", "facts"),
    [
        ("", []),
        ("person='anna o=1' via=n2", ["person: anna o=1", "via: n2"]),
        ("ids=1,2,3 filter='state = BURIED'", ["ids: 1,2,3", "filter: state = BURIED"]),
        ("feed_bytes_max: 17179869184", ["feed max: 17.2\u2009GB"]),
        ('name: "x" options { }', ["name: x"]),
        ("}} dead_letter_tube: ''", ["dead letter tube: none"]),
        ('ttr_ms: 60000 dead_letter_tube: "mai', ["ttr: 1m", ': dead_letter_tube: "mai']),
        ("<b>what</b>", [": <b>what</b>"]),
        ("address=10.0.0.4:7401 count=-1", ["address: 10.0.0.4:7401", "count: -1"]),
        ('move_to=DEAD "', ["move to: DEAD", ': "']),
    ],
)
def test_each_form_of_a_detail_is_shown_whole(detail, facts):
    assert shown(detail) == facts


def test_a_long_hostile_detail_is_read_once():
    detail = "a{" * 100 + '"\\' * 50_000
    assert detail_facts(detail)[-1].name == ""
