"""Notes of tables at chosen locations, beside the shards: so those that nobody publishes any more are found and listed.

    <storage>/<namespace>/_elsewhere/<dataflow>/<hash of the location>/table.json    {"location": ..., "owner": ...}

A note is written before the table: a table without one would be found by nobody. One without a table means nothing, and
goes with the deletion of its table.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tidemark_persist import NotJson, Storage, StorageError
from tidemark_protocol.plan.sinks.publish import ELSEWHERE, location_hash

_FILE = "table.json"


@dataclass(frozen=True)
class Note:
    """A table's location, and the view that it is of, as `namespace.dataflow.view`."""

    location: str
    owner: str


def write_note(shard_location: str, note: Note) -> None:
    """Writes the note of a table of the view whose shard is at <root>/<dataflow>/<view>/<version>. Raises
    StorageError."""
    root, dataflow, _, _ = shard_location.rsplit("/", 3)
    folder = Storage.at(f"{root}/{ELSEWHERE}/{dataflow}/{location_hash(note.location)}")
    if folder.local_path is not None:
        folder.local_path.mkdir(parents=True, exist_ok=True)
    folder.write_json(_FILE, {"location": note.location, "owner": note.owner})


def read_note(folder: str) -> Note | None:
    """The note in a folder; None where there is none. Raises StorageError, also where it is damaged."""
    with suppress(NotJson):
        match Storage.at(folder).read_json(_FILE):
            case None:
                return None
            case {"location": str(location), "owner": str(owner)}:
                return Note(location, owner)
    raise StorageError(
        f"{folder}/{_FILE} is no note of a published table: another program wrote it, or it is damaged; delete the file"
    )


def remove_note(storage_location: str, note: Note) -> None:
    """Removes the note of a table that is gone, unless another view of the Dataflow has a table there by now. A damaged
    note names nothing, and goes: a view that is published there writes its note again. `storage_location`: of the
    instance. Raises StorageError."""
    namespace, _, rest = note.owner.partition(".")
    dataflow = rest.rpartition(".")[0]
    root = f"{storage_location.rstrip('/')}/{namespace}"
    folder = Storage.at(f"{root}/{ELSEWHERE}/{dataflow}/{location_hash(note.location)}")
    with suppress(NotJson):
        match folder.read_json(_FILE):
            case {"owner": str(owner)} if owner != note.owner:
                return
    folder.remove(_FILE)
    folder.remove_empty_folders()
