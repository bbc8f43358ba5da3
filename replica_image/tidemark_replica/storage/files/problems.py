"""The problems of files, read from the shards of a table.

table          error rows  {"code": "SCHEMA_MISMATCH", "expression": "1.csv"}      onBadRecord: error
dead letters   (file, the text of a malformed record)                              onBadRecord: deadLetter
               (file, {"code": "SCHEMA_MISMATCH", "expression": "1.csv"})          the file as a whole

A letter about a file as a whole ends with an end of line, which no record holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, ShardReader, consolidate, read_part

KEY_VIOLATED = "KEY_VIOLATED"
"""The rows of the file would violate the primary key: it is an error of the table, also where bad records are set
aside."""
SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
FILE_CODES = frozenset({"FILE_MISSING", "FILE_CHANGED", "FILE_UNREADABLE", SCHEMA_MISMATCH, KEY_VIOLATED})
"""The codes of files that are refused as a whole (`checks.py`)."""
END_OF_LINE = "\n"
DEAD_LETTERS_LOST = "DEAD_LETTERS_LOST"
"""The table had its rows already when the file could not be read for its dead letters any more: a process died between
the two."""


@dataclass(frozen=True)
class FileProblem:
    """The problem of a file: a code, and the number of rows with it. `in_error`: they are error rows of the table."""

    code: str
    count: int
    in_error: bool


def errors_in_table(shard: ShardReader) -> dict[str, int]:
    """The texts of the table's error rows, and how often each is there."""
    upper = shard.refresh().upper
    return {row[ERROR]: row[DIFF] for row in shard.errors(upper - 1).to_pylist()} if upper else {}


def problems_in_table(shard: ShardReader) -> dict[str, FileProblem]:
    """The problems that the error rows of a table name, by file."""
    return _by_file(errors_in_table(shard).items(), in_error=True)


def problems_in_dead_letters(shard: ShardReader) -> dict[str, FileProblem]:
    """The files that were refused as a whole, from the rows of a dead-letter table."""
    upper = shard.refresh().upper
    if upper == 0:
        return {}
    with shard.lease():
        found = [b.filter(_is_whole_file(b)) for b in _letters(shard, upper - 1)]
    letters = consolidate(pa.Table.from_batches(found)) if found else None
    if letters is None:
        return {}
    texts = zip(letters.column("record").to_pylist(), letters.column(DIFF).to_pylist(), strict=True)
    return {
        file: p for file, p in _by_file(texts, in_error=False).items() if p.code in FILE_CODES | {DEAD_LETTERS_LOST}
    }


def letters_of_file(shard: ShardReader, name: str) -> pa.Table:
    """The dead letters of a file: `file`, `record` and `__diff`, not consolidated."""
    schema = pa.schema([("file", pa.string()), ("record", pa.string()), (DIFF, pa.int64())])
    upper = shard.refresh().upper
    if upper == 0:
        return schema.empty_table()
    with shard.lease():
        found = [b.filter(pc.equal(b.column("file"), name)) for b in _letters(shard, upper - 1)]
    return pa.Table.from_batches(found, found[0].schema).cast(schema) if found else schema.empty_table()


def _letters(shard: ShardReader, as_of: int) -> Iterator[pa.RecordBatch]:
    for part in shard.snapshot_parts(as_of):
        yield from read_part(part, columns=["file", "record", DIFF])


def _is_whole_file(letters: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.ends_with(letters.column("record"), END_OF_LINE), False)


def letter_code(record: str | None) -> str:
    """The code in a dead letter about a file as a whole; empty for the text of a record."""
    return error_code(record) if record is not None and record.endswith(END_OF_LINE) else ""


def error_code(text: str) -> str:
    """The code in the text of an error."""
    return str(json.loads(text)["code"])


def _by_file(texts: Iterable[tuple[str, int]], *, in_error: bool) -> dict[str, FileProblem]:
    """`texts`: the JSON of errors, and how often each is there."""
    found: dict[str, FileProblem] = {}
    for text, count in texts:
        error = json.loads(text)
        code, file = str(error["code"]), str(error["expression"])
        known = found.get(file)
        if known is None:
            found[file] = FileProblem(code, count, in_error)
        else:
            found[file] = replace(known, code=code if code in FILE_CODES else known.code, count=known.count + count)
    return found
