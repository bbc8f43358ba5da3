"""Places: of files on a disk, and of shards, which may be in an object store, too.

/var/lib/tidemark/  ->  /var/lib/tidemark        file:///data/a%20b  ->  /data/a b        for files and shards
s3://bucket/tables/ ->  s3://bucket/tables                                                for files and shards
/etc/tidemark/tls   ->  refused                                                           for files: they are the pod's
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_protocol.forbidden_source_folders import forbidden_folder

_S3 = "s3://"
# the characters that S3 calls safe: no such name means anything in a URL, so a location is the same in all tools
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SEGMENT = re.compile(r"[A-Za-z0-9!_.*()=-]+")


def files_location(fields: Fields, name: str) -> str:
    """The path at `name` where files may be read, or s3://bucket/prefix; without a slash at its end."""
    location = shard_location(fields, name)
    return readable(fields.at(name), location) if location.startswith("/") else location


def readable(at: str, path: str) -> str:
    """The path, if files may be read there. Raises InvalidValue."""
    if folder := forbidden_folder(path):
        raise InvalidValue(
            at, f"{path!r:.200} is in {folder}, whose files are the pod's own; put files elsewhere, such as /data"
        )
    return path


def published_location(fields: Fields, name: str) -> str:
    """The place at `name` of a table that others read: a path or s3://bucket/prefix, without a slash at its end."""
    location = files_location(fields, name)
    return _comparable(fields.at(name), location)


def publish_prefixes(fields: Fields, name: str) -> tuple[str, ...]:
    """The places at `name` below which tables may be published, each as in `published_location`; sorted."""
    at = fields.at(name)
    return tuple(sorted({_comparable(at, _location(at, text)) for text in fields.texts(name)}))


def overlaps(one: str, other: str) -> bool:
    """Whether one of the places is the other one, or in it."""
    return is_in(one, other) or is_in(other, one)


def is_in(inner: str, outer: str) -> bool:
    """Whether the place is the outer one, or below it."""
    return f"{normalised(inner)}/".startswith(f"{normalised(outer)}/")


def normalised(location: str) -> str:
    """A path without empty segments; a URL of an object store as it is, without a slash at its end. To compare places:
    manifests and plans keep the text that was given."""
    if "://" in location:
        return location.rstrip("/")
    return f"/{'/'.join(segment for segment in location.split('/') if segment)}"


def _comparable(at: str, location: str) -> str:
    """The location, if no other text means the same place, and it is in no folder of a table's own."""
    segments = location.removeprefix(_S3).removeprefix("/").split("/")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise InvalidValue(at, f"must have segments of letters, digits and !_.*()=-: {location!r:.200}")
    if own := next((segment for segment in segments if segment.startswith("_")), ""):
        raise InvalidValue(at, f"must not have segment {own!r:.80}: names with _ are of a table's own folders")
    return location


def shard_location(fields: Fields, name: str) -> str:
    """The path at `name`, or s3://bucket/prefix; without a slash at its end."""
    return _location(fields.at(name), fields.text(name))


def _location(at: str, text: str) -> str:
    if is_bucket(text):
        return checked_bucket(at, text)
    return _checked_path(at, text, "must be an absolute path, a file:/// URL or s3://bucket/prefix")


def is_bucket(location: str) -> bool:
    return location.startswith(_S3)


def checked_bucket(at: str, text: str) -> str:
    """The location s3://bucket/prefix, without a slash at its end. Raises InvalidValue."""
    bucket, *prefix = text.removeprefix(_S3).removesuffix("/").split("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidValue(at, f"must name a bucket, as s3://bucket/prefix does: {_safe(text)!r:.200}")
    if {".", ".."} & set(prefix) or not all(_SEGMENT.fullmatch(segment) for segment in prefix):
        raise InvalidValue(
            at, f"must be s3://bucket/prefix, the prefix of letters, digits and !_.*()=-: {_safe(text)!r:.200}"
        )
    return f"{_S3}{'/'.join((bucket, *prefix))}"


def _checked_path(at: str, text: str, need: str) -> str:
    path = _path_of(at, text, need).rstrip("/")
    if not path:
        raise InvalidValue(at, "must not be the root directory")
    if {".", ".."} & set(path.split("/")):
        raise InvalidValue(at, f"must not contain '.' or '..' segments: {text!r:.200}")
    return path


def _path_of(at: str, text: str, need: str) -> str:
    if text.startswith("/"):
        return text
    if not text.startswith("file:///"):
        raise InvalidValue(at, f"{need}, not {_safe(text)!r:.200}")
    url = urlsplit(text)
    if url.query or url.fragment:
        raise InvalidValue(at, f"must be a plain file:/// URL, without ? or #: {text!r:.200}")
    return unquote(url.path)


def _safe(text: str) -> str:
    """The location without the parts before an @ and behind a ?: people put credentials there."""
    return re.sub(r"\?.*", "?***", re.sub(r"//[^/]*@", "//***@", text), flags=re.DOTALL)
