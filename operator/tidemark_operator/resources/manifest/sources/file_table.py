"""One table of a files source: which files, how they are written, and what becomes of bad records."""

from __future__ import annotations

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import checked_bucket, is_bucket, readable
from tidemark_protocol.plan.ingestion import FilesTable, Option


def parse_file_table(fields: Fields, directory: str) -> FilesTable:
    """The table of one entry of `spec.files.tables`; its path is relative to `directory`."""
    format = fields.text("format")
    return FilesTable(
        name=fields.text("name"),
        format=format,
        path=_path(fields, directory),
        pattern=fields.text("pattern", "*"),
        columns=parse_columns(fields) if fields.has("columns") else None,
        options=_options(fields.child("options"), format),
        on_bad_record=fields.text("onBadRecord", "error"),
        max_files_per_tick=fields.integer("maxFilesPerTick", 1000),
        append_only=fields.flag("appendOnly", False),
        compression=fields.text("compression", ""),
        order=_order(fields, directory),
        primary_key=fields.texts("primaryKey"),
    )


def _path(fields: Fields, directory: str) -> str:
    below = fields.text("path", "").rstrip("/")
    if not below:
        return directory
    at, path = fields.at("path"), f"{directory}/{below}"
    return checked_bucket(at, path) if is_bucket(directory) else readable(at, path)


def _order(fields: Fields, directory: str) -> str:
    order = fields.text("order", "")
    if order and not is_bucket(directory):
        raise InvalidValue(fields.at("order"), "is for files in a bucket: a folder is listed whole at each tick")
    return order


def _options(fields: Fields, format: str) -> tuple[Option, ...]:
    """The options that are given, and for csv the schema's own where none is: a header, and quotes that are doubled
    inside a quoted field. Spark's own defaults are others. In the order of their names."""
    options = {}
    for name in fields.values:
        options[name] = str(fields.flag(name)).lower() if name == "header" else fields.text(name)
    if format == "csv":
        options = {"header": "true", "escape": options.get("quote", '"')} | options
    return tuple(Option(name, options[name]) for name in sorted(options))
