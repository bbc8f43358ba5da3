"""The Iceberg catalogue that a ComputeInstance names, over the REST protocol of Iceberg.

    TIDEMARK_ICEBERG = {"uri": "https://catalogue/iceberg", "warehouse": "lake", "secret": "catalogue"}

The environment names a Secret of sourceSecrets, and never has its values. Its entries: `token`, or `credential`
(`client:secret` for OAuth 2, perhaps with `oauth2-server-uri` and `scope`). They are read at every connection.

Files beside the table are read and written through the table's own Storage, so a server's answer names no code to load
and no credentials to use. A request takes at most READ_SECONDS.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.table import Table

from tidemark_persist import Storage
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.storage.source_secrets import SecretUnusable, SourceSecrets

VARIABLE = "TIDEMARK_ICEBERG"
CONNECT_SECONDS, READ_SECONDS = 5.0, 15.0
ENTRIES = ("token", "credential", "oauth2-server-uri", "scope")


class IcebergFailed(DestinationStopped):
    """The Iceberg table was not written for now; the Delta table was."""

    def __init__(self, message: str, reason: str = "IcebergFailed") -> None:
        super().__init__(reason, message)


@dataclass(frozen=True)
class CatalogueSettings:
    """`secret`: the Secret with the credentials; empty: none."""

    uri: str
    warehouse: str = ""
    secret: str = ""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> CatalogueSettings | None:
        """The settings in the environment; None where the instance names no catalogue."""
        text = environ.get(VARIABLE)
        return cls(**json.loads(text)) if text else None

    def connect(self, secrets: SourceSecrets, storage: Storage) -> StorageCatalogue:
        """A connection, which asks the catalogue for its configuration. Its tables use files of `storage`. Raises
        IcebergFailed."""
        with catalogue_errors(secrets):
            given = secrets.read(self.secret) if self.secret else {}
            properties = {name: given[name] for name in ENTRIES if given.get(name)}
            if self.warehouse:
                properties["warehouse"] = self.warehouse
            return StorageCatalogue(storage, uri=self.uri, **properties)


@contextmanager
def catalogue_errors(secrets: SourceSecrets) -> Iterator[None]:
    """Raises what the catalogue or the way to it has against a request as IcebergFailed, without secrets."""
    try:
        yield
    except SecretUnusable as error:
        raise IcebergFailed(f"the Iceberg catalogue's {error}") from None
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        text = _line(error, secrets)
        raise IcebergFailed(f"the Iceberg catalogue refuses access: {text}: correct Secret or rights") from None
    except (RESTError, OSError, ValueError, NotImplementedError) as error:  # requests' errors are OSErrors
        raise IcebergFailed(f"the Iceberg catalogue failed: {_line(error, secrets)}") from None


def _line(error: BaseException, secrets: SourceSecrets) -> str:
    """The error without secrets. A malformed answer is not quoted: one with a token of OAuth would be."""
    text = "an answer or a setting is malformed" if isinstance(error, ValueError) else str(error)
    return " ".join(secrets.scrub(f"{type(error).__name__}: {text}").split())[:400]


class StorageCatalogue(RestCatalog):
    """The catalogue, for tables whose files are in one Storage."""

    def __init__(self, storage: Storage, **properties: str) -> None:
        self._storage = storage
        # no credentials of the server's: the files are those of the instance's storage
        super().__init__("tidemark", **properties, **{"header.X-Iceberg-Access-Delegation": ""})

    def _fetch_config(self) -> None:
        """Takes nothing from the server's configuration but the prefix of its paths: other properties name code that is
        loaded (auth), files, and addresses that credentials are sent to (uri, oauth2-server-uri)."""
        given, uri = dict(self.properties), self.uri
        super()._fetch_config()
        if isinstance(prefix := self.properties.get("prefix"), str):
            given["prefix"] = prefix
        self.properties, self.uri = given, uri

    def _create_legacy_oauth2_auth_manager(self, session: Any) -> Any:
        session.max_redirects = 0  # a redirected request for a token would have the credential
        # before the manager asks for a token
        setattr(session, "request", partial(session.request, timeout=(CONNECT_SECONDS, READ_SECONDS)))  # noqa: B010
        return super()._create_legacy_oauth2_auth_manager(session)

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> FileIO:
        return StorageIO(self._storage)

    def find_table(self, identifier: tuple[str, ...]) -> Table | None:
        """The table; None where there is none."""
        try:
            found: Table = self.load_table(identifier)
            return found
        except NoSuchTableError:
            return None

    def make_namespace(self, namespace: tuple[str, ...]) -> None:
        """Makes the namespace, with those that it lies in, where they are absent."""
        for end in range(1, len(namespace) + 1):
            self.create_namespace_if_not_exists(namespace[:end])


def url_of(storage: Storage) -> str:
    """The location as Iceberg names it."""
    return storage.location if storage.local_path is None else f"file://{storage.local_path}"


class StorageIO(FileIO):
    """The files of one Storage, by their full names."""

    def __init__(self, storage: Storage) -> None:
        super().__init__({})
        self._storage, self._root = storage, f"{url_of(storage)}/"

    def path(self, location: str) -> str:
        """The path in the Storage. Raises FileNotFoundError for a file elsewhere."""
        if not location.startswith(self._root) or ".." in location.split("/"):
            raise FileNotFoundError(f"{location} is not in {self._root}")
        return location.removeprefix(self._root)

    def new_input(self, location: str) -> InputFile:
        return _StoredFile(location, self._storage, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        return _StoredFile(location, self._storage, self.path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        self._storage.remove(self.path(name))


class _StoredFile(InputFile, OutputFile):
    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage, self._path = storage, path
        self._size: int | None = None

    def __len__(self) -> int:
        if self._size is None:
            found = self._storage.stat(self._path)
            self._size = found.size if found else 0
        return self._size

    def exists(self) -> bool:
        return self._storage.stat(self._path) is not None

    def open(self, seekable: bool = True) -> InputStream:
        if (data := self._storage.read(self._path)) is None:
            raise FileNotFoundError(f"{self.location} is gone")
        return io.BytesIO(data)

    def put(self, data: bytes) -> None:
        self._storage.write(self._path, data)
        self._size = len(data)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Written(self)


class _Written(io.BytesIO):
    """Writes the whole file when it is closed."""

    def __init__(self, of: _StoredFile) -> None:
        super().__init__()
        self._of = of

    def close(self) -> None:
        if not self.closed:
            self._of.put(self.getvalue())
        super().close()
