"""The reports of an ingestion on each of its tables, and the count of their errors.

shard ──► rows, bytes      source ──► behind, unit, snapshot_percent, malformed      failures ──► error, errors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark_persist import Shard
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import IngestedTable

ERROR_LENGTH_MAX = 500


class TableErrors:
    """The errors of the tables of one ingestion, since this process began it. Their number is that of the tables."""

    def __init__(self) -> None:
        self._errors: dict[str, TableReport] = {}
        self._stopped: dict[str, str] = {}

    def failed(self, tables: Iterable[str], text: str, now: Time) -> None:
        """An error that concerns all of these tables."""
        for table in tables:
            known = self._errors.get(table, TableReport(table))
            error = text[:ERROR_LENGTH_MAX]
            self._errors[table] = replace(known, error=error, errors=known.errors + 1, error_time=now)

    def begin(self) -> None:
        """The ingestion begins (again): a table that stops now stops once more."""
        self._stopped = {}

    def record_stopped(self, tables: Mapping[str, str], now: Time) -> None:
        """Record which tables are stopped at `now`; each counts once until `begin`, or until its reason is another."""
        for table, text in tables.items():
            if self._stopped.get(table) != text:
                self.failed([table], text, now)
        self._stopped = dict(tables)

    def add_to(self, report: TableReport) -> TableReport:
        """The report with the last error of its table, and how many there were."""
        known = self._errors.get(report.table, report)
        return replace(report, error=known.error, errors=known.errors, error_time=known.error_time)


class SnapshotProgress:
    """The progress of tables whose first rows are read, in percent of what there was to read when they began, in any
    unit. It is not known of a table that an earlier attempt began."""

    def __init__(self) -> None:
        self._began: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def begin(self, table: str, done: int) -> None:
        """The table begins at `done`."""
        self._began[table] = done
        self._ends.pop(table, None)

    def percent(self, table: str, done: int, missing: int | None) -> int | None:
        """The percent that is read; None where that is not known, and once all is. `missing`: what the source has and
        the table lacks, None where that is not known. The first one that is known says where the first rows end.
        Of a table that goes on before its begin, as with a topic that was created anew, it is not known any more."""
        began = self._began.get(table)
        if began is not None and done < began:
            self._forget(table)
            return None
        if began is None or missing is None:
            return None
        end = self._ends.setdefault(table, done + missing)
        if not missing or done >= end:
            self._forget(table)
            return None
        return 100 * (done - began) // (end - began)

    def _forget(self, table: str) -> None:
        self._began.pop(table, None)
        self._ends.pop(table, None)


def table_reports(
    tables: Iterable[tuple[IngestedTable, Shard]],
    progress: Mapping[str, TableReport],
    stopped: Mapping[str, str],
    errors: TableErrors,
) -> tuple[TableReport, ...]:
    """The reports of the tables in their order. `progress`: what the source knows of them, by name."""
    found = []
    for ingested, shard in tables:
        name, size = ingested.table.name, shard.size()
        report = errors.add_to(progress.get(name, TableReport(name)))
        found.append(replace(report, rows=size.rows, bytes=size.bytes, stopped=name in stopped))
    return tuple(found)
