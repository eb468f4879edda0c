"""Generate the source code of the functions that encode and decode the records of a table.

The module ``dataclasses`` generates ``__init__`` in the same way. Generated functions have no loop
over the fields. They take half the time of functions that interpret the table, which matters
because tasks are encoded and decoded one by one. Example: the source code for a table with a number
and a text:

    def write(_value):
        at_ms = _value.at_ms
        tube = _value.tube
        _tube = tube.encode()
        return b''.join((_pack_0(at_ms), _pack(len(_tube)), _tube,))

    def read(_record, _at=0):
        at_ms, = _unpack_0(_record, _at)
        _at += 8
        _size_of_tube, = _unpack(_record, _at)
        _at += 4
        _start, _at = _at, _at + _size_of_tube
        tube = _record[_start:_at]
        return _make(at_ms=at_ms, tube=tube.decode()), _at
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from struct import Struct
from typing import Any, Final, TypeAlias

from taskraft_service.queue.store.fields import (
    SIZE,
    Blob,
    Constant,
    Field,
    Fixed,
    Flags,
    List,
    Nested,
    Number,
    Of,
    Optional,
    Present,
    Size,
    Text,
)

Parts: TypeAlias = Mapping[str, Callable[..., object]]
NO_PARTS: Final[Parts] = {}


class TableSource:
    """Generates the source code of ``write`` and ``read``, field by field.

    In the generated code, each field and each part has a local variable; all other names begin with
    ``_``. ``write`` assigns all fields to their variables, then joins the encoded fields. ``read``
    decodes the fields in the order of their bytes, then constructs the parts and the value.

    Attributes:
        names: the objects to which the generated code refers, by name.
    """

    def __init__(self, fields: Sequence[Field], parts: Parts) -> None:
        plain = [field.field if isinstance(field, Optional) else field for field in fields]
        bits = [bit for flags in plain if isinstance(flags, Flags) for bit in flags.bits]
        sizes = [field.names for field in plain if isinstance(field, Size)]
        self.names: dict[str, Any] = {"_pack": SIZE.pack, "_unpack": SIZE.unpack_from}
        self._parts = parts
        self._masks = {bit: 1 << place for place, bit in enumerate(bits)}
        self._size_owners = {name: names[0] for names in sizes for name in names}
        """Maps each field whose size is in an earlier ``Size`` to the first field of this
        ``Size``."""
        self._contents = {field.name for field in plain if isinstance(field, Text | Blob)}
        self._conditions: dict[str | Present, str] = {}
        """For each flag, the expression with which ``write`` decides whether to set the flag."""
        self._values: list[str] = []
        """The assignments in ``write``."""
        self._pieces: list[str] = []
        """The expressions of the byte strings that ``write`` joins."""
        self._reads: list[str] = []
        """The assignments in ``read``."""
        self._keywords: dict[str, list[str]] = {part: [] for part in ("", *parts)}
        """Keyword arguments for the constructor of each part; the empty name stands for the whole
        value."""
        for is_fixed, run in groupby(fields, lambda field: isinstance(field, Fixed)):
            if is_fixed:
                self._add_fixed([field for field in run if isinstance(field, Fixed)])
            else:
                for field in run:
                    self._add(field)
        missing = self._size_owners.keys() - {
            bit.name for bit in self._conditions if isinstance(bit, Present)
        }
        assert not missing, f"sizes of fields that do not exist: {missing}"

    def text(self) -> str:
        """Return the source code of ``write`` and ``read``."""
        flags = [f"({mask} if {self._conditions[bit]} else 0)" for bit, mask in self._masks.items()]
        keywords = [*self._keywords[""]]
        for part, make in self._parts.items():
            self.names[f"_make_{part}"] = make
            made = f"_make_{part}({', '.join(self._keywords[part])})"
            keywords.append(f"{part}={self._or_none(part, made)}")
        write = (
            "def write(_value):",
            *self._values,
            *([f"_flags = {' | '.join(flags)}"] if flags else ()),
            f"return b''.join(({', '.join(self._pieces)},))\n",
        )
        read = (
            "def read(_record, _at=0):",
            *self._reads,
            f"return _make({', '.join(keywords)}), _at\n",
        )
        return "\n    ".join(write) + "\n" + "\n    ".join(read)

    def _value(self, name: str, of: Of, absent: object) -> str:
        """Add the assignment of a field to ``write``; return the name of its variable."""
        local = _local(name)
        if callable(of):
            self.names[f"_of_{local}"] = of
            taken = f"_of_{local}(_value)"
        else:
            taken = self._path(of or name, absent)
        self._values.append(f"{local} = {taken}")
        assert Present(name) not in self._conditions, f"two fields are called {name}"
        is_there = "!= 0" if absent == 0 else "is not None"
        self._conditions[Present(name)] = f"{local} {is_there}"
        return local

    def _path(self, path: str, absent: object) -> str:
        """Return the code with which ``write`` reads an attribute of the value or of a part."""
        part = path.partition(".")[0]
        if part not in self._parts:
            return f"_value.{path}"
        condition = f"{part} is not None"
        if Present(part) not in self._conditions:
            self._conditions[Present(part)] = condition
            self._values.append(f"{part} = _value.{part}")
        return f"{path} if {condition} else {absent!r}" if Present(part) in self._masks else path

    def _give(self, name: str, expression: str) -> None:
        """Pass a decoded field to the constructor of the value or of a part."""
        part, _, attribute = name.rpartition(".")
        self._keywords[part].append(f"{attribute}={expression}")

    def _or_none(self, name: str, expression: str) -> str:
        """Return the code with which ``read`` yields None for a missing part or field."""
        mask = self._masks.get(Present(name))
        return expression if mask is None else f"{expression} if _flags & {mask} else None"

    # ------------------------------------------------------------------------------- fixed size

    def _add_fixed(self, run: Sequence[Fixed]) -> None:
        """Add adjacent fields whose sizes are fixed."""
        numbers = Struct(">" + "".join([field.code for field in run]))
        place = len(self._pieces)
        self.names |= {f"_pack_{place}": numbers.pack, f"_unpack_{place}": numbers.unpack_from}
        packed, locals_ = zip(*map(self._fixed, run), strict=True)
        self._pieces.append(f"_pack_{place}({', '.join(packed)})")
        self._reads.append(f"{', '.join(locals_)}, = _unpack_{place}(_record, _at)")
        self._reads.append(f"_at += {numbers.size}")

    def _fixed(self, field: Fixed) -> tuple[str, str]:
        """Return the code of the number to pack, and the variable for the unpacked number."""
        match field:
            case Constant():
                return str(field.number), "_"
            case Size():
                name = field.names[0]
                return f"len({self._measured_variable(name)})", self._size_variable(name)
            case Flags():
                for bit in field.bits:
                    if isinstance(bit, str):
                        self._conditions[bit] = self._value(bit, "", absent=False)
                        self._give(bit, f"_flags & {self._masks[bit]} != 0")
                return "_flags", "_flags"
            case Number():
                return self._number(field)

    def _number(self, field: Number) -> tuple[str, str]:
        local, kind, absent = self._value(field.name, field.of, 0), field.kind, field.absent
        read = local
        if isinstance(kind, type) and issubclass(kind, Enum):  # a look-up is faster than a call
            self.names[f"_kind_{local}"] = {member.value: member for member in kind}
            read = f"_kind_{local}[{local}]"
        elif kind is not int:
            self.names[f"_kind_{local}"] = kind
            read = f"_kind_{local}({local})"
        if absent is None:
            self._give(field.name, read)
            return local, local
        self._give(field.name, f"None if {local} == {absent} else {read}")
        return f"{absent} if {local} is None else {local}", local

    # ------------------------------------------------------------------------------- variable size

    def _add(self, field: Field) -> None:
        match field:
            case Optional():
                self._add_optional(field.field)
            case Nested():
                self._add_nested(field)
            case Text() | Blob():
                self._add_content(field)
            case _:
                assert isinstance(field, List)
                self._add_list(field)

    def _add_content(self, field: Text | Blob) -> None:
        """Add a field that is a text or a byte string."""
        is_text = isinstance(field, Text)
        blank = "" if is_text else b""
        local = self._value(field.name, field.of, blank)
        content = f"({local} or {blank!r})" if Present(field.name) in self._masks else local
        self._values.append(f"_{local} = {content}" + (".encode()" if is_text else ""))
        end = "len(_record)" if field.to_end else f"_at + {self._add_size(field.name)}"
        self._pieces.append(f"_{local}")
        self._reads += (f"_start, _at = _at, {end}", f"{local} = _record[_start:_at]")
        read = f"{local}.decode()" if is_text else local
        self._give(field.name, self._or_none(field.name, read))

    def _add_list(self, field: List) -> None:
        local = self._value(field.name, field.of, ())
        size = self._add_size(field.name)
        self.names |= {f"_write_{local}": field.write, f"_read_{local}": field.read}
        self._pieces.append(f"_write_{local}({local}) if {local} else b''")
        items = f"_read_{local}(_record, _at, {size})"
        self._reads.append(f"{local}, _at = {items} if {size} else ((), _at)")
        self._give(field.name, local)

    def _add_size(self, name: str) -> str:
        """Return the variable that holds a field's size; encode the size unless it is known."""
        size = self._size_variable(name)
        if name not in self._size_owners:
            self._pieces.append(f"_pack(len({self._measured_variable(name)}))")
            self._reads += (f"{size}, = _unpack(_record, _at)", f"_at += {SIZE.size}")
        return size

    def _size_variable(self, name: str) -> str:
        """Return the variable in ``read`` that holds the size of a field."""
        return f"_size_of_{_local(self._size_owners.get(name, name))}"

    def _measured_variable(self, name: str) -> str:
        """Return the variable in ``write`` whose length is the size of a field."""
        return f"_{_local(name)}" if name in self._contents else _local(name)

    def _add_nested(self, field: Nested) -> None:
        local = self._value(field.name, field.of, None)
        table = field.table
        self.names |= {f"_write_{local}": table.write, f"_read_{local}": table.read}
        self._pieces.append(f"_write_{local}({local})")
        self._reads.append(f"{local}, _at = _read_{local}(_record, _at)")
        self._give(field.name, local)

    def _add_optional(self, field: Number | Nested) -> None:
        """Add a field whose bytes are present only if its flag is set."""
        piece, line = len(self._pieces), len(self._reads)
        if isinstance(field, Number):
            self._add_fixed([field])
        else:
            self._add_nested(field)
        mask = self._masks[Present(field.name)]
        blank = 0 if isinstance(field, Number) else None
        self._pieces[piece:] = [
            f"{one} if _flags & {mask} else b''" for one in self._pieces[piece:]
        ]
        self._reads[line:] = [
            f"{_local(field.name)} = {blank}",
            f"if _flags & {mask}:",
            *(f"    {one}" for one in self._reads[line:]),
        ]


def _local(name: str) -> str:
    """Return the local variable of a field."""
    return name.replace(".", "__")
