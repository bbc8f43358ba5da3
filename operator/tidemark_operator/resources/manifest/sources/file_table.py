"""One table of a files source: which files, how they are written, and what becomes of bad records."""

from __future__ import annotations

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import readable
from tidemark_protocol.plan.ingestion import FilesTable, Option


def parse_file_table(fields: Fields, directory: str) -> FilesTable:
    """The table of one entry of `spec.files.tables`; its path is relative to `directory`."""
    format = fields.text("format")
    below = fields.text("path", "").rstrip("/")
    return FilesTable(
        name=fields.text("name"),
        format=format,
        path=readable(fields.at("path"), f"{directory}/{below}") if below else directory,
        pattern=fields.text("pattern", "*"),
        columns=parse_columns(fields) if fields.has("columns") else None,
        options=_options(fields.child("options"), format),
        on_bad_record=fields.text("onBadRecord", "error"),
        max_files_per_tick=fields.integer("maxFilesPerTick", 1000),
        append_only=fields.flag("appendOnly", False),
        compression=fields.text("compression", ""),
    )


def _options(fields: Fields, format: str) -> tuple[Option, ...]:
    """What is given, and for csv what the schema promises where nothing is: a header, and quotes that are doubled
    inside a quoted field. Spark's own defaults are others. In the order of their names."""
    options = {}
    for name in fields.values:
        options[name] = str(fields.flag(name)).lower() if name == "header" else fields.text(name)
    if format == "csv":
        options = {"header": "true", "escape": options.get("quote", '"')} | options
    return tuple(Option(name, options[name]) for name in sorted(options))
