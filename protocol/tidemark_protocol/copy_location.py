"""The locations of copies: below one folder per namespace, inside the storage of the instance.

    <storage location>/<namespace>/_copies/<to>         a complete copy
    <storage location>/<namespace>/_copies/.staging/    unfinished attempts (in an object store: records of them)

SQL users may ask for copies, and must not write everywhere that a replica can: neither over shards nor into another
namespace. Shards lie beside the folder, under names of resources, which are DNS labels and never `_copies`.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

FOLDER, STAGING = "_copies", ".staging"
FORMATS = ("parquet", "csv")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}")
_MAX_SEGMENTS = 16
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]*")


def copies_folder(storage_location: str, namespace: str) -> str:
    """The folder of all copies of a namespace."""
    return f"{storage_location.rstrip('/')}/{namespace}/{FOLDER}"


def copy_location(folder: str, to: str) -> str:
    """The absolute location of `to`: a path relative to the folder, or an absolute path or file:/// URL below it.

    Raises:
        ValueError: `to` is not below the folder, or not a valid path.
    """
    to = to.removeprefix(f"{folder}/")
    if "://" in to and not to.startswith("file:///"):
        scheme = to.split("://")[0]
        raise ValueError(f"{scheme}:// is not supported: write copies below {folder}")
    path = unquote(urlsplit(to).path) if to.startswith("file:///") else to
    if path.startswith("/"):
        if not path.startswith(f"{folder}/"):
            raise ValueError(f"{path} is outside the folder for copies: give a path relative to {folder}")
        path = path.removeprefix(f"{folder}/")
    segments = path.rstrip("/").split("/")
    if len(segments) > _MAX_SEGMENTS or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise ValueError(
            f"{to!r:.200} is not a location for a copy: write a path of at "
            f"most {_MAX_SEGMENTS} names of letters, digits "
            "and _ - . ="
        )
    return f"{folder}/{'/'.join(segments)}"


def folder_of(storage_location: str, location: str) -> str:
    """The folder for copies that `location` is below; raises ValueError where it is below none of this storage."""
    storage = storage_location.rstrip("/")
    namespace, mark, _ = location.removeprefix(f"{storage}/").partition(f"/{FOLDER}/")
    if not location.startswith(f"{storage}/") or not mark or not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"{location} is not below the folder for copies of any namespace of {storage}")
    folder = copies_folder(storage, namespace)
    if copy_location(folder, location) != location:
        raise ValueError(f"{location} is not a location for a copy")
    return folder
