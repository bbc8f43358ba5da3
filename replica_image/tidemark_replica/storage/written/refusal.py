"""The errors of writes.

IngestionError
├── WriteRefused        the call is wrong as it is; nothing was written
├── WriteNotPossible    not here, or not now: no ingestion of this table, or no room
└── WriteUnknown        the rows may have been written: the ingestion ended. The same call with the same key tells
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark_replica.storage.errors import IngestionError

TEXT_LENGTH_MAX = 500
NO_SUCH_TABLE, BAD_REQUEST = "NO_SUCH_TABLE", "BAD_REQUEST"
MALFORMED, UNKNOWN_FIELD, TOO_LARGE = "MALFORMED", "UNKNOWN_FIELD", "TOO_LARGE"
DUPLICATE_KEY, KEY_TWICE, KEY_NULL = "DUPLICATE_KEY", "KEY_TWICE", "KEY_NULL"
COLUMN_NULL = "COLUMN_NULL"
NO_PRIMARY_KEY, APPEND_ONLY = "NO_PRIMARY_KEY", "APPEND_ONLY"
ROWS_MISSING, KEY_NOT_UNIQUE = "ROWS_MISSING", "KEY_NOT_UNIQUE"
KEY_REUSED = "KEY_REUSED"


class WriteRefused(IngestionError):
    """The call is refused as a whole. `code`: in capitals, for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text[:TEXT_LENGTH_MAX]}")
        self.code, self.text = code, text


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Has refusals say which table of a call they are of."""
    try:
        yield
    except WriteRefused as refusal:
        raise WriteRefused(refusal.code, f"table {table:.80}: {refusal.text}") from None


class WriteNotPossible(IngestionError):
    """Nothing was written. `full`: for lack of room, so that the client should slow down."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full


class WriteUnknown(IngestionError):
    """The rows are written once or not at all."""
