"""The frontiers of a dataflow's imports, by the names that users know."""

from __future__ import annotations

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import names
from tidemark_operator.controller.frontiers.as_of import Input
from tidemark_operator.controller.frontiers.shards import FrontierPair
from tidemark_operator.errors import Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription


def import_frontiers(
    running: RunningInstance,
    registry: Registry,
    state: DataflowState,
    description: DataflowDescription,
    sealed: bool = False,
) -> tuple[Input, ...]:
    """The since and upper of each import, as far as they are known. `sealed`: no replica computes the dataflow, so an
    index may be missing.

    Raises:
        Waiting: an index is not installed.
    """
    known = import_names(registry, state.key.namespace, description)
    inputs = []
    for source in description.source_imports:
        shard = running.shards.register(source.shard.shard_id, source.shard.location)
        inputs.append(Input(known.get(source.id, source.shard.location), shard.readable, shard.error))
    for index in description.index_imports:
        collection = running.index(index.id)
        if collection is None and sealed:
            continue
        if collection is None:
            raise Waiting("WaitingForInput", f"waits for the index {known.get(index.id, index.id)} to be installed")
        readable = FrontierPair(collection.write or Frontier.minimum(), collection.since)
        inputs.append(Input(known.get(index.id, index.id), readable))
    return tuple(inputs)


def import_names(
    registry: Registry, namespace: str, description: DataflowDescription | None = None
) -> dict[GlobalId, str]:
    """Names of the relations that a description imports, or of all in the namespace, by the ids that plans use."""
    of = None if description is None else description.import_ids
    return names(registry.sources(namespace), registry.dataflows(namespace), of)
