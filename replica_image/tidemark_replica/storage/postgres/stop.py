"""The reasons for which a table of a `postgres:` source takes no further transaction.

TableMissing         the database has no such table, or it was dropped
NotPublished         the publication does not give all changes of the table, or stopped doing so
PermissionDenied     the user may not read the table, or row security hides rows of it
ReplicaIdentity      updates and deletes of the table do not name the rows that they change
ColumnChanged        a declared column was dropped, renamed or retyped
TypeNotSupported     the table is no ordinary table, or a declared column is generated or of a type that is not read
TransactionTooLarge  a transaction has more bytes than `maxTransactionBytes`
RowTooLarge          a row of the contents has more bytes as text than are read at once
SnapshotFailed       the contents could not be copied; the source tries it again by itself
SlotLost             the replication slot is gone, or its WAL is
UpstreamReplaced     another database cluster answers at the address, or the same after a failover or a restore
"""

from __future__ import annotations

from tidemark_replica.storage.errors import IngestionError

TABLE_MISSING = "TableMissing"
NOT_PUBLISHED = "NotPublished"
PERMISSION_DENIED = "PermissionDenied"
REPLICA_IDENTITY = "ReplicaIdentity"
COLUMN_CHANGED = "ColumnChanged"
TYPE_NOT_SUPPORTED = "TypeNotSupported"
TRANSACTION_TOO_LARGE = "TransactionTooLarge"
ROW_TOO_LARGE = "RowTooLarge"
SNAPSHOT_FAILED = "SnapshotFailed"
SLOT_LOST = "SlotLost"
UPSTREAM_REPLACED = "UpstreamReplaced"


class Gap(IngestionError):
    """Changes since the bound position cannot be read any more: all tables stop. `reason` is CamelCase."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
