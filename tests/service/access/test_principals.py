"""The access file: its content, and the errors of an invalid file."""

import json

import pytest

from taskraft_service.access.permissions import Permissions
from taskraft_service.access.principals import (
    AccessFileInvalid,
    Principal,
    Principals,
    digest_of,
    read_principals,
)
from taskraft_service.access.reloaded_principals import ReloadedPrincipals
from tests.service.access.secured import token_of, write_principals

A, B = digest_of("a"), digest_of("b")


def written(tmp_path, content, name="access.toml"):
    path = tmp_path / name
    path.write_text(content)
    return path


def test_a_token_or_a_certificate_identifies_its_principal(tmp_path):
    principals = read_principals(
        write_principals(tmp_path / "a.toml", {"x": [], "y": []}, y=["y.example"])
    )
    principal, credential = principals.of_token(token_of("x"))
    assert (principal.name, credential) == ("x", digest_of(token_of("x")))
    assert principals.of_certificate(["z", "y.example"])[0].name == "y"
    assert principals.of_token("z") is None
    assert principals.of_token(digest_of(token_of("x"))) is None
    assert principals.of_certificate([]) is None


def test_a_digest_with_an_equal_prefix_is_different():
    alike = A[:40] + "0" * (len(A) - 40)
    assert (
        Principals({"x": Principal("x", Permissions([]), frozenset({alike}))}).of_token("a") is None
    )
    assert (
        Principals({"x": Principal("x", Permissions([]), frozenset({A}))}).of_token("a") is not None
    )


def test_a_certificate_with_the_names_of_two_principals_identifies_none(tmp_path):
    path = write_principals(tmp_path / "a.toml", {"x": [], "y": []}, x=["x"], y=["y"])
    assert read_principals(path).of_certificate(["x", "y"]) is None


def test_json_with_the_same_structure_is_accepted(tmp_path):
    grants = [{"role": "reader", "tubes": ["*"]}]
    content = json.dumps({"principals": {"x": {"tokens": [A], "grants": grants}}})
    assert read_principals(written(tmp_path, content, "a.json")).of_token("a")[0].name == "x"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("nonsense", "a.toml"),
        ("", "principals: Field required"),
        ("[principals]", "principals: Dictionary should have at least 1 item"),
        ("[principals.x]\nsecret = 'a'", "principals.x.secret: Extra inputs"),
        ("[principals.x]\ntokens = ['hunter2']", "principals.x.tokens.0: String should match"),
        ('[principals."x y"]', '"x y" is not a valid principal name'),
        (
            "[[principals.x.grants]]\nrole = 'owner'\ntubes = ['*']",
            "principals.x.grants.0.role: Input should be",
        ),
        ("[[principals.x.grants]]\nrole = 'admin'\ntubes = []", "at least 1 item"),
        ("[[principals.x.grants]]\nrole = 'admin'\ntubes = ['a b']", "should match pattern"),
        (
            f"[principals.x]\ntokens = ['{A}']\n[principals.y]\ntokens = ['{A}']",
            '"x" and "y" have the same token',
        ),
        (
            "[principals.x]\ncertificates = ['c']\n[principals.y]\ncertificates = ['c']",
            '"x" and "y" have the same certificate',
        ),
    ],
)
def test_an_invalid_file_is_refused_with_one_line(tmp_path, content, part):
    with pytest.raises(AccessFileInvalid) as caught:
        read_principals(written(tmp_path, content, "a.toml"))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_token_written_instead_of_its_digest_is_not_repeated_in_the_error(tmp_path):
    with pytest.raises(AccessFileInvalid) as caught:
        read_principals(written(tmp_path, "[principals.x]\ntokens = ['hunter2']"))
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AccessFileInvalid, match=r"none.toml: No such file"):
        read_principals(tmp_path / "none.toml")


def test_a_changed_file_applies_after_the_next_refresh(tmp_path):
    path = write_principals(tmp_path / "a.toml", {"x": []})
    current = ReloadedPrincipals(path)
    write_principals(path, {"y": []})
    assert current.principals.principal("y") is None
    current.refresh()
    assert (current.principals.principal("x"), current.version) == (None, 2)
    assert current.principals.principal("y") is not None
    current.refresh()
    assert current.version == 2


def test_a_broken_file_keeps_the_permissions_as_they_were(tmp_path):
    path = write_principals(tmp_path / "a.toml", {"x": []})
    current = ReloadedPrincipals(path)
    path.write_text("nonsense")
    current.refresh()
    assert (current.principals.principal("x").name, current.version) == ("x", 1)
    path.unlink()
    current.refresh()
    assert current.principals.principal("x").name == "x"
