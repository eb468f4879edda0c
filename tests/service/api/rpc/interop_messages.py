"""The messages of gRPC's interoperability tests, as far as the test cases use them.

The definitions are those of the proto files in the folder ``src/proto/grpc/testing`` of gRPC. They
are written here in a short form, because grpcio does not ship them.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INT32, BOOL, STRING, BYTES, MESSAGE = 5, 8, 9, 12, 11
MESSAGES = {
    "Empty": (),
    "BoolValue": (("value", 1, BOOL),),
    "Payload": (("type", 1, INT32), ("body", 2, BYTES)),
    "EchoStatus": (("code", 1, INT32), ("message", 2, STRING)),
    "SimpleRequest": (
        ("response_size", 2, INT32),
        ("payload", 3, "Payload"),
        ("response_status", 7, "EchoStatus"),
        ("expect_compressed", 8, "BoolValue"),
    ),
    "SimpleResponse": (("payload", 1, "Payload"),),
    "StreamingInputCallRequest": (("payload", 1, "Payload"),),
    "StreamingInputCallResponse": (("aggregated_payload_size", 1, INT32),),
    "ResponseParameters": (("size", 1, INT32),),
    "StreamingOutputCallRequest": (
        ("response_parameters", 2, ["ResponseParameters"]),
        ("payload", 3, "Payload"),
        ("response_status", 7, "EchoStatus"),
    ),
    "StreamingOutputCallResponse": (("payload", 1, "Payload"),),
}
"""The fields of each message: name, number and type; a list stands for a repeated field."""


def _file():
    found = descriptor_pb2.FileDescriptorProto(
        name="tests/interop.proto", package="grpc.testing", syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = found.message_type.add(name=name)
        for field, number, kind in fields:
            is_list = isinstance(kind, list)
            target = kind[0] if is_list else kind
            is_message = isinstance(target, str)
            message.field.add(
                name=field,
                number=number,
                label=3 if is_list else 1,
                type=MESSAGE if is_message else target,
                type_name=f".grpc.testing.{target}" if is_message else None,
            )
    return found


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message(name):
    """Return the class of a message."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"grpc.testing.{name}"))
