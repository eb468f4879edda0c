"""Certificates and tokens of a client: sources and invalid combinations."""

import pytest

from taskraft.credentials import CredentialsUnusable, TokenFile, channel_credentials


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in ("CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"TASKRAFT_{name}", raising=False)


def test_connections_without_options_use_no_tls():
    assert channel_credentials() is None


@pytest.mark.parametrize("name", ["CA", "TOKEN", "TOKEN_FILE"])
def test_credentials_are_read_from_the_environment(monkeypatch, tmp_path, name):
    path = tmp_path / "file"
    path.write_text("-----BEGIN CERTIFICATE-----")
    monkeypatch.setenv(f"TASKRAFT_{name}", str(path))
    assert channel_credentials() is not None


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"cert": "c"}, "cert and key must be set together"),
        ({"key": "c"}, "cert and key must be set together"),
        ({"token": "t", "token_file": "f"}, "token and token_file are both set"),
        ({"ca": "none.crt"}, "none.crt: No such file"),
        ({"person": "anna"}, "person needs a token or a certificate"),
        ({"person": "a\nb", "token": "t"}, "printable characters"),
        ({"person": "a" * 129, "token": "t"}, "at most 128 printable characters"),
        ({"token_file": "none.token"}, "none.token: No such file"),
        ({"ca": pytest.__file__}, "__init__.py: the file contains no certificate in PEM format"),
    ],
)
def test_unusable_credentials_are_reported_in_one_line(options, part):
    with pytest.raises(CredentialsUnusable) as caught:
        channel_credentials(**options)
    assert part in str(caught.value)


def test_an_empty_token_file_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text("\n")
    with pytest.raises(CredentialsUnusable, match="the file contains no token"):
        channel_credentials(token_file=path)


def test_a_given_token_overrides_the_environment(monkeypatch):
    monkeypatch.setenv("TASKRAFT_TOKEN_FILE", "/nowhere")
    assert channel_credentials(token="t") is not None


def test_a_token_file_is_read_again_when_it_was_replaced(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    assert token() == "one"
    other = tmp_path / "other"
    other.write_text("two\n")
    other.replace(path)
    assert token() == "two"
