"""The file that a row lies in: the files of a table are the leaves of a binary tree over the hash of the row.

    prefix ""      any row
    prefix "01"    rows whose hash begins with the bits 01            part-01-<unique>.parquet

A row may lie in any file whose prefix its hash begins with, so a file that grows is divided in two by itself, and a
file of another program, whose name has no prefix, may hold any row.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidemark_persist.files.spill import row_hash

BITS_MAX = 16
_NAME = re.compile(r"part-([01]*)-[0-9a-f]{32}\.parquet")
_HASH_BITS = 64


def new_file_name(prefix: str) -> str:
    """A unique name for a data file of rows with the prefix."""
    return f"part-{prefix}-{uuid.uuid4().hex}.parquet"


def is_data_file(path: str) -> bool:
    """Whether the name is one that `new_file_name` gives."""
    return _NAME.fullmatch(path) is not None


def prefix_of(path: str) -> str:
    """The prefix of the hashes of all rows of the file; empty where its name has none."""
    named = _NAME.fullmatch(path)
    return named[1] if named else ""


def hashes(rows: pa.Table) -> np.ndarray:
    """A hash of each row, uint64, without `__diff`. Arrays and structs do not count: rows that differ in nothing else
    are in one file."""
    return row_hash(rows)


def have_prefix(of: np.ndarray, prefix: str) -> np.ndarray:
    """The mask of the hashes that begin with the prefix, bool."""
    if not prefix:
        return np.ones(len(of), bool)
    found: np.ndarray = of >> np.uint64(_HASH_BITS - len(prefix)) == np.uint64(int(prefix, 2))
    return found


def first_bits(of: np.ndarray, bits: int) -> np.ndarray:
    """The number that the first bits of each hash are, int64."""
    if not bits:
        return np.zeros(len(of), np.int64)
    return (of >> np.uint64(_HASH_BITS - bits)).astype(np.int64)


def longest(of: np.ndarray, prefixes: Iterable[str]) -> list[tuple[str, np.ndarray]]:
    """The hashes by the longest of the prefixes that they begin with, or "": each prefix with the positions of its
    hashes, which are not empty."""
    left = np.arange(len(of))
    groups = []
    for prefix in sorted({*prefixes, ""}, key=len, reverse=True):
        chosen = have_prefix(of[left], prefix)
        if chosen.any():
            groups.append((prefix, left[chosen]))
            left = left[~chosen]
    return groups


def all_prefixes(bits: int) -> list[str]:
    """The prefixes of this length, in the order of `first_bits`."""
    return [format(number, f"0{bits}b") if bits else "" for number in range(1 << bits)]
