"""Strict reads: the latest time that was ingested when a query was asked, below which its answer must not be.

    relation ──► the Dataflows behind it ──► their source tables ──► the uppers of these, which a replica reads now

The operator's own knowledge of shards is a moment old, so a replica reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.shards import is_below
from tidemark_operator.errors import NoReplicaAnswers, QueryNotReady, QueryRefused, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.admission.wait_policy import Wait, WaitSlot, require_online
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.plan.dataflow import ShardMetadata

STRICT_SECONDS = 60.0
_NEEDS = "a strict query needs the source tables' frontiers, which no replica can report"


async def latest_ingested(
    context: ReconcileContext, namespace: str, reads: Iterable[GlobalId], wait_slot: WaitSlot = nullcontext
) -> Time | None:
    """The latest complete time (ms) of the source tables behind `reads`; None where nothing was ingested.

    A replica that is lost while it reads is waited for, as one that was lost before.

    Raises:
        QueryRefused: no instance has the storage of a table.
        QueryNotReady: a table cannot be read now.
        NoReplicaAnswers: the replicas that could read a table do not answer.
    """
    tables = source_tables_of(context.registry, namespace, reads)
    if not tables:
        return None
    uppers: list[Frontier] = []
    wait = Wait(slot=wait_slot)
    while tables:
        instance = await wait.until(partial(_answering_instance, context, namespace, tables[0]))
        storage = instance.config.storage_location
        try:
            uppers += await _uppers(instance, [table for table in tables if is_below(storage, table.location)])
        except QueryNotReady as refusal:
            await wait.pause(refusal)
            continue
        tables = [table for table in tables if not is_below(storage, table.location)]
    return Time(max(uppers).encode() - 1) if uppers else None


async def _uppers(instance: RunningInstance, tables: list[ShardMetadata]) -> list[Frontier]:
    """The uppers of the tables that hold rows and are not finished. Raises: NoReplicaAnswers, QueryNotReady."""
    try:
        _, described = await instance.describe((shard.shard_id, shard.location) for shard in tables)
    except Waiting as waiting:
        raise NoReplicaAnswers(f"{_NEEDS}: {waiting}") from None
    instance.record_shards(described.shards)
    uppers = []
    for shard in described.shards:
        if shard.error is not None:
            raise QueryNotReady(
                f"a strict query needs the frontier of table {shard.id}, which cannot be read now: {shard.error}"
            )
        uppers += [shard.upper] if shard.upper > Frontier.minimum() and not shard.upper.is_empty else []
    return uppers


def _answering_instance(context: ReconcileContext, namespace: str, table: ShardMetadata) -> RunningInstance:
    """An instance whose storage has the table, with a connected replica if there is one.

    Raises:
        QueryRefused: no instance of the namespace has that storage, or none of those has replicas.
        NoReplicaAnswers: their replicas do not answer now.
    """
    reaching = [i for i in context.fleet.of(namespace) if is_below(i.config.storage_location, table.location)]
    running = sorted(reaching, key=lambda i: (not i.online, not i.replicas))
    if not running:
        where = f"no ComputeInstance in namespace {namespace} has the storage of {table.location}"
        raise QueryRefused(f"{_NEEDS}: {where}")
    require_online(running[0], _NEEDS)
    return running[0]


def source_tables_of(registry: Registry, namespace: str, reads: Iterable[GlobalId]) -> list[ShardMetadata]:
    """The shards of the source tables from which the relations are computed, also through other Dataflows."""
    pinned = [table for source in registry.sources(namespace) if source.pinned for table in source.pinned.tables]
    tables = {GlobalId(id): table.shard for table in pinned for id in (table.id, table.shard.shard_id)}
    active = [dataflow.active.revision for dataflow in registry.dataflows(namespace) if dataflow.active]
    makers = {id: revision for revision in active for id in revision.provided}
    found, seen, todo = dict[ShardId, ShardMetadata](), set[GlobalId](), list(reads)
    while todo:
        if (id := todo.pop()) in seen:
            continue
        seen.add(id)
        if (shard := tables.get(id)) is not None:
            found[shard.shard_id] = shard
        elif (maker := makers.get(id)) is not None:
            todo += maker.imported
    return list(found.values())
