"""Errors of ingestion.

IngestionError
├── SourceUnusable      the source cannot be ingested until its description or its data change
├── SourceNotReady      the source has no data yet (no file to infer a schema from); it is retried
├── TableStopped        one table cannot be followed further; the source's other tables go on
└── NotDefinite         another generator than the installed one made the earlier data; going on would change history
"""

from __future__ import annotations


class IngestionError(Exception):
    """Root of ingestion's errors."""


class SourceUnusable(IngestionError):
    """The description or the data must change. The message says which and how."""


class SourceNotReady(IngestionError):
    """The source has no data yet. The message says what is missing."""


class TableStopped(IngestionError):
    """One table of the source stops; the others go on. `reason` is CamelCase; each kind of source lists its reasons in
    its `stop.py`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class NotDefinite(IngestionError):
    """The remap shard names another generator than the installed one."""
