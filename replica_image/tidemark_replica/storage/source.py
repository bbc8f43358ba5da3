"""What the ingester asks of a kind of source.

A source is stateless but for what `resume` gave it: the bindings so far. `discover` says what belongs to the next
tick, `stage` turns a binding into data files. `stage` may be called again for the same binding, by another process,
years later: it must give the same rows, or error rows that say why it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from tidemark_persist import StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable


class Source(Protocol):
    """One kind of DataSource. `remap_schema` is what a binding's rows look like."""

    remap_schema: pa.Schema

    def resume(self, bound: pa.Table, upper: Time) -> None:
        """Start after the bindings so far: `bound` are the remap's rows, consolidated, as of `upper` - 1."""

    def discover(self, time: Time) -> pa.Table:
        """The rows (with `__diff`) that bind what belongs to the tick `time`; none when nothing is new."""

    def confirm(self, binding: pa.Table) -> None:
        """The binding that `discover` gave was minted."""

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        """Data files of the binding for each of the tables, all rows at `time`."""

    def is_static(self, table: IngestedTable) -> bool:
        """Whether the table changes no more, so that its upper may run ahead of the clock."""

    def counters(self) -> Mapping[str, int]:
        """What has been seen, for people."""

    def warning(self) -> str:
        """What people should know, empty when all is well."""
