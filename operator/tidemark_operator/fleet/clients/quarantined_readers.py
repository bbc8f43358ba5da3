"""Clients that wait for an index of a quarantined Dataflow, which no replica will hydrate.

Clients of plans that no replica can compute (incompatible_readers.py) are told here too.

    subscribe ──► index of b ──► index of a    a is quarantined: no replica will hydrate it, so neither b,
        ▲                        │              nor the subscribe, query or copy, nor a lookup of either
        └── told, with a's name ─┘

A replica that was lost less than a minute ago may have the index, and one that came back says so with its first
reports: both are waited for. After a minute in which no replica has had the index, clients are told all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.hydration.quarantine import HydrationStanding
from tidemark_operator.controller.instance import Instance
from tidemark_operator.fleet.clients import incompatible_readers
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.replica_state import ReplicaState
from tidemark_operator.fleet.running_instance import SILENT_SECONDS, RunningInstance
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.messages.commands import IndexTarget

SETTLED_SECONDS = 60.0
"""A connected replica that has reported nothing of a quarantined export for so long, in seconds, does not have it."""


def tell(instance: RunningInstance) -> None:
    """Fail the clients that wait for nothing, and drop their dataflows; called once a second."""
    if not instance.online:
        return  # RunningInstance.maintain tells clients that wait for replicas
    now, resting = now_ms(), dict(_in_vain(instance))
    old = incompatible_readers.in_vain(instance, now)
    settled = {name for name, each in old.items() if each.settled}
    if resting and _are_settled(instance):
        settled |= resting.keys()
    found = resting | {name: each.why for name, each in old.items()}
    instance.in_vain = {name: instance.in_vain.get(name, now) for name in found}
    for name, since_ms in list(instance.in_vain.items()):
        if name in settled or now - since_ms >= 1000 * SILENT_SECONDS:
            del instance.in_vain[name]
            instance.answers.fail(name, found[name])
            instance.clients.fail(name, found[name])


def why_in_vain(instance: RunningInstance, index: GlobalId) -> str | None:
    """The reason why a client that waits for the index would wait for nothing, if so."""
    collection = instance.core.dataflows.index(index)
    lacks = None if collection is None else incompatible_readers.too_old(instance, [collection], now_ms())
    return why_resting(instance, index) or (
        None if lacks is None else incompatible_readers.missing_features_text(lacks)
    )


def why_resting(instance: RunningInstance, index: GlobalId) -> str | None:
    """The reason why no replica has the index, or will have it, if so."""
    why = _quarantine_message(instance.core, [index], instance.online)
    return why if why and _are_settled(instance) else None


def why_waiting(instance: RunningInstance, dataflow: Dataflow) -> str:
    """The reason why no connected replica hydrates the dataflow; empty where quarantine of an input is not the
    reason."""
    return _quarantine_message(instance.core, dataflow.imports, instance.online) or ""


def _are_settled(instance: RunningInstance) -> bool:
    """Whether all replicas that are expected have reported which quarantined exports they have."""
    known = (_is_settled(instance.core, name, state) for name, state in instance.replicas.items())
    return bool(instance.online) and all(known)


def _is_settled(core: Instance, name: ReplicaId, state: ReplicaState) -> bool:
    if not state.online:
        return now_ms() - state.silent_since_ms >= 1000 * SILENT_SECONDS
    return _has_told(core, name) or now_ms() - state.greeted_ms >= 1000 * SETTLED_SECONDS


def _has_told(core: Instance, replica: ReplicaId) -> bool:
    """Whether the replica has reported on each quarantined export. The first report tells where an export is,
    hydrated or not."""
    resting = (
        c
        for c in core.dataflows.collections()
        if core.hydration_policy.standing(c.owner) is HydrationStanding.QUARANTINED
    )
    there = (export.replicas.get(replica) for export in resting)
    return all(on is None or on.missing_features or on.input is not None for on in there)


def _in_vain(instance: RunningInstance) -> Iterator[tuple[str, str]]:
    """The clients that wait for nothing, and why: peeks by uuid, subscribes and copies by owner."""
    core, replicas_of = instance.core, defaultdict[str, list[ReplicaId]](list)
    for replica in core.replicas:
        for peek in core.peeks.peeks_of(replica):
            replicas_of[peek.uuid].append(replica)
    for peek in core.peeks.pending():
        if isinstance(peek.target, IndexTarget) and (
            why := _quarantine_message(core, [peek.target.id], replicas_of[peek.uuid])
        ):
            yield peek.uuid, why
    for owner in instance.clients.waiting_owners():
        dataflow = core.dataflows.get(owner)
        if dataflow is None:
            continue
        replicas = instance.online if dataflow.target is None else [dataflow.target]
        if why := _quarantine_message(core, dataflow.imports, replicas):
            yield owner, why


def _quarantine_message(core: Instance, indexes: Sequence[GlobalId], replicas: Iterable[ReplicaId]) -> str | None:
    """The message where, on each of the replicas, one of the indexes will not hydrate; else None."""
    culprit = None
    for replica in replicas:
        if (culprit := _culprit(core, indexes, replica)) is None:
            return None
    return culprit and (
        f"it waits for an index of Dataflow {culprit}, which is quarantined and hydrated on no replica that could "
        f"answer: edit or release that Dataflow (`kubectl describe dataflow {culprit}` says why it is)"
    )


def _culprit(core: Instance, indexes: Iterable[GlobalId], replica: ReplicaId) -> str | None:
    """The name of the quarantined Dataflow that keeps one of the indexes from hydrating on this replica: its own, or
    one below it."""
    todo, seen = list(indexes), set[str]()
    while todo:
        index = todo.pop()
        owner = core.dataflows.owner_of(index)
        dataflow = core.dataflows.get(owner)
        if dataflow is None or core.dataflows.is_hydrated(index, replica) or owner in seen:
            continue
        seen.add(owner)
        if core.hydration_policy.standing(owner) is HydrationStanding.QUARANTINED and owner not in (
            core.occupants(replica) or ()
        ):
            return dataflow.description.name
        todo += dataflow.imports
    return None
