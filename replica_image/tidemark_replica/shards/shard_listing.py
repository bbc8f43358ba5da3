"""The call ListShards: the shards below a location, in pages, whoever has them.

    <location>/flights/readings/v1    name, part and version, as the operator places shards

A page ends after PAGE_SHARDS shards, or at the first name after PAGE_SECONDS: an object store takes a request for each
name and each part. A handle is opened for each shard of the page, and dropped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from tidemark_persist import PersistError, ShardNotFound, Storage, open_shard
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_replica.values.failure_text import public_text

PAGE_SHARDS = 100
PAGE_SECONDS = 10.0
THREADS = 8
_VERSION = re.compile(r"v\d{1,9}")
_AFTER_ALL = "\U0010ffff"
"""After every part of a name, in the order of code points."""

Address = tuple[str, ...]
"""Name, part and version."""


def list_shards(request: pb.ListShardsRequest) -> pb.ListShardsResponse:
    """A page of the shards below the location, but those that are left out; `error` where it cannot be listed."""
    location = request.location.rstrip("/")
    try:
        found, following = page(location, tuple(request.after.split("/")), frozenset(request.without))
    except (PersistError, OSError) as error:
        return pb.ListShardsResponse(error=public_text(error))
    with ThreadPoolExecutor(THREADS, thread_name_prefix="list-shards") as pool:
        listed = [shard for shard in pool.map(_described, found) if shard is not None]
    return pb.ListShardsResponse(shards=listed, next="/".join(following))


def page(location: str, after: Address, without: Collection[str]) -> tuple[list[str], Address]:
    """Locations of shards that come after an address, and the address after which the next page begins: empty where
    this one is the last. Raises PersistError."""
    began, found, last = time.monotonic(), list[str](), after
    storage = Storage.at(location)
    for name in sorted(storage.folders()):
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
            versions = sorted(v for v in storage.folders(f"{name}/{part}") if _VERSION.fullmatch(v))
            yield from ((name, part, v) for v in versions if (name, part, v) > after)


def _described(location: str) -> pb.ListedShard | None:
    """The shard; None where none is there, or it is deleted."""
    try:
        shard = open_shard(location)
    except ShardNotFound:
        return None
    except (PersistError, OSError) as error:
        return pb.ListedShard(location=location, error=public_text(error))
    return pb.ListedShard(location=location, owner=shard.shard_id, upper=shard.state().upper, bytes=shard.size().bytes)
