"""Encode the arguments of a task and its result, and decode them by their media type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskraft._settlement import RESULT_BYTES_MAX
from taskraft.worker.codecs import Codec, codec_for
from taskraft.worker.errors import DecodeError, EncodeError, InvalidResult, InvalidTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from taskraft.worker.json_types import Annotation, Value
    from taskraft.worker.options import PayloadForm
    from taskraft.worker.signature import Signature


class Payloads:
    """Arguments and results of one task as bytes."""

    def __init__(
        self,
        signature: Signature,
        form: PayloadForm,
        codec: Codec | None,
        also_reads: Sequence[Codec] = (),
    ) -> None:
        """Compile the types of a signature.

        Args:
            signature: signature of the handler.
            form: "single": the payload is the value of the only parameter.
            codec: encodes; None: chosen by the types.
            also_reads: decode payloads of other media types.

        Raises:
            InvalidTask: the codec does not support a type.
        """
        self._signature = signature
        self._is_single = form == "single"
        if self._is_single and len(signature.types) != 1:
            raise InvalidTask(f"{signature.name}: a single payload needs exactly one parameter")
        types = [*signature.types.values(), signature.returns]
        for one in also_reads if codec is None else (codec, *also_reads):
            if not isinstance(one, Codec):
                raise InvalidTask(f"{signature.name}: {one!r:.200} is not a Codec")
        self.codec: Final = codec or codec_for(types)
        """Encodes arguments and results."""
        self._name = next(iter(signature.types), "")
        self._type: Annotation = (
            signature.types[self._name] if self._is_single else signature.payload_type()
        )
        self._readers = {reader.content_type: reader for reader in (*also_reads, self.codec)}
        try:
            for reader in self._readers.values():
                reader.prepare(self._type)
                reader.prepare(signature.returns)
        except Exception as error:
            raise InvalidTask(f"{signature.name}: {error}") from error

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Return the payload of a call.

        Raises:
            EncodeError: the arguments do not fit the signature.
        """
        given = self._signature.arguments(args, kwargs)
        value = given.get(self._name) if self._is_single else given
        try:
            return self.codec.encode(value, self._type)
        except EncodeError as error:
            raise EncodeError(f"{self._signature.name}: {error}") from error

    def decode(self, data: bytes, content_type: str) -> dict[str, Value]:
        """Return the arguments of a payload by parameter.

        Raises:
            DecodeError: the payload does not fit the signature.
        """
        value = self._reader(content_type).decode(data, self._type)
        return {self._name: value} if self._is_single else value

    def encode_result(self, value: object) -> bytes:
        """Return a result as bytes.

        Raises:
            InvalidResult: the result is not of the stated type, or has more than 1 MiB.
        """
        try:
            data = self.codec.encode(value, self._signature.returns)
        except EncodeError as error:
            raise InvalidResult(f"the result of {self._signature.name}: {error}") from error
        if len(data) > RESULT_BYTES_MAX:
            raise InvalidResult(
                f"the result of {self._signature.name} has {len(data)} bytes; the server stores at "
                f"most {RESULT_BYTES_MAX}"
            )
        return data

    def decode_result(self, data: bytes, content_type: str) -> Value:
        """Return the result of a task; raise DecodeError if it is not of the stated type."""
        return self._reader(content_type).decode(data, self._signature.returns)

    def _reader(self, content_type: str) -> Codec:
        """Return the codec of a media type; without a media type, return the codec that encodes."""
        found = self._readers.get(content_type) if content_type else self.codec
        if found is None:
            raise DecodeError(
                f"the content type is {content_type}, and {self._signature.name} reads "
                f"{', '.join(self._readers)}; add the codec to also_reads"
            )
        return found
