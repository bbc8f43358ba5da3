"""State and cost of each dataflow on each replica, as replicas reported them last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidemark_operator.catalogue.dataflow_state import name_of
from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.pb.gateway_pb2 import DataflowUsage, TopReply


def top(context: ReconcileContext, namespace: str, all_namespaces: bool) -> TopReply:
    """The reply for one namespace, or for all."""
    instances, now = context.fleet.all() if all_namespaces else context.fleet.of(namespace), now_ms()
    return TopReply(dataflows=[usage for running in instances for usage in _instance(running, now)], now=now)


def _instance(running: RunningInstance, now: int) -> Iterator[DataflowUsage]:
    for owner in running.owners():
        on_replicas = reporting(running.collections_of(owner))
        for replica, on in sorted(on_replicas.items()):
            hydrating = on.hydrating
            usage = DataflowUsage(
                namespace=running.namespace,
                name=name_of(owner) or owner,
                instance=running.name,
                replica=replica,
                hydrated=on.hydrated,
                hydrated_percent=hydrating.percent if hydrating else None,
            )
            if on.hydrated:
                _set_costs(usage, on, now)
            yield usage


def reporting(collections: Iterable[Collection]) -> Mapping[ReplicaId, ExportOnReplica]:
    """Each replica's export that has the dataflow's costs: replicas report them for the first one."""
    found: dict[ReplicaId, ExportOnReplica] = {}
    for collection in collections:
        for replica, on in collection.computing:
            if replica not in found or "steps" in on.statuses:
                found[replica] = on
    return found


def _set_costs(usage: DataflowUsage, on: ExportOnReplica, now: int) -> None:
    if kept := on.statuses.get("arrangements"):
        usage.bytes, usage.records = int(kept.get("bytes", "0")), int(kept.get("records", "0"))
    if steps := on.statuses.get("steps"):
        usage.steps = int(steps.get("steps", "0"))
    if on.task_time is not None:
        usage.elapsed_ms = on.task_time.total_ms
        if (cores := on.task_time.cores_at(now)) is not None:
            usage.cores = cores
