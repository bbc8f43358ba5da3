"""What can go wrong while ingesting.

IngestionError
├── SourceUnusable      the source, as described, cannot be ingested until someone changes it or its data
├── SourceNotReady      nothing wrong, but not there yet (no file to infer a schema from): tried again
└── NotDefinite         what made the earlier data is not what is installed now; going on would change history
"""

from __future__ import annotations


class IngestionError(Exception):
    """Root of ingestion's errors."""


class SourceUnusable(IngestionError):
    """The description or the data must change; the message says which and how."""


class SourceNotReady(IngestionError):
    """Not there yet; the message says what is waited for."""


class NotDefinite(IngestionError):
    """The remap shard pins another generator than the one at hand."""
