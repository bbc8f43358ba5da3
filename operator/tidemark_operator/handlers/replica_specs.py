"""The orchestrator's specification of a replica, from a ComputeReplica and its ComputeInstance."""

from __future__ import annotations

from tidemark_operator.orchestrator.interface import Owner, PodSpec, ReplicaSpec
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.replica import ComputeReplica


def replica_spec(replica: ComputeReplica, instance: ComputeInstance | None) -> ReplicaSpec:
    """`instance`: None if it is gone; the replica is stopped then."""
    meta = replica.meta
    return ReplicaSpec(
        key=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        cores=replica.resources.cores,
        memory_bytes=replica.resources.memory_bytes,
        instance=Owner(instance.meta.name, instance.meta.uid) if instance else Owner(),
        pod=PodSpec(
            requests=replica.resources.requests,
            executors=replica.executors,
            scratch=replica.scratch,
            volumes=replica.volumes,
            credentials=instance.credentials if instance else "",
            source_secrets=instance.source_secrets if instance else (),
            iceberg=instance.iceberg.environment if instance and instance.iceberg else "",
        ),
        strategy=replica.strategy,
        spark_only=replica.spark_only,
    )
