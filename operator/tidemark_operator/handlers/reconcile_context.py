"""The services that every reconciler works with. `main` builds them once."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.certificates.peers import Peers, SocketPeers
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import INSTANCES, REPLICAS, Kube
from tidemark_operator.kube.events import Events
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.revisions import Revisions
from tidemark_operator.orchestrator.interface import Orchestrator, replica_id, resource_of
from tidemark_operator.planning.client import PlannerClient
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.conditions.instance import InstanceFacts, SecretProblem
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.meta import InstanceName, Namespace
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId


@dataclass
class ReconcileContext:
    kube: Kube
    cache: Cache
    registry: Registry
    fleet: Fleet
    orchestrator: Orchestrator
    planner: PlannerClient
    revisions: Revisions
    events: Events
    leadership: Leadership
    peers: Peers = field(default_factory=SocketPeers)
    secret_problems: dict[tuple[str, str], SecretProblem] = field(default_factory=dict)
    """Secrets that instances name and that cannot be used, by namespace and name."""

    @property
    def allowed_hosts(self) -> AllowedHosts:
        """The addresses that sources and sinks may connect to."""
        return self.registry.allowed_hosts

    @property
    def is_first_leader(self) -> bool:
        """Whether no operator has led here before, as is known once all is loaded. Somebody may have deleted an earlier
        operator's Lease, but not what it stored."""
        return self.leadership.term == 1 and not self.registry.has_history

    def running(self, namespace: str, name: str) -> RunningInstance | None:
        return self.fleet.get(namespace, name)

    def instance(self, namespace: str, name: str) -> ComputeInstance | None:
        """The ComputeInstance; None if it does not exist, or cannot be parsed."""
        found = self._instance(namespace, name)
        return found if isinstance(found, ComputeInstance) else None

    def _instance(self, namespace: str, name: str) -> ComputeInstance | ResourceError | None:
        try:
            return self.cache.read(Key(INSTANCES, namespace, name), ComputeInstance.parse)
        except ResourceError as error:
            return error

    def replicas(self, namespace: str, instance: str) -> list[ComputeReplica]:
        """ComputeReplicas that name the instance and are not being deleted."""
        found = []
        for key, _ in self.cache.all(REPLICAS, namespace):
            try:
                replica = self.cache.read(key, ComputeReplica.parse)
            except ResourceError:
                continue
            if replica is not None and replica.instance == instance and not replica.meta.deleting:
                found.append(replica)
        return found

    def processes(self, replica: ComputeReplica) -> list[ReplicaId]:
        """The ids of a ComputeReplica's processes in the protocol; of the process to come, if there is none yet."""
        observed = self.orchestrator.observe(replica.meta.uid)
        return [replica_id(replica.meta.name, each.shape) for each in observed] or [replica_id(replica.meta.name, "")]

    def instance_facts(self, namespace: str, name: str) -> InstanceFacts:
        found, running = self._instance(namespace, name), self.running(namespace, name)
        instance = found if isinstance(found, ComputeInstance) else None
        return InstanceFacts(
            namespace=Namespace(namespace),
            name=InstanceName(name),
            found=found is not None,
            unreadable=str(found) if isinstance(found, ResourceError) else "",
            suspended=instance is not None and instance.suspend,
            replicas=len(self.replicas(namespace, name)),
            online=len({resource_of(replica)[0] for replica in running.online}) if running else 0,
            secret=self.secret_problems.get((namespace, instance.credentials)) if instance else None,
            store=running.storage_problems() if running else (),
        )

    def lag_ms(self, namespace: str, instance: str) -> int | None:
        """The lag of the instance's read policy, as it was parsed last. None if it never was: then no history may be
        dropped."""
        found, running = self.instance(namespace, instance), self.running(namespace, instance)
        if found is not None:
            return found.read_policy.lag_ms
        return running.lag_ms if running is not None else None
