"""Redaction: which values of payloads and headers are left out, and which stay exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskraft_console.views.payload_view import SHOWN_BYTES_MAX, PayloadView
from taskraft_console.views.redaction import REDACTED, TubeRedaction
from taskraft_console.views.redaction_rules import (
    RedactionFileInvalid,
    RedactionRule,
    RedactionRules,
    read_redaction,
)


def redaction(*paths, headers=()):
    return TubeRedaction((RedactionRule(tubes=("*",), paths=paths, headers=headers),))


VALUE = {"id": 7, "customer": {"email": "a@b", "city": "Oslo"}, "lines": [{"sku": 1}, {"sku": 2}]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("id", {**VALUE, "id": REDACTED}),
        ("customer", {**VALUE, "customer": REDACTED}),
        ("customer.email", {**VALUE, "customer": {"email": REDACTED, "city": "Oslo"}}),
        ("customer.*", {**VALUE, "customer": {"email": REDACTED, "city": REDACTED}}),
        ("lines.*.sku", {**VALUE, "lines": [{"sku": REDACTED}, {"sku": REDACTED}]}),
        ("lines.1", {**VALUE, "lines": [{"sku": 1}, REDACTED]}),
        ("**.sku", {**VALUE, "lines": [{"sku": REDACTED}, {"sku": REDACTED}]}),
        ("**.id", {**VALUE, "id": REDACTED}),
        ("**", REDACTED),
        ("email", VALUE),
        ("customer.email.more", VALUE),
    ],
)
def test_a_path_names_the_values_that_are_left_out(path, expected):
    assert redaction(path).redacted(VALUE) == expected


KEYS = st.sampled_from(["a", "token", "b"])
VALUES = st.recursive(
    st.text(max_size=3), lambda inner: st.dictionaries(KEYS, inner) | st.lists(inner), max_leaves=12
)


def named(value, name):
    """Yield all values with a name, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == name:
                yield inner
            yield from named(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from named(inner, name)


@given(VALUES)
def test_no_value_with_the_name_is_left_at_any_depth(value):
    shown = redaction("**.token").redacted(value)
    assert all(inner is REDACTED for inner in named(shown, "token"))


def test_a_redacted_payload_is_a_tree_with_exact_numbers_only():
    view = PayloadView.of(
        b'{"id": 1970670598291982290, "token": "s3cret"}', "text", redaction("token")
    )
    assert (view.form, view.forms) == ("tree", ("tree",))
    assert [(line.key, line.text) for line in view.tree[1:]] == [
        ("id", "1970670598291982290"),
        ("token", "left out by a rule"),
    ]
    assert "s3cret" not in repr(view)


@pytest.mark.parametrize(
    "payload",
    [
        b"s3cret",
        b"\xffs3cret",
        b'{"token": "s3cret"',
        b'["s3cret", "' + b"x" * SHOWN_BYTES_MAX + b'"]',
    ],
)
def test_a_payload_whose_values_cannot_be_found_is_hidden(payload):
    view = PayloadView.of(payload, "hex", redaction("token"))
    assert (view.form, view.forms) == ("hidden", ())
    assert "s3cret" not in repr(view)


def test_a_rule_for_headers_leaves_the_payload_alone():
    rule = redaction(headers=("authorization", "x-*"))
    assert rule.hides_header("Authorization")
    assert rule.hides_header("X-Token")
    assert not rule.hides_header("traceparent")
    assert PayloadView.of(b"text", "", rule).text == "text"


def test_the_rules_of_all_fitting_patterns_apply():
    rules = RedactionRules(
        redact=(
            RedactionRule(tubes=("billing*",), paths=("a",)),
            RedactionRule(tubes=("billing.eu", "mail"), paths=("b",)),
        )
    )
    assert rules.of("other") is None
    assert rules.of("billing").redacted({"a": 1, "b": 2}) == {"a": REDACTED, "b": 2}
    assert rules.of("billing.eu").redacted({"a": 1, "b": 2}) == {"a": REDACTED, "b": REDACTED}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[redact]]\ntubes = []", "redact.0.tubes"),
        ('[[redact]]\ntubes = ["a"]\npath = ["b"]', "redact.0.path"),
        ('[[redact]]\ntubes = ["a"]\npaths = ["a..b"]', "a..b"),
        ("redact = 7", "redact"),
        ("[[redact]", "redact"),
    ],
)
def test_an_unusable_file_says_where(tmp_path, text, said):
    file = tmp_path / "redaction.toml"
    file.write_text(text)
    with pytest.raises(RedactionFileInvalid) as raised:
        read_redaction(file)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
