"""Certificates and tokens of a client: sources and invalid combinations."""

import pytest

from taskraft.credentials import CredentialsUnusable, TokenFile, channel_credentials
from tests.authority import Authority


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in ("CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"TASKRAFT_{name}", raising=False)


def test_connections_without_options_use_no_tls():
    assert channel_credentials() is None


@pytest.mark.parametrize("name", ["CA", "TOKEN", "TOKEN_FILE"])
def test_credentials_are_read_from_the_environment(monkeypatch, tmp_path, name):
    path = tmp_path / "file"
    path.write_bytes(Authority(tmp_path).certificate)
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


def test_a_malformed_ca_is_refused(tmp_path):
    path = tmp_path / "ca.crt"
    path.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    with pytest.raises(CredentialsUnusable, match=r"ca\.crt: a certificate in the file is malf"):
        channel_credentials(ca=path)


def test_a_key_of_another_certificate_is_refused(tmp_path):
    authority = Authority(tmp_path)
    one, other = authority.server("one"), authority.server("other")
    assert channel_credentials(cert=one.certificate, key=one.key) is not None
    with pytest.raises(CredentialsUnusable, match=r"other\.key cannot be used: they do not match"):
        channel_credentials(cert=one.certificate, key=other.key)


def test_a_malformed_certificate_is_refused(tmp_path):
    files = Authority(tmp_path).server()
    files.certificate.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    with pytest.raises(CredentialsUnusable, match="one of the files is malformed or encrypted"):
        channel_credentials(cert=files.certificate, key=files.key)


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
