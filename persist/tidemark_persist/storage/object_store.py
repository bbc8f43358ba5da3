"""S3-compatible object stores: what a location may say, what they are opened with, and what of their errors is told.

    s3://bucket/prefix      where, and nothing else
    AWS_* variables         how: endpoint, region, credentials (or the files and services that these variables name)
    PATIENCE                how long one request may take, retries included
    REFUSED                 settings under which two writers could both win a commit

A commit is a conditional PUT (`If-None-Match: *`): the server lets one of several through. Credentials are in no
location, and in no error either: servers repeat what was signed, so of an answer only its code and message are told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from tidemark_persist.errors import InvalidLocation, StoreProblem

SCHEME = "s3"
# a request that hangs is given up, and what is left of a retry is the caller's: see log/transact.py
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
    """`InvalidLocation` unless it is a path, a file:// URL or s3://bucket/prefix."""
    if "://" not in location or location.startswith("file://"):
        return
    url = urlsplit(location)
    if url.scheme != SCHEME:
        raise InvalidLocation(f"{url.scheme}:// is not supported: a location is a path, or s3://bucket/prefix")
    if "@" in url.netloc or url.query or url.fragment:
        raise InvalidLocation(
            f"a location is s3://bucket/prefix and nothing more; one with credentials or options was given: "
            f"s3://.../{url.path.strip('/')}: set AWS_* variables instead"
        )
    if not url.netloc:
        raise InvalidLocation(f"{location} names no bucket: a location is s3://bucket/prefix")


def settings(given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What delta-rs opens the store with; it adds the AWS_* variables that `given` does not set by itself."""
    for name, value in _named_settings(given, environ):
        if name in REFUSED and value.lower() not in _HARMLESS.get(name, ()):
            raise InvalidLocation(
                f"AWS_{name.upper()} is set: with it two writers could both win a commit, or neither would know. "
                "Unset it: commits are conditional PUTs, which need nothing of the kind"
            )
    return {**PATIENCE, **given, **CONDITIONAL_PUT}


def redacted(error: BaseException, given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> str:
    """The error in one line, without credentials and without what a server repeats of a signed request."""
    text = _ANSWER.sub(_code_and_message, _COLOURS.sub("", str(error)))
    for name, value in _named_settings(given, environ):
        if name in SECRETS and value:
            text = text.replace(value, "***")
    return " ".join(text.replace("↳", ":").split()).replace(" :", ":")[:_MOST]


def problem(text: str) -> StoreProblem | None:
    """What is wrong, from an error as `redacted`; None where that is not of the known kinds."""
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
