"""The orchestrator's specification of a replica, from a ComputeReplica and its ComputeInstance."""

from __future__ import annotations

from tidemark_operator.orchestrator.interface import (
    Executors,
    Owner,
    PodSpec,
    ReplicaSpec,
    Requests,
    ScratchVolume,
    Volume,
)
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.pods import Resources
from tidemark_operator.resources.manifest.replica import ComputeReplica


def replica_spec(replica: ComputeReplica, instance: ComputeInstance | None) -> ReplicaSpec:
    """`instance`: None if it is gone; the replica is stopped then."""
    meta, pod, executor = replica.meta, replica.pod, replica.pod.executor
    return ReplicaSpec(
        key=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        cores=replica.resources.cores,
        memory_bytes=replica.resources.memory_bytes,
        instance=Owner(instance.meta.name, instance.meta.uid) if instance else Owner(),
        pod=PodSpec(
            requests=_requests(replica.resources),
            executors=Executors(pod.executors, executor.cores, executor.memory_bytes, _requests(executor))
            if pod.executors
            else Executors(),
            scratch=ScratchVolume(pod.scratch_bytes, pod.scratch_claim),
            volumes=tuple(Volume(each.claim, each.path, each.read_only) for each in pod.volumes),
            credentials=instance.credentials if instance else "",
            source_secrets=instance.source_secrets if instance else (),
            iceberg=instance.iceberg.environment if instance and instance.iceberg else "",
        ),
        strategy=replica.strategy,
        spark_only=replica.spark_only,
    )


def _requests(resources: Resources) -> Requests:
    return Requests(resources.cpu_request, resources.memory_request)
