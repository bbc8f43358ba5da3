"""Where copies may be written: below one folder per namespace, inside the instance's storage.

    <storage location>/<namespace>/_copies/<to>         complete, or not there
    <storage location>/<namespace>/_copies/.staging/    attempts under way (in an object store: notes of them)

Whoever may ask for a copy is a user of SQL, and must not write just anywhere a replica can: not over shards, which are
beside it under names of resources (DNS labels, so none is called `_copies`), nor into another namespace.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

FOLDER, STAGING = "_copies", ".staging"
FORMATS = ("parquet", "csv")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}")
_SEGMENTS_MOST = 16
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]*")


def copies_folder(storage_location: str, namespace: str) -> str:
    """The folder that all copies of a namespace are below."""
    return f"{storage_location.rstrip('/')}/{namespace}/{FOLDER}"


def copy_location(folder: str, to: str) -> str:
    """`to`, a path relative to the folder or a whole one below it, as a whole one; raises ValueError, saying why not.

    A whole one may also be a file:/// URL.
    """
    to = to.removeprefix(f"{folder}/")
    if "://" in to and not to.startswith("file:///"):
        scheme = to.split("://")[0]
        raise ValueError(f"{scheme}:// is not supported by this version: copies are written below {folder}")
    path = unquote(urlsplit(to).path) if to.startswith("file:///") else to
    if path.startswith("/"):
        if not path.startswith(f"{folder}/"):
            raise ValueError(f"a copy is written below {folder}, and {path} is not: give a path relative to it")
        path = path.removeprefix(f"{folder}/")
    segments = path.rstrip("/").split("/")
    if len(segments) > _SEGMENTS_MOST or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ValueError(
            f"{to!r:.200} is no place for a copy: a path of at most {_SEGMENTS_MOST} names of letters, digits, and "
            "_ - . = inside is"
        )
    return f"{folder}/{'/'.join(segments)}"


def folder_of(storage_location: str, location: str) -> str:
    """The folder for copies that `location` is below; raises ValueError where it is below none of this storage."""
    storage = storage_location.rstrip("/")
    namespace, mark, _ = location.removeprefix(f"{storage}/").partition(f"/{FOLDER}/")
    if not location.startswith(f"{storage}/") or not mark or not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{location} is not below the folder for copies of a namespace of {storage}")
    folder = copies_folder(storage, namespace)
    if copy_location(folder, location) != location:
        raise ValueError(f"{location} is no place for a copy")
    return folder
