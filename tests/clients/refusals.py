"""Refusals as a node returns them."""

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from taskraft.v1 import error_pb2


class Refusal:
    """A typed error of a node, with its status code and details."""

    def __init__(self, reason, code, *, retry_ms=None, metadata=None, violations=()):
        self.reason = reason
        self.code = code
        self.retry_ms = retry_ms
        self.metadata = metadata or {}
        self.violations = violations

    def status(self):
        """Return the status of a refused call."""
        details = [
            error_details_pb2.ErrorInfo(
                reason=self.reason, domain="taskraft.v1", metadata=self.metadata
            )
        ]
        if self.retry_ms is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(self.retry_ms)
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        if self.violations:
            violation = error_details_pb2.BadRequest.FieldViolation
            details.append(
                error_details_pb2.BadRequest(
                    field_violations=[
                        violation(field=field, description=text) for field, text in self.violations
                    ]
                )
            )
        packed = []
        for detail in details:
            packed.append(any_pb2.Any())
            packed[-1].Pack(detail)
        status = status_pb2.Status(
            code=self.code.value[0], message=f"refused: {self.reason}", details=packed
        )
        return rpc_status.to_status(status)


COMMIT_UNKNOWN = Refusal("COMMIT_UNKNOWN", grpc.StatusCode.UNAVAILABLE)
"""The refusal of a call that may have had an effect."""


def item_error(item, reason, **metadata):
    """Return the error of one item of a call."""
    error = error_pb2.Error(
        reason=error_pb2.Error.Reason.Value(reason), message=reason.lower(), metadata=metadata
    )
    return error_pb2.ItemError(item=item, error=error)
