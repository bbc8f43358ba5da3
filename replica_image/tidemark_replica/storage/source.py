"""The interface between the ingester and a kind of source.

A source's only state is the bindings that `resume` gave it. `discover` binds data to the next tick; `stage` turns a
binding into data files. `stage` may be called again for the same binding, by another process and much later. It must
give the same rows, or error rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from tidemark_persist import StagedFile
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.ingestion import IngestedTable


class Source(Protocol):
    """One kind of DataSource. `remap_schema` has the columns of a binding."""

    remap_schema: pa.Schema

    def resume(self, bound: pa.Table, upper: Time) -> None:
        """Continues after the bindings so far: `bound` has the remap's consolidated rows as of `upper` - 1."""

    def discover(self, time: Time) -> pa.Table:
        """The rows (with `__diff`) that bind new data to the tick `time`; none where there are no new data."""

    def confirm(self, binding: pa.Table) -> None:
        """The binding that `discover` gave was minted."""

    def stage(
        self, binding: pa.Table, time: Time, tables: Iterable[IngestedTable]
    ) -> Mapping[GlobalId, list[StagedFile]]:
        """Data files of the binding for each of the tables, all rows at `time`."""

    def is_static(self, table: IngestedTable) -> bool:
        """Whether the table never changes again, so that its upper may run ahead of the clock."""

    def counters(self) -> Mapping[str, int]:
        """Numbers for people, by name."""

    def warning(self) -> str:
        """A warning for people; empty if there is none."""
