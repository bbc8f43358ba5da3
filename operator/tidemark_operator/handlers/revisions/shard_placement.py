"""Where an object may have its tables. A location that another object has, or whose table is to be deleted, is
taken."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.catalogue.table_locations import table_owners_of_name
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.planning.shards import ShardLocations, ShardLookup
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import DescribedShard


async def shard_locations(
    registry: Registry, deleter: TableDeleter, state: SourceState | DataflowState, location: str, adopts: bool
) -> ShardLocations:
    """`location`: of the instance's storage.

    Raises:
        Waiting: tables are to be adopted, and one of them is still being deleted.
    """
    key = state.key
    if adopts:
        await deleter.finish(key.namespace, f"{location}/{key.namespace}/{key.name}")
    taken = dict.fromkeys(await deleter.locations(key.namespace), "to be deleted")
    owned = table_owners_of_name(registry, key.namespace, key.name, but=state.uid)
    taken |= {at: f"that of {owner}" for at, owner in owned.items()}
    return ShardLocations.of(location, key.namespace, key.name, state.uid, taken)


def shard_lookup(running: RunningInstance) -> ShardLookup:
    """Looks shards up through any replica of the instance."""

    async def look_up(shards: Sequence[tuple[ShardId, str]]) -> Sequence[DescribedShard]:
        found = (await running.describe(shards))[1].shards
        for shard in found:
            running.shards.record_end_term(shard)
        return found

    return look_up
