"""Serve the standard health service of gRPC, which tells whether a node is ready or leads."""

from __future__ import annotations

from typing import Final

from grpc_health.v1 import health, health_pb2

from taskraft_service.api.rpc.library_services import server_streaming, unary
from taskraft_service.api.rpc.method_table import MethodTable
from taskraft_service.leader.node_phases import NodePhase

EVERYTHING: Final = ""
TASK_SERVICE: Final = "taskraft.v1.TaskService"
READY: Final = "taskraft.ready"
LEADER: Final = "taskraft.leader"


class Health:
    """The statuses of the standard health service.

    The service needs no credentials, because it reveals nothing about tasks.
    """

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    def table(self) -> MethodTable:
        """Return the methods of the health service by path."""
        request = health_pb2.HealthCheckRequest
        check, watch = (f"/{health.SERVICE_NAME}/{name}" for name in ("Check", "Watch"))
        return {
            check: unary(check, request, self._servicer.Check),
            watch: server_streaming(watch, request, self._servicer.Watch),
        }

    async def phase_changed(self, phase: NodePhase, *, ready: bool) -> None:
        """Set the statuses that follow from the phase of this node."""
        await self._set(EVERYTHING, serving=True)
        await self._set(TASK_SERVICE, serving=phase is not NodePhase.INIT)
        await self._set(READY, serving=ready)
        await self._set(LEADER, serving=phase is NodePhase.RUNNING)

    async def stop(self) -> None:
        """Set all statuses to NOT_SERVING permanently."""
        await self._servicer.enter_graceful_shutdown()

    async def _set(self, name: str, *, serving: bool) -> None:
        statuses = health_pb2.HealthCheckResponse
        status = statuses.SERVING if serving else statuses.NOT_SERVING
        await self._servicer.set(name, status)
