"""The note of the Iceberg tables that name the files of a published table, beside these.

    <location>/_iceberg/tidemark.json    {"tables": ["sales.spent"]}

It is written before the first commit to a catalogue. So whoever deletes the published table, or publishes it under
another name or as no Iceberg table any more, finds what to drop.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_persist import Storage

FOLDER = "_iceberg"
_NOTE = f"{FOLDER}/tidemark.json"


def noted_tables(storage: Storage) -> tuple[str, ...]:
    """The names that the note has. Raises StorageError."""
    note = storage.read_json(_NOTE)
    return tuple(note["tables"]) if note else ()


def note_tables(storage: Storage, tables: Iterable[str]) -> None:
    """Replaces the note. Raises StorageError."""
    storage.write_json(_NOTE, {"tables": sorted(tables)})
