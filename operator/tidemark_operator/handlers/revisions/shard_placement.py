"""Where an object may have its tables: what of its addresses is another's, or is to be deleted, is no place for it."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_operator.catalogue.registry import DataflowState, Registry, SourceState
from tidemark_operator.catalogue.table_locations import claims_of_name
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion import Deleter
from tidemark_operator.planning.shards import Look, Place
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import DescribedShard


async def place_of(
    registry: Registry, deleter: Deleter, state: SourceState | DataflowState, location: str, adopts: bool
) -> Place:
    """Raises Waiting where tables are to be adopted, and some that are there are just being deleted."""
    key = state.key
    if adopts:
        await deleter.clear(key.namespace, f"{location}/{key.namespace}/{key.name}")
    taken = dict.fromkeys(await deleter.doomed(key.namespace), "to be deleted")
    claimed = claims_of_name(registry, key.namespace, key.name, but=state.uid)
    taken |= {at: f"that of {owner}" for at, owner in claimed.items()}
    return Place.of(location, key.namespace, key.name, state.uid, taken)


def looking(running: RunningInstance) -> Look:
    """At shards, through any replica."""

    async def look(shards: Sequence[tuple[ShardId, str]]) -> Sequence[DescribedShard]:
        found = (await running.describe(shards))[1].shards
        for shard in found:
            running.shards.heard_end(shard)
        return found

    return look
