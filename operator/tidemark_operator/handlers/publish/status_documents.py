"""Status documents. Each builder gives the whole `status` of an object.

An unknown value is left out, so that the value in the stored status stays; null removes it. `urgent` tells whether a
change must be written at once: a move of frontiers and counters can wait, everything else cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator.controller.hydration.quarantine import Suspicion
from tidemark_operator.controller.reports.publication import PublicationReport
from tidemark_operator.planning.table_edit import MAX_TABLES
from tidemark_operator.resources.conditions.condition import Verdict, merge_conditions
from tidemark_operator.resources.conditions.dataflow import HYDRATED, HYDRATING, PROGRESSING
from tidemark_operator.resources.conditions.frontier import Reported, frontier_status, meet, timestamp
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_protocol.ids import MAX_TIME
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.types import Column

MAX_REPLICAS, MAX_COLUMNS, MAX_TABLE_COLUMNS, MAX_NAME, MAX_TYPE, MAX_UNIT = 16, 1024, 256, 128, 1024, 32
MAX_TARGET = 1024
"""The longest lists and texts that the schema allows. The rest is left out: the API server would refuse the whole
status."""


@dataclass(frozen=True, slots=True)
class Now:
    """Arguments of every builder: the stored status, the generation of the spec, and the time in milliseconds since
    1970."""

    old: Mapping[str, Any]
    generation: int
    ms: int


@dataclass(frozen=True, slots=True)
class ReplicaExport:
    """An export on one replica."""

    replica: str
    hydrated: bool
    write_frontier: Reported = None
    hydrated_percent: int | None = None
    """The percentage of its hydration; None once it is hydrated."""
    caught_up_percent: int | None = None
    """The percentage of its way, while it is behind and catches up in bounded steps."""


@dataclass(frozen=True, slots=True)
class ExportStatus:
    name: str
    kind: str
    id: str | None = None
    location: str | None = None
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] | None = None
    read_frontier: Reported = None
    write_frontier: Reported = None
    input_frontier: Reported = None
    output_frontier: Reported = None
    hydrated: bool = False
    replicas: tuple[ReplicaExport, ...] = ()
    published: Mapping[str, Any] | None = None
    destinations: Sequence[Mapping[str, Any]] = ()

    def document(self, now_ms: int) -> dict[str, Any]:
        return present(
            name=self.name,
            kind=self.kind,
            id=self.id,
            location=self.location,
            columns=_columns(self.columns, MAX_COLUMNS),
            key=None if self.key is None else [name[:MAX_NAME] for name in self.key[:MAX_COLUMNS]],
            readFrontier=frontier_status(self.read_frontier, now_ms),
            writeFrontier=frontier_status(self.write_frontier, now_ms),
            inputFrontier=frontier_status(self.input_frontier, now_ms),
            outputFrontier=frontier_status(self.output_frontier, now_ms),
            hydrated=self.hydrated,
            published=self.published,
            destinations=[*self.destinations] or None,
            replicas=[_replica_export(replica, now_ms) for replica in self.replicas[:MAX_REPLICAS]],
        )


@dataclass(frozen=True, slots=True)
class TableStatus:
    name: str
    id: str | None = None
    location: str | None = None
    columns: tuple[Column, ...] = ()
    read_frontier: Reported = None
    write_frontier: Reported = None
    ingested: TableReport | None = None

    def document(self, now_ms: int) -> dict[str, Any]:
        return present(
            name=self.name,
            id=self.id,
            location=self.location,
            columns=_columns(self.columns, MAX_TABLE_COLUMNS),
            readFrontier=frontier_status(self.read_frontier, now_ms),
            writeFrontier=frontier_status(self.write_frontier, now_ms),
            ingested=None if self.ingested is None else _ingested(self.ingested),
        )


def dataflow_status(
    now: Now,
    verdicts: Sequence[Verdict],
    exports: Sequence[ExportStatus],
    revision: Mapping[str, Any] | None,
    pending: Mapping[str, Any] | None = None,
    suspicions: Iterable[Suspicion] = (),
) -> dict[str, Any]:
    status = _status(
        now,
        verdicts,
        writeFrontier=frontier_status(meet(export.write_frontier for export in exports), now.ms),
        revision=revision,
        exports=[export.document(now.ms) for export in exports],
    )
    # null removes what the stored status has
    return {**status, "pending": pending, "suspects": suspects_status(suspicions)}


def suspects_status(suspicions: Iterable[Suspicion]) -> list[dict[str, Any]] | None:
    """Revisions that were hydrating when replicas died; null if there is none."""
    return [
        {
            "revision": s.revision,
            "release": s.release,
            "deaths": [{"replica": death.replica, "incarnation": death.incarnation} for death in s.deaths],
        }
        for s in suspicions
    ] or None


def data_source_status(
    now: Now,
    verdicts: Sequence[Verdict],
    tables: Sequence[TableStatus],
    writer_term: int | None,
    replica: str | None,
    files: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    ingester = None if writer_term is None else present(replica=replica, writerTerm=writer_term)
    return _status(
        now,
        verdicts,
        writeFrontier=frontier_status(meet(table.write_frontier for table in tables), now.ms),
        ingester=ingester,
        files=files,
        tables=[table.document(now.ms) for table in tables[:MAX_TABLES]],
    )


def instance_status(
    now: Now,
    verdicts: Sequence[Verdict],
    facts: InstanceFacts,
    leader_term: int,
    operator_version: str,
) -> dict[str, Any]:
    return _status(
        now,
        verdicts,
        replicas=facts.replicas,
        replicasOnline=facts.online,
        epoch=leader_term,
        operatorVersion=operator_version,
    )


def replica_status(
    now: Now,
    verdicts: Sequence[Verdict],
    process: Mapping[str, Any] | None,
    dataflows: int | None = None,
    dataflows_hydrated: int | None = None,
    hydrations: int | None = None,
) -> dict[str, Any]:
    return _status(
        now,
        verdicts,
        process=process,
        dataflows=dataflows,
        dataflowsHydrated=dataflows_hydrated,
        hydrations=hydrations,
    )


def invalid_status(now: Now, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The status of an object whose spec cannot be parsed: its conditions alone. The rest of the status stays."""
    return _status(now, verdicts)


def urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the status must be written at once: more than frontiers, counters and percentages differ."""
    return bool(_without_moving(old) != _without_moving(new))


def has_arrived(status: Mapping[str, Any]) -> bool:
    """Whether nothing more will change by waiting: the condition Progressing is False. For kinds without it: all
    conditions are True, apart from those with reason Hydrating."""
    conditions = status.get("conditions") or ()
    if progressing := [c["status"] for c in conditions if c["type"] == PROGRESSING]:
        return progressing == ["False"]
    return bool(conditions) and all(c["status"] == "True" or c["reason"] == HYDRATING for c in conditions)


_FRONTIERS = ("readFrontier", "writeFrontier", "inputFrontier", "outputFrontier")
_COUNTERS = (
    "hydratedPercent",
    "caughtUpPercent",
    "published",
    "destinations",
    "files",
    "ingested",
    "dataflows",
    "dataflowsHydrated",
    "hydrations",
)
_MOVING = frozenset((*_FRONTIERS, *_COUNTERS))
_COUNTING = (HYDRATING, HYDRATED)
"""Reasons whose message has a number that moves."""


def _without_moving(value: Any) -> Any:
    """The status without frontiers, counters and percentages."""
    if isinstance(value, Mapping):
        moving = _MOVING | {"message"} if value.get("reason") in _COUNTING else _MOVING
        return {name: _without_moving(below) for name, below in value.items() if name not in moving}
    if isinstance(value, list | tuple):
        return [_without_moving(below) for below in value]
    return value


def _status(now: Now, verdicts: Sequence[Verdict], **fields: Any) -> dict[str, Any]:
    """A status: what all kinds have, then the fields of the kind."""
    old = now.old.get("conditions") or []
    return {
        "observedGeneration": now.generation,
        "conditions": merge_conditions(old, verdicts, now.generation, now.ms),
        **present(**fields),
    }


def _columns(columns: Sequence[Column], most: int) -> list[dict[str, Any]] | None:
    shown = [(c.name[:MAX_NAME], str(c.type)[:MAX_TYPE], c.nullable) for c in columns[:most]]
    return [{"name": name, "type": type, "nullable": nullable} for name, type, nullable in shown] or None


def published_document(location: str, report: PublicationReport | None, iceberg: str = "") -> dict[str, Any]:
    """The ordinary table of a view. `report`: None before a replica has told about it. `iceberg`: the Iceberg table
    that follows; empty: none."""
    known = report if report is not None and report.time is not None else None
    iceberg_time = None if report is None or report.iceberg_time == MAX_TIME else report.iceberg_time
    return present(
        location=location,
        time=known.time if known and known.time != MAX_TIME else None,
        rows=known.rows if known else None,
        bytes=known.bytes if known else None,
        iceberg=present(table=iceberg, time=iceberg_time) if iceberg else None,
    )


def destination_document(kind: str, target: str, report: PublicationReport | None) -> dict[str, Any]:
    """A destination of a view outside of Tidemark. `report`: None before a replica has told about it."""
    time = None if report is None or report.time == MAX_TIME else report.time
    return present(kind=kind, target=target[:MAX_TARGET], time=time)


def _ingested(r: TableReport) -> dict[str, Any]:
    """The progress of a table of a source, as its ingester reported it. Its lag behind the clock is that of the table's
    write frontier, whose time is in the status already: a number that grows by itself would be written for ever."""
    error = present(message=r.error, count=r.errors, at=None if r.error_time is None else timestamp(r.error_time))
    return present(
        rows=r.rows,
        bytes=r.bytes,
        behind=None if r.behind is None else {"count": r.behind, "unit": r.unit[:MAX_UNIT]},
        snapshotPercent=r.snapshot_percent,
        malformedRecords=r.malformed,
        stopped=r.stopped,
        lastError=error if r.errors else None,
    )


def _replica_export(replica: ReplicaExport, now_ms: int) -> dict[str, Any]:
    return present(
        name=replica.replica,
        hydrated=replica.hydrated,
        hydratedPercent=replica.hydrated_percent,
        caughtUpPercent=replica.caught_up_percent,
        writeFrontier=frontier_status(replica.write_frontier, now_ms),
    )


def present(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
