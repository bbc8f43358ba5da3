"""Errors of ingestion.

IngestionError
├── SourceUnusable      the source cannot be ingested until its description or its data change
├── SourceNotReady      the source has no data yet (no file to infer a schema from); it is retried
└── NotDefinite         another generator than the installed one made the earlier data; going on would change history
"""

from __future__ import annotations


class IngestionError(Exception):
    """Root of ingestion's errors."""


class SourceUnusable(IngestionError):
    """The description or the data must change. The message says which and how."""


class SourceNotReady(IngestionError):
    """The source has no data yet. The message says what is missing."""


class NotDefinite(IngestionError):
    """The remap shard names another generator than the installed one."""
