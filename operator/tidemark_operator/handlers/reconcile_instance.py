"""ComputeInstance and ComputeReplica: which processes run, and which are connected to which instance.

The processes that should run are computed from all ComputeReplicas at once, so a replica whose resource is gone, whose
instance is gone, or that is suspended is stopped, whatever event was missed.
"""

from __future__ import annotations

from tidemark_operator.certificates.dialing import Dialer
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import INSTANCES, REPLICAS
from tidemark_operator.orchestrator.interface import replica_id
from tidemark_operator.resources.errors import ResourceError
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
            instance = world.instance(replica.meta.namespace, replica.instance)
            world.orchestrator.ensure(replica_spec(replica, instance))
    world.peers.retain([replica.meta for replica in wanted])
    world.orchestrator.retain({str(replica.meta.uid) for replica in wanted})
    for key, _ in world.cache.all(INSTANCES):
        running = world.running(key.namespace, key.name)
        if running is None:
            continue
        here = [r for r in wanted if (r.meta.namespace, r.instance) == (key.namespace, key.name)]
        addresses = {id: how for replica in here for id, how in _addresses(world, replica).items()}
        for gone in [replica for replica in running.replicas if replica not in addresses]:
            running.detach(gone)
        for id, (address, dialer) in addresses.items():
            running.attach(id, address, dialer)


def _addresses(world: World, replica: ComputeReplica) -> dict[ReplicaId, tuple[str, Dialer]]:
    """Of each of its processes: two, while one hydrates beside the other. Both prove themselves as the replica."""
    meta = replica.meta
    dialer = world.peers.dialer(replica_identity(meta.namespace, meta.name, meta.uid))
    observed = world.orchestrator.observe(meta.uid)
    return {replica_id(meta.name, each.shape): (each.address, dialer) for each in observed if each.address}


def _wanted(world: World) -> list[ComputeReplica]:
    """Replicas that should run: neither they nor their instance are gone, going, or suspended."""
    found = []
    for key, body in world.cache.all(REPLICAS):
        try:
            replica = ComputeReplica.parse(body)
        except ResourceError:
            continue
        instance = world.instance(key.namespace, replica.instance)
        runs = instance is not None and not instance.suspend and not replica.suspend and not replica.meta.deleting
        if runs and world.orchestrator.refusal(replica_spec(replica, instance)) is None:
            found.append(replica)
    return found
