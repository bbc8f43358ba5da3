"""The truth table of a DataSource: InstanceFound, SchemaKnown, Ingesting, Erroring, Ready.

A DataSource that is Erroring stays Ready: rows that were ingested stay correct, and a view in error has its own
condition.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, because, no, unknown, yes
from tidemark_operator.resources.conditions.instance import READY, InstanceFacts, instance_found, runs_nothing

SCHEMA_KNOWN, INGESTING, ERRORING = "SchemaKnown", "Ingesting", "Erroring"
MAX_NAMED = 10
"""Files in a message."""
TOO_MANY_ROWS, RELATION_UNKNOWN = "TooManyRows", "RelationUnknown"
FOR_SOMEBODY = frozenset({TOO_MANY_ROWS, RELATION_UNKNOWN})
"""Obstacles of relations of introspection that do not pass by themselves."""
TYPES = ("InstanceFound", SCHEMA_KNOWN, INGESTING, ERRORING, READY)


@dataclass(frozen=True, slots=True)
class IngestionFailure:
    """The reason why the source is not ingested. `reason` is CamelCase: SourceUnreadable, IngestionFailed, Fenced.
    `passes`: it is waited for, and nobody has to change anything."""

    reason: str
    message: str
    passes: bool = False


@dataclass(frozen=True, slots=True)
class DataSourceFacts:
    """The input of the truth table."""

    instance: InstanceFacts
    suspended: bool
    name: str = ""
    deleting_used_by: tuple[str, ...] = ()
    """Dataflows that still read the tables, if the DataSource is being deleted."""
    schema_unknown_of: tuple[str, ...] = ()
    """Tables without declared columns and without a first file to infer them from."""
    ingester: str | None = None
    """The replica that ingests, once the frontiers of its tables are known."""
    failure: IngestionFailure | None = None
    edit: IngestionFailure | None = None
    """The reason why the tables are not those of the spec yet; the others are ingested."""
    columns_left_out: str = ""
    """Columns of published tables that are not followed, with the reasons."""
    files_in_error: int = 0
    """The number of files that have error rows in their table."""
    named_in_error: tuple[str, ...] = ()
    """Some of these files, with their reasons, as text."""
    warning: str = ""
    """Problems that do not stop ingestion: half-written files, files that changed after they were read."""


def data_source_conditions(facts: DataSourceFacts) -> list[Verdict]:
    """The conditions of a DataSource, in the order of `TYPES`."""
    found, schema, ingesting = instance_found(facts.instance), _schema_known(facts), _ingesting(facts)
    needed = (found, ingesting) if facts.edit is not None else (found, schema, ingesting)
    return [found, schema, ingesting, _erroring(facts), _ready(facts, *needed)]


def _schema_known(facts: DataSourceFacts) -> Verdict:
    if facts.schema_unknown_of:
        return no(
            SCHEMA_KNOWN,
            "WaitingForFiles",
            f"no complete file of {', '.join(facts.schema_unknown_of)} to infer the columns from: add a file, or "
            "declare columns",
        )
    if facts.edit is not None:
        return no(SCHEMA_KNOWN, facts.edit.reason, facts.edit.message)
    left_out = f"followed are {facts.columns_left_out}" if facts.columns_left_out else ""
    return yes(SCHEMA_KNOWN, "SchemaKnown", left_out)


def _ingesting(facts: DataSourceFacts) -> Verdict:
    if facts.suspended:
        return no(
            INGESTING,
            "Suspended",
            "spec.suspend stops ingestion; the tables stay readable. Set spec.suspend: false to resume",
        )
    if (idle := runs_nothing(INGESTING, facts.instance)) is not None:
        return idle
    if facts.failure is not None:
        return no(INGESTING, facts.failure.reason, facts.failure.message)
    if facts.ingester is None:
        return no(INGESTING, "Starting", "waiting until a replica reports the frontiers of the tables")
    return yes(INGESTING, "Ingesting", _ingesting_message(facts))


def _ingesting_message(facts: DataSourceFacts) -> str:
    """The message of a DataSource that is ingested: its replica, an edit that waits, a warning."""
    edit = facts.edit.message if facts.edit else ""
    return "; ".join(text for text in (f"on replica {facts.ingester}", edit, facts.warning) if text)


def _erroring(facts: DataSourceFacts) -> Verdict:
    if facts.files_in_error:
        return yes(ERRORING, "BadInput", _files_in_error(facts))
    if facts.ingester is None:
        return unknown(ERRORING, "NotIngesting")
    return no(ERRORING, "NoErrors")


def _files_in_error(facts: DataSourceFacts) -> str:
    """The number of files in error, the first MAX_NAMED of them, and the remedy."""
    named = list(facts.named_in_error[:MAX_NAMED])
    if facts.files_in_error > len(named):
        named.append(f"{facts.files_in_error - len(named)} more")
    return (
        f"{facts.files_in_error} files have error rows in their tables: {', '.join(named)}. To delete a file changes "
        f"nothing, since it is bound. kubectl tidemark files {facts.name or 'SOURCE'} lists them; with --release FILE "
        "it lets one go, with --reread FILE it has one read again that was mended"
    )


def _ready(facts: DataSourceFacts, *needed: Verdict) -> Verdict:
    if facts.deleting_used_by:
        return no(
            READY,
            "InUse",
            f"being deleted; waiting until {', '.join(facts.deleting_used_by)} are deleted, or no longer read it",
        )
    for verdict in needed:
        if not verdict.holds:
            return because(READY, verdict)
    return yes(READY, "Ingesting", _ingesting_message(facts))
