"""Texts of PostgreSQL as csv that the gateway takes: each value in the form of its column's type, NULL as nothing.

    t, yes, on, 1   ──► true          boolean
    ' 12 '          ──► 12            all but texts
    a time          ──► as it is      where it has no zone and the session's is not UTC: refused

The ingester checks the values, and names the row of one that is not of its type.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, WireError
from tidemark_pgwire.writes.table import WritableTable
from tidemark_protocol.types import Column

_TRUE = pa.array(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"))
_FALSE = pa.array(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"))
ZONE = r"(?i)(z|utc|[ T]\d\d:\d\d.*[+-]\d\d(:?\d\d)?)$"
_LINES = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")


def header_of(table: WritableTable) -> bytes:
    """The first line of a body."""
    names = ['"' + column.name.replace('"', '""') + '"' for column in table.columns]
    return ",".join(names).encode() + b"\n"


def csv_of(table: WritableTable, given: Sequence[Column], texts: Sequence[pa.Array], zone: str) -> bytes:
    """Lines with all columns of the table. `texts`: of each given column; `zone`: of the session. Raises WireError."""
    found = {column.name: text for column, text in zip(given, texts, strict=True)}
    rows = len(texts[0])
    columns = [
        _value(found[column.name], column, zone) if column.name in found else pa.nulls(rows, pa.string())
        for column in table.columns
    ]
    out = io.BytesIO()
    pa_csv.write_csv(pa.table(columns, names=[str(at) for at in range(len(columns))]), out, _LINES)
    return out.getvalue()


def _value(texts: pa.Array, column: Column, zone: str) -> pa.Array:
    if column.type.name == "string":
        return texts
    texts = pc.utf8_trim_whitespace(texts)
    if column.type.name == "boolean":
        lower = pc.utf8_lower(texts)
        texts = pc.if_else(pc.is_in(lower, _FALSE), "false", texts)
        return pc.if_else(pc.is_in(lower, _TRUE), "true", texts)
    if column.type.name == "timestamp" and zone != "UTC" and not _all_zoned(texts):
        raise WireError(
            FEATURE_NOT_SUPPORTED,
            f"column {column.name} gets a time without a zone, and TimeZone is {zone}: it is taken in UTC alone",
            hint="Write the zone, as 2026-01-31 12:00+00, or SET TimeZone = 'UTC'.",
        )
    return texts


def _all_zoned(texts: pa.Array) -> bool:
    return pc.all(pc.match_substring_regex(texts, ZONE)).as_py() is not False
