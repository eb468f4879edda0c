"""The setting `edge` chooses the server of the client port."""

import pytest
from structlog.testing import capture_logs

from taskraft_service.api.rpc.grpc_server import GrpcServer
from taskraft_service.api.rpc.rpc_server import ServerLimits
from taskraft_service.config.addresses import ConfigInvalid
from taskraft_service.process import services
from tests.service.api.rpc.servers import SERVERS, server_class

LIMITS = ServerLimits(1, 1)


@pytest.fixture
def without_edge(monkeypatch):
    monkeypatch.setattr(services, "find_spec", lambda _name: None)


@pytest.mark.parametrize("edge", SERVERS)
async def test_the_setting_names_the_server(edge):
    assert type(services.chosen_server(edge, {}, LIMITS)) is server_class(edge)


@pytest.mark.parametrize("edge", SERVERS[1:])
async def test_the_native_edge_is_the_default_where_it_is_installed(edge):
    assert type(services.chosen_server("auto", {}, LIMITS)) is server_class(edge)


@pytest.mark.usefixtures("without_edge")
async def test_a_node_without_the_native_edge_says_how_to_build_it():
    with capture_logs() as lines:
        assert type(services.chosen_server("auto", {}, LIMITS)) is GrpcServer
    (line,) = lines
    assert "make native" in line["faster"]


@pytest.mark.usefixtures("without_edge")
async def test_a_required_native_edge_that_is_missing_stops_the_node():
    with pytest.raises(ConfigInvalid, match="make native"):
        services.chosen_server("native", {}, LIMITS)
