"""The call ListShards: the shards below a location, in pages, whoever has them.

    <location>/flights/readings/v1           name, part and version, as the operator places shards
    <location>/_published/delays/delays      a published table: Dataflow and view; only where they are asked for
    <location>/_elsewhere/delays/0f3c...     the note of a published table at another location; where they are asked for

A page ends after PAGE_SHARDS shards, or at the first name after PAGE_SECONDS: an object store takes a request for each
name and each part. A handle is opened for each shard of the page, and dropped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark_persist import PersistError, ShardNotFound, Storage, open_shard
from tidemark_persist.storage.storage import TOMBSTONE
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.sinks.publish import ELSEWHERE, removal_id
from tidemark_protocol.plan.sinks.publish import FOLDER as PUBLISHED
from tidemark_replica.shards.published_notes import read_note
from tidemark_replica.values.failure_text import public_text

PAGE_SHARDS = 100
PAGE_SECONDS = 10.0
THREADS = 8
_VERSION = re.compile(r"v\d{1,9}")
_OF_TABLES = (PUBLISHED, ELSEWHERE)
_AFTER_ALL = "\U0010ffff"
"""A text after every part of a name, in the order of code points."""

Address = tuple[str, ...]
"""Name, part and version."""


def list_shards(request: pb.ListShardsRequest) -> pb.ListShardsResponse:
    """A page of the shards below the location, but those that are left out; `error` where it cannot be listed."""
    location = request.location.rstrip("/")
    try:
        names = [name for name, asked in ((PUBLISHED, request.published), (ELSEWHERE, request.elsewhere)) if asked]
        found, following = page(location, tuple(request.after.split("/")), frozenset(request.without), names)
    except (PersistError, OSError) as error:
        return pb.ListShardsResponse(error=public_text(error))
    with ThreadPoolExecutor(THREADS, thread_name_prefix="list-shards") as pool:
        listed = [shard for shard in pool.map(_described, found) if shard is not None]
    return pb.ListShardsResponse(shards=listed, next="/".join(following))


def page(
    location: str, after: Address, without: Collection[str], tables: Collection[str] = ()
) -> tuple[list[str], Address]:
    """Locations of shards that come after an address, and the address after which the next page begins: empty where
    this one is the last. `tables`: the folders of published tables, and of notes, that are listed, too. Raises
    PersistError."""
    began, found, last = time.monotonic(), list[str](), after
    storage = Storage.at(location)
    for name in sorted(storage.folders()):
        if name in _OF_TABLES and name not in tables:
            continue
        if time.monotonic() - began > PAGE_SECONDS and last != after:
            return found, last
        for address in _of_name(storage, name, after):
            if len(found) == PAGE_SHARDS:
                return found, last
            last = address
            if (there := f"{location}/{'/'.join(address)}") not in without:
                found.append(there)
        last = max(last, (name, _AFTER_ALL))
    return found, ()


def _of_name(storage: Storage, name: str, after: Address) -> Iterator[Address]:
    """The addresses of shards of one name, in order."""
    if (name, _AFTER_ALL) <= after:
        return
    for part in sorted(storage.folders(name)):
        if (name, part, _AFTER_ALL) > after:
            found = storage.folders(f"{name}/{part}")
            versions = sorted(v for v in found if name in _OF_TABLES or _VERSION.fullmatch(v))
            yield from ((name, part, v) for v in versions if (name, part, v) > after)


def _described(location: str) -> pb.ListedShard | None:
    """The shard or published table; None where none is there, or it is deleted."""
    kind = location.split("/")[-3]  # the first name of the address: the storage itself may lie anywhere
    if kind == PUBLISHED:
        return _described_table(location)
    if kind == ELSEWHERE:
        return _described_note(location)
    try:
        shard = open_shard(location)
    except ShardNotFound:
        return None
    except (PersistError, OSError) as error:
        return pb.ListedShard(location=location, error=public_text(error))
    return pb.ListedShard(location=location, owner=shard.shard_id, upper=shard.state().upper, bytes=shard.size().bytes)


def _described_table(location: str) -> pb.ListedShard | None:
    """A published table, under the id by which it is deleted; None where none is there, or it is being deleted."""
    storage = Storage.at(location)
    try:
        if storage.read_json(TOMBSTONE) is not None:
            return None
        with storage.errors("opening the table"):
            table = DeltaTable(storage.location, storage_options=storage.settings)
            owner, sizes = table.metadata().name, pa.table(table.get_add_actions()).column("size_bytes")
    except TableNotFoundError:
        return None
    except (PersistError, OSError) as error:
        return pb.ListedShard(location=location, error=public_text(error))
    id = removal_id("", owner or "", location)
    return pb.ListedShard(location=location, owner=id, bytes=pc.sum(sizes).as_py() or 0)


def _described_note(folder: str) -> pb.ListedShard | None:
    """The table that a note names, at `table`; None where none is there, or it is another one's."""
    try:
        note = read_note(folder)
    except (PersistError, OSError) as error:
        return pb.ListedShard(location=folder, error=public_text(error))
    found = None if note is None else _described_table(note.location)
    if note is None or found is None:
        return None
    id = removal_id("", note.owner, note.location)
    if not found.error and found.owner != id:
        return None
    return pb.ListedShard(location=folder, table=note.location, owner=id, bytes=found.bytes, error=found.error)
