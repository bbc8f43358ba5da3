"""The relations of a namespace, as its catalogue shows them to a caller.

    the caller may list objects     all relations
    it may not                      those of the objects whose rows it may read; each takes a review of its rights

Relations of another namespace are never among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.relations import catalogue, owners
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.messages.planning import Relation
from tidemark_protocol.pb import gateway_pb2

MAX_REVIEWED = 100
"""Objects of one call: each is a review by the API server, which is asked again when its answer is ten seconds old."""
MAX_BYTES = 3 * 1024 * 1024
"""The bytes of a reply, at most; a message has at most 4 MiB."""


async def visible_relations(registry: Registry, access: Access, namespace: str) -> Any:
    """A RelationsReply, in order of name. Raises ReviewUnavailable."""
    sources, dataflows = registry.sources(namespace), registry.dataflows(namespace)
    found = catalogue(sources, dataflows).relations
    owner_of = owners(sources, dataflows)
    named = [(relation, owner_of[relation.id]) for relation in found if relation.id in owner_of]
    visible, more = await _visible_objects(access, namespace, {owner for _, owner in named})
    reply, size = gateway_pb2.RelationsReply(more=more), 0
    for described in _described((relation, owner) for relation, owner in named if owner in visible):
        size += described.ByteSize()
        if size > MAX_BYTES:
            reply.more = True
            break
        reply.relations.append(described)
    return reply


async def _visible_objects(access: Access, namespace: str, objects: set[Parent]) -> tuple[set[Parent], bool]:
    """The objects whose relations the caller may see, and whether there were too many to review."""
    try:
        await access.check_objects(namespace)
    except Forbidden:
        reviewed = sorted(objects, key=str)[:MAX_REVIEWED]
        return {each for each in reviewed if await _may_read(access, namespace, each)}, len(objects) > MAX_REVIEWED
    return objects, False


async def _may_read(access: Access, namespace: str, of: Parent) -> bool:
    try:
        await access.check_rows(namespace, [of])
    except Forbidden:
        return False
    return True


def _described(relations: Iterable[tuple[Relation, Parent]]) -> Iterator[Any]:
    for relation, owner in relations:
        names = [column.name for column in relation.columns]
        yield gateway_pb2.RelationDescription(
            parent=relation.parent,
            name=relation.name,
            kind=_kind(relation, owner),
            columns=[
                gateway_pb2.RelationColumn(name=c.name, type=str(c.type), nullable=c.nullable) for c in relation.columns
            ],
            keys=[gateway_pb2.KeyColumns(columns=[names[at] for at in key]) for key in relation.keys],
            index_key=[names[at] for at in relation.index_key or ()],
            short=relation.short,
        )


def _kind(relation: Relation, owner: Parent) -> str:
    if owner.kind == DATA_SOURCES.kind:
        return "table"
    return "materializedView" if relation.index_key is None else "index"
