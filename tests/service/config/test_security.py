"""Settings of certificates and access control: incomplete sets are refused in one line."""

import pytest

from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.config.server_config import read_config

CLIENT = {"TLS_CERT": "c", "TLS_KEY": "k"}
PEER = {"PEER_TLS_CERT": "c", "PEER_TLS_KEY": "k", "PEER_TLS_CA": "a"}
THREE = {"PEERS": "n-0=a:1,n-1=b:1,n-2=c:1"}


def read(monkeypatch, **variables):
    monkeypatch.setenv("TASKRAFT_NODE_NAME", "n-0")
    for name, value in variables.items():
        monkeypatch.setenv(f"TASKRAFT_{name}", value)
    return read_config()


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"TLS_CERT": "c"}, "tls_cert and tls_key belong together"),
        ({"TLS_KEY": "k"}, "tls_cert and tls_key belong together"),
        ({"TLS_CLIENT_CA": "a"}, "tls_client_ca needs tls_cert and tls_key"),
        ({"ACCESS_FILE": "f"}, "access_file needs tls_cert and tls_key"),
        ({"PEER_TLS_CERT": "c", "PEER_TLS_KEY": "k"}, "set all or none"),
        ({"PEER_TLS_CA": "a"}, "set all or none"),
        (CLIENT | THREE, "tls_cert needs peer_tls_cert"),
        (
            CLIENT | {"JOIN": "a:1", "PEER_ADVERTISE": "b:1", "ADVERTISE": "b:2"},
            "tls_cert needs peer_tls_cert",
        ),
        (PEER | {"CLUSTER_ID": "my cluster"}, 'no certificate can name "my cluster"'),
        (PEER | {"PEERS": "n-0=a:1,.n=b:1"}, 'no certificate can name ".n"'),
    ],
)
def test_inconsistent_settings_are_refused(monkeypatch, variables, part):
    with pytest.raises(ConfigInvalid) as caught:
        read(monkeypatch, **variables)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variables", [{}, CLIENT, PEER, CLIENT | PEER | THREE])
def test_consistent_settings_are_accepted(monkeypatch, variables):
    config = read(monkeypatch, **variables)
    assert (config.client_tls is None, config.peer_tls is None) == (
        "TLS_CERT" not in variables,
        "PEER_TLS_CERT" not in variables,
    )


@pytest.mark.parametrize(
    ("variables", "reflects"),
    [
        ({}, True),
        ({"REFLECTION": "false"}, False),
        (CLIENT | {"ACCESS_FILE": "f"}, False),
        (CLIENT | {"ACCESS_FILE": "f", "REFLECTION": "true"}, True),
    ],
)
def test_reflection_is_on_by_default_only_without_access_control(monkeypatch, variables, reflects):
    assert read(monkeypatch, **variables).reflects is reflects
