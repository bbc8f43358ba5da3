"""Creates a shard's table, and checks an existing one.

tidemark.format = 1          how to read the table: the columns and transactions of this package
tidemark.shard  = <id>       the owner: two owners never share a location by accident
"""

from __future__ import annotations

import uuid

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from tidemark_persist.errors import ShardDeleted, ShardMismatch
from tidemark_persist.log.deletion import refuse_deleted
from tidemark_persist.log.delta_log import NO_HOOKS, DeltaLog
from tidemark_persist.log.entry import COMMIT_ID, FORMAT, OWNER, SINCE, TERM, UPPER
from tidemark_persist.schema import TIME, user_schema
from tidemark_persist.storage.storage import Storage
from tidemark_persist.times import DELETED, ShardId

FORMAT_VERSION = "1"


def create_table(storage: Storage, schema: pa.Schema, shard_id: ShardId, log_retention_seconds: int) -> None:
    """Creates the table unless there is one. One of several creators wins; `verify` checks the owner. Raises
    ShardMismatch."""
    if not shard_id:
        raise ShardMismatch(f"a shard needs an id; none was given for {storage.location}")
    refuse_deleted(storage, shard_id)
    if _exists(storage):
        return
    try:
        with storage.errors("creating the table"):
            _create(storage, schema, shard_id, log_retention_seconds)
    except Exception:
        if not _exists(storage):  # else another process was faster
            raise


def verify(log: DeltaLog, schema: pa.Schema | None, shard_id: str | None) -> ShardId:
    """The owner of an opened table. Raises ShardMismatch where it is not the wanted one, ShardDeleted while it is being
    deleted."""
    where = f"the table at {log.storage.location}"
    properties = log.table.metadata().configuration
    if properties.get(FORMAT) != FORMAT_VERSION or OWNER not in properties:
        found = properties.get(FORMAT)
        raise ShardMismatch(f"{where} has {FORMAT} {found!r}; this version reads {FORMAT_VERSION!r}")
    if shard_id is not None and properties[OWNER] != shard_id:
        raise ShardMismatch(f"{where} belongs to shard {properties[OWNER]!r}, not to {shard_id!r}")
    found_schema = pa.schema(log.schema.to_arrow())
    if schema is not None and not found_schema.equals(schema):
        raise ShardMismatch(f"{where} has columns {_show(found_schema)}; asked for {_show(schema)}: use a new location")
    if log.state.frontiers.term == DELETED:
        raise ShardDeleted(f"shard {log.storage.location} is being deleted")
    return ShardId(properties[OWNER])


def _exists(storage: Storage) -> bool:
    storage.probe()
    with storage.errors("looking for a table"):
        return bool(DeltaTable.is_deltatable(storage.location, storage.settings))


def _create(storage: Storage, schema: pa.Schema, shard_id: ShardId, log_retention_seconds: int) -> None:
    retention = f"interval {log_retention_seconds} seconds"
    DeltaTable.create(
        storage.location,
        schema,
        mode="error",
        configuration={
            FORMAT: FORMAT_VERSION,
            OWNER: shard_id,
            "delta.dataSkippingStatsColumns": TIME,  # files of shards have no other statistics
            "delta.logRetentionDuration": retention,
            "delta.deletedFileRetentionDuration": retention,  # the time for which checkpoints list removed files
        },
        storage_options=storage.settings,
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties(
            max_commit_retries=0,
            custom_metadata={COMMIT_ID: uuid.uuid4().hex},
            app_transactions=[Transaction(name, 0) for name in (UPPER, SINCE, TERM)],
        ),
        post_commithook_properties=NO_HOOKS,
    )


def _show(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in user_schema(schema))
