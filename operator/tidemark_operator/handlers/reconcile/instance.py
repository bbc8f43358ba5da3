"""Reconciles ComputeInstances and ComputeReplicas: which processes run, and which instance they are connected to.

The processes that should run are computed from all ComputeReplicas at once: so a replica whose object or instance is
gone, or that is suspended, is stopped even if an event was missed. A process whose object this version cannot parse is
left as it is.
"""

from __future__ import annotations

from tidemark_operator.certificates.channel_factory import ChannelFactory
from tidemark_operator.errors import CertificateRefused
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import INSTANCES, REPLICAS
from tidemark_operator.orchestrator.interface import replica_id, resource_of
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.replica_settings import LOG_LEVEL
from tidemark_protocol.tls.identities import replica_identity


async def reconcile_instance(context: ReconcileContext, key: Key) -> None:
    prepare_instance(context, key)
    align_replicas(context)


def prepare_instance(context: ReconcileContext, key: Key) -> None:
    """Creates, configures or removes the instance, without connecting to replicas."""
    instance = context.instance(key.namespace, key.name)
    if context.cache.get(key) is None:
        context.fleet.remove(key.namespace, key.name)
    elif instance is not None:
        running = context.fleet.ensure(key.namespace, InstanceConfig(instance.name, instance.location))
        running.lag_ms = instance.read_policy.lag_ms
        running.publish_locations = instance.publish_locations
        running.set_hydration_concurrency(instance.hydration_concurrency)
        running.configure({LOG_LEVEL: instance.log_level.value}, instance.max_result_bytes)


async def reconcile_replica(context: ReconcileContext, key: Key) -> None:
    """Prepares the replica's certificate before its process is started. Raises CertificateRefused."""
    for replica in _replicas_to_run(context):
        if (replica.meta.namespace, replica.meta.name) == (key.namespace, key.name):
            await _prepare(context, key, replica)
    align_replicas(context)


async def _prepare(context: ReconcileContext, key: Key, replica: ComputeReplica) -> None:
    try:
        await context.peers.prepare(replica.meta)
    except CertificateRefused as refused:
        await context.events.warn(key, replica.meta.uid, "CertificateRefused", str(refused))
        raise


def align_replicas(context: ReconcileContext) -> None:
    """Starts, stops, connects and disconnects processes, as all ComputeReplicas together ask for."""
    wanted, unread = _replicas_to_run(context), _unread(context)
    for replica in wanted:
        if context.peers.is_prepared(replica.meta):
            instance = context.instance(replica.meta.namespace, replica.instance)
            context.orchestrator.ensure(replica_spec(replica, instance))
    kept = [*(replica.meta for replica in wanted), *unread]
    context.peers.retain(kept)
    context.orchestrator.retain({str(meta.uid) for meta in kept})
    for key, _ in context.cache.all(INSTANCES):
        running = context.running(key.namespace, key.name)
        if running is None:
            continue
        here = [r for r in wanted if (r.meta.namespace, r.instance) == (key.namespace, key.name)]
        addresses = {id: how for replica in here for id, how in _addresses(context, replica).items()}
        left = {meta.name for meta in unread if meta.namespace == key.namespace}
        for gone in [id for id in running.replicas if id not in addresses and resource_of(id)[0] not in left]:
            running.detach(gone)
        for id, (address, dialer) in addresses.items():
            running.attach(id, address, dialer)


def _addresses(context: ReconcileContext, replica: ComputeReplica) -> dict[ReplicaId, tuple[str, ChannelFactory]]:
    """The address and dialer of each of its processes: two while a new shape hydrates beside the old one. Both have the
    replica's identity."""
    meta = replica.meta
    dialer = context.peers.dialer(replica_identity(meta.namespace, meta.name, meta.uid))
    observed = context.orchestrator.observe(meta.uid)
    return {replica_id(meta.name, each.shape): (each.address, dialer) for each in observed if each.address}


def _replicas_to_run(context: ReconcileContext) -> list[ComputeReplica]:
    """Replicas that should run: neither the replica nor its instance is gone, being deleted or suspended."""
    found = []
    for key, body in context.cache.all(REPLICAS):
        try:
            replica = ComputeReplica.parse(body)
        except ResourceError:
            continue
        instance = context.instance(key.namespace, replica.instance)
        runs = instance is not None and not instance.suspend and not replica.suspend and not replica.meta.deleting
        if runs and context.orchestrator.refusal(replica_spec(replica, instance)) is None:
            found.append(replica)
    return found


def _unread(context: ReconcileContext) -> list[Meta]:
    """Replicas that exist and are not being deleted, but whose object, or instance, cannot be parsed: a later version
    of the operator may have run them, or they were written past the schema."""
    found = []
    for key, body in context.cache.all(REPLICAS):
        meta = Meta.parse(body)
        try:
            replica = ComputeReplica.parse(body)
        except ResourceError:
            runs = True
        else:
            there = context.cache.get(Key(INSTANCES, key.namespace, replica.instance)) is not None
            runs = there and context.instance(key.namespace, replica.instance) is None and not replica.suspend
        if runs and not meta.deleting:
            found.append(meta)
    return found
