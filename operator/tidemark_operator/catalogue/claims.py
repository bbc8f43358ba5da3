"""Which tables belong to objects that are there, by location: ids do not tell, since a table keeps its id when another
object adopts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark_operator.catalogue.registry import DataflowState, Registry, SourceState
from tidemark_operator.kube.cache import Key


def claims(registry: Registry, namespace: str, but: str = "") -> Mapping[str, Key]:
    """What is pinned of sources, and written by revisions that serve or are to; `but`: the uid of an object whose own
    are left out."""
    owners: list[SourceState | DataflowState] = [*registry.sources(namespace), *registry.dataflows(namespace)]
    return {location: owner.key for owner in owners if owner.uid != but for location in _locations(owner)}


def _locations(owner: SourceState | DataflowState) -> Iterable[str]:
    if isinstance(owner, DataflowState):
        written = (mark.revision.view_shard(e.name) for mark in owner.marks for e in mark.revision.exports)
        return [shard.location for shard in written if shard is not None]
    if owner.pinned is None:
        return []
    return [owner.pinned.remap_location, *(table.shard.location for table in owner.pinned.tables)]
