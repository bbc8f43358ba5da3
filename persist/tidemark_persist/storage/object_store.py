"""S3-compatible object stores: the form of locations, the settings they are opened with, and errors without secrets.

    s3://bucket/prefix      the location, and nothing else
    AWS_* variables         endpoint, region, credentials (or the files and services that these variables name)
    PATIENCE                how long one request may take, retries included
    REFUSED                 settings under which two writers could both win a commit

A commit is a conditional PUT (`If-None-Match: *`): the server accepts one of several. Locations and errors have no
credentials: servers repeat what was signed, so only the code and the message of an answer are kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from tidemark_persist.errors import InvalidLocation, StoreProblem

SCHEME = "s3"
# a request that hangs is cancelled; callers retry (log/transact.py)
PATIENCE = {"connect_timeout": "5s", "timeout": "15s", "max_retries": "2", "retry_timeout": "20s"}
CONDITIONAL_PUT = {"aws_conditional_put": "etag"}
REFUSED = ("s3_allow_unsafe_rename", "s3_locking_provider", "copy_if_not_exists", "conditional_put")
SECRETS = ("access_key_id", "secret_access_key", "session_token")

_HARMLESS = {"s3_allow_unsafe_rename": ("", "false", "0", "no"), "conditional_put": ("etag",)}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"(<\?xml.*?\?>\s*)?<Error>.*?(</Error>|$)", re.DOTALL)
_TELLING = re.compile(r"<(Code|Message)>(.*?)</")
_MOST = 600
_STATUS = re.compile(r"status code: (\d+)")
# some servers say 404 with it, as if something else were missing
_NOBODY = ("XAdminUserNotFound", "InvalidAccessKeyId")


def check_location(location: str) -> None:
    """Raises InvalidLocation unless the location is a path, a file:// URL or s3://bucket/prefix."""
    if "://" not in location or location.startswith("file://"):
        return
    url = urlsplit(location)
    if url.scheme != SCHEME:
        raise InvalidLocation(f"{url.scheme}:// is not supported: a location is a path, or s3://bucket/prefix")
    if "@" in url.netloc or url.query or url.fragment:
        raise InvalidLocation(
            f"location s3://.../{url.path.strip('/')} has credentials or options; use s3://bucket/prefix and set AWS_* "
            "variables instead"
        )
    if not url.netloc:
        raise InvalidLocation(f"{location} names no bucket: a location is s3://bucket/prefix")


def settings(given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings for delta-rs, which itself reads AWS_* variables that `given` does not have. Raises
    InvalidLocation."""
    for name, value in _named_settings(given, environ):
        if name in REFUSED and value.lower() not in _HARMLESS.get(name, ()):
            raise InvalidLocation(
                f"AWS_{name.upper()} is set: with it two writers could both win a commit. "
                "Unset it: commits are conditional PUTs, which do not need it"
            )
    return {**PATIENCE, **given, **CONDITIONAL_PUT}


def redacted(error: BaseException, given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> str:
    """The error on one line, without credentials and without the signed request that a server repeats."""
    text = _ANSWER.sub(_code_and_message, _COLOURS.sub("", str(error)).partition("Debug source:")[0])
    for name, value in _named_settings(given, environ):
        if name in SECRETS and value:
            text = text.replace(value, "***")
    return " ".join(text.replace("↳", ":").split()).replace(" :", ":")[:_MOST]


def problem(text: str) -> StoreProblem | None:
    """The known problem of a redacted error text; None where it is no known one."""
    status = _STATUS.search(text)
    if status is None:
        return StoreProblem.UNREACHABLE if "error sending request" in text else None
    if status[1] in ("401", "403") or any(code in text for code in _NOBODY):
        return StoreProblem.DENIED
    return StoreProblem.NO_BUCKET if "NoSuchBucket" in text else None


def _named_settings(given: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """All settings, by their names in lower case without `aws_`."""
    for name, value in (*given.items(), *environ.items()):
        key = name.lower()
        if key.startswith("aws_") or name in given:
            yield key.removeprefix("aws_"), value


def _code_and_message(answer: re.Match[str]) -> str:
    return ": ".join(text for _, text in _TELLING.findall(answer.group(0)))
