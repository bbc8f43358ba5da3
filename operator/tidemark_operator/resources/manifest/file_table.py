"""One table of a files source: which files, how they are written, and what becomes of bad records."""

from __future__ import annotations

from enum import Enum

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.locations import readable
from tidemark_protocol.plan.ingestion import FilesTable, Option


class FileFormat(Enum):
    CSV = "csv"
    JSON = "json"
    """JSON lines: one object a line."""
    PARQUET = "parquet"


class OnBadRecord(Enum):
    """What a record that does not parse becomes."""

    ERROR = "error"
    """An error in the table, which every view of it shows."""
    DEAD_LETTER = "deadLetter"
    """A row of the table `<name>_dead_letter`."""


_CSV_OPTIONS = ("delimiter", "quote", "nullValue")
_TEXT_OPTIONS = ("dateFormat", "timestampFormat")
_OPTIONS = {
    FileFormat.CSV: frozenset({"header", *_CSV_OPTIONS, *_TEXT_OPTIONS}),
    FileFormat.JSON: frozenset(_TEXT_OPTIONS),
    FileFormat.PARQUET: frozenset[str](),
}


def parse_file_table(fields: Fields, directory: str) -> FilesTable:
    """The table of one entry of `spec.files.tables`; its path is relative to `directory`."""
    format = fields.choice("format", FileFormat)
    below = fields.text("path", "").rstrip("/")
    return FilesTable(
        name=fields.text("name"),
        format=format.value,
        path=readable(fields.at("path"), f"{directory}/{below}") if below else directory,
        pattern=fields.text("pattern", "*"),
        columns=parse_columns(fields) if fields.has("columns") else None,
        options=_options(fields.child("options"), format),
        on_bad_record=fields.choice("onBadRecord", OnBadRecord, OnBadRecord.ERROR).value,
        max_files_per_tick=fields.integer("maxFilesPerTick", 1000),
    )


def _options(fields: Fields, format: FileFormat) -> tuple[Option, ...]:
    """What is given, and for csv what the schema promises where nothing is: a header, and quotes that are doubled
    inside a quoted field. Spark's own defaults are others. In the order of their names."""
    options = {}
    for name in sorted(fields.values):
        if name not in _OPTIONS[format]:
            raise InvalidValue(fields.at(name), f"is not an option of {format.value}")
        options[name] = str(fields.flag(name)).lower() if name == "header" else fields.text(name)
    if format is FileFormat.CSV:
        options = {"header": "true", "escape": options.get("quote", '"')} | options
    return tuple(Option(name, options[name]) for name in sorted(options))
