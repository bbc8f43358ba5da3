"""Which tables belong to objects that are there, by location: ids do not tell, since a table keeps its id when another
object adopts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_operator.catalogue.registry import DataflowState, Registry, SourceState
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS


def claims(registry: Registry, namespace: str, but: str) -> Mapping[str, Key]:
    """What is pinned of sources, and written by revisions that serve or are to; `but`: the uid of an object whose own
    are left out."""
    return _claims([*registry.sources(namespace), *registry.dataflows(namespace)], but)


def claims_of_name(registry: Registry, namespace: str, name: str, but: str) -> Mapping[str, Key]:
    """Of objects of this name alone: no other has tables below its address."""
    of_name = registry.source(Key(DATA_SOURCES, namespace, name)), registry.dataflow(Key(DATAFLOWS, namespace, name))
    return _claims([owner for owner in of_name if owner is not None], but)


def _claims(owners: Iterable[SourceState | DataflowState], but: str) -> Mapping[str, Key]:
    return {location: owner.key for owner in owners if owner.uid != but for location in _locations(owner)}


def _locations(owner: SourceState | DataflowState) -> Iterable[str]:
    if isinstance(owner, DataflowState):
        written = (mark.revision.view_shard(e.name) for mark in owner.marks for e in mark.revision.exports)
        return [shard.location for shard in written if shard is not None]
    if owner.pinned is None:
        return []
    return [owner.pinned.remap_location, *(table.shard.location for table in owner.pinned.tables)]
