"""SQL types and schemas, as Spark names them.

A `SqlType` prints as Spark DDL (`decimal(15,2)`) and parses back. Rows inside the engine have positional
columns; names belong to schemas (`Column`) at the edges: source tables and exports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SIMPLE_TYPES = frozenset(
    "boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz".split()
)
# Only inside expressions: no column of a table or an export has these.
INTERVAL_TYPES = frozenset({"interval year to month", "interval day to second"})
INTEGRAL_WIDTH = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


class TypeNotSupported(ValueError):
    """A type that Tidemark's engine has no representation for."""


@dataclass(frozen=True)
class SqlType:
    """A scalar type: its name and, for decimals, precision and scale."""

    name: str
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.name == "decimal":
            if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
                raise TypeNotSupported(f"decimal({self.precision},{self.scale}) is not a valid decimal type")
        elif self.name not in SIMPLE_TYPES and self.name not in INTERVAL_TYPES:
            raise TypeNotSupported(f"type {self.name!r} is not supported")

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name

    @staticmethod
    def parse(text: str) -> SqlType:
        """The type that `str` printed; raises TypeNotSupported."""
        folded = text.strip().lower()
        if found := _DECIMAL.fullmatch(folded.replace(" ", "")):
            return SqlType("decimal", int(found[1]), int(found[2]))
        return SqlType(folded)

    @property
    def is_integral(self) -> bool:
        return self.name in INTEGRAL_WIDTH

    @property
    def is_floating(self) -> bool:
        return self.name in ("float", "double")

    @property
    def is_decimal(self) -> bool:
        return self.name == "decimal"

    @property
    def is_numeric(self) -> bool:
        return self.is_integral or self.is_floating or self.is_decimal


BOOLEAN = SqlType("boolean")
INT = SqlType("int")
BIGINT = SqlType("bigint")
DOUBLE = SqlType("double")
STRING = SqlType("string")
DATE = SqlType("date")
TIMESTAMP = SqlType("timestamp")


@dataclass(frozen=True)
class Column:
    """A named column of a table or an export. `nullable` is true nullability, known to the catalogue."""

    name: str
    type: SqlType
    nullable: bool = True


@dataclass(frozen=True)
class ColumnType:
    """A positional column of a plan node's output."""

    type: SqlType
    nullable: bool = True
