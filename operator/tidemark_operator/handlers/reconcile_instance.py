"""ComputeInstance and ComputeReplica: which processes run, and which are connected to which instance.

The processes that should run are computed from all ComputeReplicas at once, so a replica whose resource is gone, whose
instance is gone, or that is suspended is stopped, whatever event was missed.
"""

from __future__ import annotations

from tidemark_operator.errors import CertificateRefused
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import INSTANCES, REPLICAS
from tidemark_operator.orchestrator.interface import ReplicaSpec
from tidemark_operator.resources.errors import ResourceError
from tidemark_operator.resources.instance import ComputeInstance
from tidemark_operator.resources.replica import ComputeReplica
from tidemark_protocol.commands import InstanceConfig
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.settings import LOG_LEVEL
from tidemark_protocol.tls.identities import replica_identity


async def reconcile_instance(world: World, key: Key) -> None:
    prepare_instance(world, key)
    align_replicas(world)


def prepare_instance(world: World, key: Key) -> None:
    """The instance is there, or gone, without a connection to any replica yet."""
    instance = world.instance(key.namespace, key.name)
    if instance is None:
        world.fleet.remove(key.namespace, key.name)
    else:
        running = world.fleet.ensure(key.namespace, InstanceConfig(instance.name, instance.location))
        running.core.precautions.concurrency = instance.hydration_concurrency
        running.configure({LOG_LEVEL: instance.log_level.value}, instance.max_result_bytes)


async def reconcile_replica(world: World, key: Key) -> None:
    """What it proves itself by is there before it is started."""
    for replica in _wanted(world):
        if (replica.meta.namespace, replica.meta.name) == (key.namespace, key.name):
            await _prepare(world, key, replica)
    align_replicas(world)


async def _prepare(world: World, key: Key, replica: ComputeReplica) -> None:
    try:
        await world.peers.prepare(replica.meta)
    except CertificateRefused as refused:
        await world.events.warn(key, replica.meta.uid, "CertificateRefused", str(refused))
        raise


def align_replicas(world: World) -> None:
    """Processes and connections are those that the resources ask for."""
    wanted = _wanted(world)
    for replica in wanted:
        if world.peers.is_prepared(replica.meta):
            world.orchestrator.ensure(replica_spec(replica))
    world.peers.retain([replica.meta for replica in wanted])
    world.orchestrator.retain({str(replica.meta.uid) for replica in wanted})
    for key, _ in world.cache.all(INSTANCES):
        running = world.running(key.namespace, key.name)
        if running is None:
            continue
        names = {r.meta.name: r for r in wanted if (r.meta.namespace, r.instance) == (key.namespace, key.name)}
        for gone in [replica for replica in running.replicas if replica not in names]:
            running.detach(gone)
        for name, replica in names.items():
            observed = world.orchestrator.observe(replica.meta.uid)
            if observed is not None and observed.address:
                dialer = world.peers.dialer(replica_identity(key.namespace, name, replica.meta.uid))
                running.attach(ReplicaId(name), observed.address, dialer)


def replica_spec(replica: ComputeReplica) -> ReplicaSpec:
    meta, limits = replica.meta, replica.limits
    return ReplicaSpec(meta.uid, meta.namespace, meta.name, limits.cores, limits.memory_bytes)


def _wanted(world: World) -> list[ComputeReplica]:
    """Replicas that should run: neither they nor their instance are gone, going, or suspended."""
    found = []
    for key, body in world.cache.all(REPLICAS):
        try:
            replica = ComputeReplica.parse(body)
        except ResourceError:
            continue
        instance = world.instance(key.namespace, replica.instance)
        if _runs(instance) and not replica.suspend and not replica.meta.deleting:
            found.append(replica)
    return found


def _runs(instance: ComputeInstance | None) -> bool:
    return instance is not None and not instance.suspend
