"""One table of a delta source: which Delta table, which of its columns, and what happens where a version is gone."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import readable, shard_location
from tidemark_protocol.plan.ingestion import DeltaTable


def parse_delta_table(fields: Fields) -> DeltaTable:
    """The table of one entry of `spec.delta.tables`."""
    location = shard_location(fields, "path")
    return DeltaTable(
        name=fields.text("name"),
        path=readable(fields.at("path"), location) if location.startswith("/") else location,
        names=column_names(fields),
        on_gap=fields.text("onGap", "stop"),
        primary_key=fields.texts("primaryKey"),
    )


def column_names(fields: Fields) -> tuple[str, ...]:
    """The columns that are taken; none where all are. SQL does not tell `Id` from `id`, so both are refused.
    Raises InvalidValue."""
    if not fields.has("columns"):
        return ()
    names = fields.texts("columns")
    folded = [name.lower() for name in names]
    if twice := next((name for name in names if folded.count(name.lower()) > 1), None):
        raise InvalidValue(fields.at("columns"), f"{twice!r} is there twice; SQL ignores upper and lower case")
    return names
