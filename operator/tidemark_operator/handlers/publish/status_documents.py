"""The status documents, built from what the controller knows. Unknown values are left out, not written as null, which
takes away what stood there before.

Each builder gives the whole `status`; whether and when to write it (the budget of writes) is the caller's affair,
and `urgent` tells a move of frontiers and counters, which can wait, from everything else, which cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator.controller.hydration.quarantine import Suspicion
from tidemark_operator.resources.conditions.condition import Verdict, merge_conditions
from tidemark_operator.resources.conditions.dataflow import HYDRATED, HYDRATING, PROGRESSING
from tidemark_operator.resources.conditions.frontier import Reported, frontier_status, meet, timestamp
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_protocol.types import Column

MOST_REPLICAS, MOST_COLUMNS, MOST_TABLE_COLUMNS, MOST_NAME, MOST_TYPE = 16, 1024, 256, 128, 1024
"""So much of a list, and so many characters, the schema takes. What is beyond is left out: with it nothing would be
said at all."""


@dataclass(frozen=True, slots=True)
class Now:
    """What every status is written with: the old one, the generation that was looked at, and the time."""

    old: Mapping[str, Any]
    generation: int
    ms: int


@dataclass(frozen=True, slots=True)
class Revision:
    """A stored plan, as `status.revision` names it."""

    name: str
    generation: int
    spec_digest: str
    plan_digest: str
    as_of: int | None = None
    writer_term: int | None = None

    def document(self) -> dict[str, Any]:
        return _present(
            name=self.name,
            generation=self.generation,
            specDigest=self.spec_digest,
            planDigest=self.plan_digest,
            asOf=self.as_of,
            writerTerm=self.writer_term,
        )


@dataclass(frozen=True, slots=True)
class ReplicaExport:
    """An export on one replica."""

    replica: str
    hydrated: bool
    write_frontier: Reported = None
    hydrated_percent: int | None = None
    """Before it is."""


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

    def document(self, now_ms: int) -> dict[str, Any]:
        return _present(
            name=self.name,
            kind=self.kind,
            id=self.id,
            location=self.location,
            columns=_columns(self.columns, MOST_COLUMNS),
            key=None if self.key is None else [name[:MOST_NAME] for name in self.key[:MOST_COLUMNS]],
            readFrontier=frontier_status(self.read_frontier, now_ms),
            writeFrontier=frontier_status(self.write_frontier, now_ms),
            inputFrontier=frontier_status(self.input_frontier, now_ms),
            outputFrontier=frontier_status(self.output_frontier, now_ms),
            hydrated=self.hydrated,
            replicas=[_replica_export(replica, now_ms) for replica in self.replicas[:MOST_REPLICAS]],
        )


@dataclass(frozen=True, slots=True)
class PendingStatus:
    """A revision that is to take over, when `root_revision` of the Dataflow `root` does."""

    revision: Revision
    root: str
    root_revision: str
    exports: tuple[ExportStatus, ...] = ()

    def document(self, now_ms: int) -> dict[str, Any]:
        return _present(
            revision=self.revision.document(),
            together={"dataflow": self.root, "revision": self.root_revision},
            exports=[export.document(now_ms) for export in self.exports],
        )


@dataclass(frozen=True, slots=True)
class FileCounters:
    """Files of a source: taken up, not complete yet, changed after they were read, become an error row."""

    read: int
    waiting: int
    changed: int
    refused: int

    def document(self) -> dict[str, Any]:
        return {"read": self.read, "waiting": self.waiting, "changed": self.changed, "refused": self.refused}


@dataclass(frozen=True, slots=True)
class TableStatus:
    name: str
    id: str | None = None
    location: str | None = None
    columns: tuple[Column, ...] = ()
    read_frontier: Reported = None
    write_frontier: Reported = None

    def document(self, now_ms: int) -> dict[str, Any]:
        return _present(
            name=self.name,
            id=self.id,
            location=self.location,
            columns=_columns(self.columns, MOST_TABLE_COLUMNS),
            readFrontier=frontier_status(self.read_frontier, now_ms),
            writeFrontier=frontier_status(self.write_frontier, now_ms),
        )


@dataclass(frozen=True, slots=True)
class LastExit:
    """Why a process ended."""

    reason: str
    exit_code: int | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A replica's process. `id` is never used twice; arrangements live and die with it."""

    id: str
    started_at_ms: int | None
    restarts: int
    last_exit: LastExit | None = None

    def document(self) -> dict[str, Any]:
        last = self.last_exit
        return _present(
            id=self.id,
            startedAt=None if self.started_at_ms is None else timestamp(self.started_at_ms),
            restarts=self.restarts,
            lastExit=last and _present(reason=last.reason, exitCode=last.exit_code, at=timestamp(last.at_ms)),
        )


