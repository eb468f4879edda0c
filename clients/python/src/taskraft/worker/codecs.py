"""Encode arguments and results as bytes, by the types of a signature."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    get_type_hints,
    is_typeddict,
    runtime_checkable,
)

from taskraft._payload import JSON
from taskraft.worker.errors import DecodeError, EncodeError
from taskraft.worker.json_types import Annotation, Value, converter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MSGPACK: Final = "application/msgpack"


@runtime_checkable
class Codec(Protocol):
    """Encodes values of a type, and decodes them.

    `prepare` is called at import for each type.
    """

    @property
    def content_type(self) -> str:
        """Media type of the encoded bytes; a worker chooses the codec by it."""
        ...

    def prepare(self, type: Annotation) -> None:
        """Compile a type, and raise TypeError if the codec does not support the type."""
        ...

    def encode(self, value: object, type: Annotation) -> bytes:
        """Return the bytes of a value; raise EncodeError if it is not of the type."""
        ...

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Return the value; raise DecodeError if the bytes are not of the type."""
        ...


class JsonCodec:
    """JSON of the types of the standard library.

    Supported are None, bool, int, float, str, bytes (base64), list, tuple, set, frozenset, dict,
    unions, Literal, Enum, dataclasses, TypedDict, datetime, date, time, timedelta, UUID, Decimal.
    Unknown members of an object are ignored, so that a producer may be newer than a worker.
    """

    content_type: Final = JSON

    def prepare(self, type: Annotation) -> None:
        """Raise TypeError if JSON cannot represent the type."""
        converter_of(type)

    def encode(self, value: object, type: Annotation) -> bytes:
        """Return the value as JSON."""
        try:
            plain = converter_of(type).to_json(value)
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(str(error)) from error

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Return the value of a JSON text."""
        try:
            return converter_of(type).from_json(json.loads(data))
        except (TypeError, ValueError, RecursionError) as error:
            raise DecodeError(str(error)) from error


class BytesCodec:
    """Bytes, unchanged; for handlers with one parameter of the type bytes (`payload="single"`)."""

    content_type: Final = "application/octet-stream"

    def prepare(self, type: Annotation) -> None:
        """Raise TypeError if the type is not bytes."""
        if type not in (bytes, None):
            raise TypeError(f"BytesCodec supports bytes, not {type!r}")

    def encode(self, value: object, type: Annotation) -> bytes:
        """Return the bytes."""
        if value is None:
            return b""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise EncodeError(f"must be bytes, not {value!r}")
        return bytes(value)

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Return the bytes."""
        return data


class PydanticCodec:
    """JSON validated by pydantic, for all types that pydantic knows."""

    content_type: Final = JSON

    def __init__(self) -> None:
        """Import pydantic, which must be installed."""
        self._adapter = import_module("pydantic").TypeAdapter
        self._adapters: dict[Any, Any] = {}

    def prepare(self, type: Annotation) -> None:
        """Compile the validator of a type."""
        known = type
        if is_typeddict(type) and sys.version_info < (3, 12):  # pydantic refuses typing's own
            typed_dict = import_module("typing_extensions").TypedDict
            known = typed_dict(type.__name__, get_type_hints(type, include_extras=True))
        self._adapters[type] = self._adapter(known)

    def _of(self, type: Annotation) -> Value:
        if type not in self._adapters:
            self.prepare(type)
        return self._adapters[type]

    def encode(self, value: object, type: Annotation) -> bytes:
        """Validate the value, and return it as JSON."""
        adapter = self._of(type)
        try:
            data: bytes = adapter.dump_json(adapter.validate_python(value, strict=True))
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(str(error)) from error
        return data

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Return the validated value."""
        try:
            return self._of(type).validate_json(data)
        except ValueError as error:
            raise DecodeError(str(error)) from error


class MsgspecCodec:
    """JSON or MessagePack, validated by msgspec, for all types that msgspec knows."""

    def __init__(self, form: Literal["json", "msgpack"] = "json") -> None:
        """Import msgspec, which must be installed."""
        self._msgspec = import_module("msgspec")
        self._format = import_module(f"msgspec.{form}")
        self.content_type: Final = JSON if form == "json" else MSGPACK
        self._encoder = self._format.Encoder()
        self._decoders: dict[Any, Any] = {}

    def prepare(self, type: Annotation) -> None:
        """Compile the decoder of a type."""
        self._decoders[type] = self._format.Decoder(type)

    def encode(self, value: object, type: Annotation) -> bytes:
        """Return the bytes of a value that is of the type."""
        try:
            data: bytes = self._encoder.encode(value)
            self._decoder(type).decode(data)
        except (
            self._msgspec.MsgspecError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            raise EncodeError(str(error)) from error
        return data

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Return the validated value."""
        try:
            return self._decoder(type).decode(data)
        except (self._msgspec.MsgspecError, ValueError) as error:
            raise DecodeError(str(error)) from error

    def _decoder(self, type: Annotation) -> Any:  # noqa: ANN401 - msgspec may be absent, so its types are unknown
        if type not in self._decoders:
            self.prepare(type)
        return self._decoders[type]


class WrappedCodec:
    """A codec whose bytes are changed on the way, for compression or encryption."""

    def __init__(
        self,
        inner: Codec,
        encode: Callable[[bytes], bytes],
        decode: Callable[[bytes], bytes],
        *,
        content_type: str,
    ) -> None:
        """Store both directions; `content_type` must differ from that of the inner codec."""
        if content_type == inner.content_type:
            raise ValueError("the content type of a wrapped codec must be a new one")
        self.content_type: Final = content_type
        self._inner = inner
        self._encode = encode
        self._decode = decode

    def prepare(self, type: Annotation) -> None:
        """Let the inner codec compile the type."""
        self._inner.prepare(type)

    def encode(self, value: object, type: Annotation) -> bytes:
        """Encode the value, then change the bytes."""
        return self._encode(self._inner.encode(value, type))

    def decode(self, data: bytes, type: Annotation) -> Value:
        """Undo the change of the bytes, for example decompress them, then decode the value."""
        try:
            plain = self._decode(data)
        except Exception as error:
            raise DecodeError(f"cannot unwrap the payload: {error}") from error
        return self._inner.decode(plain, type)


def codec_for(types: Iterable[Annotation]) -> Codec:
    """Return a codec for some annotations.

    `PydanticCodec` if one is a BaseModel, `MsgspecCodec` if one is a Struct, else `JsonCodec`.
    pydantic and msgspec are imported only if the application has imported them.
    """
    for type_ in types:
        for part in (type_, *getattr(type_, "__args__", ())):
            if _is_a("pydantic", "BaseModel", part):
                return PydanticCodec()
            if _is_a("msgspec", "Struct", part):
                return MsgspecCodec()
    return JsonCodec()


def _is_a(library: str, base: str, kind: object) -> bool:
    """Return whether a type is a subclass of a class of a library that may be absent."""
    found = sys.modules.get(library)
    return found is not None and isinstance(kind, type) and issubclass(kind, getattr(found, base))
