"""What is wrong with files, as the shards of a table have it.

table          error rows  {"code": "SCHEMA_MISMATCH", "expression": "1.csv"}      onBadRecord: error
dead letters   (file, the text of a malformed record)                              onBadRecord: deadLetter
               (file, {"code": "SCHEMA_MISMATCH", "expression": "1.csv"})          the file as a whole
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, Shard, consolidate, read_part

FILE_CODES = frozenset({"FILE_MISSING", "FILE_CHANGED", "FILE_UNREADABLE", "SCHEMA_MISMATCH"})
"""The codes of files that are refused as a whole (`checks.py`)."""
MALFORMED = "MALFORMED_RECORD"


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file: a code, and how often it is there. `in_error`: as error rows of the table."""

    code: str
    count: int
    in_error: bool


def problems_in_table(shard: Shard) -> dict[str, Problem]:
    """The problems that the error rows of a table name, by file."""
    upper = shard.refresh().upper
    if upper == 0:
        return {}
    errors = shard.errors(upper - 1)
    return _by_file(zip(errors.column(ERROR).to_pylist(), errors.column(DIFF).to_pylist(), strict=True), in_error=True)


def problems_in_dead_letters(shard: Shard) -> dict[str, Problem]:
    """The files that were refused as a whole, by the rows of a dead-letter table."""
    upper = shard.refresh().upper
    if upper == 0:
        return {}
    with shard.lease():
        found = [b.filter(_is_whole_file(b)) for b in _letters(shard, upper - 1)]
    letters = consolidate(pa.Table.from_batches(found)) if found else None
    if letters is None:
        return {}
    texts = zip(letters.column("record").to_pylist(), letters.column(DIFF).to_pylist(), strict=True)
    return {file: p for file, p in _by_file(texts, in_error=False).items() if p.code in FILE_CODES}


def _letters(shard: Shard, as_of: int) -> Iterator[pa.RecordBatch]:
    for part in shard.snapshot_parts(as_of):
        yield from read_part(part, columns=["file", "record", DIFF])


def _is_whole_file(letters: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.starts_with(letters.column("record"), '{"code":"'), False)


def _by_file(texts: Iterable[tuple[str, int]], *, in_error: bool) -> dict[str, Problem]:
    """`texts`: the JSON of errors, and how often each is there."""
    found: dict[str, Problem] = {}
    for text, count in texts:
        try:
            error = json.loads(text)
            code, file = str(error["code"]), str(error["expression"])
        except (ValueError, KeyError, TypeError):
            continue  # a dead letter that looks like an error and is none
        known = found.get(file)
        if known is None:
            found[file] = Problem(code, count, in_error)
        else:
            found[file] = replace(known, code=code if code in FILE_CODES else known.code, count=known.count + count)
    return found