def dataflow_status(
    now: Now,
    verdicts: Sequence[Verdict],
    exports: Sequence[ExportStatus],
    revision: Revision | None,
    pending: PendingStatus | None = None,
    suspicions: Iterable[Suspicion] = (),
) -> dict[str, Any]:
    status = _status(
        now,
        verdicts,
        writeFrontier=frontier_status(meet(export.write_frontier for export in exports), now.ms),
        revision=None if revision is None else revision.document(),
        exports=[export.document(now.ms) for export in exports],
    )
    # null takes away what stood there before
    document = None if pending is None else pending.document(now.ms)
    return {**status, "pending": document, "suspects": suspects_status(suspicions)}


def suspects_status(suspicions: Iterable[Suspicion]) -> list[dict[str, Any]] | None:
    """Revisions that were hydrating when replicas died; null, where there is none."""
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
    files: FileCounters | None = None,
) -> dict[str, Any]:
    ingester = None if writer_term is None else _present(replica=replica, writerTerm=writer_term)
    return _status(
        now,
        verdicts,
        writeFrontier=frontier_status(meet(table.write_frontier for table in tables), now.ms),
        ingester=ingester,
        files=None if files is None else files.document(),
        tables=[table.document(now.ms) for table in tables],
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
    incarnation: Incarnation | None,
    dataflows: int | None = None,
    dataflows_hydrated: int | None = None,
    hydrations: int | None = None,
) -> dict[str, Any]:
    return _status(
        now,
        verdicts,
        process=None if incarnation is None else incarnation.document(),
        dataflows=dataflows,
        dataflowsHydrated=dataflows_hydrated,
        hydrations=hydrations,
    )


def invalid_status(now: Now, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Of an object that cannot be read: its conditions alone; the rest stays as it was."""
    return _status(now, verdicts)


def urgent(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status must be written at once: more than frontiers, counters and percentages moved."""
    return bool(_settled(old) != _settled(new))


def has_arrived(status: Mapping[str, Any]) -> bool:
    """Whether an object says that nothing more will change by waiting. Kinds that do not tell are there once all that
    they say holds, but that something hydrates, for as long as that takes."""
    said = status.get("conditions") or ()
    if progressing := [c["status"] for c in said if c["type"] == PROGRESSING]:
        return progressing == ["False"]
    return bool(said) and all(c["status"] == "True" or c["reason"] == HYDRATING for c in said)


_FRONTIERS = ("readFrontier", "writeFrontier", "inputFrontier", "outputFrontier")
_COUNTERS = ("hydratedPercent", "files", "dataflows", "dataflowsHydrated", "hydrations")
_MOVING = frozenset((*_FRONTIERS, *_COUNTERS))
_COUNTING = (HYDRATING, HYDRATED)
"""Reasons whose message counts."""


def _settled(value: Any) -> Any:
    """A status without what moves all the time."""
    if isinstance(value, Mapping):
        moving = _MOVING | {"message"} if value.get("reason") in _COUNTING else _MOVING
        return {name: _settled(below) for name, below in value.items() if name not in moving}
    if isinstance(value, list | tuple):
        return [_settled(below) for below in value]
    return value


def _status(now: Now, verdicts: Sequence[Verdict], **fields: Any) -> dict[str, Any]:
    """What all kinds have in their status, then their own fields."""
    old = now.old.get("conditions") or []
    return {
        "observedGeneration": now.generation,
        "conditions": merge_conditions(old, verdicts, now.generation, now.ms),
        **_present(**fields),
    }


def _columns(columns: Sequence[Column], most: int) -> list[dict[str, Any]] | None:
    shown = [(c.name[:MOST_NAME], str(c.type)[:MOST_TYPE], c.nullable) for c in columns[:most]]
    return [{"name": name, "type": type, "nullable": nullable} for name, type, nullable in shown] or None


def _replica_export(replica: ReplicaExport, now_ms: int) -> dict[str, Any]:
    return _present(
        name=replica.replica,
        hydrated=replica.hydrated,
        hydratedPercent=replica.hydrated_percent,
        writeFrontier=frontier_status(replica.write_frontier, now_ms),
    )


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
