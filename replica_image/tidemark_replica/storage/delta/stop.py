"""The reasons for which a table of a `delta:` source takes no further commit.

VersionGone          the log or a data file that a version needs was removed (VACUUM, log retention)
TableReplaced        another table is at the path, or its log was rewritten
TableMissing         there is no table at the path any more
ColumnChanged        a declared column was dropped, renamed, or has another type
FeatureNotSupported  the table has a feature (or a layout) that cannot be read
FileUnreadable       a data file is no Parquet file of the declared columns
KeyViolated          a version has two rows with one primary key, or NULL in it
SnapshotFailed       the first rows could not be copied; the copy goes on by itself
FilesDiffer          the files of a change had other rows when they were read again, or a check failed by chance
"""

from __future__ import annotations

VERSION_GONE = "VersionGone"
TABLE_REPLACED = "TableReplaced"
TABLE_MISSING = "TableMissing"
COLUMN_CHANGED = "ColumnChanged"
FEATURE_NOT_SUPPORTED = "FeatureNotSupported"
FILE_UNREADABLE = "FileUnreadable"
KEY_VIOLATED = "KeyViolated"
FILES_DIFFER = "FilesDiffer"
SNAPSHOT_FAILED = "SnapshotFailed"
GAPS = frozenset({VERSION_GONE, TABLE_REPLACED})
"""Reasons after which a table with `onGap: resnapshot` goes on with the newest version."""
