"""Reads objects of other writers: listed in the order of their names, and read only in the version that was listed.

    pages(after="b")   ──►  c, d, e ...           from a name on, a thousand a request
    read(object, 0, n) ──►  bytes of this ETag    or ObjectChanged, FileNotFoundError

delta-rs's file system has neither (it starts each listing at the beginning, and has no conditional GET), so this is
obstore, over the same Rust client, with the same settings. No call holds Python's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from tidemark_persist.storage import object_store
from tidemark_persist.storage.storage import Storage

PAGE = 1000
"""Objects in one answer of a listing."""
CLIENTS = 64
"""Clients of locations that a process keeps; to make one takes five milliseconds."""
_LAST = "\U0010ffff"
_KEYS = frozenset(
    "access_key_id secret_access_key session_token region default_region endpoint endpoint_url"
    " virtual_hosted_style_request skip_signature imdsv1_fallback metadata_endpoint".split()
)


_REFUSED = (
    "; where other objects can be read, permit this one (its policy, or the key that encrypts it), or delete it: its "
    "file is FILE_MISSING then"
)


class ObjectChanged(Exception):
    """The object is in another version than was asked for."""


class ObjectArchived(OSError):
    """The object is listed, but its bytes must be restored from an archive before they can be read."""


@dataclass(frozen=True)
class ObjectVersion:
    """An object directly below the location. `etag` is empty where the store has none."""

    name: str
    size: int
    modified_ns: int
    etag: str


class ObjectReader:
    """The objects below `storage`'s location, for reading."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def pages(self, after: str = "") -> Iterator[tuple[list[ObjectVersion], str]]:
        """The objects whose names come after `after`, in order, and the place from which a listing goes on behind
        them; one request for each page. Objects in folders below are left out. Raises StorageError."""
        while True:
            with self._errors("listing it"):
                for page in obstore.list(self._store(), offset=after or None, chunk_size=PAGE):
                    # the path of a marker `a/` is `a`, though `a-b` is listed before it
                    after = max(after, *(meta["path"] for meta in page))
                    in_folder = "/" in after
                    if in_folder:
                        # a folder's objects are passed over, however many there are
                        after = f"{after.partition('/')[0]}/{_LAST}"
                    yield [_version(meta) for meta in page if "/" not in meta["path"]], after
                    if in_folder:
                        break
                else:
                    return

    def version_of(self, name: str) -> ObjectVersion | None:
        """The present version; None if there is no object. Raises StorageError."""
        try:
            with self._errors(f"reading the status of {name}"):
                return _version({**obstore.head(self._store(), name), "path": name})
        except FileNotFoundError:
            return None

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """The bytes [start, end) of this version. Raises FileNotFoundError, ObjectChanged, ObjectArchived,
        StorageError."""
        options: dict[str, Any] = {"range": (start, end)}
        if version.etag:
            options["if_match"] = version.etag
        with self._errors(f"reading {version.name}", refused=_REFUSED):
            result = obstore.get(self._store(), version.name, options=options)  # type: ignore[arg-type]
            found = _version({**result.meta, "path": version.name})
            same = found.etag == version.etag if version.etag else found == version
            if not same or found.size != version.size:
                raise ObjectChanged(version.name)
            return bytes(result.bytes())

    def _store(self) -> S3Store:
        """The client that this process keeps for the location; another one where the settings are others now."""
        environ = ((name, value) for name, value in os.environ.items() if name.lower().startswith("aws_"))
        return _client(self._storage.location, frozenset(self._storage.settings.items()), frozenset(environ))

    @contextmanager
    def _errors(self, doing: str, refused: str = "") -> Iterator[None]:
        """Failures of the store as StorageError, FileNotFoundError, ObjectChanged or ObjectArchived. `refused`: the
        advice where the store denies it."""
        try:
            yield
        except PreconditionError:
            raise ObjectChanged(self._storage.location) from None
        except (NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise self._storage.failed(doing, error) from None
            raise FileNotFoundError(f"{self._storage.location}: {doing}: there is no such object") from None
        except PermissionDeniedError as error:
            if "<Code>InvalidObjectState</Code>" in str(error):
                raise ObjectArchived(f"{self._storage.location}: {doing}: it is archived; restore it first") from None
            raise self._storage.failed(doing, error, refused) from None
        except BaseError as error:
            # the traceback would show what the text leaves out
            raise self._storage.failed(doing, error) from None


def _version(meta: Mapping[str, Any]) -> ObjectVersion:
    modified = int(meta["last_modified"].timestamp()) * 1_000_000_000 + meta["last_modified"].microsecond * 1000
    return ObjectVersion(meta["path"], meta["size"], modified, meta["e_tag"] or "")


@lru_cache(CLIENTS)
def _client(location: str, settings: frozenset[tuple[str, str]], environ: frozenset[tuple[str, str]]) -> S3Store:
    return open_store(location, dict(settings))


def open_store(location: str, settings: Mapping[str, str]) -> S3Store:
    """The client for the objects below a location. Other AWS_* variables of the environment count as well."""
    url = urlsplit(location)
    named = {k.lower().removeprefix("aws_"): v for k, v in settings.items()}
    plain = named.get("allow_http", os.environ.get("AWS_ALLOW_HTTP", ""))
    return S3Store(
        url.netloc,
        prefix=url.path.strip("/") or None,
        config={key: value for key, value in named.items() if key in _KEYS},  # type: ignore[arg-type]
        client_options={
            "connect_timeout": object_store.PATIENCE["connect_timeout"],
            "timeout": object_store.PATIENCE["timeout"],
            "allow_http": plain.lower() in ("1", "true", "yes"),
        },
        retry_config={
            "max_retries": int(object_store.PATIENCE["max_retries"]),
            "retry_timeout": timedelta(seconds=float(object_store.PATIENCE["retry_timeout"].removesuffix("s"))),
        },
    )
