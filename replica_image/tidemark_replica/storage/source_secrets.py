"""The Secrets of sources: those that spec.sourceSecrets of the ComputeInstance lists, mounted as files.

    TIDEMARK_SOURCE_SECRETS = FOLDER
    FOLDER/orders-db/..data ──► ..2026_01_31_12_00_00/{username, password}    replaced as a whole at each change

A source reads a Secret anew at every connection, so changed values count without a restart. Errors of servers and
libraries quote users, passwords and URLs: `scrub` replaces each value that was read by the name of its entry. Every
text that leaves the ingestion (status, log, answer to an inspection) passes through it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from tidemark_persist import StorageError
from tidemark_persist.storage.mounted_files import read_files
from tidemark_replica.storage.errors import IngestionError

VARIABLE = "TIDEMARK_SOURCE_SECRETS"
SCRUBBED_LENGTH_MIN, WORD_LENGTH_MAX = 4, 7
"""Values that are shorter are not replaced in texts: they would hit every second word. Values up to the second length
are replaced where they are whole words."""
VERSIONS_SCRUBBED = 2
"""The present values of a Secret, and those before: a connection of before may still fail."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_LIST_IT = "list it in spec.sourceSecrets of the ComputeInstance"


class SecretUnusable(IngestionError):
    """A Secret is not mounted, lacks an entry, or cannot be read. The message names the Secret and the entry."""


class SecretEntries(dict[str, str]):
    """The entries of a Secret. Its text form has no values. Raises SecretUnusable for a key that is missing."""

    def __init__(self, secret: str, entries: Mapping[str, str], binary: frozenset[str]) -> None:
        super().__init__(entries)
        self._secret, self._binary = secret, binary

    def __missing__(self, key: str) -> str:
        problem = "is not UTF-8 text: write it as text" if key in self._binary else "is missing: add it to the Secret"
        raise SecretUnusable(f"entry {key} of Secret {self._secret} {problem}")

    def __repr__(self) -> str:
        return f"SecretEntries({self._secret}: {', '.join(sorted(self))})"

    __str__ = __repr__


class SourceSecrets:
    """The mounted Secrets; safe to use from any thread. `folder` None: the instance lists none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._read: dict[str, list[SecretEntries]] = {}
        self._markers: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> SourceSecrets:
        """The Secrets in the folder that the environment names."""
        return cls(Path(environ[VARIABLE]) if environ.get(VARIABLE) else None)

    def read(self, name: str) -> SecretEntries:
        """The present entries, all of one moment; one line end after a value is no part of it. Raises SecretUnusable
        where the Secret is not listed, absent, too large or unreadable. A key that is missing raises it when it is
        asked for: `read("db")["password"]`."""
        if self._folder is None or not _NAME.fullmatch(name):
            raise SecretUnusable(f"Secret {name} is not mounted in this replica: {_LIST_IT}")
        try:
            files = read_files(self._folder / name)
        except StorageError:
            raise SecretUnusable(f"Secret {name} is larger than 1 MiB: remove what the source does not need") from None
        except OSError as error:
            raise SecretUnusable(f"Secret {name} cannot be read: {os.strerror(error.errno or 0)}") from None
        if files is None:
            raise SecretUnusable(f"Secret {name} is not mounted in this replica yet, or not at all: {_LIST_IT}")
        if not files.contents:
            raise SecretUnusable(f"Secret {name} does not exist or is empty: create it in the instance's namespace")
        entries = _entries(name, files.contents)
        self._remember(name, entries)
        return entries

    def scrub(self, text: str) -> str:
        """The text with every value that was read replaced by the names of its Secret and entry."""
        pattern, markers = self._pattern, self._markers
        return text if pattern is None else pattern.sub(lambda found: markers.get(found[0], "***"), text)

    def _remember(self, name: str, entries: SecretEntries) -> None:
        with self._lock:
            known = self._read.get(name, [])
            if entries in known[-1:]:
                return
            self._read[name] = [*known, entries][-VERSIONS_SCRUBBED:]
            markers = {
                value: f"<{key} of Secret {secret}>"
                for secret, versions in self._read.items()
                for each in versions
                for key, entry in each.items()
                for value in _spellings(entry)
            }
            # a longer value may contain a shorter one
            patterns = [_pattern_of(value) for value in sorted(markers, key=len, reverse=True)]
            self._markers = markers
            self._pattern = re.compile("|".join(patterns)) if patterns else None


class SecretFilter(logging.Filter):
    """Scrubs the records of a log handler, tracebacks included."""

    def __init__(self, secrets: SourceSecrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._secrets.scrub(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._secrets.scrub(record.exc_text)
        return True


def _entries(secret: str, contents: Mapping[str, bytes]) -> SecretEntries:
    texts, binary = {}, set()
    for key, value in contents.items():
        try:
            texts[key] = value.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            binary.add(key)
    return SecretEntries(secret, texts, frozenset(binary))


def _spellings(value: str) -> set[str]:
    """The lines of the value, as texts quote them: plain, escaped as in Python, and percent-encoded as in a URL.
    Certificates are public, and lines that frame a PEM block say nothing."""
    lines = {line.strip() for line in _CERTIFICATE.sub("", value).splitlines() if not line.startswith("-----")}
    plain = {line for line in lines if len(line) >= SCRUBBED_LENGTH_MIN}
    return plain | {spelt for each in plain for spelt in (repr(each)[1:-1], quote(each, safe=""), quote_plus(each))}


def _pattern_of(value: str) -> str:
    escaped = re.escape(value)
    return escaped if len(value) > WORD_LENGTH_MAX else rf"(?<![\w-]){escaped}(?![\w-])"
