"""What clients wait for in vain: an index of a Dataflow that is quarantined, and that no replica has hydrated.

    subscribe ──► index of b ──► index of a    a is quarantined: no replica will hydrate it, so neither b,
        ▲                        │              nor the subscribe, query or copy, nor a lookup of either
        └── told, with its name ─┘

A replica that was just lost, or has just come back, may have it hydrated: it is waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tidemark_operator.controller.instance import Instance
from tidemark_operator.controller.quarantine import Standing
from tidemark_operator.fleet.running import SILENT_SECONDS, ReplicaState, RunningInstance, now_ms
from tidemark_protocol.commands import IndexTarget
from tidemark_protocol.ids import GlobalId, ReplicaId

SETTLED_SECONDS = 10.0
"""After so long a replica that answers has said again what it has hydrated."""


def tell(instance: RunningInstance) -> None:
    """Now and then: whoever waits for such an index is told, and nothing of it is left on replicas."""
    if is_settled(instance):
        for name, why in dict(_in_vain(instance)).items():
            instance.answers.fail(name, why)
            instance.clients.fail(name, why)


def why_resting(instance: RunningInstance, index: GlobalId) -> str | None:
    """Why the index is on no replica, and will be on none, if so."""
    why = _why(instance.core, [index], instance.online)
    return why if why and is_settled(instance) else None


def is_settled(instance: RunningInstance) -> bool:
    """Whether all that replicas have hydrated is known, but of those that nobody waits for."""
    return bool(instance.online) and all(map(_is_settled, instance.replicas.values()))


def _is_settled(replica: ReplicaState) -> bool:
    since_ms = replica.greeted_ms if replica.online else replica.silent_since_ms
    return now_ms() - since_ms >= 1000 * (SETTLED_SECONDS if replica.online else SILENT_SECONDS)


def _in_vain(instance: RunningInstance) -> Iterator[tuple[str, str]]:
    """Peeks by uuid, subscribes and copies by owner, and why."""
    core, asked = instance.core, defaultdict[str, list[ReplicaId]](list)
    for replica in core.connected:
        for peek in core.peeks.asked_of(replica):
            asked[peek.uuid].append(replica)
    for peek in core.peeks.pending():
        if isinstance(peek.target, IndexTarget) and (why := _why(core, [peek.target.id], asked[peek.uuid])):
            yield peek.uuid, why
    for owner in instance.clients.asked():
        dataflow = core.dataflows.get(owner)
        if dataflow is None:
            continue
        replicas = instance.online if dataflow.target is None else [dataflow.target]
        if why := _why(core, dataflow.imports, replicas):
            yield owner, why


def _why(core: Instance, indexes: Sequence[GlobalId], replicas: Iterable[ReplicaId]) -> str | None:
    """Where one of them rests on each of the replicas."""
    culprit = None
    for replica in replicas:
        if (culprit := _culprit(core, indexes, replica)) is None:
            return None
    return culprit and (
        f"it waits for an index of Dataflow {culprit}, which is quarantined, and hydrated on no replica that could "
        f"answer: edit or release that one (`kubectl describe dataflow {culprit}` says why it is)"
    )


def _culprit(core: Instance, indexes: Iterable[GlobalId], replica: ReplicaId) -> str | None:
    """The Dataflow for which one of them will not be hydrated there: its own, or one of those below."""
    todo, seen = list(indexes), set[str]()
    while todo:
        index = todo.pop()
        owner = core.dataflows.owner_of(index)
        dataflow = core.dataflows.get(owner)
        if dataflow is None or core.dataflows.is_hydrated(index, replica) or owner in seen:
            continue
        seen.add(owner)
        if core.precautions.standing(owner) is Standing.QUARANTINED and owner not in (core.occupants(replica) or ()):
            return dataflow.description.name
        todo += dataflow.imports
    return None
