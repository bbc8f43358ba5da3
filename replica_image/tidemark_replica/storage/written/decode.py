"""The rows of a body, by its format, as Arrow batches of the table's columns: csv, jsonl, json, parquet.

A column that the body has not is NULL. A column that the table has not is refused, or ignored where the table says so.
Memory is that of a few batches, whatever the size of the body.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tidemark_protocol.plan.ingestion import WrittenTable
from tidemark_protocol.types import Column
from tidemark_replica.storage.written.refusal import (
    BAD_REQUEST,
    MALFORMED,
    TOO_LARGE,
    UNKNOWN_FIELD,
    WriteRefused,
)
from tidemark_replica.storage.written.values import column_of_json, column_of_text, narrowed, within_years
from tidemark_replica.values.arrow_types import arrow_schema, arrow_type

BATCH_ROWS = 16_384
CSV_BLOCK_BYTES = 4 << 20
JSON_BATCH_BYTES = 4 << 20
LINE_BYTES_MAX = 4 << 20
DOCUMENT_BYTES_MAX = 4 << 20
ROW_GROUP_BYTES_MAX = 1 << 30
_FOOTER_BYTES_MAX, _FOOTER_ENTRIES_MAX = 64 << 20, 1_000_000
_KINDS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
Decoder = Callable[[IO[bytes], WrittenTable, frozenset[str]], Iterator[pa.RecordBatch]]


def decode(format: str, body: IO[bytes], table: WrittenTable, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """The rows of the body, in order. `needed`: names of columns that the body must have. Raises WriteRefused."""
    decoder = FORMATS.get(format)
    if decoder is None:
        raise WriteRefused(BAD_REQUEST, f"format {format!r:.40} is not known: {', '.join(FORMATS)}")
    yield from decoder(body, table, needed)


def _csv(body: IO[bytes], table: WrittenTable, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """An unquoted empty field is NULL, a quoted one the empty text."""
    single = _csv_width(body) == 1
    names = {column.name: pa.string() for column in table.columns}
    convert = pa_csv.ConvertOptions(
        column_types=names, strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
    )
    try:
        reader = pa_csv.open_csv(
            body,
            pa_csv.ReadOptions(use_threads=False, block_size=CSV_BLOCK_BYTES),
            pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not single),
            convert,
        )
        places = _positions(reader.schema.names, table, needed)
        first = 1
        for batch in reader:
            for piece in _slices(batch):
                texts = [piece.column(at) if at is not None else None for at in places]
                yield _batch(table.columns, texts, piece.num_rows, first, column_of_text)
                first += piece.num_rows
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise WriteRefused(MALFORMED, f"the csv cannot be read: {_one_line(error)}") from None


def _csv_width(body: IO[bytes]) -> int:
    """The number of columns that the first line names: where it is one, an empty line is a row. Raises WriteRefused."""
    line = body.readline(LINE_BYTES_MAX)
    body.seek(0)
    header = (line.splitlines() or [b""])[0].decode(errors="replace").removeprefix("\ufeff")
    if not header:
        raise WriteRefused(MALFORMED, "the body is empty: csv begins with a line that names the columns")
    try:
        return 1 if "," not in header else len(next(csv.reader([header])))
    except csv.Error as error:
        raise WriteRefused(MALFORMED, f"the csv's first line cannot be read: {_one_line(error)}") from None


def _json_lines(body: IO[bytes], table: WrittenTable, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    rows, first, size = list[Any](), 1, 0
    for number, line in enumerate(iter(partial(body.readline, LINE_BYTES_MAX + 1), b""), 1):
        if len(line) > LINE_BYTES_MAX:
            raise WriteRefused(TOO_LARGE, f"line {number} is longer than {LINE_BYTES_MAX} bytes")
        if line.isspace():
            continue
        rows.append(_parsed(line, f"line {number}"))
        size += len(line)
        if len(rows) == BATCH_ROWS or size > JSON_BATCH_BYTES:
            yield _objects(rows, table, needed, first)
            first, rows, size = first + len(rows), [], 0
    if rows:
        yield _objects(rows, table, needed, first)


def _json(body: IO[bytes], table: WrittenTable, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """One document: an object, or an array of objects."""
    text = body.read(DOCUMENT_BYTES_MAX + 1)
    if len(text) > DOCUMENT_BYTES_MAX:
        raise WriteRefused(TOO_LARGE, f"a JSON document has at most {DOCUMENT_BYTES_MAX} bytes; send JSON lines")
    document = _parsed(text, "the document")
    rows = document if isinstance(document, list) else [document]
    for start in range(0, len(rows), BATCH_ROWS):
        yield _objects(rows[start : start + BATCH_ROWS], table, needed, start + 1)


def _parsed(text: bytes, where: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise WriteRefused(MALFORMED, f"{where} is no JSON: {_one_line(error)}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a member twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not of JSON; write it as a text")


def _objects(rows: Sequence[Any], table: WrittenTable, needed: frozenset[str], first: int) -> pa.RecordBatch:
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise WriteRefused(MALFORMED, f"row {first + at} is no JSON object")
    pointers = {option.name: _tokens(option.value) for option in table.pointers}
    if table.unknown_fields == "refuse":
        known = {pointers[c.name][0] if pointers.get(c.name) else c.name for c in table.columns}
        for at, row in enumerate(rows):
            if not row.keys() <= known:
                raise _unknown(sorted(row.keys() - known)[0], f"row {first + at}", table)
    values: list[list[Any]] = []
    for column in table.columns:
        tokens = pointers.get(column.name)
        if tokens:
            values.append([_value_at(row, tokens) for row in rows])
        else:
            values.append([row.get(column.name) for row in rows])
            if column.name in needed and not all(column.name in row for row in rows):
                raise _missing(column.name)
    return _batch(table.columns, values, len(rows), first, column_of_json)


def _tokens(pointer: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _value_at(value: Any, tokens: Sequence[str]) -> Any:
    """The value that the pointer leads to; None where there is nothing."""
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and token.isascii() and token.isdigit() and int(token[:9]) < len(value):
            value = value[int(token[:9])]
        else:
            return None
    return value


def _parquet(body: IO[bytes], table: WrittenTable, needed: frozenset[str]) -> Iterator[pa.RecordBatch]:
    try:
        limits = {"thrift_string_size_limit": _FOOTER_BYTES_MAX, "thrift_container_size_limit": _FOOTER_ENTRIES_MAX}
        with pq.ParquetFile(body, **limits) as file:
            places = _positions(file.schema_arrow.names, table, needed)
            for column, at in zip(table.columns, places, strict=True):
                if at is not None and not _converts(file.schema_arrow.field(at).type, arrow_type(column.type)):
                    what = f"{file.schema_arrow.field(at).type} in the file, {column.type} in the table"
                    raise WriteRefused(MALFORMED, f"column {column.name} is {what}")
            for group in range(file.num_row_groups):
                if file.metadata.row_group(group).total_byte_size > ROW_GROUP_BYTES_MAX:
                    raise WriteRefused(TOO_LARGE, f"row group {group} has more than {ROW_GROUP_BYTES_MAX} bytes")
            wanted = [file.schema_arrow.names[at] for at in places if at is not None]
            for batch in file.iter_batches(BATCH_ROWS, columns=wanted, use_threads=False):
                columns = [None if at is None else batch.column(file.schema_arrow.names[at]) for at in places]
                yield _batch(table.columns, columns, batch.num_rows, 1, _cast)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise WriteRefused(MALFORMED, f"the Parquet file cannot be read: {_one_line(error)}") from None


def _converts(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values are of one kind: an integer may be stored in other bits, and as a decimal."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    text = pa.types.is_string(given) or pa.types.is_large_string(given) or pa.types.is_string_view(given)
    if pa.types.is_string(wanted) or text:
        return bool(text and pa.types.is_string(wanted))
    integer_as_decimal = pa.types.is_integer(given) and pa.types.is_decimal(wanted)
    return bool(integer_as_decimal or any(kind(given) and kind(wanted) for kind in _KINDS))


def _cast(values: pa.Array, column: Column, first_row: int) -> pa.Array:
    wanted = arrow_type(column.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    try:
        if pa.types.is_floating(wanted):
            return narrowed(values.cast(pa.float64()), wanted)
        if pa.types.is_timestamp(values.type) and values.type.tz is None:
            values = values.cast(pa.timestamp("us"))
        return within_years(values.cast(wanted))
    except (pa.ArrowInvalid, ValueError) as error:
        raise WriteRefused(MALFORMED, f"column {column.name}: {_one_line(error)}") from None


def _positions(names: Sequence[str], table: WrittenTable, needed: frozenset[str]) -> list[int | None]:
    """Where a file with named columns has the columns of the table; None for one that it has not."""
    known = {column.name for column in table.columns}
    if len(set(names)) < len(names):
        raise WriteRefused(MALFORMED, "two columns of the body have one name")
    for name in names:
        if name not in known and table.unknown_fields == "refuse":
            raise _unknown(name, "the body", table)
    for name in sorted(needed - set(names)):
        raise _missing(name)
    at = {name: position for position, name in enumerate(names)}
    return [at.get(column.name) for column in table.columns]


def _unknown(name: str, where: str, table: WrittenTable) -> WriteRefused:
    columns = ", ".join(column.name for column in table.columns)
    return WriteRefused(
        UNKNOWN_FIELD, f"{where} has {name[:60]!r}, which table {table.name} has not. Its columns: {columns}"
    )


def _missing(name: str) -> WriteRefused:
    return WriteRefused(MALFORMED, f"the body has no column {name}, which this operation needs")


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _batch(
    columns: Sequence[Column],
    values: Sequence[Any],
    rows: int,
    first: int,
    convert: Callable[[Any, Column, int], pa.Array],
) -> pa.RecordBatch:
    arrays = [
        pa.nulls(rows, arrow_type(column.type)) if given is None else convert(given, column, first)
        for column, given in zip(columns, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


FORMATS: dict[str, Decoder] = {"csv": _csv, "jsonl": _json_lines, "json": _json, "parquet": _parquet}
