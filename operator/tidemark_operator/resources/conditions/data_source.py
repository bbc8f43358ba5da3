"""The truth table of a DataSource: InstanceFound, SchemaKnown, Ingesting, Erroring, Ready.

Erroring does not end Ready: what was read well stays right, and a view in error says so itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, because, no, unknown, yes
from tidemark_operator.resources.conditions.instance import READY, InstanceFacts, instance_found, runs_nothing

SCHEMA_KNOWN, INGESTING, ERRORING = "SchemaKnown", "Ingesting", "Erroring"
TYPES = ("InstanceFound", SCHEMA_KNOWN, INGESTING, ERRORING, READY)


@dataclass(frozen=True, slots=True)
class IngestionFailure:
    """Why the ingesting replica cannot go on. `reason` is CamelCase: SourceUnreadable, IngestionFailed, Fenced"""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DataSourceFacts:
    instance: InstanceFacts
    suspended: bool
    deleting_used_by: tuple[str, ...] = ()
    """Dataflows that read the tables of a DataSource which is to be deleted."""
    schema_unknown_of: tuple[str, ...] = ()
    """Tables whose columns wait to be inferred from a first file."""
    ingester: str | None = None
    """The replica that ingests, once its tables' frontiers are known."""
    failure: IngestionFailure | None = None
    refused_files: int = 0
    warning: str = ""
    """What the ingester noticed and goes on in spite of: half-written files, files that changed afterwards."""


def data_source_conditions(facts: DataSourceFacts) -> list[Verdict]:
    """The conditions of a DataSource, in the order of `TYPES`."""
    found, schema, ingesting = instance_found(facts.instance), _schema_known(facts), _ingesting(facts)
    return [found, schema, ingesting, _erroring(facts), _ready(facts, found, schema, ingesting)]


def _schema_known(facts: DataSourceFacts) -> Verdict:
    if facts.schema_unknown_of:
        return no(
            SCHEMA_KNOWN,
            "WaitingForFiles",
            f"columns of {', '.join(facts.schema_unknown_of)} are inferred from the first file, and there is none "
            "yet; or give columns",
        )
    return yes(SCHEMA_KNOWN, "SchemaKnown")


def _ingesting(facts: DataSourceFacts) -> Verdict:
    if facts.suspended:
        return no(INGESTING, "Suspended", "spec.suspend stops ingestion; the tables stay readable as they are")
    if (idle := runs_nothing(INGESTING, facts.instance)) is not None:
        return idle
    if facts.failure is not None:
        return no(INGESTING, facts.failure.reason, facts.failure.message)
    if facts.ingester is None:
        return no(INGESTING, "Starting", "no replica has reported the tables' frontiers yet")
    return yes(INGESTING, "Ingesting", _where(facts))


def _where(facts: DataSourceFacts) -> str:
    return f"on replica {facts.ingester}" + (f"; {facts.warning}" if facts.warning else "")


def _erroring(facts: DataSourceFacts) -> Verdict:
    if facts.refused_files:
        return yes(ERRORING, "BadInput", f"files refused: {facts.refused_files}; each is a row in error")
    if facts.ingester is None:
        return unknown(ERRORING, "NotIngesting")
    return no(ERRORING, "NoErrors")


def _ready(facts: DataSourceFacts, *needed: Verdict) -> Verdict:
    if facts.deleting_used_by:
        return no(READY, "InUse", f"to be deleted; waits for {', '.join(facts.deleting_used_by)}")
    for verdict in needed:
        if not verdict.holds:
            return because(READY, verdict)
    return yes(READY, "Ingesting", _where(facts))
