"""Lets the Iceberg table of a view follow its Delta table, where the view asks for one. It never fails: the problem is
said beside the Delta table's progress, and the step is tried again after a pause.

The libraries of Iceberg are loaded where a view asks for a table, or has left one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark_persist import ShardId, Storage
from tidemark_protocol.ids import Time
from tidemark_replica.retry import MAX_SECONDS, Backoff
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.published.iceberg_notes import note_tables, noted_tables
from tidemark_replica.sinks.published.published_table import TableOptions
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.values.failure_text import public_text

if TYPE_CHECKING:
    from tidemark_replica.sinks.published.iceberg_mirror import IcebergMirror

SHARE_OF_TIME = 4
"""A failed step is repeated after so many times as long as it took."""


@dataclass(frozen=True)
class Followed:
    """`time`: of the rows of the Iceberg table, as it was seen last. `problem`, `reason`: why it is not equal; empty
    where it is, or where there is to be none. `again_seconds`: after so long it is to be looked at again; 0: with the
    next publication."""

    time: Time | None = None
    problem: str = ""
    reason: str = ""
    again_seconds: float = 0.0


@dataclass
class IcebergFollower:
    """`table`: in the catalogue; empty: none, and what is left of an earlier one is dropped."""

    table: str
    secrets: SourceSecrets
    _backoff: Backoff = field(default_factory=Backoff)
    _settled: bool = False
    """Whether the note names this table alone: no other one names the files."""
    _last: Followed = Followed()

    def follow(self, options: TableOptions, contents: ShardId) -> Followed:
        """Makes the Iceberg table equal to the Delta table, unless a pause after a failure goes on."""
        if not self._backoff.has_elapsed:
            return self._last
        began = time.monotonic()
        try:
            at = self._follow(options, contents)
        except Exception as error:  # a catalogue's or another program's malformed documents, too
            self._backoff.failed(SHARE_OF_TIME * (time.monotonic() - began))
            reason = error.reason if isinstance(error, DestinationStopped) else "IcebergFailed"
            self._last = Followed(self._last.time, public_text(error), reason, MAX_SECONDS)
        else:
            self._backoff.reset()
            self._last = Followed(at)
        return self._last

    def clean(self, options: TableOptions) -> None:
        """Deletes files that no snapshot refers to any more. Raises PersistError, OSError."""
        self._settled = False  # a deletion of an earlier table here may have taken the note
        if self.table:
            from tidemark_replica.sinks.published.iceberg_removal import remove_unused_files

            remove_unused_files(self._mirror(options))

    def _follow(self, options: TableOptions, contents: ShardId) -> Time | None:
        storage, at = Storage.at(options.location), None
        tables = () if self._settled else noted_tables(storage)
        if self.table:
            mirror = self._mirror(options)
            if not self._settled and self.table not in tables:
                note_tables(storage, (*tables, self.table))
            at = mirror.mirror(contents)
        if any(each != self.table for each in tables):
            drop_noted(storage, options.owner, self.secrets, self.table)
        self._settled = True
        return at

    def _mirror(self, options: TableOptions) -> IcebergMirror:
        """Raises DestinationStopped."""
        from tidemark_replica.sinks.published.iceberg_catalogue import CatalogueSettings
        from tidemark_replica.sinks.published.iceberg_mirror import IcebergMirror

        if (settings := CatalogueSettings.of_environment()) is None:
            raise DestinationStopped(
                "IcebergFailed", "the ComputeInstance names no Iceberg catalogue: add publish.iceberg to its spec"
            )
        return IcebergMirror(settings, self.table, options, self.secrets)


def drop_noted(storage: Storage, owner: str, secrets: SourceSecrets, but: str = "") -> None:
    """Drops the Iceberg tables that name files of the location, but one, from the catalogue. Raises PersistError."""
    if any(each != but for each in noted_tables(storage)):
        from tidemark_replica.sinks.published.iceberg_catalogue import CatalogueSettings
        from tidemark_replica.sinks.published.iceberg_removal import drop_tables

        drop_tables(storage, owner, CatalogueSettings.of_environment(), secrets, but)
