"""The object that owns the table at a location. Ids do not tell: a table keeps its id when another object adopts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.revision import published_views, view_shards


def table_owners(registry: Registry, namespace: str, but: str) -> Mapping[str, Key]:
    """The owner of each table of the namespace, by location: tables that sources pinned, and tables that active and
    pending revisions write or publish. `but`: the uid of an object whose tables are left out."""
    return _owners([*registry.sources(namespace), *registry.dataflows(namespace)], but)


def table_owners_of_name(registry: Registry, namespace: str, name: str, but: str) -> Mapping[str, Key]:
    """`table_owners` of the objects of this name alone: no other object has tables below its location."""
    of_name = registry.source(Key(DATA_SOURCES, namespace, name)), registry.dataflow(Key(DATAFLOWS, namespace, name))
    return _owners([owner for owner in of_name if owner is not None], but)


def _owners(owners: Iterable[SourceState | DataflowState], but: str) -> Mapping[str, Key]:
    return {location: owner.key for owner in owners if owner.uid != but for location in _locations(owner)}


def _locations(owner: SourceState | DataflowState) -> Iterable[str]:
    if isinstance(owner, DataflowState):
        descriptions = [mark.revision.description for mark in owner.marks]
        written = [shard.location for description in descriptions for shard in view_shards(description)]
        return written + [view.location for description in descriptions for view in published_views(description)]
    if owner.pinned is None:
        return []
    return [owner.pinned.remap_location, *(table.shard.location for table in owner.pinned.tables)]
