"""Record batches as messages: DataRow, or what COPY sends: lines, and tuples in binary."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_pgwire.errors import NOT_IN_REPERTOIRE, PROTOCOL_VIOLATION, WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT, Field
from tidemark_pgwire.values.binary import binaries
from tidemark_pgwire.values.few_texts import FEW
from tidemark_pgwire.values.text import texts
from tidemark_pgwire.values.types import PgType, modifier, of_oid, of_sql
from tidemark_protocol.types import SqlType

SLICE_ROWS = 1000
"""Rows that are encoded at a time: what a session holds of an answer besides its record batch."""
_NULL = b"\xff\xff\xff\xff"
_HEAD = struct.Struct("!cIH")
DATA_ROW, COPY_DATA = b"D", b"d"
COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!II", 0, 0)
"""The beginning of the data of COPY in binary: the signature, no flags, no extension."""
COPY_TRAILER = struct.pack("!h", -1)
_SIZE = struct.Struct("!i").pack


@dataclass(frozen=True)
class ResultColumn:
    """A column of an answer. `modifier`: the typmod."""

    name: str
    type: PgType
    modifier: int = -1

    def field(self, format: int) -> Field:
        return Field(self.name, self.type.oid, self.type.size, self.modifier, format)


def columns_of(names: Sequence[str], types: Sequence[str]) -> tuple[ResultColumn, ...]:
    """The columns for names and SQL types, as the gateway sends them."""
    return _columns_of(tuple(names), tuple(types))


@lru_cache(256)
def _columns_of(names: tuple[str, ...], types: tuple[str, ...]) -> tuple[ResultColumn, ...]:
    parsed = map(SqlType.parse, types)
    return tuple(ResultColumn(name, of_sql(type), modifier(type)) for name, type in zip(names, parsed, strict=True))


def columns_of_oids(names: Sequence[str], oids: Sequence[int]) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(name, of_oid(oid)) for name, oid in zip(names, oids, strict=True))


def data_rows(
    batch: pa.RecordBatch, columns: Sequence[ResultColumn], formats: Sequence[int], zone: str, kind: bytes = DATA_ROW
) -> list[bytes]:
    """A message for each row. `formats`: of each column; `kind`: COPY_DATA for a tuple of COPY in binary, which is the
    body of a DataRow in binary. Raises WireError where a text holds NUL."""
    if not columns:
        return [_HEAD.pack(kind, 6, 0)] * batch.num_rows
    encoded = [
        _fields(array, column, format, zone)
        for array, column, format in zip(batch.columns, columns, formats, strict=True)
    ]
    rows, count = list[bytes](), len(columns)
    for row in zip(*encoded, strict=True):
        body = b"".join(row)
        rows.append(_HEAD.pack(kind, len(body) + 6, count) + body)
    return rows


def text_columns(batch: pa.RecordBatch, columns: Sequence[ResultColumn], zone: str) -> list[list[bytes | None]]:
    """The texts of each column. Raises WireError where a text holds NUL."""
    for array in batch.columns:
        _require_no_nul(array)
    return [texts(array, column.type, zone) for array, column in zip(batch.columns, columns, strict=True)]


def _fields(array: pa.Array, column: ResultColumn, format: int, zone: str) -> list[bytes]:
    """The values of a column, each with its length before it."""
    few = format == TEXT and len(array) <= FEW and pa.types.is_string(array.type)
    if not few:
        _require_no_nul(array)
    found = binaries(array, column.type) if format == BINARY else texts(array, column.type, zone)
    if few and any(each is not None and b"\0" in each for each in found):
        raise _nul()
    return [_NULL if each is None else _SIZE(len(each)) + each for each in found]


def _require_no_nul(array: pa.Array) -> None:
    """PostgreSQL's texts have no NUL, at which many clients would cut a value."""
    if pa.types.is_list(array.type):
        array = array.flatten()
    if pa.types.is_string(array.type) and pc.any(pc.match_substring(array, "\0")).as_py():
        raise _nul()


def _nul() -> WireError:
    return WireError(NOT_IN_REPERTOIRE, "a text of the answer holds the character NUL, which clients cut texts at")


def result_formats(asked: Sequence[int], count: int) -> list[int]:
    """The format of each column. `asked`: by Bind: none, one for all, or one for each. Raises WireError."""
    if not asked:
        return [TEXT] * count
    if len(asked) == 1:
        return [asked[0]] * count
    if len(asked) != count:
        raise WireError(
            PROTOCOL_VIOLATION, f"bind message has {len(asked)} result formats but query has {count} columns"
        )
    return list(asked)
