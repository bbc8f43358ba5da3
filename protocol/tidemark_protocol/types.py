"""SQL types and columns, with Spark's names.

A `SqlType` prints as Spark DDL (`decimal(15,2)`, `array<struct<a:int,b:string>>`) and parses back. Elements of arrays
and fields of structs may always be NULL. Rows inside the engine have positional columns; names belong to schemas
(`Column`) at the edges, source tables and exports, and to the fields of structs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tidemark_protocol.vocabulary import wire_name

SIMPLE_TYPES = frozenset(
    "boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz".split()
)
# Types of expressions alone: no column of a table or an export has them.
INTERVAL_TYPES = frozenset({"interval year to month", "interval day to second"})
INTEGRAL_WIDTH = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
MAX_TYPE_DEPTH = 20
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>:,()]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TypeNotSupported(ValueError):
    """A type that Tidemark cannot represent."""


@dataclass(frozen=True)
class SqlType:
    """A type: its name; the precision and scale of decimals; the types inside arrays and structs.

    `children`: the element of an array, or the fields of a struct; `labels`: the names of the fields.

    Raises:
        TypeNotSupported: the type is not valid, or nested deeper than MAX_TYPE_DEPTH.
    """

    name: str
    precision: int = 0
    scale: int = 0
    children: tuple[SqlType, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name == "decimal":
            if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
                raise TypeNotSupported(f"decimal({self.precision},{self.scale}) is not a valid decimal type")
        elif self.is_nested:
            self._check_nested()
        elif self.name not in SIMPLE_TYPES and self.name not in INTERVAL_TYPES:
            raise TypeNotSupported(f"type {self.name!r} is not supported")

    def _check_nested(self) -> None:
        if len({label.lower() for label in self.labels}) != len(self.labels) or "" in self.labels:
            raise TypeNotSupported(f"the fields of {self} must have names that differ")
        if not self.children or len(self.labels) != (len(self.children) if self.is_struct else 0):
            raise TypeNotSupported(f"{self} is not a valid {self.name} type")
        if any(c.name in INTERVAL_TYPES for c in self.children):
            raise TypeNotSupported(f"type {self} is not supported: it holds intervals")
        if self.depth > MAX_TYPE_DEPTH:
            raise TypeNotSupported(f"a type is nested deeper than {MAX_TYPE_DEPTH}")

    def __str__(self) -> str:
        if self.is_decimal:
            return f"decimal({self.precision},{self.scale})"
        if self.is_array:
            return f"array<{self.children[0]}>"
        if self.is_struct:
            return f"struct<{','.join(f'{quoted_name(n)}:{c}' for n, c in self.fields)}>"
        return self.name

    @staticmethod
    def parse(text: str) -> SqlType:
        """The type that `str` printed; raises TypeNotSupported."""
        folded = text.strip().lower()
        return SqlType(folded) if folded in INTERVAL_TYPES else _Parser(text).parse()

    @staticmethod
    def array(element: SqlType) -> SqlType:
        return SqlType("array", children=(element,))

    @staticmethod
    def struct(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
        named = tuple(fields)
        return SqlType("struct", children=tuple(t for _, t in named), labels=tuple(n for n, _ in named))

    @property
    def element(self) -> SqlType:
        """The type of an array's elements."""
        return self.children[0]

    @property
    def fields(self) -> tuple[tuple[str, SqlType], ...]:
        """The names and types of a struct's fields."""
        return tuple(zip(self.labels, self.children, strict=True))

    @cached_property
    def depth(self) -> int:
        return 1 + max((c.depth for c in self.children), default=0)

    @property
    def is_array(self) -> bool:
        return self.name == "array"

    @property
    def is_struct(self) -> bool:
        return self.name == "struct"

    @property
    def is_nested(self) -> bool:
        return self.is_array or self.is_struct

    @property
    def is_integral(self) -> bool:
        return self.name in INTEGRAL_WIDTH

    @property
    def is_floating(self) -> bool:
        return self.name in ("float", "double")

    @property
    def is_key_type(self) -> bool:
        """Whether a column of this type may be part of a table's key: equal values have equal bits."""
        return not self.is_floating and not self.is_nested

    @property
    def is_decimal(self) -> bool:
        return self.name == "decimal"

    @property
    def is_numeric(self) -> bool:
        return self.is_integral or self.is_floating or self.is_decimal


def quoted_name(name: str) -> str:
    """A field's name in DDL: in back quotes unless it is a plain identifier."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """Parses the text of one type. Keywords may be in any case; names of fields keep theirs."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text.strip(), 0, 0

    def parse(self) -> SqlType:
        found = self._type()
        if self._at != len(self._text):
            raise self._not_supported()
        return found

    def _type(self) -> SqlType:
        self._depth += 1
        if self._depth > MAX_TYPE_DEPTH:
            raise TypeNotSupported(f"a type is nested deeper than {MAX_TYPE_DEPTH}")
        name = self._word().lower()
        if name == "array":
            self._expect("<")
            found = SqlType.array(self._type())
            self._expect(">")
        elif name == "struct":
            found = SqlType.struct(self._fields())
        elif name == "decimal":
            self._expect("(")
            precision = self._number()
            self._expect(",")
            found = SqlType("decimal", precision, self._number())
            self._expect(")")
        else:
            found = SqlType(name)
        self._depth -= 1
        return found

    def _fields(self) -> list[tuple[str, SqlType]]:
        self._expect("<")
        fields = [self._field()]
        while (mark := self._next()[2]) == ",":
            fields.append(self._field())
        if mark != ">":
            raise self._not_supported()
        return fields

    def _field(self) -> tuple[str, SqlType]:
        quoted, plain, _ = self._next()
        self._expect(":")
        return (quoted or "").replace("``", "`") or plain or "", self._type()

    def _word(self) -> str:
        return self._next()[1] or ""

    def _number(self) -> int:
        word = self._word()
        if not (word.isascii() and word.isdigit() and len(word) <= 2):
            raise self._not_supported()
        return int(word)

    def _expect(self, mark: str) -> None:
        if self._next()[2] != mark:
            raise self._not_supported()

    def _next(self) -> tuple[str | None, str | None, str | None]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._not_supported()
        self._at = found.end()
        return found[1], found[2], found[3]

    def _not_supported(self) -> TypeNotSupported:
        return TypeNotSupported(f"type {self._text[:100]!r} is not supported")


BOOLEAN = SqlType("boolean")
INT = SqlType("int")
BIGINT = SqlType("bigint")
DOUBLE = SqlType("double")
STRING = SqlType("string")
DATE = SqlType("date")
TIMESTAMP = SqlType("timestamp")


@wire_name("Column")
@dataclass(frozen=True)
class Column:
    """A named column of a table or an export. `nullable` False means that no row has NULL there."""

    name: str
    type: SqlType
    nullable: bool = True


@wire_name("ColumnType")
@dataclass(frozen=True)
class ColumnType:
    """A positional column of a plan node's output."""

    type: SqlType
    nullable: bool = True
