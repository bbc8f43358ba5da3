"""Places of files: an absolute path, or the same as a file:/// URL. Both become the plain path.

/var/lib/tidemark/  ->  /var/lib/tidemark        file:///data/a%20b  ->  /data/a b
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tidemark_operator.resources.errors import InvalidValue
from tidemark_operator.resources.fields import Fields


def local_path(fields: Fields, name: str) -> str:
    """The path at `name`, without a slash at its end."""
    text = fields.text(name)
    path = _path_of(fields.at(name), text).rstrip("/")
    if not path:
        raise InvalidValue(fields.at(name), "must not be the root directory")
    if {".", ".."} & set(path.split("/")):
        raise InvalidValue(fields.at(name), f"must not contain '.' or '..' segments: {text!r:.200}")
    return path


def _path_of(at: str, text: str) -> str:
    if text.startswith("/"):
        return text
    if not text.startswith("file:///"):
        raise InvalidValue(
            at,
            f"must be an absolute path or a file:/// URL, not {text!r:.200}; object stores such as s3:// are "
            "not supported by this version",
        )
    url = urlsplit(text)
    if url.query or url.fragment:
        raise InvalidValue(at, f"must be a plain file:/// URL, without ? or #: {text!r:.200}")
    return unquote(url.path)
