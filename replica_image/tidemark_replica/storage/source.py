"""The interface between the ingester and a kind of source.

A source's only state is the bindings that `resume` gave it. `discover` binds data to the next tick; `stage` turns a
binding into data files. `stage` may be called again for the same binding, by another process and much later. It must
give the same rows, or error rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidemark_persist import Shard, StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import FileRequest
from tidemark_protocol.messages.responses import FileOutcome, SourceFile, TableReport
from tidemark_protocol.plan.ingestion import IngestedTable
from tidemark_replica.storage.binding_names import BindingNames

ACTIVITY_SECONDS = 2.0
AWAITS_SECONDS = 0.2


@dataclass(frozen=True)
class SourceShards:
    """The shards of a source, for reading: the bindings, and the tables."""

    remap: Shard
    tables: Sequence[tuple[IngestedTable, Shard]]
    names: BindingNames = field(default_factory=BindingNames)

    def bindings(self, as_of: Time) -> pa.Table:
        """The consolidated rows of the bindings until then, with the names that the tables have in the source."""
        return self.names.in_source(self.remap.snapshot(as_of))


class Source(Protocol):
    """One kind of DataSource, which derives from this class and leaves out what it does not have.

    `remap_schema` has the columns of a binding.
    """

    remap_schema: pa.Schema

    def resume(self, bound: pa.Table, upper: Time, shards: SourceShards) -> None:
        """Continues after the bindings so far: `bound` has the remap's consolidated rows as of `upper` - 1. The tables
        have the data of all bindings when `discover` is called first, unless they are stopped."""

    def discover(self, time: Time) -> pa.Table:
        """The rows (with `__diff`) that bind new data to the tick `time`; none where there are no new data."""

    def reason_to_wait(self) -> str | None:
        """None: `discover` can bind a tick. Else no tick takes place, and all uppers stand still; the text says why, to
        people, and is empty where there is nothing to say yet. The ingestion asks again
        every AWAITS_SECONDS."""
        return None

    def confirm(self, binding: pa.Table) -> None:
        """The binding that `discover` gave was minted."""

    def confirm_appends(self) -> None:
        """The tables have the data of all bindings that were minted, unless they are stopped."""
        return

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        """Data files of the binding for each of the tables, all rows at `time`. A table that is left out does not take
        the binding, and its upper stands still."""

    def first_time(self, table: IngestedTable) -> Time | None:
        """The time of the binding that has the table's first rows, where these rows may have an earlier time: then the
        table's shard gives up the times before. None: the rows have the binding's time."""
        return None

    def begins_anew(self) -> bool:
        """Whether a table without rows needs none of the bindings so far, as its next one has all rows."""
        return False

    def is_static(self, table: IngestedTable) -> bool:
        """Whether the table never changes again, so that its upper may run ahead of the clock."""
        return False

    def unbound_tables(self) -> Collection[str]:
        """The names of tables whose first rows, or those after a gap, are not bound yet: their uppers stand still."""
        return ()

    def ask(self, requests: tuple[FileRequest, ...]) -> None:
        """The requests about files that the next `discover` is to bind; those of before are replaced."""
        return

    def outcomes(self) -> tuple[FileOutcome, ...]:
        """The outcomes of the requests that were asked for last."""
        return ()

    def files(self) -> tuple[SourceFile, ...]:
        """The files that people should know of, the same tuple as before where nothing changed; none where the source
        has no files."""
        return ()

    def stop_reasons(self) -> Mapping[str, str]:
        """The reason why tables take no binding now, and none at least until the next `discover`: `Reason: text` by the
        table's name."""
        return {}

    def retries(self) -> bool:
        """Whether tables that are stopped may go on after a new `resume`: then there is one after a while."""
        return bool(self.stop_reasons())

    def counters(self) -> Mapping[str, int]:
        """Numbers for people, by name."""
        return {}

    def progress(self) -> Mapping[str, TableReport]:
        """The progress of the tables, as the source knows it, by the table's name: `behind` in `unit`,
        `snapshot_percent` and `malformed`. The other fields are the ingester's."""
        return {}

    def activity(self) -> str:
        """The work that the source has been busy with for ACTIVITY_SECONDS or more, for people; empty if there is none.
        Callable from any thread."""
        return ""

    def interrupt(self) -> None:
        """Ends a wait for the upstream that may be long: the source is dropped, and only `close` comes afterwards. The
        call that runs raises some error. Callable from any thread."""
        return

    def close(self) -> None:
        """Ends connections; nothing else is called afterwards."""
        return

    def warning(self) -> str:
        """A warning for people; empty if there is none."""
        return ""
