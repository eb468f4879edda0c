"""The sign-in file: what it may contain, and whose token a person gets."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from taskraft.cli import main
from taskraft_console.signin.signin_settings import SignInFileInvalid, read_signin

PROXY = """
method = "proxy"
public_url = "https://console.example/"
[proxy]
trusted_proxies = ["10.0.0.0/8", "::1"]
[[people]]
user = "anna"
token_file = "anna.token"
[[people]]
group = "operators"
token_file = "operators.token"
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        for name in ("anna", "operators"):
            (tmp_path / f"{name}.token").write_text(name)
        path = tmp_path / "signin.toml"
        path.write_text(text)
        return path

    return write


def test_the_first_rule_that_fits_names_the_token(written):
    settings = read_signin(written(PROXY))
    assert settings.public_url == "https://console.example"
    found = [
        settings.token_file(user, frozenset(groups))
        for user, groups in (
            ("anna", ["operators"]),
            ("ben", ["operators"]),
            ("ben", ["anna"]),
            ("", [""]),
        )
    ]
    names = [path and Path(path).name for path in found]
    assert names == ["anna.token", "operators.token", None, None]


def test_only_addresses_of_the_networks_are_trusted(written):
    proxy = read_signin(written(PROXY)).proxy
    trusted = [proxy.trusts(each) for each in ("10.9.8.7", "::1", "11.0.0.1", "", "unix")]
    assert trusted == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"proxy"', '"password"'), "method"),
        (("https://console.example/", "http://console.example"), "not an https address"),
        (('["10.0.0.0/8", "::1"]', "[]"), "trusted_proxies"),
        (('"10.0.0.0/8"', '"ten"'), "trusted_proxies"),
        (("[proxy]", "[other]"), "other"),
        (('"anna.token"', '"missing.token"'), "missing.token: No such file"),
        (('user = "anna"', ""), "either a user or a group"),
        (('method = "proxy"', 'method = "token"'), "belongs to method"),
        (("method", "= ="), "Invalid"),
    ],
)
def test_a_wrong_file_is_refused_with_one_line(written, change, said):
    path = written(PROXY.replace(*change))
    with pytest.raises(SignInFileInvalid) as refused:
        read_signin(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    done = CliRunner().invoke(main, ["console", "--sign-in", str(path)])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_an_empty_token_file_is_refused(written, tmp_path):
    path = written(PROXY)
    (tmp_path / "anna.token").write_text("\n")
    with pytest.raises(SignInFileInvalid, match="is empty"):
        read_signin(path)
